"""
The arguments and results of full-ACID tasks, which are sent to executors and back.

They hold names, stripe numbers and formats, and so are small; the executors read tails and delete events themselves.
What several tasks need travels once to each executor, beside the job's function (`Shared`): a partition of a terabyte
has thousands of tasks, and thousands of delete files that any of them may need.
"""

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

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
    Segment,
)


@dataclass(frozen=True, slots=True)
class FileWork:
    """
    The facts that all tasks of one output file share.

    Args:
        location: the partition's directory; inputs are below it.
        tasks: the directory below which task attempts make their own directories.
        inputs: the files of the bucket's segments, and its delete files.
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
    format: FormatSpec
    scope: DeleteScope
    own_write_id: int
    write_ids: tuple[int, int]
    events_at_once: int
    digests: bool

    @property
    def bytes(self) -> int:
        """Bytes of the inputs that are read: of whole files for delete events."""
        if self.kind is DirKind.DELETE_DELTA:
            return sum(file.length for file in self.inputs)
        return sum(segment.bytes for segment in self.bucket.segments)

    def part(self, segments: tuple[Segment, ...]) -> "FileWork":
        """The same work for some segments, or for none."""
        return replace(self, bucket=replace(self.bucket, segments=segments))


def work_of(
    plan: CompactionPlan,
    output: OutputDir,
    bucket: BucketPlan,
    tasks: str,
    *,
    inputs: Mapping[str, InputFile],
    digests: bool,
) -> FileWork:
    """
    What a task must know to write one file of a plan, or to check it.

    Args:
        tasks, digests: as in `FileWork`.
        inputs: the plan's, by path (`inputs_of`).
    """
    used = dict.fromkeys([*(segment.path for segment in bucket.segments), *bucket.deletes])
    return FileWork(
        location=plan.location,
        tasks=tasks,
        directory=output.name,
        kind=output.kind,
        bucket=bucket,
        inputs=tuple(inputs[path] for path in used),
        format=plan.format,
        scope=plan.delete_scope,
        own_write_id=plan.min_write_id,
        write_ids=(0, plan.name_write_id) if output.kind is DirKind.BASE else (plan.min_write_id, plan.max_write_id),
        events_at_once=plan.events_at_once,
        digests=digests,
    )


def inputs_of(plan: CompactionPlan) -> dict[str, InputFile]:
    """The inputs of a plan by their paths."""
    return {file.path: file for file in plan.inputs}


@dataclass(frozen=True, slots=True)
class Shared:
    """
    What the tasks of a job share. It is bound to the job's function, which Spark sends to each executor once.

    Args:
        columns: of the table, as in `CompactionPlan`.
        aborted: write ids that don't count, as in `CompactionPlan`.
        files: what several tasks of one output file share, each pickled by itself: a task unpickles its own file's only.
    """

    columns: tuple[tuple[str, str], ...]
    aborted: tuple[int, ...]
    files: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, plan: CompactionPlan, files: Iterable[object] = ()) -> "Shared":
        return cls(plan.columns, plan.aborted, tuple(pickle.dumps(file) for file in files))

    def file(self, number: int) -> Any:
        """What the tasks of one file share."""
        return pickle.loads(self.files[number])  # noqa: S301 - it came with the function


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """
    Recode one chunk of a bucket; or probe one stripe, and recode it only if it can't be copied.

    Args:
        file: the number of the file's `FileWork` in `Shared.files`.
        segments: of the chunk.
    """

    file: int
    segments: tuple[Segment, ...]

    @property
    def chunk(self) -> int:
        return self.segments[0].chunk

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
    Write a bucket's file of rows, or of delete events with one a key.

    Args:
        parts: the chunks that other tasks have recoded, without digests; empty when this task recodes all.
        digest: of all parts together. One for each of 8,192 parts would be more than Spark sends with a task (128 MiB) where
            the table has 2,000 columns.
    """

    work: FileWork
    parts: tuple[ChunkResult, ...] = ()
    digest: Digest = NO_DIGEST

    def joining(self, parts: Iterable[ChunkResult]) -> "BucketTask":
        """The task with the chunks of its file."""
        ordered = sorted(parts, key=lambda part: part.chunk)
        digest = sum((part.digest for part in ordered), NO_DIGEST)
        return replace(self, parts=tuple(replace(part, digest=NO_DIGEST) for part in ordered), digest=digest)

    @property
    def bytes(self) -> int:
        return self.work.bytes
