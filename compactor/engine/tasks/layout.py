"""
A file that several tasks write: its layout, and the tasks that write its pieces.

A layout says where each byte of the file comes from, in order: a range of an input, of another task's scratch file, or
of a file with what is new (the tail). The task that makes a layout copies nothing. A piece is a range of the file, cut
at any byte, that one task writes as a file of its own. Each attempt of a task writes to a name of its own, so that the
accepted pieces are whole however often tasks are repeated; they lie in one directory, as HDFS' concat wants it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from compactor.engine.results import OutputFile
from compactor.engine.staging.directory import at_once
from compactor.engine.tasks.directory import GIVEN_UP, attempt_name
from compactor.engine.tasks.memory import trimmed
from compactor.errors import CancelledError, RefusedError
from compactor.handles import RandomReader, Sink
from compactor.orc.format.tail import Tail, footer_place
from compactor.reasons import Reason
from compactor.spark.results import CHECKED_BYTES, checksum
from compactor.storage.base import Storage
from compactor.storage.handles import PIECE, ReadHandle, WriteHandle, truncated, whole
from compactor.storage.location import join
from compactor.storage.registry import storage_for


@dataclass(frozen=True, slots=True)
class Extent:
    """A range of a file at a location."""

    location: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Layout:
    """
    Where the bytes of a file come from.

    Args:
        file: the file, without path and checksum, as long as it isn't written.
    """

    file: OutputFile
    extents: tuple[Extent, ...]


class LayoutSink(Sink):
    """
    A sink that makes a layout: ranges of open files are noted, and other bytes go to a file.

    Args:
        own: that file, empty and open.
        location: its location.
    """

    def __init__(self, own: WriteHandle, location: str) -> None:
        self._own = own
        self._location = location
        self._position = 0
        self._extents: list[Extent] = []

    @property
    def position(self) -> int:
        return self._position

    @property
    def extents(self) -> tuple[Extent, ...]:
        return tuple(self._extents)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        start = self._own.position
        self._own.write(data)
        self._note(self._location, start, self._own.position - start)

    def gap_before(self, offset: int, length: int) -> int:  # noqa: ARG002 - as `Sink` says
        return 0

    def copy_from(self, reader: RandomReader, offset: int, length: int) -> None:
        if not isinstance(reader, ReadHandle):
            for piece in whole(reader, offset, length, PIECE):
                self.write(piece)
            return
        if offset + length > reader.size:
            raise truncated(reader.name, offset, length)
        self._note(reader.name, offset, length)

    def _note(self, location: str, offset: int, length: int) -> None:
        last = self._extents[-1] if self._extents else None
        if last is not None and (last.location, last.offset + last.length) == (location, offset):
            self._extents[-1] = Extent(location, last.offset, last.length + length)
        elif length:
            self._extents.append(Extent(location, offset, length))
        self._position += length


class FootersAhead(ReadHandle):
    """
    An open file, the footers of some of whose stripes were read at once: a layout reads nothing else of a stripe, and
    would wait for the store at each.

    Args:
        count: how many to read at a time.
    """

    def __init__(self, handle: ReadHandle, tail: Tail, stripes: Sequence[int], count: int) -> None:
        self.name, self.size = handle.name, handle.size
        self._handle = handle
        places = [footer_place(tail, index) for index in stripes]
        read = at_once(count, [partial(handle.read_at, *place) for place in places])
        self._footers = dict(zip(places, read, strict=True))

    def read_at(self, offset: int, length: int) -> bytes:
        footer = self._footers.get((offset, length))
        return self._handle.read_at(offset, length) if footer is None else footer


@dataclass(frozen=True, slots=True)
class PieceTask:
    """
    Write one piece of a file.

    Args:
        tasks: the directory for it.
        name: the end of its name.
        last: whether it is the file's last piece.
    """

    tasks: str
    name: str
    extents: tuple[Extent, ...]
    last: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """
    A written piece.

    Args:
        name: in the directory of the tasks.
        checksum: of a file's last piece that of the file's end (`results.checksum`), else 0.
    """

    name: str
    length: int
    checksum: int


def pieces(layout: Layout, size: int, tasks: str) -> list[PieceTask]:
    """
    The tasks that write a file's pieces of `size` bytes each. The last is larger where little would be left: in it lie
    all bytes of the file's checksum.
    """
    length = layout.file.length
    starts = list(range(0, length, size))
    while len(starts) > 1 and length - starts[-1] < CHECKED_BYTES:
        starts.pop()
    ends = [*starts[1:], length]
    cut = _cut(layout.extents, ends)
    return [
        PieceTask(tasks, f"{layout.file.name}.{number:05d}", tuple(extents), number == len(ends) - 1)
        for number, extents in enumerate(cut)
    ]


def _cut(extents: Sequence[Extent], ends: Sequence[int]) -> Iterator[list[Extent]]:
    """The extents of each range of a file; `ends` are where the ranges end, ascending."""
    left = list(reversed(extents))
    at = 0
    for end in ends:
        found: list[Extent] = []
        while at < end:
            extent = left.pop()
            taken = min(extent.length, end - at)
            found.append(Extent(extent.location, extent.offset, taken))
            if taken < extent.length:
                left.append(Extent(extent.location, extent.offset + taken, extent.length - taken))
            at += taken
        yield found


def write_piece(task: PieceTask) -> Piece:
    """
    Write a piece, on an executor.

    Raises:
        CancelledError: the staging directory is gone: the compaction was discarded, and this task is late.
        RefusedError: INPUT_CHANGED, a source is gone.
        CorruptFileError: a source is shorter than it was.
    """
    with trimmed():
        storage, name = storage_for(task.tasks), f"{attempt_name()}-{task.name}"
        location = join(task.tasks, name)
        try:
            sink = storage.create(location)
        except FileNotFoundError:
            raise CancelledError(GIVEN_UP) from None
        with sink:
            _copy(storage, task.extents, sink)
        crc = 0
        if task.last:
            with storage.open_read(location) as reader:
                crc = checksum(reader)
        return Piece(name, sink.position, crc)


def write_trial(tasks: str) -> tuple[str, str]:
    """
    Write two files of a byte each, on an executor, to see whether the store makes one file of what tasks write; returns
    their names in the directory.

    Raises:
        CancelledError: the staging directory is gone.
    """
    storage, attempt = storage_for(tasks), attempt_name()
    names = f"{attempt}-trial.0", f"{attempt}-trial.1"
    try:
        for name in names:
            storage.write_small(join(tasks, name), b"0")
    except FileNotFoundError:
        raise CancelledError(GIVEN_UP) from None
    return names


def _copy(storage: Storage, extents: Sequence[Extent], sink: WriteHandle) -> None:
    for extent in extents:
        try:
            reader = storage.open_read(extent.location)
        except FileNotFoundError:
            raise RefusedError(Reason.INPUT_CHANGED, f"{extent.location} is gone") from None
        with reader:
            sink.copy_from(reader, extent.offset, extent.length)
