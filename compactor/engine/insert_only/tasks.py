"""
The tasks of insert-only tables on executors: some whole files to carry over, or one file to join.

Files are linked where the store supports links, else copied. They are never moved: readers have them open, and the old
directories must stay complete until the Cleaner removes them. A joined file is compared with its inputs by the task that
wrote it, from the store.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from compactor.acid.names import DirKind
from compactor.engine.inputs import InputReader, OpenInputs, require_length
from compactor.engine.insert_only.formats import FORMATS, JoinOptions
from compactor.engine.results import Checked, OutputFile, RowCounts
from compactor.engine.staging.directory import at_once
from compactor.engine.tasks.directory import own_directory
from compactor.engine.tasks.memory import trimmed
from compactor.errors import RefusedError, VerificationError
from compactor.handles import RandomReader, Sink
from compactor.parsing import parsing
from compactor.planning.document import FileCopy, FileJoin, InputFile
from compactor.planning.insert_only.names import names_apart
from compactor.reasons import Reason
from compactor.spark.results import checksum
from compactor.storage.base import Storage
from compactor.storage.location import join
from compactor.storage.registry import storage_for

_COPIES: Final = 8
"""Files that a task copies side by side where the store is remote; on HDFS each holds up to 18 MiB."""


@dataclass(frozen=True, slots=True)
class WholeTask:
    """
    Some files of one output directory.

    Args:
        tasks: the directory below which task attempts make their own directories.
        inputs: the files that are joined.
    """

    location: str
    tasks: str
    directory: str
    kind: DirKind
    copies: tuple[FileCopy, ...]
    join: FileJoin | None
    inputs: tuple[InputFile, ...]
    options: JoinOptions

    @property
    def bytes(self) -> int:
        return sum(copy.bytes for copy in self.copies) + (self.join.bytes if self.join is not None else 0)


def run_whole(task: WholeTask) -> tuple[list[OutputFile], list[Checked]]:
    """
    Run one task on an executor; returns its files, and what the checks of joined ones found. A file that can't be joined
    after all, because it is damaged, is carried over, and the others are joined without it.

    Raises:
        RefusedError: INPUT_CHANGED, a file is gone or has another length than planned.
        VerificationError: a library wrote other rows than it was given.
    """
    with trimmed():
        if task.join is None:
            return _carry(task, task.copies), []
        try:
            file, checked = _join(task, task.join)
        except RefusedError as error:
            _require_files_own(error)
            return _without_damaged(task, task.join)
        return [file], [checked]


def _require_files_own(error: RefusedError) -> None:
    """Raise what is no matter of a single file's content."""
    if isinstance(error, VerificationError) or error.reason is Reason.INPUT_CHANGED:
        raise error


def _without_damaged(task: WholeTask, planned: FileJoin) -> tuple[list[OutputFile], list[Checked]]:
    """Look at each input by itself, carry over those that can't be read to their end, and join the others."""
    damaged = [file.path for file in task.inputs if _is_damaged(task, planned, file)]
    copies = {copy.path: copy for copy in apart(planned, task.inputs)}
    rest = tuple(segment for segment in planned.segments if segment.path not in damaged)
    if damaged and len({segment.path for segment in rest}) > 1:
        try:
            file, checked = _join(task, replace(planned, segments=rest))
        except RefusedError as error:
            _require_files_own(error)
        else:
            return [file, *_carry(task, [copies[path] for path in damaged])], [checked]
    return _carry(task, list(copies.values())), []


def _is_damaged(task: WholeTask, planned: FileJoin, file: InputFile) -> bool:
    segments = [segment for segment in planned.segments if segment.path == file.path]
    with OpenInputs(storage_for(task.location), task.location) as files:
        reader = files.unchanged(file)
        try:
            with parsing(file.path):
                FORMATS[planned.format].judge(segments, lambda _: reader, task.options)
        except RefusedError as error:
            _require_files_own(error)
            return True
    return False


def apart(join: FileJoin, inputs: Sequence[InputFile]) -> tuple[FileCopy, ...]:
    """
    The inputs of a join, carried over whole, because one of them turned out to be damaged: its readers know what they
    make of it, as they did before.
    """
    names = names_apart(join.name, len(inputs))
    return tuple(FileCopy(file.path, name, file.length) for file, name in zip(inputs, names, strict=True))


def _carry(task: WholeTask, copies: Sequence[FileCopy]) -> list[OutputFile]:
    storage = storage_for(task.location)
    own, relative = own_directory(storage, task.tasks)
    count = min(_COPIES, storage.side_by_side)
    return at_once(count, [partial(_carried, task, storage, own, relative, copy) for copy in copies])


def _carried(task: WholeTask, storage: Storage, own: str, relative: str, copy: FileCopy) -> OutputFile:
    target = join(own, copy.name)
    try:
        storage.link_or_copy(join(task.location, copy.path), target)
    except FileNotFoundError:
        raise RefusedError(Reason.INPUT_CHANGED, f"{copy.path} is gone") from None
    with storage.open_read(target) as reader:
        require_length(copy.path, reader.size, copy.bytes)
        return OutputFile(
            f"{relative}/{copy.name}",
            task.directory,
            task.kind,
            copy.name,
            -1,
            reader.size,
            checksum(reader),
            copied_bytes=reader.size,
        )


def _join(task: WholeTask, planned: FileJoin) -> tuple[OutputFile, Checked]:
    storage = storage_for(task.location)
    own, relative = own_directory(storage, task.tasks)
    target, inputs = join(own, planned.name), {file.path: file for file in task.inputs}
    with OpenInputs(storage, task.location) as files:
        with storage.create(target) as sink, parsing(planned.name):
            made = FORMATS[planned.format].join(
                planned.segments, lambda path: files.unchanged(inputs[path]), _DirectSink(sink), task.options
            )
        wrong = None
        with storage.open_read(target) as result:
            try:
                made.check(_Named(result, f"{task.directory}/{planned.name}"))
            except VerificationError as error:
                wrong = error.message
            file = OutputFile(
                f"{relative}/{planned.name}",
                task.directory,
                task.kind,
                planned.name,
                -1,
                result.size,
                checksum(result),
                rows=RowCounts(made.rows, made.rows),
                copied_bytes=made.copied_bytes,
                recoded_bytes=made.recoded_bytes,
            )
    return file, Checked(task.directory, planned.name, wrong=wrong)


class _DirectSink:
    """A sink that copies from the store's own handles, so that the store can copy by itself."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    @property
    def position(self) -> int:
        return self._sink.position

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._sink.write(data)

    def gap_before(self, offset: int, length: int) -> int:
        return self._sink.gap_before(offset, length)

    def copy_from(self, reader: RandomReader, offset: int, length: int) -> None:
        self._sink.copy_from(reader.handle if isinstance(reader, InputReader) else reader, offset, length)


class _Named:
    """A file under the name that it will have."""

    def __init__(self, reader: RandomReader, named: str) -> None:
        self._reader, self.name, self.size = reader, named, reader.size

    def read_at(self, offset: int, length: int) -> bytes:
        return self._reader.read_at(offset, length)
