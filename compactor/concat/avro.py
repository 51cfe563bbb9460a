"""
Joins Avro container files: their blocks under one header, with one sync marker.

A block's content is copied as it is; only the marker behind it changes. Files may share a header when all their
metadata is the same: schema, codec, and whatever the writer noted.
Source: the Avro specification, "Object Container Files"; docs/compaction.md, "Insert-only tables".
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from compactor.errors import CorruptFileError, RefusedError, VerificationError
from compactor.handles import RandomReader, Sink, require_copied
from compactor.reasons import Reason

MAGIC: Final = b"Obj\x01"
_SYNC: Final = 16
_FIRST_READ: Final = 64 << 10
_MOST_HEADER: Final = 64 << 20
_PIECE: Final = 8 << 20
_WINDOW: Final = 1 << 20
_SAMPLED: Final = 16 << 10
_LONGEST_NUMBER: Final = 10


@dataclass(frozen=True, slots=True)
class Header:
    """
    A container file's header.

    Args:
        metadata: names and values, in the file's order.
        sync: the marker behind each block.
        length: bytes of the header, the marker included.
    """

    metadata: tuple[tuple[str, bytes], ...]
    sync: bytes
    length: int

    @property
    def family(self) -> str:
        """The same for files whose blocks may stand under one header."""
        said = hashlib.blake2b(digest_size=8)
        for name, value in sorted(self.metadata):
            said.update(f"{name.encode().hex()}={value.hex()};".encode())
        return said.hexdigest()


@dataclass(frozen=True, slots=True)
class Block:
    """Where a block lies, from its count of records to the end of its content, in bytes; without the marker."""

    at: int
    length: int
    records: int


@dataclass(frozen=True, slots=True)
class Joined:
    """Records of a joined file, and for each block its original: the number of the file, and where it lies there."""

    records: int
    origins: tuple[tuple[int, Block], ...]


class _Window:
    """
    A file that is read front to back: small blocks cost no request each, on stores where a read is one.

    What lies far ahead is read by itself: of large blocks only both ends are looked at.
    """

    def __init__(self, reader: RandomReader) -> None:
        self.reader, self.name, self.size = reader, reader.name, reader.size
        self._at, self._data = 0, b""

    def read_at(self, offset: int, length: int) -> bytes:
        """The same as the file's own."""
        start = offset - self._at
        if start < 0 or start + length > len(self._data):
            near = 0 <= start <= len(self._data) + _WINDOW
            self._data = self.reader.read_at(offset, max(length, _WINDOW if near else _SAMPLED))
            self._at, start = offset, 0
        return self._data[start : start + length]


def read_header(reader: RandomReader) -> Header:
    """
    Read a file's header.

    Raises:
        CorruptFileError: the file isn't an Avro container, or its header is cut off.
    """
    size = _FIRST_READ
    while True:
        data = reader.read_at(0, min(size, reader.size))
        if data[: len(MAGIC)] != MAGIC:
            raise _corrupt(reader, "isn't an Avro file")
        try:
            return _header(data)
        except IndexError:
            if size >= min(reader.size, _MOST_HEADER):
                raise _corrupt(reader, "is cut off in its header") from None
            size *= 8
        except (ValueError, OverflowError):
            raise _corrupt(reader, "has a header that can't be read") from None


def _header(data: bytes) -> Header:
    at, metadata = len(MAGIC), list[tuple[str, bytes]]()
    while True:
        count, at = _number(data, at)
        if count == 0:
            break
        if count < 0:  # then the block's size follows
            count = -count
            _, at = _number(data, at)
        for _ in range(count):
            name, at = _bytes(data, at)
            value, at = _bytes(data, at)
            metadata.append((name.decode(), value))
    if at + _SYNC > len(data):
        raise IndexError
    if len({name for name, _ in metadata}) < len(metadata):  # the order says which one counts
        raise ValueError
    return Header(tuple(metadata), data[at : at + _SYNC], at + _SYNC)


def blocks_of(reader: RandomReader, header: Header) -> Iterator[Block]:
    """
    Walk a file's blocks.

    Raises:
        CorruptFileError: a block is cut off, or isn't followed by the marker.
    """
    at, window = header.length, _Window(reader)
    while at < reader.size:
        start = window.read_at(at, 2 * _LONGEST_NUMBER)
        try:
            records, after = _number(start, 0)
            size, after = _number(start, after)
        except (IndexError, ValueError):
            raise _corrupt(reader, f"has a block at byte {at} that can't be read") from None
        end = at + after + size
        if records < 0 or size < 0 or end + _SYNC > reader.size or window.read_at(end, _SYNC) != header.sync:
            raise _corrupt(reader, f"has a block at byte {at} that is cut off, or not followed by the file's marker")
        yield Block(at, after + size, records)
        at = end + _SYNC


def join(readers: Sequence[RandomReader], sink: Sink) -> Joined:
    """
    Write the blocks of all files, in their order, under the header of the first.

    Raises:
        CorruptFileError: a file can't be read.
        RefusedError: UNSUPPORTED_FORMAT, the files' headers differ.
    """
    first = read_header(readers[0])
    sink.copy_from(readers[0], 0, first.length)
    origins, records = list[tuple[int, Block]](), 0
    for place, reader in enumerate(readers):
        header = read_header(reader)
        if header.family != first.family:
            raise RefusedError(
                Reason.UNSUPPORTED_FORMAT, f"{reader.name} has another schema or codec than {readers[0].name}"
            )
        window = _Window(reader)
        for block in blocks_of(reader, header):
            for start in range(0, block.length, _PIECE):
                sink.write(window.read_at(block.at + start, min(_PIECE, block.length - start)))
            sink.write(first.sync)
            origins.append((place, block))
            records += block.records
    return Joined(records, tuple(origins))


def check(result: RandomReader, readers: Sequence[RandomReader], made: Joined) -> None:
    """
    Walk a joined file, and compare the header and both ends of each block with the originals.

    Raises:
        VerificationError: the first difference.
    """
    try:
        header = read_header(result)
        blocks = list(blocks_of(result, header))
    except CorruptFileError as error:
        raise VerificationError(error.message) from error
    require_copied(result, 0, readers[0], 0, header.length)
    lengths = [(block.length, block.records) for block in blocks]
    if lengths != [(block.length, block.records) for _, block in made.origins]:
        raise VerificationError(f"{result.name} has {len(blocks)} blocks, its files have {len(made.origins)}")
    source, after = _Window(readers[0]), _Window(result)
    for block, (place, original) in zip(blocks, made.origins, strict=True):
        if source.reader is not readers[place]:
            source = _Window(readers[place])
        require_copied(after, block.at, source, original.at, block.length)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """An Avro long (zigzag, base 128), and the place behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise ValueError
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift >= 7 * _LONGEST_NUMBER:
            raise ValueError


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _number(data, at)
    if length < 0:
        raise ValueError
    if at + length > len(data):
        raise IndexError
    return data[at : at + length], at + length


def _corrupt(reader: RandomReader, what: str) -> CorruptFileError:
    return CorruptFileError(f"{reader.name} {what}")
