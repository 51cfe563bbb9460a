"""
How the packages of file formats read and write bytes: two small protocols, readers of bytes in memory, a reader
as Python's file, and the comparison of copied bytes.

`compactor.storage` drivers return objects of these shapes; this module knows nothing of file systems.
"""

import io
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Protocol, runtime_checkable

from compactor.errors import CorruptFileError, VerificationError

SAMPLE: Final = 4096
"""Bytes at the start and at the end of a copied range that are compared."""


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

    def gap_before(self, offset: int, length: int) -> int:
        """
        Bytes to leave out here so that a copy of the range at `offset` of a file beside it takes no room of its own; 0
        where that can't be.
        """
        ...

    def copy_from(self, reader: RandomReader, offset: int, length: int) -> None:
        """
        Append `length` bytes of `reader` from `offset` on, in the cheapest way that sink and reader allow.

        Raises:
            CorruptFileError: the file ends before them.
        """
        ...


class MemoryReader:
    """Bytes in memory as a readable file; `data` are all of them."""

    def __init__(self, data: bytes | memoryview, name: str = "memory") -> None:
        self.data = memoryview(data)
        self.name = name
        self.size = len(self.data)

    def read_at(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length].tobytes()


@dataclass(frozen=True, slots=True)
class FileRange:
    """Bytes of a file, which are read when they are asked for."""

    reader: RandomReader
    offset: int
    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, part: slice) -> bytes:
        """
        Raises:
            CorruptFileError: the file is shorter.
        """
        start, stop, _ = part.indices(self.length)
        data = self.reader.read_at(self.offset + start, stop - start)
        if len(data) != stop - start:
            raise CorruptFileError(f"{self.reader.name} ended too early, at byte {self.offset + start + len(data)}")
        return data


class PiecesReader:
    """Pieces of bytes, one after the other, as a readable file."""

    def __init__(self, pieces: Sequence[bytes | memoryview | FileRange], name: str) -> None:
        self.name = name
        self._pieces = pieces
        self._starts = [0, *accumulate(map(len, pieces))]
        self.size = self._starts[-1]

    def read_at(self, offset: int, length: int) -> bytes:
        found, end = list[bytes | memoryview](), min(self.size, offset + length)
        place = bisect_right(self._starts, offset) - 1
        while offset < end:
            start, stop = self._starts[place], min(end, self._starts[place + 1])
            found.append(self._pieces[place][offset - start : stop - start])
            offset, place = stop, place + 1
        return b"".join(found)


class ReaderFile(io.RawIOBase):
    """A reader as the file object that other libraries take."""

    def __init__(self, reader: RandomReader) -> None:
        super().__init__()
        self._reader = reader
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._reader.size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._reader.read_at(self._at, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def same_ends(one: RandomReader, at: int, other: RandomReader, start: int, length: int) -> bool:
    """
    Whether a copied range has the first and the last bytes of its original.

    Args:
        at, start: where the range begins in `one` and in `other`.
    """
    return all(
        one.read_at(at + offset, min(SAMPLE, length)) == other.read_at(start + offset, min(SAMPLE, length))
        for offset in (0, max(0, length - SAMPLE))
    )


def require_copied(result: RandomReader, at: int, source: RandomReader, start: int, length: int) -> None:
    """
    Compare a copied range by `same_ends`.

    Raises:
        VerificationError: the ends differ.
    """
    if not same_ends(result, at, source, start, length):
        raise VerificationError(
            f"{result.name} from byte {at} on hasn't the bytes of {source.name} from byte {start} on"
        )
