"""Joined files: the rows of their sources in the same order, and everything that a footer says about them."""

import io
import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from compactor.errors import CorruptFileError, RefusedError, VerificationError
from compactor.handles import MemoryReader
from compactor.parquet import fields, recoding, thrift
from compactor.parquet.assembly import bloom_filter, indexes, shifted_index
from compactor.parquet.checking import check
from compactor.parquet.footer import read_footer
from compactor.parquet.joining import join, require_values
from compactor.parquet.pages import pages
from compactor.parquet.row_group import load
from compactor.parquet.soundness import require_sound
from compactor.reasons import Reason
from tests import strategies
from tests.unit.orc.files import MemorySink
from tests.unit.parquet.files import (
    bits,
    by_pandas,
    counted,
    joined,
    opened,
    piece,
    rows,
    told_by_pandas,
    with_footer,
    written,
)


@settings(max_examples=150)
@given(strategies.parquet_tables(), strategies.parquet_options(), st.data())
def test_every_value_of_every_type_survives(tables, options, data):
    """Copied or encoded anew: the same bits in the same order, under the same schema and metadata."""
    files = [written(table, **options) for table in tables]
    pieces = [piece(file, recode=data.draw(st.booleans()), name=f"file {n}") for n, file in enumerate(files)]
    for one in pieces:
        require_sound(one.reader, one.footer, one.row_groups)
    made, result = joined(pieces)
    expected = pa.concat_tables([opened(file).read() for file in files])
    found = opened(made)
    assert rows(found.read()) == rows(expected)
    assert found.schema_arrow.equals(opened(files[0]).schema_arrow, check_metadata=True)
    assert found.metadata.metadata == opened(files[0]).metadata.metadata
    assert found.metadata.created_by == opened(files[0]).metadata.created_by
    assert result.rows == expected.num_rows
    assert read_footer(MemoryReader(made)).family == pieces[0].footer.family


@settings(max_examples=100)
@given(strategies.parquet_tables(most_rows=6), strategies.parquet_options())
def test_statistics_are_true(tables, options):
    """No value but NaN lies outside the minimum and maximum that the file gives, and NULLs are counted right."""
    made, _ = joined([piece(written(table, **options), recode=True) for table in tables])
    file = opened(made)
    for number in range(file.num_row_groups):
        table = file.read_row_group(number)
        for column in range(file.metadata.num_columns):
            chunk = file.metadata.row_group(number).column(column)
            if not chunk.is_stats_set or "." in chunk.path_in_schema:
                continue
            statistics, values = chunk.statistics, table.column(chunk.path_in_schema)
            if statistics.has_null_count:
                assert statistics.null_count == values.null_count
            if statistics.has_min_max and not pa.types.is_float16(values.type):  # Arrow gives those as bytes
                present = [value for value in values.to_pylist() if value is not None and value == value]  # noqa: PLR0124 - NaN
                low, high = statistics.min, statistics.max
                assert all(low <= value <= high for value in present)


FIXTURES = Path(__file__).parents[2] / "fixtures" / "parquet"


def simple(first, count=500):
    numbers = range(first, first + count)
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "s": pa.array([f"text {n % 50}" for n in numbers], pa.string()),
            "l": pa.array([[n] * (n % 4) for n in numbers], pa.list_(pa.int64())),
        }
    )


def test_small_row_groups_become_one():
    """Three files of three row groups: one row group, with the dictionaries, codec and indexes of the sources."""
    files = [written(simple(n * 500), row_group_size=200, write_page_index=True, compression="zstd") for n in range(3)]
    made, result = joined([piece(file, recode=True) for file in files])
    assert (result.row_groups, result.rows, result.copied_bytes) == (1, 1500, 0)
    assert result.recoded_bytes == sum(
        group.bytes for file in files for group in piece(file, recode=True).footer.row_groups
    )
    chunk = opened(made).metadata.row_group(0).column(1)
    assert (chunk.compression, chunk.has_offset_index, chunk.has_column_index) == ("ZSTD", True, True)
    assert "RLE_DICTIONARY" in chunk.encodings


