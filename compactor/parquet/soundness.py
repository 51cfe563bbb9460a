"""
Whether the row groups of a file can be read as its footer says, without decoding their values.

A reader of a joined file reads all of it: a page header, a page index or a Bloom filter that isn't sound in one source
would take the rows of the others along. So each header is parsed, and what several places say alike is compared: sizes,
counts, encodings, places of pages. Checksums are verified where there are any. Of columns whose values repeat, the levels
that begin a row are counted: readers of a whole file read lists on from one row group to the next, so that one level too
few moves the lists of all rows after it, in other files' row groups too. Damage inside values stays what it was.
Source: parquet.thrift; parquet-mr's ParquetFileReader, ColumnIndexBuilder and OffsetIndexBuilder; BloomFilter.md.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from compactor.errors import CorruptFileError
from compactor.handles import RandomReader
from compactor.parquet import fields, structs, thrift
from compactor.parquet.assembly import bloom_filter, indexes
from compactor.parquet.fields import extent
from compactor.parquet.footer import Footer
from compactor.parquet.pages import (
    DATA_PAGE_1,
    DATA_PAGE_2,
    DICTIONARY_PAGE,
    Page,
    Stored,
    inflated,
    longest_entry,
    pages,
)
from compactor.parquet.row_group import Chunk, load
from compactor.parquet.schema import BYTE_ARRAY, Leaf
from compactor.parquet.statistics import require_bound, require_bounds
from compactor.parquet.thrift import MalformedError, Struct
from compactor.parquet.writers import (
    BIT_PACKED,
    DICTIONARIES,
    KNOWN_ENCODINGS,
    PLAIN,
    PLAIN_DICTIONARY,
    RLE,
)
from compactor.parsing import parsing

_AT_ONCE: Final = 8 << 20
"""A row group of so many bytes is read at once; of larger ones only what is looked at."""
_LEVELS: Final = frozenset({RLE, BIT_PACKED})
_NONE: Final = 0
_SNAPPY: Final = 1
_LZO: Final = 3
_LZ4: Final = 5
_LZ4_RAW: Final = 7
_BEGINNINGS: Final = {2: b"\x1f\x8b", 6: b"\x28\xb5\x2f\xfd"}
"""How data in gzip and zstd begin."""
_IN_BLOCKS: Final = frozenset({_LZO, _LZ4})
"""LZO, and LZ4 by Hadoop: each block begins with its size; some writers of LZ4 write it raw."""
_LONGEST_HEAD: Final = 16
_LOCATIONS: Final = 1
_NULL_PAGES: Final = 1
_LOWEST: Final = 2
_HIGHEST: Final = 3
_ORDER: Final = 4
_NULLS: Final = 5
_BLOOM_MEMBER: Final = 1
_BLOOM_BLOCK: Final = 32


@dataclass(frozen=True, slots=True)
class _Column:
    """A column chunk: as described, with its stored bytes and its indexes; `kept` if it is only ever copied."""

    leaf: Leaf
    chunk: Chunk
    meta: Struct
    rows: int
    kept: bool
    stored: Stored
    column_index: bytes
    offset_index: bytes


class _Unread:
    """A column chunk's bytes, each read when it is asked for."""

    def __init__(self, reader: RandomReader, begin: int, length: int) -> None:
        self._reader, self._begin, self._length = reader, begin, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: slice, /) -> bytes:
        start, stop, _ = place.indices(self._length)
        return self._reader.read_at(self._begin + start, max(0, stop - start))


def require_sound(reader: RandomReader, footer: Footer, row_groups: Sequence[int]) -> None:
    """
    Judge row groups of a file.

    Raises:
        CorruptFileError: what isn't sound, and where.
    """
    with parsing(reader.name):
        _require_row_groups(reader, footer, row_groups)


