"""
Pages of a column chunk in memory: their headers, and how many bytes a chunk may have once decoded.

A few stored bytes can decode to gigabytes, since a dictionary's entry costs next to nothing where it is repeated. The
bound here is one that no input exceeds.
Source: parquet.thrift (PageHeader); Encodings.md.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from compactor.errors import CorruptFileError
from compactor.handles import RandomReader
from compactor.parquet import fields, thrift
from compactor.parquet.fields import extent
from compactor.parquet.schema import BOOLEAN, BYTE_ARRAY, Leaf
from compactor.parquet.thrift import MalformedError, Struct
from compactor.parquet.writers import CODECS, DELTA_BYTE_ARRAY, DICTIONARIES
from compactor.reasons import Reason

DATA_PAGE_1: Final = 0
DATA_PAGE_2: Final = 3
_DICTIONARY_PAGE: Final = 2
_TYPE: Final = 1
_RAW: Final = 2
_STORED: Final = 3
_CRC: Final = 4
_DICTIONARY_HEADER: Final = 7
_ENTRIES: Final = 1
_SLACK: Final = 64 << 10
"""Bytes between column chunks that are read to save a request."""
_LENGTH: Final = struct.Struct("<I")
_CHEAP: Final = 64 << 10
"""Below this, the longest entry of a dictionary isn't looked for."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A row group in memory: its description, and the stored bytes of its column chunks."""

    group: Struct
    chunks: tuple[memoryview, ...]

    @property
    def rows(self) -> int:
        return int(self.group[fields.GROUP_ROWS][1])

    @property
    def metas(self) -> list[Struct]:
        return [chunk[fields.CHUNK_META][1] for chunk in self.group[fields.GROUP_COLUMNS][1]]


def load(reader: RandomReader, group: Struct) -> Loaded:
    """
    Read a row group's column chunks, in one piece where they are neighbours.

    Args:
        group: its description.

    Raises:
        CorruptFileError: the file ends before them.
    """
    extents = [extent(chunk[fields.CHUNK_META][1]) for chunk in group[fields.GROUP_COLUMNS][1]]
    first, last = min(begin for begin, _ in extents), max(end for _, end in extents)
    if last - first <= sum(end - begin for begin, end in extents) + _SLACK:
        data = memoryview(reader.read_at(first, last - first))
        chunks = tuple(data[begin - first : end - first] for begin, end in extents)
    else:
        chunks = tuple(memoryview(reader.read_at(begin, end - begin)) for begin, end in extents)
    if any(len(chunk) != end - begin for chunk, (begin, end) in zip(chunks, extents, strict=True)):
        raise CorruptFileError(Reason.CORRUPT_FILE, f"{reader.name} became shorter while it was read")
    return Loaded(group, chunks)


@dataclass(frozen=True, slots=True)
class Page:
    """Header of a page, and where its content begins and ends."""

    kind: int
    raw_bytes: int
    has_crc: bool
    entries: int
    begin: int
    end: int


def pages(chunk: memoryview) -> Iterator[Page]:
    """
    Walk the pages of a chunk.

    Raises:
        MalformedError: a header makes no sense.
    """
    at = 0
    while at < len(chunk):
        head = chunk[at : at + 1024].tobytes()
        try:
            header, length = thrift.decode(head, 0, {_DICTIONARY_HEADER: {}})
        except MalformedError:  # statistics of long texts
            header, length = thrift.decode(chunk[at : at + (1 << 20)].tobytes(), 0, {_DICTIONARY_HEADER: {}})
        if any(
            header.get(number, (0, 0))[0] != thrift.I32 or header[number][1] < 0 for number in (_TYPE, _RAW, _STORED)
        ):
            raise MalformedError("a page has no sizes")
        begin = at + length
        at = begin + header[_STORED][1]
        if at > len(chunk):
            raise MalformedError("a page ends behind its column chunk")
        dictionary = header[_DICTIONARY_HEADER][1] if _DICTIONARY_HEADER in header else {}
        entries = dictionary.get(_ENTRIES, (0, 0))[1]
        yield Page(header[_TYPE][1], header[_RAW][1], _CRC in header, entries, begin, at)


def decoded_bound(chunk: memoryview, meta: Struct, leaf: Leaf) -> int:
    """
    Most bytes that Arrow needs for the values of a column chunk.

    Raises:
        MalformedError: its pages make no sense.
    """
    values, raw = meta[fields.META_VALUES][1], meta[fields.META_RAW][1]
    levels = 4 * values if "R" in leaf.levels else 0
    if leaf.physical != BYTE_ARRAY:
        width = 16 if leaf.decimal else leaf.width
        return int(levels + (values if leaf.physical != BOOLEAN else values // 8) * width)
    encodings = thrift.integers(meta[fields.META_ENCODINGS][1])
    longest = 0
    if DELTA_BYTE_ARRAY in encodings:
        longest = raw
    elif not DICTIONARIES.isdisjoint(encodings):
        longest = _longest_entry(chunk, meta, values)
    return int(levels + 4 * values + raw + longest * values)


def _longest_entry(chunk: memoryview, meta: Struct, values: int) -> int:
    """Bytes of the longest entry of a chunk's dictionary, or a bound where that is good enough."""
    first = next(pages(chunk), None)
    if first is None or first.kind != _DICTIONARY_PAGE:
        return 0
    if first.raw_bytes > meta[fields.META_RAW][1]:
        raise MalformedError("a dictionary claims more bytes than its column chunk")
    if first.raw_bytes * values <= _CHEAP:
        return first.raw_bytes
    content = chunk[first.begin : first.end]
    codec = meta[fields.META_CODEC][1]
    try:
        data = (
            pa.Codec(CODECS[codec]).decompress(content, first.raw_bytes, asbytes=True) if codec else content.tobytes()
        )
    except (pa.ArrowException, OSError) as error:
        raise MalformedError(f"a dictionary can't be decompressed ({error})") from error
    longest = at = 0
    length_at = _LENGTH.unpack_from
    try:
        for _ in range(first.entries):
            (length,) = length_at(data, at)
            at += 4 + length
            if length > longest:  # noqa: PLR1730 - a call of max takes longer than all the rest
                longest = length
    except struct.error as error:
        raise MalformedError("a dictionary ends too early") from error
    return int(longest)