@pytest.mark.parametrize("recode", [False, True])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_offset_indexes_point_at_the_pages(recode, version):
    """Every page location of every chunk is where a page header with that size lies, also after a copy."""
    options = {"write_page_index": True, "data_page_size": 64, "write_batch_size": 16, "data_page_version": version}
    made, _ = joined([piece(written(simple(n * 500), **options), recode=recode) for n in range(3)])
    reader = MemoryReader(made)
    footer = read_footer(reader)
    seen = 0
    for number in range(len(footer.row_groups)):
        group = footer.describe(number)
        for _, offset_index in indexes(reader, group[fields.GROUP_COLUMNS][1]):
            for location in thrift.decode(offset_index, 0, {1: {}})[0][1][1]:
                offset, size = location[1][1], location[2][1]
                header, content = thrift.decode(made, offset, {})
                assert header[1][1] in {0, 3}
                assert content + header[3][1] == offset + size
                seen += 1
    assert seen == 3 if recode else seen > 300


@pytest.mark.parametrize(
    "location",
    [
        {1: (thrift.I64, 99), 2: (thrift.I32, 20), 3: (thrift.I64, 0)},
        {1: (thrift.I64, 181), 2: (thrift.I32, 20), 3: (thrift.I64, 0)},
        {1: (thrift.I64, 300), 2: (thrift.I32, -150), 3: (thrift.I64, 0)},
        {1: (thrift.I64, 100)},
        {1: (thrift.BINARY, b"x"), 2: (thrift.I32, 20)},
    ],
    ids=["before", "behind", "backwards", "no size", "no number"],
)
def test_an_index_of_pages_elsewhere_is_not_moved(location):
    """It would lead a reader of the joined file to bytes of another column."""

    def index(*locations):
        return thrift.encode({1: (thrift.LIST, list(locations))})

    first, last = ({1: (thrift.I64, begin), 2: (thrift.I32, 50), 3: (thrift.I64, 0)} for begin in (100, 150))
    moved = [{**place, 1: (thrift.I64, place[1][1] + 1000)} for place in (first, last)]
    assert shifted_index("memory", index(first, last), (100, 200), 1000) == index(*moved)
    with pytest.raises(CorruptFileError, match=r"an offset index (puts a page at byte|makes no sense)"):
        shifted_index("memory", index(first, location), (100, 200), 1000)


def test_bloom_filters_move_with_their_row_group():
    """Each filter is found at its new place, byte for byte, whether its length is noted or not."""
    for noted in (True, False):
        files = [written(simple(n * 500), row_group_size=200, bloom_filter_options={"n": True}) for n in range(3)]
        if not noted:
            files = [with_footer(file, _without_bloom_lengths) for file in files]
        pieces = [piece(file, recode=True) for file in files]
        assert pieces[0].footer.kept == "it has Bloom filters"
        made, result = joined(pieces)
        assert result.recoded_bytes == 0
        old, new = _bloom_filters(files), _bloom_filters([made])
        assert old == new
        assert len(set(new)) > 3


def test_a_bloom_filter_outside_the_file_is_told():
    """Whether its length is noted or not: the joined file would have another's bytes for it, or none."""
    kinds = {number: (thrift.STRUCT, {1: (thrift.STRUCT, {})}) for number in (2, 3, 4)}
    data = b"PAR1" + thrift.encode({1: (thrift.I32, 32), **kinds}) + bytes(32)
    size = len(data)

    def found(data, begin, length=None):
        noted = {} if length is None else {fields.META_BLOOM_LENGTH: (thrift.I32, length)}
        return bloom_filter(MemoryReader(data), {fields.META_BLOOM: (thrift.I64, begin), **noted})

    assert found(data, 4) == found(data, 4, size - 4) == data[4:]
    for lie in ((-1, 8), (0, 8), (4, 0), (4, -1), (4, size - 3), (size, 1)):
        with pytest.raises(CorruptFileError, match="would lie at byte"):
            found(data, *lie)
    with pytest.raises(CorruptFileError, match="would lie at byte"):
        found(data[:-1], 4)


def _without_bloom_lengths(footer):
    for group in footer[fields.FILE_ROW_GROUPS][1]:
        for chunk in group[fields.GROUP_COLUMNS][1]:
            chunk[fields.CHUNK_META][1].pop(fields.META_BLOOM_LENGTH, None)


def _bloom_filters(files):
    found = []
    for file in files:
        footer = read_footer(MemoryReader(file))
        for number in range(len(footer.row_groups)):
            meta = footer.describe(number)[fields.GROUP_COLUMNS][1][0][fields.CHUNK_META][1]
            at = meta[fields.META_BLOOM][1]
            header, end = thrift.decode(file, at, {})
            found.append(file[at : end + header[1][1]])
    return found


