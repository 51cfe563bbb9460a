"""
Pages of a column chunk in memory: their headers, and how many bytes a chunk may have once decoded.

A few stored bytes can decode to gigabytes, since a dictionary's entry costs next to nothing where it is repeated. The
bound here is one that no input exceeds whose footer tells the truth about uncompressed sizes.
Source: parquet.thrift (PageHeader); Encodings.md.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from compactor.parquet import thrift
from compactor.parquet.row_group import Chunk
from compactor.parquet.schema import BOOLEAN, BYTE_ARRAY, Leaf
from compactor.parquet.thrift import MalformedError
from compactor.parquet.writers import CODECS, DELTA_BYTE_ARRAY, DICTIONARIES

DATA_PAGE_1: Final = 0
DATA_PAGE_2: Final = 3
_DICTIONARY_PAGE: Final = 2
_TYPE: Final = 1
_RAW: Final = 2
_STORED: Final = 3
_CRC: Final = 4
_DICTIONARY_HEADER: Final = 7
_ENTRIES: Final = 1
_LENGTH: Final = struct.Struct("<I")
_CHEAP: Final = 64 << 10
"""Below this, the longest entry of a dictionary isn't looked for."""


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


def decoded_bound(stored: memoryview, chunk: Chunk, encodings: bytes, leaf: Leaf) -> int:
    """
    Most bytes that Arrow needs for the values of a column chunk.

    Raises:
        MalformedError: its pages make no sense.
    """
    values = chunk.values
    levels = 4 * values if "R" in leaf.levels else 0
    if leaf.physical != BYTE_ARRAY:
        width = 16 if leaf.decimal else leaf.width
        return levels + (values if leaf.physical != BOOLEAN else values // 8) * width
    used = thrift.integers(encodings)
    longest = 0
    if DELTA_BYTE_ARRAY in used:
        longest = chunk.raw
    elif not DICTIONARIES.isdisjoint(used):
        longest = _longest_entry(stored, chunk)
    return levels + 4 * values + chunk.raw + longest * values


def _longest_entry(stored: memoryview, chunk: Chunk) -> int:
    """Bytes of the longest entry of a chunk's dictionary, or a bound where that is good enough."""
    first = next(pages(stored), None)
    if first is None or first.kind != _DICTIONARY_PAGE:
        return 0
    if first.raw_bytes > chunk.raw:
        raise MalformedError("a dictionary claims more bytes than its column chunk")
    if first.raw_bytes * chunk.values <= _CHEAP:
        return first.raw_bytes
    content = stored[first.begin : first.end]
    codec = chunk.codec
    try:
        data = (
            pa.Codec(CODECS[codec]).decompress(content, first.raw_bytes, asbytes=True) if codec else content.tobytes()
        )
    except (pa.ArrowException, OSError) as error:
        raise MalformedError(f"a dictionary can't be decompressed ({error})") from error
    return longest_entry(data, first.entries)


def longest_entry(data: bytes, entries: int) -> int:
    """
    Bytes of the longest of so many byte arrays in PLAIN encoding.

    Raises:
        MalformedError: they are fewer.
    """
    longest = at = 0
    length_at = _LENGTH.unpack_from
    try:
        for _ in range(entries):
            (length,) = length_at(data, at)
            at += 4 + length
            if length > longest:  # noqa: PLR1730 - a call of max takes longer than all the rest
                longest = length
    except struct.error as error:
        raise MalformedError("a dictionary ends too early") from error
    return int(longest)