def _require_row_groups(reader: RandomReader, footer: Footer, row_groups: Sequence[int]) -> None:
    leaves = footer.schema.leaves
    for number in row_groups:
        group = footer.row_groups[number]
        if not group.rows:
            continue
        described: list[Struct] = footer.describe(number)[fields.GROUP_COLUMNS][1]
        places = indexes(reader, described)
        all_stored: Sequence[Stored] = (
            load(reader, group).stored
            if group.bytes <= _AT_ONCE
            else [_Unread(reader, chunk.begin, chunk.stored) for chunk in group.chunks]
        )
        for leaf, chunk, one, stored, place in zip(leaves, group.chunks, described, all_stored, places, strict=True):
            meta: Struct = one[fields.CHUNK_META][1]
            column = _Column(leaf, chunk, meta, group.rows, footer.kept is not None, stored, *place)
            try:
                _require_column(column)
                _require_bloom_filter(bloom_filter(reader, meta))
            except MalformedError as error:
                raise CorruptFileError(
                    f"{reader.name} isn't a sound Parquet file: in row group {number + 1}, column {leaf.name}, {error}"
                ) from error


def _require_column(column: _Column) -> None:
    chunk, meta = column.chunk, column.meta
    begin, end = extent(meta)
    allowed = _written_as(meta)
    values = rows = raw = heads = at = dictionary = 0
    counted = True
    starts = list[tuple[int, int, int]]()
    for number, page in enumerate(pages(column.stored)):
        if page.kind == DICTIONARY_PAGE:
            if number:
                raise MalformedError("there is a dictionary among the pages of values")
            _require_dictionary(column, page)
            dictionary = page.end - page.begin
            _require_codec(column, page)
        elif page.kind in {DATA_PAGE_1, DATA_PAGE_2}:
            # at the dictionary to parquet-mr before 1.12 (PARQUET-1850), Trino before 427, and polars; DuckDB before
            # 0.10.2 leaves out the dictionary's header
            if not starts and meta[fields.META_DATA_PAGE][1] not in {begin, begin + dictionary, begin + at}:
                raise MalformedError("the first page of values lies elsewhere")
            starts.append((begin + at, page.end - at, rows))
            values += page.values
            found = _require_data_page(column, page, allowed)
            rows, counted = rows + (found or 0), counted and found is not None
            _require_codec(column, page)
        if page.crc is not None and zlib.crc32(column.stored[page.begin : page.end]) != page.crc & 0xFFFFFFFF:
            raise MalformedError(f"the page at byte {begin + at} hasn't the checksum that it states")
        raw += page.raw_bytes
        heads += page.begin - at
        at = page.end
    if values != chunk.values:
        raise MalformedError(f"its pages have {values} values instead of {chunk.values}")
    if counted and rows != column.rows:
        raise MalformedError(f"its pages have {rows} rows instead of {column.rows}")
    # DuckDB before 0.6 leaves it out, parquetjs states the size with compression
    unknown = column.kept and chunk.raw in {0, chunk.stored}
    if chunk.raw not in {raw, raw + heads} and not unknown:
        raise MalformedError(f"its pages have {raw} bytes, and headers of {heads}, instead of {chunk.raw}")
    if end != begin + at:
        raise MalformedError("its pages don't fill it")
    if column.offset_index:
        _require_offset_index(column, starts)
    if column.column_index:
        _require_column_index(column, len(starts))


def _written_as(meta: Struct) -> frozenset[int]:
    """
    Encodings that pages of values may have: those that the chunk counts, or where it counts none, states, or all that
    are known; of the dictionary's both names.
    """
    found = frozenset(thrift.integers(meta[fields.META_ENCODINGS][1])) or KNOWN_ENCODINGS
    if fields.META_ENCODING_STATISTICS in meta:
        counted = thrift.structs(meta[fields.META_ENCODING_STATISTICS][1], 0)
        found = frozenset(one[2][1] for one in counted if one[1][1] in {DATA_PAGE_1, DATA_PAGE_2}) or found
    return found if found.isdisjoint(DICTIONARIES) else found | DICTIONARIES


