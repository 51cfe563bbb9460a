"""
What is to be done on executors for full-ACID tables, and what comes back: the values that travel.

Small enough to be sent: names, stripe numbers and formats; tails and delete events are read where the work is done.
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
    What all tasks of one output file share.

    Args:
        location: the partition's directory; inputs are below it.
        tasks: where task attempts make their directories.
        own_write_id: with scope OWN, whose rows' deletes are applied.
        events_at_once: delete events that may be in memory.
        digests: whether the values of recoded rows are added up.
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
    """Recode one chunk of a bucket, or look at one stripe and recode it if it must be."""

    work: Work
    chunk: int
    segments: tuple[Segment, ...]

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """
    Args:
        path: the scratch file, relative to the staging directory; None when no row was left, or the stripe is to be copied.
        probed: what became of a stripe that had to be looked at.
        last: of a stripe that is to be copied: its last key.
        digest: of the recoded rows, as they were read.
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
    """Write a bucket's file; `parts` are the chunks that other tasks have recoded, none when this task does it itself."""

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
