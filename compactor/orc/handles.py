"""
How this package reaches bytes: two small protocols, and in-memory and local-file forms of them.

`compactor.storage` drivers hand out objects of these shapes; nothing here knows a file system's names.
"""

import os
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

_COPY_PIECE = 8 << 20


@runtime_checkable
class RandomReader(Protocol):
    """A file that doesn't change while it is read. `name` goes into messages; `size` is in bytes."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    def read_at(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`, fewer only at the end of the file."""
        ...


class Sink(Protocol):
    """A file being written from start to end; `position` is the number of bytes written so far."""

    @property
    def position(self) -> int: ...

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def copy_from(self, reader: RandomReader, offset: int, length: int) -> None:
        """Append `length` bytes of `reader` from `offset` on, the cheapest way the two allow."""
        ...


class MemoryReader:
    """Bytes at hand as a file."""

    def __init__(self, data: bytes | memoryview, name: str = "memory") -> None:
        self._data = memoryview(data)
        self.name = name
        self.size = len(self._data)

    def read_at(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length].tobytes()


class MemorySink:
    """Collects bytes in memory."""

    def __init__(self) -> None:
        self._data = bytearray()

    @property
    def position(self) -> int:
        return len(self._data)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._data += data

    def copy_from(self, reader: RandomReader, offset: int, length: int) -> None:
        copy_pieces(self, reader, offset, length)

    def getvalue(self) -> bytes:
        return bytes(self._data)


class LocalReader:
    """A local file; positional reads, so threads may share it."""

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        self._descriptor = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self._descriptor).st_size

    def read_at(self, offset: int, length: int) -> bytes:
        parts: list[bytes] = []
        while length > 0:
            part = os.pread(self._descriptor, length, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class LocalSink:
    """A new local file for scratch; refuses to overwrite. Whoever publishes it makes it durable."""

    def __init__(self, path: str | Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        self.position = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        left = memoryview(data)
        self.position += len(left)
        while left:
            left = left[os.write(self._descriptor, left) :]

    def copy_from(self, reader: RandomReader, offset: int, length: int) -> None:
        copy_pieces(self, reader, offset, length)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def copy_pieces(sink: Sink, reader: RandomReader, offset: int, length: int) -> None:
    """
    Copy through memory, some MiB at a time: what a sink does when it knows nothing better.

    Raises:
        OSError: the reader ends before `length` bytes.
    """
    end = offset + length
    while offset < end:
        piece = reader.read_at(offset, min(_COPY_PIECE, end - offset))
        if not piece:
            raise OSError(f"{reader.name} ended at byte {offset}, {end - offset} bytes early")
        sink.write(piece)
        offset += len(piece)
