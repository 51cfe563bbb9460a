"""
The arguments and results of full-ACID tasks, which are sent to executors and back.

They hold names, stripe numbers and formats, and so are small; the executors read tails and delete events themselves.
"""

from dataclasses import dataclass

from compactor.acid.names import DirKind
from compactor.acid.row_id import RowKey
from compactor.engine.results import RowCounts
from compactor.orc.digests.digest import NO_DIGEST, Digest
from compactor.orc.recode import MadeStripes
from compactor.planning.document import (
    Action,
    BucketPlan,
    CompactionPlan,
    DeleteScope,
    FormatSpec,
    InputFile,
    OutputDir,
)


@dataclass(frozen=True, slots=True)
class FileWork:
    """
    The facts that all tasks of one output file share.

    Args:
        location: the partition's directory; inputs are below it.
        tasks: the directory below which task attempts make their own directories.
        own_write_id: with scope OWN, only deletes of rows of this write id are applied.
        write_ids: the smallest and the largest that a row of the result may have.
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
    write_ids: tuple[int, int]
    aborted: tuple[int, ...]
    events_at_once: int
    digests: bool

    @property
    def bytes(self) -> int:
        """Bytes of the inputs that are read: of whole files for delete events."""
        if self.kind is DirKind.DELETE_DELTA:
            return sum(file.length for file in self.inputs)
        return sum(segment.bytes for segment in self.bucket.segments)


def work_of(plan: CompactionPlan, output: OutputDir, bucket: BucketPlan, tasks: str, *, digests: bool) -> FileWork:
    """What a task must know to write one file of a plan, or to check it; `tasks` and `digests` as in `FileWork`."""
    used = {segment.path for segment in bucket.segments} | set(bucket.deletes)
    return FileWork(
        location=plan.location,
        tasks=tasks,
        directory=output.name,
        kind=output.kind,
        bucket=bucket,
        inputs=tuple(file for file in plan.inputs if file.path in used),
        columns=plan.columns,
        format=plan.format,
        scope=plan.delete_scope,
        own_write_id=plan.min_write_id,
        write_ids=(0, plan.name_write_id) if output.kind is DirKind.BASE else (plan.min_write_id, plan.max_write_id),
        aborted=plan.aborted,
        events_at_once=plan.events_at_once,
        digests=digests,
    )


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """
    Recode one chunk of a bucket, whose segments are all that the work has; or probe one stripe, and recode it only if it
    can't be copied.
    """

    work: FileWork

    @property
    def chunk(self) -> int:
        return self.work.bucket.segments[0].chunk


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """
    The result of a chunk task.

    Args:
        path: the scratch file, relative to the staging directory; None when no row was left, or the stripe is to be
            copied.
        probed: for a probed stripe: COPY or RECODE.
        last: the last key of a stripe that is to be copied.
        digest: digest of the rows that were encoded anew, as they were read.
        parts: the scratch file's stripes, in order.
    """

    directory: str
    bucket: int
    chunk: int
    path: str | None
    rows: RowCounts
    probed: Action | None = None
    last: RowKey | None = None
    digest: Digest = NO_DIGEST
    parts: tuple[MadeStripes, ...] = ()


@dataclass(frozen=True, slots=True)
class BucketTask:
    """
    Write a bucket's file of rows, or of delete events with one a key; `parts` are the chunks that other tasks have
    recoded, empty when this task recodes all.
    """

    work: FileWork
    parts: tuple[ChunkResult, ...] = ()
