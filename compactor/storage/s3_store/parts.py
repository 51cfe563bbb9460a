"""
Decides how to put a new object together from own bytes and ranges of other objects, so that the store copies as much as
possible by itself.

An S3 store wants every part of a multipart upload but the last to be at least 5 MiB, and none to be larger than 5 GiB.
Bytes that are too few for a part are joined with the beginning of the range that follows them. This beginning is then
read through this process, but never more than is needed. Makes no requests: `UploadParts` does. Source: Amazon S3 User
Guide, "Multipart upload limits".
"""

from itertools import pairwise
from typing import Final, Generic, Protocol, TypeVar

MIB: Final = 1 << 20
SMALLEST: Final = 5 * MIB
LARGEST: Final = 5 << 30
MOST: Final = 10_000
_REPEATED: Final = 16
_GROW_EVERY: Final = 2_000

Source_contra = TypeVar("Source_contra", contravariant=True)
Source = TypeVar("Source")


class UploadParts(Protocol[Source_contra]):
    """Carries out the assembler's decisions. Each `put` and `copy` makes the next part."""

    def read(self, source: Source_contra, offset: int, length: int) -> bytes:
        """Read exactly `length` bytes through this process."""
        ...

    def put(self, data: bytes) -> None: ...

    def copy(self, source: Source_contra, offset: int, length: int) -> None: ...


class Assembler(Generic[Source]):
    """
    Takes bytes and ranges front to back, and makes parts of them.

    Args:
        own_bytes: size of parts that this process sends; held in memory.
        copy_bytes: size of parts that the store copies by itself.
        smallest: minimal size of all parts but the last.
    """

    def __init__(
        self, parts: UploadParts[Source], *, own_bytes: int, copy_bytes: int, smallest: int = SMALLEST
    ) -> None:
        self._parts = parts
        self._own_bytes = max(own_bytes, smallest)
        self._copy_bytes = max(copy_bytes, 2 * smallest)
        self._smallest = smallest
        self._own = bytearray()
        self._source: Source | None = None
        self._start = 0
        self._length = 0
        self._count = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append own bytes."""
        if not len(data):
            return
        self._settle(last=False)
        self._own += data
        while len(self._own) >= self._grown(self._own_bytes) + self._smallest:
            self._put(self._grown(self._own_bytes))

    def copy(self, source: Source, offset: int, length: int) -> None:
        """Append a range of another object. A range that continues the previous one makes it longer."""
        if not length:
            return
        if self._source == source and offset == self._start + self._length:
            self._length += length
        else:
            self._settle(last=False)
            offset, length = self._with_what_is_before(source, offset, length)
            self._source, self._start, self._length = source, offset, length
        while self._length >= 2 * self._grown(self._copy_bytes):
            if self._own:
                self._borrow(last=False)
            self._copy(self._grown(self._copy_bytes))

    def finish(self) -> bytes | None:
        """Make the last parts. When no part was needed, returns the whole content instead."""
        self._settle(last=True)
        if not self._count:
            return bytes(self._own)
        if self._own:
            self._put(len(self._own))
        return None

    def _with_what_is_before(self, source: Source, offset: int, length: int) -> tuple[int, int]:
        """Extend the range over a few own bytes that stand in front of it in its object too (a file's magic)."""
        size = len(self._own)
        if not 0 < size <= min(_REPEATED, offset) or self._parts.read(source, offset - size, size) != self._own:
            return offset, length
        self._own.clear()
        return offset - size, length + size

    def _settle(self, *, last: bool) -> None:
        """Make parts of the current range, or own bytes when it is too small."""
        if self._own and self._length:
            self._borrow(last=last)
        if not self._length:
            return
        if self._length < self._smallest and not (last and self._count):
            self._take(self._length)
            return
        pieces = -(-self._length // self._grown(self._copy_bytes))
        for left in range(pieces, 0, -1):
            self._copy(-(-self._length // left))

    def _borrow(self, *, last: bool) -> None:
        """
        Make the own bytes a part. When they are too few, the beginning of the range is added to them; when too little
        of the range would be left, all of it is added, and the own bytes wait for more.
        """
        missing = self._smallest - len(self._own)
        if missing > 0:
            enough = self._length > missing if last else self._length >= missing + self._smallest
            self._take(missing if enough else self._length)
        if self._length:
            self._put(len(self._own))

    def _take(self, length: int) -> None:
        assert self._source is not None
        self._own += self._parts.read(self._source, self._start, length)
        self._start += length
        self._length -= length

    def _put(self, length: int) -> None:
        data = bytes(memoryview(self._own)[:length])
        del self._own[:length]
        self._count += 1
        self._parts.put(data)

    def _copy(self, length: int) -> None:
        assert self._source is not None
        self._count += 1
        self._parts.copy(self._source, self._start, length)
        self._start += length
        self._length -= length

    def _grown(self, size: int) -> int:
        """The size of the next part. Parts get larger the more there are, because their number is limited."""
        return min(size << (self._count // _GROW_EVERY), LARGEST // 2)


def whole_parts(length: int, copy_bytes: int) -> list[tuple[int, int]]:
    """
    (offset, length) of the parts that copy a whole object: one part up to `copy_bytes`, else as few parts of similar
    size as possible.
    """
    pieces = max(1, -(-length // copy_bytes))
    while pieces > MOST:
        pieces = -(-pieces // 2)
    cuts = [length * number // pieces for number in range(pieces + 1)]
    return [(low, high - low) for low, high in pairwise(cuts)]
