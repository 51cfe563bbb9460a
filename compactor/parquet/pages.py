"""
Pages of a column chunk in memory: their headers, and how many bytes a chunk may have once decoded.

A few stored bytes can decode to gigabytes, since a dictionary's entry costs next to nothing where it is repeated. The
bound here is one that no input exceeds whose footer tells the truth about uncompressed sizes.
Source: parquet.thrift (PageHeader); Encodings.md.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from compactor.parquet import thrift
from compactor.parquet.row_group import Chunk
from compactor.parquet.schema import BOOLEAN, BYTE_ARRAY, Leaf
from compactor.parquet.structs import PAGE
from compactor.parquet.thrift import MalformedError, Struct
from compactor.parquet.writers import DELTA_BYTE_ARRAY, PAGE_CODECS
from compactor.words import one_line

DATA_PAGE_1: Final = 0
DICTIONARY_PAGE: Final = 2
DATA_PAGE_2: Final = 3
_TYPE: Final = 1
_RAW: Final = 2
_STORED: Final = 3
_CRC: Final = 4
_HEADERS: Final = {DATA_PAGE_1: 5, 1: 6, DICTIONARY_PAGE: 7, DATA_PAGE_2: 8}
"""By the kind of page, the field of its header that is about just that kind."""
_SHAPE: Final[thrift.Shape] = {number: {} for number in _HEADERS.values()}
_ENCODING: Final = {DATA_PAGE_1: 2, DATA_PAGE_2: 4}
"""By the kind of page, the field of its own header that names the encoding of the values."""
_INDEX_PAGE: Final = 1
_VALUES: Final = 1
_LENGTH: Final = struct.Struct("<I")
_LARGEST: Final = 96 << 20
"""Bytes of the largest page that is decompressed: as much as a row group may need that is encoded anew."""
_CHEAP: Final = 64 << 10
"""Below this, the longest entry of a dictionary isn't looked for."""


@dataclass(frozen=True, slots=True)
class Page:
    """
    A page.

    Args:
        header: the fields that are about its kind.
        values: of a dictionary its entries.
        begin, end: of its content in the chunk.
    """

    kind: int
    raw_bytes: int
    crc: int | None
    header: Struct
    values: int
    begin: int
    end: int


class Stored(Protocol):
    """A column chunk's bytes, in memory or read where they are asked for."""

    def __len__(self) -> int: ...
    def __getitem__(self, place: slice, /) -> bytes | memoryview: ...


def pages(chunk: Stored) -> Iterator[Page]:
    """
    Walk the pages of a chunk.

    Raises:
        MalformedError: a header makes no sense.
    """
    at = 0
    while at < len(chunk):
        head = bytes(chunk[at : at + 1024])
        try:
            header, length = thrift.decode(head, 0, _SHAPE)
        except MalformedError:  # statistics of long texts
            header, length = thrift.decode(bytes(chunk[at : at + (1 << 20)]), 0, _SHAPE)
        PAGE.require(header)
        if header[_RAW][1] < 0 or header[_STORED][1] < 0:
            raise MalformedError("a page has no sizes")
        begin = at + length
        at = begin + header[_STORED][1]
        if at > len(chunk):
            raise MalformedError("a page ends behind its column chunk")
        kind = header[_TYPE][1]
        if kind not in _HEADERS:
            raise MalformedError(f"a page is of the kind {kind}")
        about: Struct = header.get(_HEADERS[kind], (0, {}))[1]
        values = about.get(_VALUES, (0, 0))
        if kind != _INDEX_PAGE and (values[0] != thrift.I32 or values[1] < 0):
            raise MalformedError("a page has no number of values")
        crc = header[_CRC][1] if _CRC in header else None
        yield Page(kind, header[_RAW][1], crc, about, values[1], begin, at)


def decoded_bound(stored: memoryview, chunk: Chunk, leaf: Leaf) -> int:
    """
    Most bytes that Arrow needs for the values of a column chunk, and for the lists and structs that they stand in.

    Raises:
        MalformedError: its pages make no sense.
    """
    values = chunk.values
    bits, offsets = values // 8 + 1, 4 * (values + 1)
    levels = offsets * leaf.levels.count("R") + bits * leaf.levels.count("O")
    if leaf.physical == BOOLEAN:
        return levels + bits
    if leaf.physical != BYTE_ARRAY:
        return levels + values * (16 if leaf.decimal else leaf.width)
    longest = 0
    for page in pages(stored):  # a footer may state other encodings
        if page.kind == DICTIONARY_PAGE:
            longest = max(longest, _longest_entry(stored, chunk, page))
        elif page.header.get(_ENCODING.get(page.kind, 0), (0, None))[1] == DELTA_BYTE_ARRAY:
            longest = chunk.raw
    return levels + offsets + chunk.raw + longest * values


def _longest_entry(stored: memoryview, chunk: Chunk, dictionary: Page) -> int:
    """Bytes of the longest entry of a chunk's dictionary, or a bound where that is good enough."""
    if dictionary.raw_bytes > chunk.raw:
        raise MalformedError("a dictionary claims more bytes than its column chunk")
    if dictionary.raw_bytes * chunk.values <= _CHEAP:
        return dictionary.raw_bytes
    data = inflated(stored[dictionary.begin : dictionary.end], chunk.codec, dictionary.raw_bytes)
    if data is None:
        raise MalformedError("a dictionary can't be decompressed")
    return longest_entry(data, dictionary.values)


def inflated(content: bytes | memoryview, codec: int, raw_bytes: int) -> bytes | None:
    """
    The content of a page of one piece, without compression; None: nothing here knows its codec.

    Raises:
        MalformedError: it isn't so many bytes in that codec.
    """
    if not codec:
        data = bytes(content)
    elif codec not in PAGE_CODECS or not pa.Codec.is_available(PAGE_CODECS[codec]):
        return None
    elif raw_bytes > _LARGEST:
        raise MalformedError(f"a page of {raw_bytes >> 20} MiB is larger than those that are decompressed here")
    else:
        try:
            data = pa.Codec(PAGE_CODECS[codec]).decompress(content, raw_bytes, asbytes=True)
        except (pa.ArrowException, OSError) as error:
            raise MalformedError(f"a page can't be decompressed ({one_line(error)})") from error
    if len(data) != raw_bytes:
        raise MalformedError(f"a page has {len(data)} bytes instead of {raw_bytes}")
    return bytes(data)


def longest_entry(data: bytes, entries: int, *, whole: bool = False) -> int:
    """
    Bytes of the longest of so many byte arrays in PLAIN encoding.

    Args:
        whole: whether they must be all that there is.

    Raises:
        MalformedError: they are fewer, or more.
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
    if at > len(data) or (whole and at != len(data)):
        raise MalformedError(f"a dictionary of {len(data)} bytes has entries of {at}")
    return int(longest)
