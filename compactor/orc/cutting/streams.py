"""
A compressed stream with some bytes replaced: chunks that no edit touches stay compressed as they are, and aren't
inflated unless their content is needed. A stream without compression is taken in chunks too, so that only those that
an edit touches are copied.

Source: the ORC specification, "Compression".
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Final

from compactor.errors import VerificationError
from compactor.orc.cutting.runs import UncutError
from compactor.orc.format import codec
from compactor.orc.format.codec import Compression

_PIECE: Final = 256 << 10


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes [start, end) of a stream, as it reads without compression, and what takes their place."""

    start: int
    end: int
    bytes: bytes = b""


@dataclass(slots=True)
class MemoryRoom:
    """
    Bytes that streams may still take without compression.

    Args:
        left: at least 0.
    """

    left: int

    def take(self, size: int) -> None:
        """
        Raises:
            UncutError: that many aren't left.
        """
        self.left -= size
        if self.left < 0:
            raise UncutError


@dataclass(slots=True)
class Stream:
    """
    A stream in its chunks; each is inflated when its content is asked for.

    Args:
        chunks: compressed, each with its header; without compression just pieces.
        kind: how it is compressed.
        block_size: most bytes of a chunk's content.
        where: file, stripe and column, for messages.
        room: of all streams of the stripe; None: no limit.
    """

    chunks: tuple[bytes | memoryview, ...]
    kind: Compression
    block_size: int
    where: str = ""
    room: MemoryRoom | None = None
    _contents: dict[int, bytes] = field(default_factory=dict)
    _starts: list[int] | None = None

    @staticmethod
    def read(
        packed: bytes | memoryview, kind: Compression, block_size: int, where: str, room: MemoryRoom | None = None
    ) -> "Stream":
        """
        Find the chunks of a stream.

        Raises:
            CorruptFileError: a header is invalid.
        """
        if kind is Compression.NONE:
            pieces = tuple(packed[at : at + _PIECE] for at in range(0, len(packed), _PIECE))
            return Stream(pieces, kind, _PIECE, where, room)
        return Stream(tuple(codec.chunks(packed, where)), kind, block_size, where, room)

    @staticmethod
    def of(data: bytes, kind: Compression, block_size: int) -> "Stream":
        """
        Compress a stream, and read it again.

        Raises:
            VerificationError: it reads differently.
        """
        if kind is Compression.NONE:
            return Stream((data,), kind, block_size)
        chunks = tuple(codec.compressed_chunks(data, kind, block_size))
        made = Stream(chunks, kind, block_size, "what was just compressed")
        if made.contents != [data[at : at + block_size] for at in range(0, len(data), block_size)]:
            raise VerificationError(f"{kind.name} didn't keep {len(data)} bytes")
        return made

    @property
    def contents(self) -> list[bytes]:
        """What each chunk holds."""
        return [self.content(place) for place in range(len(self.chunks))]

    @property
    def data(self) -> bytes:
        """The stream without compression."""
        return b"".join(self.contents)

    @property
    def starts(self) -> list[int]:
        """Where the content of each chunk begins in the stream, and the stream's end."""
        if self._starts is None:
            stored = self.kind is Compression.NONE
            self._starts = [0, *accumulate(map(len, self.chunks if stored else self.contents))]
        return self._starts

    def has(self, size: int) -> bool:
        """
        Whether the stream has so many bytes. If all chunks but the last must be full then, only that one is inflated.
        """
        full = (len(self.chunks) - 1) * self.block_size
        fit = self.kind is not Compression.NONE and all(
            len(chunk) <= self.block_size + codec.HEADER for chunk in self.chunks[:-1]
        )
        if fit and self.chunks and len(self.content(len(self.chunks) - 1)) == size - full:
            self._starts = [*(number * self.block_size for number in range(len(self.chunks))), size]
        return self.starts[-1] == size

    def content(self, place: int) -> bytes:
        """
        What a chunk holds.

        Raises:
            CorruptFileError: the chunk is invalid.
            ValueError: it isn't as long as it must be.
            UncutError: there is no room for it.
        """
        found = self._contents.get(place)
        if found is None:
            chunk = self.chunks[place]
            found = (
                bytes(chunk)
                if self.kind is Compression.NONE
                else codec.content(chunk, self.kind, self.block_size, f"{self.where}, chunk {place + 1}")
            )
            if self._starts is not None and len(found) != self._starts[place + 1] - self._starts[place]:
                raise ValueError(f"{self.where}: chunk {place + 1} isn't full")
            if self.room is not None:
                self.room.take(len(found))
            self._contents[place] = found
        return found

    def edited(self, edits: Sequence[Edit]) -> "Stream":
        """
        The stream with bytes replaced.

        Args:
            edits: ascending; none begins before the end of the one before.
        """
        chunks: list[bytes | memoryview] = []
        contents: dict[int, bytes] = {}
        starts = [0]
        place = 0
        for number, (at, end) in enumerate(pairwise(self.starts)):
            read, pieces = at, list[bytes]()
            while place < len(edits) and edits[place].start < end:
                edit = edits[place]
                if edit.start >= at:  # else what takes its place is in the chunk before
                    pieces += (self.content(number)[read - at : edit.start - at], edit.bytes)
                read = min(edit.end, end)
                if edit.end > end:
                    break
                place += 1
            if read > at:
                made = Stream.of(b"".join([*pieces, self.content(number)[read - at :]]), self.kind, self.block_size)
                contents.update(enumerate(made.contents, len(chunks)))
                starts += [starts[-1] + start for start in made.starts[1:]]
                chunks += made.chunks
            else:
                if number in self._contents:
                    contents[len(chunks)] = self._contents[number]
                starts.append(starts[-1] + end - at)
                chunks.append(self.chunks[number])
        expected = self.starts[-1] + sum(len(edit.bytes) - (edit.end - edit.start) for edit in edits)
        if starts[-1] != expected:
            raise VerificationError(f"{self.where} has {starts[-1]} bytes instead of {expected}")
        return Stream(tuple(chunks), self.kind, self.block_size, self.where, self.room, contents, starts)

    def positions(self, offsets: Sequence[int]) -> list[tuple[int, ...]]:
        """
        How a row index names bytes of the stream: where their chunk begins in the file's stream, and their offset in
        its content; without compression the offset alone.
        """
        if self.kind is Compression.NONE:
            return [(offset,) for offset in offsets]
        packed, starts = [0, *accumulate(map(len, self.chunks))], self.starts
        places = [min(bisect_right(starts, offset), len(starts) - 1) - 1 for offset in offsets]
        return [
            (packed[place], offset - starts[place]) if place >= 0 else (0, 0)
            for place, offset in zip(places, offsets, strict=True)
        ]

    def span(self, start: int, end: int) -> bytes:
        """Bytes [start, end) of the stream without compression."""
        starts = self.starts
        found: list[bytes] = []
        place = bisect_right(starts, start) - 1
        while start < end:
            at = starts[place]
            found.append(self.content(place)[start - at : end - at])
            start, place = min(end, starts[place + 1]), place + 1
        return b"".join(found)
