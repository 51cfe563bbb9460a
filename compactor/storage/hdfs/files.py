"""Open files of HDFS: positioned reads, writes in large pieces, and copies that read ahead while they write."""

import contextlib
import queue
import threading
from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any, Final, Protocol, runtime_checkable

from compactor.errors import RetryableError
from compactor.handles import RandomReader
from compactor.storage.handles import ReadHandle, WriteHandle, truncated
from compactor.storage.hdfs.call_timeout import within
from compactor.storage.hdfs.failures import explained

_PIECE: Final = 1 << 20
"""Bytes of one piece: each call of the client crosses from Python to Rust."""
_LARGEST: Final = 8 << 20
"""Bytes given to the client in one call at most: the time limit is for this many."""
_AHEAD: Final = 16
"""Pieces that are read ahead."""


class HdfsReader(ReadHandle):
    """
    A `ReadHandle`. The client keeps no position, so threads may share it.

    Args:
        seconds: time limit for one answer of DataNodes; None: no limit.
    """

    def __init__(self, client: Any, path: str, name: str, seconds: float | None = None) -> None:
        self.name = name
        self._seconds: Final = seconds
        with explained("read", name):
            self._file: Final = client.read(path)
        self.size = len(self._file)

    def read_at(self, offset: int, length: int) -> bytes:
        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        with explained("read", self.name):
            found: bytes = within(self._seconds, self._file.read_range, offset, length)
        return found

    def stream(self, offset: int, length: int) -> Iterator[bytes]:
        """A range front to back, in pieces; ends where the file ends."""
        length = min(length, self.size - offset)
        if length <= 0:
            return
        with explained("read", self.name):
            parts = iter(self._file.read_range_stream(offset, length))
            while piece := within(self._seconds, _gathered, parts):
                yield piece


class HdfsWriter(WriteHandle):
    """
    A `WriteHandle` on a file that didn't exist before.

    Args:
        file: the client's open file.
        seconds: time limit for one piece at the DataNodes; None: no limit.
    """

    def __init__(self, client: Any, file: Any, path: str, name: str, seconds: float | None = None) -> None:
        super().__init__(name)
        self._seconds: Final = seconds
        self._client = client
        self._path = path
        self._file = file
        self._pending = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        self._position += len(view)
        if len(self._pending) + len(view) < _PIECE:
            self._pending += view
            return
        self._flush()
        if len(view) < _PIECE:
            self._pending += view
        else:
            for start in range(0, len(view), _LARGEST):
                self._put(
                    bytes(view[start : start + _LARGEST])
                    if len(view) > _LARGEST or not isinstance(data, bytes | bytearray)
                    else data
                )

    def copy_from(self, reader: RandomReader, offset: int, length: int) -> None:
        copied = 0
        with contextlib.closing(_ahead(_pieces(reader, offset, length))) as pieces:
            for piece in pieces:
                self.write(piece)
                copied += len(piece)
        if copied < length:
            raise truncated(reader.name, offset, length)

    def _give_up(self) -> None:
        self._pending.clear()
        self._file = None  # the client can't give a file up: it is dropped, and deleting it ends its lease
        with explained("delete", self.name):
            self._client.delete(self._path, False)

    def _flush(self) -> None:
        if self._pending:
            data, self._pending = self._pending, bytearray()
            self._put(data)

    def _put(self, data: bytes | bytearray) -> None:
        """Give bytes to the client. The client would take a memoryview too, but byte by byte: ten times as slowly."""
        try:
            with explained("write", self.name):
                within(self._seconds, self._file.write, data)
        except FileNotFoundError:
            raise self._removed() from None

    def _finish(self) -> None:
        self._flush()
        try:
            with explained("write", self.name):
                within(self._seconds, self._file.close)
        except FileNotFoundError:
            raise self._removed() from None

    def _removed(self) -> RetryableError:
        return RetryableError(f"{self.name!r} was removed while it was written")


def _gathered(parts: Iterator[bytes]) -> bytes:
    """The next parts as one piece; empty at the end."""
    gathered = bytearray()
    for part in parts:
        gathered += part
        if len(gathered) >= _PIECE:
            break
    return bytes(gathered)


@runtime_checkable
class _Streaming(Protocol):
    """A reader that is faster front to back than by positions."""

    def stream(self, offset: int, length: int) -> Iterator[bytes]: ...


def _pieces(reader: RandomReader, offset: int, length: int) -> Iterator[bytes]:
    if isinstance(reader, _Streaming):
        yield from reader.stream(offset, length)
        return
    end = offset + length
    while offset < end and (piece := reader.read_at(offset, min(_PIECE, end - offset))):
        yield piece
        offset += len(piece)


def _ahead(pieces: Iterator[bytes]) -> Generator[bytes, None, None]:
    """The same pieces, read by another thread while the caller writes. A single piece needs no thread."""
    first = list(islice(pieces, 2))
    if len(first) < 2:
        yield from first
        return
    waiting: queue.Queue[bytes | BaseException | None] = queue.Queue(_AHEAD)
    stopped = threading.Event()

    def read() -> None:
        last: BaseException | None = None
        try:
            for piece in pieces:
                if not _offered(waiting, piece, stopped):
                    return
        except BaseException as error:
            last = error
        _offered(waiting, last, stopped)

    thread = threading.Thread(target=read, name="hdfs-read-ahead", daemon=True)
    thread.start()
    try:
        yield from first
        while (found := waiting.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        stopped.set()
        thread.join()


def _offered(
    waiting: "queue.Queue[bytes | BaseException | None]", item: bytes | BaseException | None, stopped: threading.Event
) -> bool:
    """Hand an item over; False when the consumer has stopped."""
    while not stopped.is_set():
        try:
            waiting.put(item, timeout=0.1)
        except queue.Full:
            continue
        return True
    return False
