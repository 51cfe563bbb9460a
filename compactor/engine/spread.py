"""
Has the file of a large bucket written by many tasks, where the store can make one file of several: on HDFS.

A layout of the file is made first (`engine.tasks.layout`). Then tasks write its pieces side by side, and HDFS moves
their blocks into one file. Each piece but the last is a whole number of blocks, so the file is the same as one task
would write, to the byte and to the block: DistCp, for one, compares files by the checksums of their blocks. Where HDFS
refuses at the last moment (a snapshot was made meanwhile and holds the pieces) one task writes the file.
Source: docs/spark.md, "One large file".
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from compactor.engine.results import OutputFile
from compactor.engine.tasks.layout import Layout, Piece, pieces, write_piece, write_trial
from compactor.log import get_logger
from compactor.planning.document import PIECE_BYTES, CompactionPlan
from compactor.spark.concat import Concat, HdfsConcat, concatenates
from compactor.spark.submitter import JobName, Submitter
from compactor.storage.location import join, name

_log = get_logger(__name__)


class Spreading:
    """
    Writes large files of one compaction by many tasks each.

    Args:
        tasks: location of the staging directory's `tasks`.
    """

    def __init__(self, submitter: Submitter, job: JobName, tasks: str, cancelled: Callable[[], bool]) -> None:
        self._submitter = submitter
        self._job = job
        self._tasks = tasks
        self._cancelled = cancelled

    def piece_bytes(self, document: CompactionPlan) -> int | None:
        """
        The size of a file's pieces: whole blocks. None where no file of the plan is so large that it is worth it, or
        where the store can't make one file of several; that is tried.
        """
        if document.one_by_one or not any(bucket.large for bucket in document.buckets):
            return None
        if not concatenates(self._tasks):
            return None
        ((first, second),) = self._submitter.run(
            self._job, write_trial, [self._tasks], progress=lambda _: None, cancelled=self._cancelled
        )
        (block,) = self._concat([Concat(join(self._tasks, first), (join(self._tasks, second),), 2)])
        return None if block is None else -(-PIECE_BYTES // block) * block

    def write(
        self, layouts: Sequence[Layout], piece_bytes: int, progress: Callable[[float], None]
    ) -> list[OutputFile | None]:
        """The finished file of each layout; None where the store refused to put its pieces together."""
        planned = [pieces(layout, piece_bytes, self._tasks) if layout.file.rows.written else [] for layout in layouts]
        made = self._submitter.run(
            self._job,
            write_piece,
            [task for tasks in planned for task in tasks],
            progress=progress,
            cancelled=self._cancelled,
        )
        written = iter(made)
        return self._joined(
            [(layout, [next(written) for _ in tasks]) for layout, tasks in zip(layouts, planned, strict=True)]
        )

    def _joined(self, written: Sequence[tuple[Layout, Sequence[Piece]]]) -> list[OutputFile | None]:
        several = [number for number, (_, parts) in enumerate(written) if len(parts) > 1]
        blocks = self._concat([self._concat_of(*written[number]) for number in several])
        refused = {number for number, block in zip(several, blocks, strict=True) if block is None}
        return [
            None if number in refused else self._finished(layout, parts)
            for number, (layout, parts) in enumerate(written)
        ]

    def _concat_of(self, layout: Layout, parts: Sequence[Piece]) -> Concat:
        first, *others = (join(self._tasks, part.name) for part in parts)
        return Concat(first, tuple(others), layout.file.length)

    def _finished(self, layout: Layout, parts: Sequence[Piece]) -> OutputFile:
        if not parts:
            return layout.file
        return replace(layout.file, path=f"{name(self._tasks)}/{parts[0].name}", checksum=parts[-1].checksum)

    def _concat(self, tasks: Sequence[Concat]) -> list[int | None]:
        """The block size of each file; None where it couldn't be put together."""
        answers = self._submitter.run(
            self._job, HdfsConcat(), tasks, progress=lambda _: None, cancelled=self._cancelled
        )
        for answer in answers:
            if isinstance(answer, str):
                _log.warning("concat.refused", location=self._tasks, why=answer)
        return [None if isinstance(answer, str) else answer for answer in answers]
