"""
One row group: what its footer says of it in a few numbers, and its column chunks in memory.

The numbers are packed, since the footers of thousands of files are held at once.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from compactor.errors import CorruptFileError
from compactor.handles import RandomReader

_PACKED: Final = struct.Struct("<6q")
_SLACK: Final = 64 << 10
"""Bytes between column chunks that are read to save a request."""
Data = bytes
"""The built-in type, by a name that the field `bytes` of a row group doesn't hide."""


class Chunk(NamedTuple):
    """
    A column chunk.

    Args:
        begin: where it begins, with its dictionary where it has one.
        data_page: where its first data page begins.
        codec: number of its compression codec.
        values: number of values, NULLs included.
        raw, stored: bytes without and with compression.
    """

    begin: int
    data_page: int
    codec: int
    values: int
    raw: int
    stored: int


@dataclass(frozen=True, slots=True)
class RowGroup:
    """
    One row group as its footer describes it.

    Args:
        rows: number of rows.
        bytes: stored bytes of its column chunks.
        raw_bytes: the same uncompressed, as the footer states.
        place: where in the footer its description begins.
        packed: its chunks.
        encodings: those of each chunk, as the footer has them.
        has_page_index: whether its first chunk has an offset index.
    """

    rows: int
    bytes: int
    raw_bytes: int
    place: int = field(repr=False)
    packed: Data = field(repr=False)
    encodings: tuple[Data, ...] = field(repr=False)
    has_page_index: bool = field(repr=False)

    @property
    def chunks(self) -> list[Chunk]:
        return [Chunk(*numbers) for numbers in _PACKED.iter_unpack(self.packed)]


def packed(chunks: Sequence[Chunk]) -> bytes:
    """Chunks as `RowGroup` keeps them."""
    return b"".join([_PACKED.pack(*chunk) for chunk in chunks])


@lru_cache(maxsize=1024)
def shared(encodings: bytes) -> bytes:
    """The same bytes, as one object for all chunks that have them."""
    return encodings


@dataclass(frozen=True, slots=True)
class Loaded:
    """A row group in memory: its chunks as described, and their stored bytes."""

    group: RowGroup
    chunks: Sequence[Chunk]
    stored: tuple[memoryview, ...]


def load(reader: RandomReader, group: RowGroup) -> Loaded:
    """
    Read a row group's column chunks, in one piece where they are neighbours.

    Raises:
        CorruptFileError: the file ends before them.
    """
    chunks = group.chunks
    first, last = min(chunk.begin for chunk in chunks), max(chunk.begin + chunk.stored for chunk in chunks)
    if last - first <= group.bytes + _SLACK:
        data = memoryview(reader.read_at(first, last - first))
        stored = tuple([data[chunk.begin - first : chunk.begin - first + chunk.stored] for chunk in chunks])
    else:
        stored = tuple([memoryview(reader.read_at(chunk.begin, chunk.stored)) for chunk in chunks])
    if sum(map(len, stored)) != group.bytes:
        raise CorruptFileError(f"{reader.name} became shorter while it was read")
    return Loaded(group, chunks, stored)