def test_bits_of_nan_and_zero_survive_with_and_without_dictionary():
    """NaNs with different payloads, both zeros and infinities keep their bits, and leave no range in the statistics."""
    patterns = [0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000, 0x7FF0000000000001, 1 << 63, 0]
    numbers = np.array(patterns * 20, dtype="u8").view("f8")
    for dictionary in (True, False):
        table = pa.table({"f": numbers})
        made, result = joined([piece(written(table, use_dictionary=dictionary), recode=True) for _ in range(2)])
        assert result.row_groups == 1
        assert bits(opened(made).read().column(0)) == bits(table.column(0)) * 2
        statistics = opened(made).metadata.row_group(0).column(0).statistics
        assert (statistics.has_min_max, statistics.null_count) == (False, 0)


def test_int96_keeps_its_twelve_bytes_and_has_no_range():
    """Timestamps far outside of what nanoseconds in 64 bits can say, as Hive writes them."""
    table = pa.table({"t": pa.array([b"%012d" % n for n in range(100)], pa.binary(12))})
    files = [with_footer(written(table), _as_int96) for _ in range(2)]
    made, result = joined([piece(file, recode=True) for file in files])
    assert result.row_groups == 1
    chunk = opened(made).metadata.row_group(0).column(0)
    assert (chunk.physical_type, chunk.statistics.has_min_max, chunk.statistics.null_count) == ("INT96", False, 0)
    meta = read_footer(MemoryReader(made)).describe(0)[fields.GROUP_COLUMNS][1][0][fields.CHUNK_META][1]
    assert set(thrift.decode(meta[fields.META_STATISTICS][1], 0, {})[0]) == {3}, "Arrow hides the ranges of INT96"
    back = with_footer(made, _as_fixed)
    assert opened(back).read().column(0).to_pylist() == table.column(0).to_pylist() * 2


def _as_int96(footer):
    _set_type(footer, 3)
    footer[fields.FILE_SCHEMA][1][1].pop(2)


def _as_fixed(footer):
    _set_type(footer, 7)
    thrift.put(footer[fields.FILE_SCHEMA][1][1], 2, thrift.I32, 12)


def _set_type(footer, kind):
    footer[fields.FILE_SCHEMA][1][1][1] = thrift.I32, kind
    for group in footer[fields.FILE_ROW_GROUPS][1]:
        for chunk in group[fields.GROUP_COLUMNS][1]:
            chunk[fields.CHUNK_META][1][fields.META_TYPE] = thrift.I32, kind


