"""
A compressed stream with some bytes replaced: chunks that no edit touches stay compressed as they are.

Source: the ORC specification, "Compression".
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from compactor.errors import VerificationError
from compactor.orc import codec
from compactor.orc.codec import Compression
from compactor.reasons import Reason


class TooLargeError(Exception):
    """A stream has more bytes than may be in memory."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes [start, end) of a stream, as it reads without compression, and what takes their place."""

    start: int
    end: int
    bytes: bytes = b""


@dataclass(frozen=True, slots=True)
class Stream:
    """
    A stream in its chunks.

    Args:
        chunks: compressed, each with its header; without compression one piece.
        contents: of each chunk.
        kind: how it is compressed.
    """

    chunks: tuple[bytes | memoryview, ...]
    contents: tuple[bytes, ...]
    kind: Compression

    @staticmethod
    def read(
        packed: bytes | memoryview, kind: Compression, block_size: int, where: str, most: int = 1 << 62
    ) -> "Stream":
        """
        Decompress a stream.

        Args:
            most: bytes that it may have without compression.

        Raises:
            CorruptFileError: a header or a chunk is invalid.
            TooLargeError: it has more bytes.
        """
        if kind is Compression.NONE:
            return Stream((packed,), (bytes(packed),), kind)
        found: list[tuple[bytes | memoryview, bytes]] = []
        for chunk, content in codec.chunks(packed, kind, block_size, where):
            most -= len(content)
            if most < 0:
                raise TooLargeError
            found.append((chunk, content))
        return Stream(tuple(chunk for chunk, _ in found), tuple(content for _, content in found), kind)

    @staticmethod
    def of(data: bytes, kind: Compression, block_size: int) -> "Stream":
        """
        Compress a stream, and read it again.

        Raises:
            VerificationError: it reads differently.
        """
        if kind is Compression.NONE:
            return Stream((data,), (data,), kind)
        packed = b"".join(codec.compressed_chunks(data, kind, block_size))
        made = Stream.read(packed, kind, block_size, "what was just compressed")
        if made.data != data:
            raise VerificationError(Reason.VERIFICATION_FAILED, f"{kind.name} didn't keep {len(data)} bytes")
        return made

    @property
    def data(self) -> bytes:
        """The stream without compression."""
        return b"".join(self.contents)

    @property
    def size(self) -> int:
        """Bytes of the stream without compression."""
        return sum(map(len, self.contents))

    @property
    def packed(self) -> bytes:
        """The stream as a file holds it."""
        return b"".join(self.chunks)

    def edited(self, edits: Sequence[Edit], block_size: int) -> "Stream":
        """
        The stream with bytes replaced.

        Args:
            edits: ascending; none begins before the end of the one before.
            block_size: most bytes of a chunk that is compressed anew.
        """
        chunks: list[bytes | memoryview] = []
        contents: list[bytes] = []
        place = at = 0
        for chunk, content in zip(self.chunks, self.contents, strict=True):
            end, read, pieces = at + len(content), at, list[bytes]()
            while place < len(edits) and edits[place].start < end:
                edit = edits[place]
                if edit.start >= at:  # else what takes its place is in the chunk before
                    pieces += (content[read - at : edit.start - at], edit.bytes)
                read = min(edit.end, end)
                if edit.end > end:
                    break
                place += 1
            if read > at:
                made = Stream.of(b"".join([*pieces, content[read - at :]]), self.kind, block_size)
                chunks += made.chunks
                contents += made.contents
            else:
                chunks.append(chunk)
                contents.append(content)
            at = end
        return Stream(tuple(chunks), tuple(contents), self.kind)

    def positions(self, offsets: Sequence[int]) -> list[tuple[int, ...]]:
        """
        How a row index names bytes of the stream: where their chunk begins in the file's stream, and their offset in
        its content; without compression the offset alone.
        """
        if self.kind is Compression.NONE:
            return [(offset,) for offset in offsets]
        packed = [0, *accumulate(map(len, self.chunks))]
        starts = [0, *accumulate(map(len, self.contents))]
        places = [min(bisect_right(starts, offset), len(starts) - 1) - 1 for offset in offsets]
        return [
            (packed[place], offset - starts[place]) if place >= 0 else (0, 0)
            for place, offset in zip(places, offsets, strict=True)
        ]

    def span(self, start: int, end: int) -> bytes:
        """Bytes [start, end) of the stream without compression."""
        starts = [0, *accumulate(map(len, self.contents))]
        found: list[bytes] = []
        place = bisect_right(starts, start) - 1
        while start < end:
            at = starts[place]
            found.append(self.contents[place][start - at : end - at])
            start, place = min(end, starts[place + 1]), place + 1
        return b"".join(found)