def _require_data_page(column: _Column, page: Page, allowed: frozenset[int]) -> int | None:
    """Judge a page of values; returns how many rows begin in it, None where that can't be known."""
    header, leaf = page.header, column.leaf
    statistics = 5 if page.kind == DATA_PAGE_1 else 8
    (structs.DATA_PAGE if page.kind == DATA_PAGE_1 else structs.DATA_PAGE_2).require(header)
    encoding = header[2][1] if page.kind == DATA_PAGE_1 else header[4][1]
    if encoding not in allowed:
        raise MalformedError(f"a page has the encoding {encoding}, which the column hasn't")
    if statistics in header:
        require_bounds(thrift.decode(header[statistics][1], 0, {})[0], leaf, page.values)
    if page.kind == DATA_PAGE_1:
        if not {header[3][1], header[4][1]} <= _LEVELS:  # Java reads by them where there are no levels, too
            raise MalformedError("a page's levels have an encoding that isn't one of levels")
        return _rows_begun(column, page, header[4][1]) if "R" in leaf.levels else page.values
    nulls, rows, lengths = header[2][1], header[3][1], (header[5][1], header[6][1])
    if not (0 <= nulls <= page.values and 0 <= rows <= page.values):
        raise MalformedError(f"a page has {nulls} NULLs and {rows} rows among {page.values} values")
    if min(lengths) < 0 or sum(lengths) > min(page.raw_bytes, page.end - page.begin):
        raise MalformedError(f"a page of {page.end - page.begin} bytes has levels of {sum(lengths)}")
    stored, at = bytes(column.stored[page.begin : page.begin + sum(lengths)]), lengths[1]
    ends = []
    for data, highest in ((stored[:at], leaf.levels.count("R")), (stored[at:], len(leaf.levels))):
        zeros, end = _zeros(data, highest, page.values)
        if end != len(data):
            raise MalformedError(f"a page's levels of {len(data)} bytes end at byte {end}")
        ends.append(zeros)
    if "R" not in leaf.levels:
        return int(rows)
    if rows not in {ends[0], page.values}:  # Arrow before 6 gives the number of values
        raise MalformedError(f"in a page of {rows} rows {ends[0]} begin")
    return ends[0]


def _rows_begun(column: _Column, page: Page, encoding: int) -> int | None:
    """How many repetition levels of a page of version 1 are 0; None where its codec isn't known here."""
    if not page.values:
        return 0
    content = _inflated(column.stored[page.begin : page.end], column.chunk.codec, page.raw_bytes)
    if content is None:
        return None
    highest = column.leaf.levels.count("R")
    if encoding == BIT_PACKED:
        return _zeros_of_bits(content, highest, page.values, "big")
    length = int.from_bytes(content[:4], "little")
    if 4 + length > len(content):
        raise MalformedError(f"a page of {len(content)} bytes has levels of {length}")
    return _zeros(content[4 : 4 + length], highest, page.values)[0]


def _inflated(content: bytes | memoryview, codec: int, raw_bytes: int) -> bytes | None:
    """As `inflated`, LZ4 in Hadoop's frames too: of each block its bytes, then those that it has compressed."""
    if codec != _LZ4:
        return inflated(content, codec, raw_bytes)
    parts, at, left, data = list[bytes](), 0, raw_bytes, bytes(content)
    while at < len(data):
        raw, stored = (int.from_bytes(data[begin : begin + 4], "big") for begin in (at, at + 4))
        if raw > left or at + 8 + stored > len(data):
            return inflated(data, _LZ4_RAW, raw_bytes)
        left -= raw
        parts.append(inflated(data[at + 8 : at + 8 + stored], _LZ4_RAW, raw) or b"")
        at += 8 + stored
    if left:
        raise MalformedError(f"a page has {raw_bytes - left} bytes instead of {raw_bytes}")
    return b"".join(parts)


