"""
The arguments and results of full-ACID tasks, which are sent to executors and back.

They hold names, stripe numbers and formats, and so are small; the executors read tails and delete events themselves.
"""

from dataclasses import dataclass

from compactor.acid.names import DirKind
from compactor.acid.row_id import RowKey
from compactor.engine.results import RowCounts
from compactor.orc.digest import NO_DIGEST, Digest
from compactor.planning.document import Action, BucketPlan, DeleteScope, FormatSpec, InputFile, Segment


@dataclass(frozen=True, slots=True)
class Work:
    """
    The facts that all tasks of one output file share.

    Args:
        location: the partition's directory; inputs are below it.
        tasks: the directory below which task attempts make their own directories.
        own_write_id: with scope OWN, only deletes of rows of this write id are applied.
        events_at_once: delete events that may be in memory.
        digests: whether to make digests of recoded rows.
    """

    location: str
    tasks: str
    directory: str
    kind: DirKind
    bucket: BucketPlan
    inputs: tuple[InputFile, ...]
    columns: tuple[tuple[str, str], ...]
    format: FormatSpec
    scope: DeleteScope
    own_write_id: int
    aborted: tuple[int, ...]
    events_at_once: int
    digests: bool


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """Recode one chunk of a bucket; or probe one stripe, and recode it only if it can't be copied."""

    work: Work
    chunk: int
    segments: tuple[Segment, ...]

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """
    The result of a chunk task.

    Args:
        path: the scratch file, relative to the staging directory; None when no row was left, or the stripe is to be
            copied.
        probed: for a probed stripe: COPY or RECODE.
        last: the last key of a stripe that is to be copied.
        digest: digest of the recoded rows, as they were read.
    """

    directory: str
    bucket: int
    chunk: int
    path: str | None
    rows: RowCounts
    probed: Action | None = None
    last: RowKey | None = None
    digest: Digest = NO_DIGEST


@dataclass(frozen=True, slots=True)
class BucketTask:
    """
    Write a bucket's file; `parts` are the chunks that other tasks have recoded, empty when this task recodes all.
    """

    work: Work
    parts: tuple[ChunkResult, ...]

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.work.bucket.segments)


@dataclass(frozen=True, slots=True)
class DeleteTask:
    """Write a bucket's delete events, one per key."""

    work: Work

    @property
    def bytes(self) -> int:
        return sum(file.length for file in self.work.inputs)