NUMBERS = [Decimal("-1.5"), Decimal(0), Decimal("2.25")]
RANGED = [
    (pa.bool_(), [False, True]),
    *((kind, [-3, 0, 5]) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *((kind, [-1.5, 0.25, 9.0]) for kind in (pa.float32(), pa.float64())),
    *((kind, ["a", "b\u00e9", "z"]) for kind in (pa.string(), pa.binary())),
    (pa.binary(3), [b"abc", b"a\xff\0", b"zzz"]),
    *((kind, [0, 7000, 9000]) for kind in (pa.date32(), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))),
    *((kind, [-7000, 0, 9000]) for kind in (pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ns"))),
    *((kind, NUMBERS) for kind in (pa.decimal128(5, 2), pa.decimal128(38, 10))),
]
UNRANGED = [
    *((kind, [0, 7]) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    (pa.float16(), [-1.5, 9.0]),
    (pa.decimal256(50, 3), NUMBERS),
]


@pytest.mark.parametrize("logical", [True, False])
@pytest.mark.parametrize(("kind", "values"), [*RANGED, *UNRANGED], ids=str)
def test_what_has_an_order_keeps_its_range(kind, values, logical):
    """
    Of a type that Arrow orders as all readers do, minimum and maximum are those of the sources when values are encoded
    anew, also where an older writer states only the converted type. Of other types there are none.
    """
    if pa.types.is_temporal(kind):
        array = pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    else:
        array = pa.array(values, kind)
    table = pa.table({"c": array})
    file = with_footer(written(table, store_schema=False), lambda footer: None if logical else _without_logical(footer))
    made, result = joined([piece(file, recode=True)] * 2)
    assert result.row_groups == 1
    before, after = (opened(data).metadata.row_group(0).column(0).statistics for data in (file, made))
    assert before.has_min_max
    if (kind, values) in RANGED:
        assert (after.min, after.max) == (before.min, before.max)
    elif logical or kind != pa.float16():  # without its logical type it is two bytes
        assert not after.has_min_max


def _without_logical(footer):
    footer[fields.FILE_SCHEMA][1][1].pop(10, None)


def test_two_level_lists_stay_two_levels():
    """A list as old writers made it, a repeated field right below the group, is read as before."""
    kind = pa.list_(pa.field("element", pa.int32(), nullable=False))
    table = pa.table({"l": pa.array([[1, 2], None, [], [3]], kind)})

    def flatten(footer):
        """Make `group l (LIST) { repeated group list { required int32 element } }` one of two levels."""
        elements = footer[fields.FILE_SCHEMA][1]
        leaf = elements.pop(3)
        thrift.put(elements[2], 1, *leaf[1])
        elements[2].pop(5)
        elements[2][4] = thrift.BINARY, b"array"
        path = thrift.encoded_binaries([b"l", b"array"])
        for group in footer[fields.FILE_ROW_GROUPS][1]:
            group[fields.GROUP_COLUMNS][1][0][fields.CHUNK_META][1][fields.META_PATH] = thrift.LIST, path

    file = with_footer(written(table, store_schema=False), flatten)
    assert opened(file).read().column(0).to_pylist() == table.column(0).to_pylist()
    made, result = joined([piece(file, recode=True), piece(file, recode=True)])
    assert result.row_groups == 1
    assert opened(made).read().column(0).to_pylist() == table.column(0).to_pylist() * 2
    assert opened(made).metadata.row_group(0).column(0).path_in_schema == "l.array"


def test_a_row_group_alone_is_copied():
    """Between copied neighbours a single small row group isn't worth encoding."""
    files = [written(simple(n * 500)) for n in range(3)]
    made, result = joined([piece(file, recode=number == 1) for number, file in enumerate(files)])
    assert (result.row_groups, result.recoded_bytes) == (3, 0)
    assert opened(made).read().column("n").to_pylist() == list(range(1500))


def test_a_row_group_that_would_fill_the_memory_is_copied(monkeypatch):
    """A text of 1 MiB, repeated by its dictionary, is small on disk and large when decoded."""
    heavy = written(pa.table({"s": ["x" * (1 << 20)] * 200}), row_group_size=200)
    light = written(pa.table({"s": ["y"] * 200}))
    assert len(heavy) < 1 << 20
    made, result = joined([piece(light, recode=True), piece(heavy, recode=True), *[piece(light, recode=True)] * 2])
    assert result.row_groups == 3
    assert result.copied_bytes == sum(piece(file, recode=True).footer.row_groups[0].bytes for file in (light, heavy))
    assert opened(made).read().num_rows == 800


def test_row_groups_end_when_they_are_full(monkeypatch):
    """Many small ones become several, each not larger than what counts as full."""
    monkeypatch.setattr(recoding, "FULL_DECODED", 60_000)
    files = [written(simple(n * 500)) for n in range(12)]
    made, result = joined([piece(file, recode=True) for file in files])
    assert 2 <= result.row_groups <= 8
    assert opened(made).read().column("n").to_pylist() == list(range(6000))


def test_a_row_group_has_not_too_many_rows(monkeypatch):
    """Of a few bytes, too; one that has more already is copied."""
    monkeypatch.setattr(recoding, "_MOST_ROWS", 10)
    pieces = [piece(written(simple(100 * n, n)), recode=True) for n in (4, 6, 4, 4, 11, 4)]
    made, _ = joined(pieces)
    groups = opened(made).metadata
    assert [groups.row_group(number).num_rows for number in range(groups.num_row_groups)] == [10, 8, 11, 4]


def test_a_table_may_ask_for_smaller_row_groups():
    """Each holds as many of the sources' bytes as fit into the size that is asked for."""
    pieces = [piece(written(simple(n * 500)), recode=True) for n in range(12)]
    size = max(one.footer.row_groups[0].bytes for one in pieces)
    made, result = joined(pieces, full_stored=3 * size)
    assert 4 <= result.row_groups <= 5
    assert opened(made).read().column("n").to_pylist() == list(range(6000))


def test_more_row_groups_than_can_be_numbered():
    """Beyond 32,768 row groups none has a number, and Arrow reads them all."""

    def number(footer):
        for ordinal, group in enumerate(footer[fields.FILE_ROW_GROUPS][1]):
            thrift.put(group, fields.GROUP_ORDINAL, thrift.I16, ordinal)

    one = with_footer(written(pa.table({"n": [1, 2]}), row_group_size=1), number)
    pieces = [piece(one, recode=False)] * 16_400
    sink = MemorySink()
    assert join(pieces, sink).row_groups == 32_800
    footer = read_footer(MemoryReader(sink.getvalue()))
    assert fields.GROUP_ORDINAL not in footer.describe(7)
    assert opened(sink.getvalue()).read().num_rows == 32_800
    made, _ = joined(pieces[:4])
    numbers = read_footer(MemoryReader(made))
    assert [numbers.describe(n)[fields.GROUP_ORDINAL][1] for n in range(8)] == list(range(8))


def test_pieces_of_different_families_are_refused():
    """Files with another schema or other metadata share no file; neither do encrypted ones."""
    one, other = written(pa.table({"n": [1]})), written(pa.table({"m": [1]}))
    with pytest.raises(ValueError, match="one family"):
        join([piece(one, recode=False), piece(other, recode=False)], MemorySink())
    encrypted = with_footer(one, lambda footer: thrift.put(footer, 9, thrift.BINARY, b"key"))
    with pytest.raises(ValueError, match="its columns are encrypted"):
        join([piece(encrypted, recode=False)], MemorySink())


def test_zero_rows():
    """Files without rows, with and without a row group, join to a file without rows, or vanish among others."""
    empty = simple(0, 0)
    nothing, zero = written(empty), written(empty.slice(0, 0), row_group_size=10)
    buffer = io.BytesIO()
    with parquet.ParquetWriter(buffer, empty.schema):
        pass
    none = buffer.getvalue()
    for recode in (False, True):
        made, _ = joined([piece(file, recode=recode) for file in (nothing, zero, none)])
        assert opened(made).read().num_rows == 0
        full = written(simple(0))
        made, _ = joined([piece(file, recode=recode) for file in (none, full, zero, full, none)])
        assert opened(made).read().column("n").to_pylist() == [*range(500)] * 2


@pytest.mark.parametrize("recode", [False, True])
def test_an_index_that_pandas_counts_is_counted_anew(recode):
    """
    Files that pandas wrote differ in the range of their index. They share a file, which says nothing of a range: one of
    a single file would be none of all rows. So do files without an index, and one whose footer fits by chance.
    """
    tables = [simple(first, 100).select(["n"]) for first in (0, 100, 200, 300)]
    indexes = [counted(0, 100), counted(100, 200), counted(0, 400, "id"), []]
    files = [written(by_pandas(*both)) for both in zip(tables, indexes, strict=True)]
    made, result = joined([piece(file, recode=recode) for file in files])
    assert opened(made).read().column("n").to_pylist() == list(range(400))
    assert result.row_groups == (1 if recode else 4)
    (expected, _), found = told_by_pandas(files[3]), told_by_pandas(made)
    assert found == [expected, expected]
    assert opened(made).schema_arrow.names == ["n"]


def with_area(table, area):
    """A table with the metadata of GeoParquet: the area before, between or behind other words, or none."""
    column = {"encoding": "WKB", "geometry_types": [], "covering": {"bbox": {"xmin": ["bbox", "xmin"]}}}
    told = {"version": "1.1.0", "primary_column": "n", "columns": {"n": column if area is None else {**column, **area}}}
    return table.replace_schema_metadata(
        {"geo": json.dumps(told), "other": '{"columns": {"n": {"bbox": [1], "x": 1}}}'}
    )


@pytest.mark.parametrize("recode", [False, True])
def test_the_area_of_one_files_geometries_is_left_out(recode):
    """
    GeoParquet files differ in the area of their rows. They share a file, which says nothing of one, neither itself nor
    inside Arrow's schema; every other word stays, also where it looks alike.
    """
    areas = [{"bbox": [0.5, -1, 2e3, 4]}, {"bbox": [0, 1, 2, 3, 4, 5], "edges": "planar"}, None, {"edges": "planar"}]
    for some in (areas[0::2], areas[1::2]):
        files = [written(with_area(simple(100 * n, 100).select(["n"]), area)) for n, area in enumerate(some)]
        made, _ = joined([piece(file, recode=recode) for file in files])
        assert opened(made).read().column("n").to_pylist() == list(range(200))
        told = opened(files[1]).metadata.metadata
        assert opened(made).metadata.metadata == told
        assert opened(made).schema_arrow.metadata == opened(files[1]).schema_arrow.metadata


def test_metadata_of_one_files_rows_are_found_out():
    """A joined file that says the range of one of its sources isn't what they make together."""
    files = [written(by_pandas(simple(first, 100), counted(first, first + 100))) for first in (0, 100)]
    pieces = [piece(file, recode=False) for file in files]
    made, _ = joined(pieces)
    said = thrift.decode(files[0][-8 - int.from_bytes(files[0][-8:-4], "little") : -8], 0, {})[0]
    wrong = with_footer(made, lambda footer: footer.update({fields.FILE_KEY_VALUES: said[fields.FILE_KEY_VALUES]}))
    assert read_footer(MemoryReader(wrong)).family == pieces[0].footer.family
    with pytest.raises(VerificationError, match="its metadata are those of one file's rows"):
        check(MemoryReader(wrong, "result"), pieces)


def test_only_some_row_groups_of_a_file_are_taken():
    """A file's row groups may be split among several joined files."""
    file = written(simple(0), row_group_size=100)
    halves = [
        joined([piece(file, recode=recode, row_groups=groups)])[0]
        for groups, recode in (((0, 1), True), ((2, 3, 4), False))
    ]
    found = [value for half in halves for value in opened(half).read().column("n").to_pylist()]
    assert found == list(range(500))


def test_progress_adds_up():
    """The bytes told are those of all row groups."""
    pieces = [piece(written(simple(n), row_group_size=200), recode=n > 1) for n in range(4)]
    told = []
    join(pieces, MemorySink(), progress=told.append)
    assert sum(told) == sum(group.bytes for one in pieces for group in one.footer.row_groups)


@pytest.mark.parametrize("encoding", ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "PLAIN"])
def test_encodings_stay(encoding):
    """A column without a dictionary keeps its encoding; the others have dictionaries as before."""
    table = pa.table({"n": pa.array(range(1000), pa.int64()), "s": ["a", "b"] * 500})
    file = written(table, use_dictionary=["s"], column_encoding={"n": encoding})
    made, result = joined([piece(file, recode=True)] * 2)
    assert result.row_groups == 1
    numbers, texts = (opened(made).metadata.row_group(0).column(n).encodings for n in (0, 1))
    assert encoding in numbers
    assert "RLE_DICTIONARY" not in numbers
    assert "RLE_DICTIONARY" in texts


def test_what_would_be_encoded_anew_is_decoded_before():
    """So that a bad file stays apart and its neighbours don't fail with it; what is only copied isn't decoded."""
    data = bytearray(written(simple(0), compression="snappy", use_dictionary=False, write_page_checksum=True))
    require_values(piece(bytes(data), recode=True))
    found = opened(bytes(data)).metadata.row_group(0).column(0)
    data[found.data_page_offset + found.total_compressed_size // 2] ^= 0xFF
    require_values(piece(bytes(data), recode=False))
    with pytest.raises(CorruptFileError):
        require_values(piece(bytes(data), recode=True))


def test_a_wrong_checksum_is_found_when_a_page_is_decoded():
    """A bit that changed on the disk isn't encoded into a page with a right checksum."""
    file = bytearray(written(simple(0), write_page_checksum=True, compression="none", use_dictionary=False))
    file[300] ^= 1
    with pytest.raises(CorruptFileError, match=r"memory can't be decoded .*CRC"):
        join([piece(bytes(file), recode=True)] * 2, MemorySink())


@pytest.mark.parametrize("checksums", [False, True])
def test_encoded_pages_have_checksums_where_their_sources_have_some(checksums):
    """Dictionaries, too."""
    made, _ = joined([piece(written(simple(n), write_page_checksum=checksums), recode=True) for n in range(2)])
    one = piece(made, recode=False)
    (group,) = one.footer.row_groups
    found = [page for stored in load(one.reader, group).stored for page in pages(stored)]
    assert {page.crc is not None for page in found} == {checksums}


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("recode", [False, True])
def test_values_may_begin_at_the_dictionary(version, recode):
    """
    parquet-mr before 1.12 (Hive 3.1, Spark 3.1), Trino before 427 and polars name the dictionary's place as that of the
    values: such files are sound, and joined. Places elsewhere aren't.
    """

    def change(begins):
        def of(footer):
            for group in footer[fields.FILE_ROW_GROUPS][1]:
                for chunk in group[fields.GROUP_COLUMNS][1]:
                    meta = chunk[fields.CHUNK_META][1]
                    _, dictionary = meta.pop(fields.META_DICTIONARY_PAGE)
                    meta[fields.META_DATA_PAGE] = thrift.I64, begins(dictionary)

        return of

    table = pa.table({"n": [1, 2, None] * 200, "s": ["a", "b", "c"] * 200})
    file = written(table, data_page_version=version, write_page_index=True)
    pieces = [piece(with_footer(file, change(lambda dictionary: dictionary)), recode=recode) for _ in range(2)]
    for one in pieces:
        require_sound(one.reader, one.footer, one.row_groups)
    made, _ = joined(pieces)
    assert opened(made).read().equals(pa.concat_tables([table, table]))
    found = read_footer(MemoryReader(made))
    require_sound(MemoryReader(made), found, range(len(found.row_groups)))
    broken = piece(with_footer(file, change(lambda dictionary: dictionary + 1)), recode=recode)
    with pytest.raises(CorruptFileError):
        require_sound(broken.reader, broken.footer, broken.row_groups)


def test_files_of_old_releases_of_duckdb_are_joined():
    """
    DuckDB before 0.10.2 names a place inside the dictionary as that of the first values, before 0.6 no size without
    compression, and parquetjs that with compression: sound where a file's row groups are only copied, for readers begin
    at the dictionary. Of a writer whose values are encoded anew, that size says how much memory they take.
    """
    data = (FIXTURES / "duckdb-0.9.2.parquet").read_bytes()

    def without_raw(footer):
        for chunk in footer[fields.FILE_ROW_GROUPS][1][0][fields.GROUP_COLUMNS][1]:
            chunk[fields.CHUNK_META][1][fields.META_RAW] = thrift.I64, 0

    def stored(footer):
        for chunk in footer[fields.FILE_ROW_GROUPS][1][0][fields.GROUP_COLUMNS][1]:
            meta = chunk[fields.CHUNK_META][1]
            meta[fields.META_RAW] = meta[fields.META_STORED]

    for file in (data, with_footer(data, without_raw), with_footer(data, stored)):
        pieces = [piece(file, recode=True) for _ in range(2)]
        for one in pieces:
            require_sound(one.reader, one.footer, one.row_groups)
        made, _ = joined(pieces)
        assert rows(opened(made).read()) == rows(pa.concat_tables([opened(data).read()] * 2))
        assert opened(made).read().to_pydict() == {"n": [*range(10)] * 2, "s": ["x"] * 20}
    ours = piece(with_footer(written(pa.table({"n": [1]})), without_raw), recode=False)
    with pytest.raises(CorruptFileError, match="instead of 0"):
        require_sound(ours.reader, ours.footer, ours.row_groups)


LISTS = {
    "one level": ([[n] * (n % 5) for n in range(300)], pa.list_(pa.int64())),
    "in runs": ([[n] * 40 for n in range(60)], pa.list_(pa.int64())),
    "three levels": ([[[[n], []], [[n, 1]] * (n % 3)] for n in range(200)], pa.list_(pa.list_(pa.list_(pa.int32())))),
    "maps": ([[(n, n), (n + 1, None)] if n % 4 else None for n in range(300)], pa.map_(pa.int32(), pa.int64())),
}


@pytest.mark.parametrize("codec", ["none", "snappy", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("kind", LISTS)
def test_rows_of_lists_are_counted(kind, version, codec):
    """Of whichever depth, codec and version of pages: as many levels begin a row as the row group has rows."""
    values, type_ = LISTS[kind]
    table = pa.table({"l": pa.array(values, type_)})
    one = piece(written(table, compression=codec, data_page_version=version, row_group_size=90), recode=False)
    require_sound(one.reader, one.footer, one.row_groups)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("kind", LISTS)
def test_a_repetition_level_that_begins_another_row_is_found(kind, version):
    """Arrow, which reads lists on from one row group to the next, would move those of all later files."""
    values, type_ = LISTS[kind]
    table = pa.table({"l": pa.array(values, type_)})
    file = written(table, compression="none", use_dictionary=False, data_page_version=version)
    found = piece(file, recode=False)
    meta = found.footer.describe(0)[fields.GROUP_COLUMNS][1][0][fields.CHUNK_META][1]
    begin, end = fields.extent(meta)
    page = next(pages(file[begin:end]))
    length = int.from_bytes(file[begin + page.begin :][:4], "little") if version == "1.0" else page.header[6][1]
    first, moved = begin + page.begin + (4 if version == "1.0" else 0), 0
    for bit in range(0, 8 * length, 7):
        broken = bytearray(file)
        broken[first + bit // 8] ^= 1 << bit % 8
        one, sink = piece(bytes(broken), recode=False), MemorySink()
        join([one, found], sink)
        try:
            later = opened(sink.getvalue()).read().slice(table.num_rows)
        except (pa.ArrowException, OSError):  # as of any damaged value
            continue
        if rows(later) != rows(table):
            moved += 1
            with pytest.raises(CorruptFileError):
                require_sound(one.reader, one.footer, one.row_groups)
    assert moved


def test_a_chunk_may_name_no_encoding():
    """A writer that states no encodings (HVR) contradicts none; what pages have must be known all the same."""

    def change(footer):
        for group in footer[fields.FILE_ROW_GROUPS][1]:
            meta = group[fields.GROUP_COLUMNS][1][0][fields.CHUNK_META][1]
            meta[fields.META_ENCODINGS] = thrift.LIST, thrift.encoded_list([], thrift.I32)
            meta.pop(fields.META_ENCODING_STATISTICS, None)

    one = piece(with_footer(written(pa.table({"n": range(9)})), change), recode=False)
    require_sound(one.reader, one.footer, one.row_groups)


def test_file_offsets_move_or_become_zero():
    """A chunk's `file_offset` goes with the chunk; one that points behind it, as old writers made, is unknown: 0."""

    def change(footer):
        for group in footer[fields.FILE_ROW_GROUPS][1]:
            for number, chunk in enumerate(group[fields.GROUP_COLUMNS][1]):
                begin, end = fields.extent(chunk[fields.CHUNK_META][1])
                chunk[fields.CHUNK_FILE_OFFSET] = thrift.I64, (begin, end, 0)[number]

    made, _ = joined([piece(with_footer(written(simple(n)), change), recode=False) for n in range(3)])
    footer = read_footer(MemoryReader(made))
    for number in range(3):
        group = footer.describe(number)
        begins = [fields.extent(chunk[fields.CHUNK_META][1])[0] for chunk in group[fields.GROUP_COLUMNS][1]]
        assert group[fields.GROUP_FILE_OFFSET][1] == begins[0]
        offsets = [chunk[fields.CHUNK_FILE_OFFSET][1] for chunk in group[fields.GROUP_COLUMNS][1]]
        assert offsets == [begins[0], 0, 0]


@pytest.mark.parametrize("said", [{}, {fields.GROUP_FILE_OFFSET: (thrift.I64, 0)}])
def test_a_row_group_says_where_it_begins_only_if_its_source_does(said):
    """Its `file_offset` may be missing, or unknown: 0."""

    def change(footer):
        for group in footer[fields.FILE_ROW_GROUPS][1]:
            del group[fields.GROUP_FILE_OFFSET]
            for number, (kind, value) in said.items():
                thrift.put(group, number, kind, value)

    made, _ = joined([piece(with_footer(written(simple(n)), change), recode=False) for n in range(2)])
    for number in range(2):
        group = read_footer(MemoryReader(made)).describe(number)
        assert {key: group[key] for key in group if key == fields.GROUP_FILE_OFFSET} == said


def test_without_column_orders_no_range_claims_one():
    """Readers of a footer without column orders go by older fields, which Arrow fills for signed numbers alone."""
    files = [
        with_footer(written(simple(n), write_page_index=True), lambda footer: footer.pop(fields.FILE_COLUMN_ORDERS))
        for n in range(2)
    ]
    made, result = joined([piece(file, recode=True) for file in files])
    assert result.row_groups == 1
    found = []
    for chunk in read_footer(MemoryReader(made)).describe(0)[fields.GROUP_COLUMNS][1]:
        statistics, _ = thrift.decode(chunk[fields.CHUNK_META][1][fields.META_STATISTICS][1], 0, {})
        found.append(set(statistics))
        assert fields.CHUNK_OFFSET_INDEX in chunk
        assert fields.CHUNK_COLUMN_INDEX not in chunk
    assert found == [{1, 2, 3}, {3}, {1, 2, 3}]


def test_sorting_columns_are_copied_and_not_claimed_of_encoded_rows():
    """Two sorted row groups, one after the other, aren't sorted."""
    file = written(simple(0), sorting_columns=[parquet.SortingColumn(0)])
    for recode, kept in ((False, 2), (True, 0)):
        made, _ = joined([piece(file, recode=recode)] * 2)
        groups = [opened(made).metadata.row_group(n) for n in range(opened(made).num_row_groups)]
        assert sum(len(group.sorting_columns) for group in groups) == kept


def test_a_footer_is_as_long_as_is_read_back(monkeypatch):
    """A joined file gets a footer of exactly the longest length, and none of a byte more."""
    pieces = [piece(written(simple(n)), recode=False) for n in range(2)]
    made, _ = joined(pieces)
    length = int.from_bytes(made[-8:-4], "little")
    monkeypatch.setattr("compactor.parquet.footer.LONGEST", length)
    monkeypatch.setattr("compactor.parquet.assembly.LONGEST", length)
    assert joined(pieces)[0] == made
    monkeypatch.setattr("compactor.parquet.assembly.LONGEST", length - 1)
    with pytest.raises(RefusedError, match="the joined file's footer would have") as caught:
        joined(pieces)
    assert caught.value.reason is Reason.LIMIT_EXCEEDED