def _zeros(data: bytes, highest: int, values: int) -> tuple[int, int]:
    """
    How many of so many levels are 0, and where the levels end, which stand in runs of one value and of bits.

    Source: Encodings.md, "Run Length Encoding / Bit-Packing Hybrid".
    """
    width, at, left, zeros = highest.bit_length(), 0, values if highest else 0, 0
    while left > 0:
        number, at = thrift.unsigned_at(data, at)
        count = number >> 1
        end = at + (count * width if number & 1 else (width + 7) // 8)
        if not count:
            raise MalformedError("a page's levels have a run of none")
        if number & 1:  # Arrow2 cuts the last groups off behind the values, as parquet-mr's reader allows
            end = min(end, len(data))
        if end > len(data):
            raise MalformedError("a page's levels end too early")
        if number & 1:
            zeros += _zeros_of_bits(data[at:end], highest, min(left, 8 * count), "little")
        elif not any(data[at:end]):
            zeros += min(left, count)
        elif int.from_bytes(data[at:end], "little") > highest:
            raise MalformedError(f"a page has levels above {highest}")
        at, left = end, left - (8 * count if number & 1 else count)
    return zeros, at


def _zeros_of_bits(data: bytes, highest: int, values: int, order: Literal["little", "big"]) -> int:
    """How many of so many levels are 0, which stand one after the other in as many bits as the highest takes."""
    width = highest.bit_length()
    if values * width > 8 * len(data):
        raise MalformedError("a page's levels end too early")
    if width == 1 and order == "little":
        return values - (int.from_bytes(data, order) & (1 << values) - 1).bit_count()
    bits = np.unpackbits(np.frombuffer(data, np.uint8), count=values * width, bitorder=order)
    weights = 1 << np.arange(width)
    levels = bits.reshape(-1, width) @ (weights if order == "little" else weights[::-1])
    if levels.max(initial=0) > highest:
        raise MalformedError(f"a page has levels above {highest}")
    return values - int(np.count_nonzero(levels))


def _require_codec(column: _Column, page: Page) -> None:
    """The page begins as one in the column's codec does, or can be decompressed."""
    begin, raw, codec = page.begin, page.raw_bytes, column.chunk.codec
    if page.kind == DATA_PAGE_2:
        levels = page.header[5][1] + page.header[6][1]
        begin, raw = begin + levels, raw - levels
        if page.header.get(7) == (thrift.FALSE, False):
            codec = _NONE
    head = bytes(column.stored[begin : min(page.end, begin + _LONGEST_HEAD)])
    if codec == _NONE:
        fits = page.end - begin == raw
    elif not raw and begin == page.end:
        fits = True
    elif codec == _SNAPPY:
        fits = thrift.unsigned_at(head, 0)[0] == raw
    elif codec in _BEGINNINGS:
        fits = head.startswith(_BEGINNINGS[codec])
    elif codec in _IN_BLOCKS and (codec == _LZO or _begins_block(head, raw)):
        fits = _begins_block(head, raw)
    else:
        inflated(column.stored[begin : page.end], _LZ4_RAW if codec in _IN_BLOCKS else codec, raw)
        fits = True
    if not fits:
        raise MalformedError(f"a page of {raw} bytes isn't in the codec {column.chunk.codec}")


def _begins_block(head: bytes, raw: int) -> bool:
    """Whether a block begins here whose bytes fit into so many; an empty dictionary of arrow-rs is a block of none."""
    return bool(raw) <= int.from_bytes(head[:4], "big") <= raw


def _require_dictionary(column: _Column, page: Page) -> None:
    structs.DICTIONARY_PAGE.require(page.header)
    if page.header[2][1] not in {PLAIN, PLAIN_DICTIONARY}:
        raise MalformedError(f"its dictionary has {page.values} entries in the encoding {page.header[2][1]}")
    if column.leaf.physical != BYTE_ARRAY:
        if page.values * column.leaf.width != page.raw_bytes:
            raise MalformedError(f"its dictionary of {page.raw_bytes} bytes has {page.values} entries")
        return
    content = inflated(column.stored[page.begin : page.end], column.chunk.codec, page.raw_bytes)
    if content is not None:
        longest_entry(content, page.values, whole=True)


def _require_offset_index(column: _Column, starts: Sequence[tuple[int, int, int]]) -> None:
    """Each location is that of a page, and its first row follows those of the pages before."""
    index, end = thrift.decode(column.offset_index, 0, {_LOCATIONS: {}})
    structs.OFFSET_INDEX.require(index)
    locations: list[Struct] = index[_LOCATIONS][1]
    for location in locations:
        structs.PAGE_LOCATION.require(location)
    found = [(location[1][1], location[2][1], location[3][1]) for location in locations]
    if end != len(column.offset_index) or [place[:2] for place in found] != [place[:2] for place in starts]:
        raise MalformedError("its offset index has other pages than it")
    firsts = [place[2] for place in found]
    known = [place[2] for place in starts] if "R" not in column.leaf.levels else firsts
    ascending = all(before < after for before, after in zip(firsts, [*firsts[1:], column.rows], strict=False))
    if firsts != known or not ascending or firsts[:1] != [0]:
        raise MalformedError("its offset index has other rows than its pages")


def _require_column_index(column: _Column, count: int) -> None:
    index, end = thrift.decode(column.column_index, 0, {})
    structs.COLUMN_INDEX.require(index)
    nulls = _booleans(index[_NULL_PAGES][1])
    bounds = [list(_binaries(index[number][1])) for number in (_LOWEST, _HIGHEST)]
    counts = thrift.integers(index[_NULLS][1]) if _NULLS in index else [0] * count
    if end != len(column.column_index) or {len(nulls), *map(len, bounds), len(counts)} != {count}:
        raise MalformedError(f"its column index isn't one of {count} pages")
    if not 0 <= index[_ORDER][1] <= 2 or min(counts, default=0) < 0 or sum(counts) > column.chunk.values:
        raise MalformedError("its column index has an order or a number of NULLs that is none")
    for values in bounds:
        for empty, value in zip(nulls, values, strict=True):
            if not empty:
                require_bound(value, column.leaf)
    for number, level in ((6, column.leaf.levels.count("R")), (7, len(column.leaf.levels))):
        histogram = thrift.integers(index[number][1]) if number in index else []
        if histogram and len(histogram) != count * (level + 1):
            raise MalformedError(f"its column index has histograms of {len(histogram)} levels in {count} pages")


def _require_bloom_filter(data: bytes) -> None:
    """The one algorithm, hash and compression that there are, and as many bytes as the header says."""
    if not data:
        return
    shape: thrift.Shape = {2: {}, 3: {}, 4: {}}
    header, end = thrift.decode(data, 0, shape)
    structs.BLOOM_FILTER.require(header)
    size = header[1][1]
    chosen = [{member: kind for member, (kind, _) in header[number][1].items()} for number in (2, 3, 4)]
    if any(member != {_BLOOM_MEMBER: thrift.STRUCT} for member in chosen):
        raise MalformedError("its Bloom filter is of a kind that isn't known")
    if size <= 0 or size % _BLOOM_BLOCK or end + size != len(data):
        raise MalformedError(f"its Bloom filter of {len(data)} bytes claims {size}")


def _booleans(data: bytes) -> list[bool]:
    """Elements of a list of booleans: 1 is true; false is 2, and 0 to some writers."""
    count, kind, at = thrift.list_header(data, 0)
    values = list(data[at : at + count])
    if (count and kind not in {thrift.TRUE, thrift.FALSE}) or not set(values) <= {0, 1, 2} or at + count != len(data):
        raise MalformedError("a list doesn't hold booleans")
    return [value == 1 for value in values]


def _binaries(data: bytes) -> Iterator[bytes]:
    count, kind, at = thrift.list_header(data, 0)
    if count and kind != thrift.BINARY:
        raise MalformedError("a list doesn't hold values")
    for _ in range(count):
        value, at = thrift.binary_at(data, at)
        yield value
