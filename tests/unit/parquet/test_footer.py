"""Footers: facts, families, what may be done with a file, and files that aren't what they say."""

import json
import struct

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from compactor.errors import CompactorError, CorruptFileError
from compactor.handles import MemoryReader
from compactor.parquet import fields, key_values, schema, thrift
from compactor.parquet.footer import read_footer
from compactor.parquet.joining import Piece, join
from compactor.parquet.schema import read_schema, type_ordered
from compactor.parquet.statistics import require_bound
from compactor.parquet.thrift import MalformedError
from tests.unit.orc.files import MemorySink
from tests.unit.parquet.files import by_pandas, counted, lies, opened, with_footer, written

TABLE = pa.table({"n": pa.array(range(100), pa.int64()), "s": ["x", "y"] * 50, "l": [[1, 2], []] * 50})
FILE = written(TABLE, row_group_size=40, write_page_index=True)


def footer(data, name="memory"):
    return read_footer(MemoryReader(data, name))


def first_meta(footer):
    return footer[fields.FILE_ROW_GROUPS][1][0][fields.GROUP_COLUMNS][1][0][fields.CHUNK_META][1]


def make_fixed(footer, width):
    """The schema calls the first column one of values with so many bytes each."""
    element = footer[fields.FILE_SCHEMA][1][1]
    thrift.put(element, schema.TYPE, thrift.I32, schema.FIXED)
    thrift.put(element, schema.TYPE_LENGTH, thrift.I32, width)


def logical(footer, kind, member):
    """The schema gives the first column this logical type."""
    thrift.put(footer[fields.FILE_SCHEMA][1][1], schema.LOGICAL, thrift.STRUCT, thrift.encode({kind: member}))


def by(created_by):
    return with_footer(
        FILE, lambda found: thrift.put(found, fields.FILE_CREATED_BY, thrift.BINARY, created_by.encode())
    )


def test_facts():
    """Rows and bytes are those that Arrow finds."""
    found, arrows = footer(FILE), opened(FILE).metadata
    assert (found.rows, found.length, found.created_by) == (100, len(FILE), arrows.created_by)
    groups = [arrows.row_group(number) for number in range(3)]
    assert [group.rows for group in found.row_groups] == [40, 40, 20]
    assert [group.raw_bytes for group in found.row_groups] == [group.total_byte_size for group in groups]
    stored = [sum(group.column(n).total_compressed_size for n in range(3)) for group in groups]
    assert [group.bytes for group in found.row_groups] == stored
    assert (found.carried, found.kept) == (None, None)


def test_leaves_are_those_of_arrow():
    """Paths and levels agree with Arrow's."""
    leaves, schema = footer(FILE).schema.leaves, opened(FILE).schema
    for number, leaf in enumerate(leaves):
        column = schema.column(number)
        assert leaf.name == column.path
        assert leaf.levels.count("R") == column.max_repetition_level
        assert len(leaf.levels) == column.max_definition_level


@pytest.mark.parametrize(
    "other",
    [
        written(TABLE.rename_columns(["n", "t", "l"])),
        written(TABLE.replace_schema_metadata({"writer.time.zone": "Europe/Rome"})),
        written(TABLE, version="1.0"),
        by("parquet-mr version 1.10.1 (build abc)"),
        with_footer(FILE, lambda found: found.pop(fields.FILE_COLUMN_ORDERS)),
        with_footer(FILE, lambda found: thrift.put(found, 99, thrift.I32, 1)),
    ],
)
def test_what_readers_go_by_makes_another_family(other):
    """Schema, metadata, format version, writer, column orders, and a field that nobody knows yet."""
    assert footer(FILE).family == footer(written(TABLE.slice(3, 9))).family
    assert footer(other).family != footer(FILE).family


@pytest.mark.parametrize(
    ("created_by", "carried", "kept"),
    [
        ("parquet-mr version 1.12.3 (build f8dced182c4c1fbdec6ccb3185537b5a01e6ed6b)", None, None),
        ("parquet-mr version 1.10.0 (build 031a6654009e3b82020012a18434c582bd74c73a)", None, None),
        ("parquet-mr version 1.8.0rc1", None, None),
        ("parquet-mr version 1.7.0 (build x)", None, "known well enough"),
        ("parquet-mr version 1.2.8 (build x)", "dictionaries out of the sizes", "known well enough"),
        ("parquet-mr (build 32c46643845ea8a705c35d4ec8fc654cc8ff816d)", "dictionaries out", "known well enough"),
        ("impala version 4.1.0-RELEASE (build 7a8b9c)", None, None),
        ("parquet-mr-trino version 476 (build n/a)", None, None),
        ("parquet-mr-trino version 480-e.5", None, None),
        ("parquet-mr-trino (build n/a)", None, "known well enough"),
        ("parquet-mr version 1 (build x)", "dictionaries out of the sizes", "known well enough"),
        ("parquet-cpp version 1.5.1-SNAPSHOT", None, "known well enough"),
        ("parquet-cpp-arrow version 9.0.0", None, None),
        ("DuckDB version v1.0.0 (build 1f98600c2c)", None, "known well enough"),
        ("", None, "without a name"),
    ],
)
def test_writers(created_by, carried, kept):
    """Rows that Arrow encodes stand only under names that call for no workaround; wrong sizes are never copied."""
    found = footer(by(created_by))
    for said, expected in ((found.carried, carried), (found.kept, kept)):
        assert said is None if expected is None else expected in said


def change_meta(number, kind, value):
    return with_footer(FILE, lambda found: thrift.put(first_meta(found), number, kind, value))


def test_texts_that_go_on_from_page_to_page_are_carried():
    """DELTA_BYTE_ARRAY by parquet-mr before 1.8 (PARQUET-246)."""
    table = pa.table({"s": ["abc", "abd"]})
    file = written(table, use_dictionary=False, column_encoding={"s": "DELTA_BYTE_ARRAY"})
    assert footer(file).carried is None

    def version(number):
        written_by = f"parquet-mr version {number} (build x)".encode()
        return with_footer(file, lambda found: thrift.put(found, fields.FILE_CREATED_BY, thrift.BINARY, written_by))

    why = "its writer, parquet-mr before 1.8, let texts go on from page to page"
    assert [footer(version(number)).carried for number in ("1.2.9", "1.7.0", "1.8.0", "1.8.3")] == [
        why,
        why,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("change", "carried"),
    [
        (lambda found: thrift.put(found, 8, thrift.STRUCT, b"\0"), "its columns are encrypted"),
        (lambda found: thrift.put(_chunk(found), 8, thrift.STRUCT, b"\0"), "its columns are encrypted"),
        (lambda found: thrift.put(_chunk(found), 1, thrift.BINARY, b"a"), "its data lies in another file"),
        (lambda found: thrift.put(first_meta(found), 4, thrift.I32, 8), "its compression codec 8 isn't known"),
        (
            lambda found: thrift.put(first_meta(found), 2, thrift.LIST, thrift.encoded_list([b"\x14"], thrift.I32)),
            "its encoding 10 isn't known",
        ),
    ],
)
def test_files_whose_row_groups_must_not_move_are_carried(change, carried):
    """
    Their bytes depend on their place, or aren't in the file, or Java opens no footer with a number that has no name.
    """
    assert footer(with_footer(FILE, change)).carried == carried
    assert "its footer is encrypted" in footer(FILE[:-4] + b"PARE").carried


def test_what_pandas_counts_makes_no_family():
    """The range of an index is true of one file; an index with values of its own, and every other word, is not."""
    table = TABLE.select(["n"])
    plain = footer(written(by_pandas(table, counted(0, 100))))
    assert plain.carried is None
    for same in (counted(7, 107), counted(0, 100, "id"), []):
        assert footer(written(by_pandas(table, same))).family == plain.family
    for other in (["n"], [*counted(0, 100), "n"]):
        assert footer(written(by_pandas(table, other))).family != plain.family
    text = table.replace_schema_metadata({"pandas": '{"index_columns": [{"kind": "range", "stop": 1}], "x"'})
    assert footer(written(text)).family != footer(written(table.replace_schema_metadata({"pandas": "{"}))).family


@pytest.mark.parametrize(
    ("index", "categories", "why"),
    [
        ([], 3, "pandas counts its categories, and some readers take those of one row group for those of all"),
        (counted(0, 9, "{"), None, "pandas counts its index in a way that isn't known"),
        ([*counted(0, 9), "n"], None, "pandas counts its index in a way that isn't known"),
    ],
)
def test_what_pandas_counts_otherwise_is_carried(index, categories, why):
    """Of categories fastparquet takes the last row group's for all; a range that can't be taken out would be untrue."""
    assert footer(written(by_pandas(TABLE.select(["n"]), index, categories))).carried == why


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(
            (b"geo", json.dumps(told).encode())
            for told in (
                5,
                [{"columns": {"n": {"bbox": [1]}}}],
                {"columns": [{"bbox": [1]}]},
                {"columns": {"n": 5, "m": None, "l": [{"bbox": [1]}]}},
                {"columns": {"n": {"bbox": None}, "m": {"bbox": {"bbox": [1]}}}},
                {"columns": {"n": {"bbox": [["bbox", 1]]}}},
            )
        ),
        (b"geo", b'{"columns": {"n": {"bbox": [1]'),
        (b"geo", b"\xff"),
        *(
            (b"pandas", json.dumps({"index_columns": told}).encode())
            for told in (5, None, {"kind": "range"}, ["n"], [5], [*counted(0, 1), *counted(1, 2)])
        ),
        *((b"ARROW:schema", value) for value in (b"", b"Q", b"QUI=", b"QUI==", b"====", "ä".encode(), b"/////w==")),
    ],
)
def test_what_is_not_as_its_program_writes_it_stays_as_it_is(key, value):
    """
    Whatever stands under a key of pandas, GeoParquet or Arrow: it ends no reading of a footer, and keeps its bytes. Arrow
    opens no file whose schema it can't read.
    """
    pair = thrift.encode({1: (thrift.BINARY, key), 2: (thrift.BINARY, value)})
    pairs = thrift.encoded_list([pair])
    assert key_values.shared(pairs) == pairs
    file = with_footer(FILE, lambda found: thrift.put(found, fields.FILE_KEY_VALUES, thrift.LIST, pairs))
    if key == b"ARROW:schema":
        with pytest.raises(CorruptFileError, match="Arrow can't open it"):
            footer(file)
    else:
        assert footer(file).shared(fields.FILE_KEY_VALUES) == pairs


def test_only_pandas_own_entry_is_pandas():
    """Another key with the same text says nothing to pandas, nor does its key without a value."""
    said = b'{"columns": [{"pandas_type": "categorical"}]}'
    for key, value, carried in ((b"pandas", said, True), (b"other", said, False), (b"pandas", None, False)):
        pair = {1: (thrift.BINARY, key)} | ({} if value is None else {2: (thrift.BINARY, value)})
        changed = with_footer(
            FILE, lambda found, pair=pair: thrift.put(found, 5, thrift.LIST, thrift.encoded_list([thrift.encode(pair)]))
        )
        assert bool(footer(changed).carried) is carried


@pytest.mark.parametrize("size", [20_000, 200_000])
def test_a_footer_longer_than_the_first_read_is_read_whole(size):
    """Its end is read first, the rest where it needs it."""
    padded = footer(with_footer(FILE, lambda found: thrift.put(found, 99, thrift.BINARY, bytes(size))))
    assert (padded.rows, padded.carried, len(padded.row_groups)) == (100, None, 3)


def _chunk(found):
    return found[fields.FILE_ROW_GROUPS][1][0][fields.GROUP_COLUMNS][1][0]


def test_what_arrow_cannot_write_is_kept():
    """LZO, LZ4 in Hadoop's frames, metadata of columns, Bloom filters."""
    for codec in (3, 5):
        assert "compression codec" in footer(change_meta(fields.META_CODEC, thrift.I32, codec)).kept
    assert "metadata" in footer(change_meta(fields.META_KEY_VALUES, thrift.LIST, thrift.encoded_list([]))).kept
    assert "Bloom" in footer(change_meta(fields.META_BLOOM, thrift.I64, 4)).kept


@pytest.mark.parametrize(
    ("options", "needs"),
    [
        ({"compression": "none"}, ""),
        ({"compression": "snappy"}, "1"),
        ({"compression": {"n": "zstd", "s": "snappy"}}, "1 6"),
        ({"compression": "none", "column_encoding": {"n": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY"}}, "delta"),
        ({"compression": "gzip", "column_encoding": {"n": "BYTE_STREAM_SPLIT"}}, "2 split"),
    ],
)
def test_what_readers_must_know_is_told(options, needs):
    """Of each column its codec, and encodings that not every reader knows; of a file without rows nothing."""
    table = TABLE.select(["n", "s"])
    assert footer(written(table, use_dictionary=False, **options)).needs == needs
    assert footer(written(table.slice(0, 0), use_dictionary=False, **options)).needs is None


BEFORE_FOOTER = len(FILE) - 8 - int.from_bytes(FILE[-8:-4], "little")


@pytest.mark.parametrize(
    ("place", "length"),
    [
        (fields.CHUNK_OFFSET_INDEX, fields.CHUNK_OFFSET_INDEX_LENGTH),
        (fields.CHUNK_COLUMN_INDEX, fields.CHUNK_COLUMN_INDEX_LENGTH),
    ],
)
@pytest.mark.parametrize(
    ("at", "size", "sound"),
    [
        (None, None, True),
        (1, None, False),
        (None, 1, False),
        (1, 1, True),
        (0, 1, False),
        (-1, 1, False),
        (1, 0, False),
        (1, -1, False),
        (BEFORE_FOOTER - 9, 9, True),
        (BEFORE_FOOTER - 8, 9, False),
        (BEFORE_FOOTER, 1, False),
    ],
)
def test_a_page_index_lies_before_the_footer(place, length, at, size, sound):
    """With a place and a length, or there is none; each kind of index by itself."""

    def change(found):
        for number, kind, value in ((place, thrift.I64, at), (length, thrift.I32, size)):
            _chunk(found).pop(number)
            if value is not None:
                thrift.put(_chunk(found), number, kind, value)

    if sound:
        assert footer(with_footer(FILE, change)).rows == 100
    else:
        with pytest.raises(CorruptFileError, match="a page index of"):
            footer(with_footer(FILE, change))


def test_a_group_without_fields_is_kept():
    """Arrow writes no such group; a copy keeps it."""

    def add(found):
        found[fields.FILE_SCHEMA][1].append({3: (thrift.I32, 1), 4: (thrift.BINARY, b"nothing"), 5: (thrift.I32, 0)})
        found[fields.FILE_SCHEMA][1][0][5] = thrift.I32, 4

    found = footer(with_footer(FILE, add))
    assert found.carried is None
    assert "Arrow can't represent its schema" in found.kept


def test_long_footers_are_carried(monkeypatch):
    """A footer of more MiB than are worth decoding: its rows are known, and nothing else is looked at."""
    padded = with_footer(FILE, lambda found: thrift.put(found, 99, thrift.BINARY, bytes(17 << 20)))
    assert footer(padded).carried == "its footer has 17 MiB"
    assert (footer(padded).rows, footer(padded).row_groups) == (100, ())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "only 0 bytes"),
        (b"PAR1" + bytes(4) + b"PAR1", "too early"),
        (FILE[:-1], "ends with b'"),
        (FILE[:-8] + struct.pack("<I", len(FILE)) + b"PAR1", "claims"),
        (FILE[:-8] + struct.pack("<I", 10) + b"PAR1", "makes no sense"),
        (change_meta(fields.META_DATA_PAGE, thrift.I64, len(FILE)), "before or behind the data"),
        (change_meta(fields.META_DATA_PAGE, thrift.I64, -4), "no sizes"),
        (change_meta(fields.META_STORED, thrift.I64, 1 << 60), "before or behind the data"),
        (change_meta(fields.META_VALUES, thrift.I64, 41), "has 41 values in a row group of 40 rows"),
        (change_meta(fields.META_TYPE, thrift.I32, 6), "another type"),
        (with_footer(FILE, lambda found: thrift.put(found, fields.FILE_ROWS, thrift.I64, 7)), "100 rows instead of 7"),
        (with_footer(FILE, lambda found: found.pop(fields.FILE_SCHEMA)), "no schema"),
        (with_footer(FILE, lambda found: found.pop(fields.FILE_ROW_GROUPS)), "no row groups"),
        (with_footer(FILE, lambda found: found[fields.FILE_SCHEMA][1].pop()), "ends too early"),
        (with_footer(FILE, lambda found: thrift.put(found[2][1][0], 5, thrift.I32, 1 << 30)), "1073741824 fields"),
        (with_footer(FILE, lambda found: make_fixed(found, 0)), "values of 0 bytes"),
        (with_footer(FILE, lambda found: make_fixed(found, -1)), "values of -1 bytes"),
        (
            with_footer(FILE, lambda found: logical(found, 10, (thrift.STRUCT, {1: (thrift.BYTE, b"\x40")}))),
            "no field 2",
        ),
        (with_footer(FILE, lambda found: first_meta(found).pop(fields.META_CODEC)), "no codec"),
        (
            with_footer(FILE, lambda found: found[fields.FILE_ROW_GROUPS][1][0][1][1].pop()),
            "doesn't describe all 3 columns",
        ),
    ],
)
def test_files_that_are_not_sound_get_one_line(data, said):
    """Each lie is named, with the file."""
    with pytest.raises(CorruptFileError, match=said) as caught:
        footer(data, "part-0")
    assert str(caught.value).startswith("part-0 isn't a sound Parquet file: ")
    assert "\n" not in str(caught.value)


WHOLE = {
    fields.FILE_SCHEMA: {},
    fields.FILE_ROW_GROUPS: {
        fields.GROUP_COLUMNS: {fields.CHUNK_META: {number: {} for number in (8, 12, 13, 16)}},
        fields.GROUP_SORTING: {},
    },
    fields.FILE_KEY_VALUES: {},
}


def test_each_field_of_a_footer_has_its_type():
    """
    Of every struct in it. Arrow's reader passes over a field of another type; where it needs one that is missing, the
    file is refused, too.
    """
    file = written(
        TABLE.replace_schema_metadata({"a": "b"}), write_page_index=True, sorting_columns=[parquet.SortingColumn(0)]
    )
    known, _ = thrift.decode(footer(file).data, 0, WHOLE)
    for path, left_out in lies(known):
        assert not accepted(known) or (left_out and opens(known)), (path, left_out)
    assert accepted(known)


def _file(described):
    data = thrift.encode(described)
    return b"PAR1" + bytes(len(FILE)) + data + len(data).to_bytes(4, "little") + b"PAR1"


def accepted(described):
    """Whether a file with this footer is sound as far as its footer goes."""
    try:
        footer(_file(described))
    except CorruptFileError:
        return False
    return True


def opens(described):
    """Whether Arrow opens it."""
    try:
        opened(_file(described))
    except pa.ArrowException:
        return False
    return True


def test_more_bytes_than_the_file_has():
    """Row groups that all claim the same bytes would make a small file large."""

    def repeat(found):
        group = found[fields.FILE_ROW_GROUPS][1][0]
        found[fields.FILE_ROW_GROUPS][1][:] = [group] * 50
        found[fields.FILE_ROWS] = thrift.I64, 2000

    with pytest.raises(CorruptFileError, match="more bytes than the file has"):
        footer(with_footer(FILE, repeat))


def test_schemas_that_would_take_the_memory():
    """A schema of a million elements, and one that is nested without end."""
    element = thrift.encode({4: (thrift.BINARY, b"x"), 5: (thrift.I32, 1), 3: (thrift.I32, 1)})
    with pytest.raises(MalformedError, match="1000000 elements"):
        read_schema(thrift.encoded_list([element] * 1_000_000))
    with pytest.raises(MalformedError, match="levels deep"):
        read_schema(thrift.encoded_list([element] * 1000))


@settings(max_examples=300)
@example(at=730, mask=5, recode=False)
@example(at=12, mask=12, recode=True)
@given(st.integers(1, len(FILE)), st.integers(1, 255), st.booleans())
def test_a_changed_byte_ends_in_one_line_or_a_file(at, mask, recode):
    """Any byte changed, any file cut off: an error of ours, or a footer by which the file can be joined or refused."""
    changed = bytearray(FILE)
    changed[-at] ^= mask
    for data in (bytes(changed), FILE[:-at]):
        try:
            found = footer(data)
            if found.carried is None:
                piece = Piece(MemoryReader(data), found, tuple(range(len(found.row_groups))), recode)
                join([piece, piece], MemorySink())
        except CompactorError as error:
            said = str(error)
            assert "\n" not in said


def test_which_columns_have_their_types_order():
    """By the list of orders, if it is one of as many structs as there are columns."""
    own, other = thrift.encode({1: (thrift.STRUCT, b"\0")}), thrift.encode({2: (thrift.STRUCT, b"\0")})
    assert type_ordered(thrift.encoded_list([own, other, own]), 3) == (True, False, True)
    for strange in (b"", thrift.encoded_list([own, own]), thrift.encoded_list([b"\x02"] * 3, thrift.I32)):
        assert type_ordered(strange, 3) == (False,) * 3


@pytest.mark.parametrize("converted", [None, *range(22)])
def test_which_texts_are_ordered_by_their_bytes(converted):
    """UTF8, ENUM, JSON, BSON and what has no type; not decimals and intervals, nor what no text can be."""
    root = {4: (thrift.BINARY, b"root"), 5: (thrift.I32, 1)}
    texts = {1: (thrift.I32, schema.BYTE_ARRAY), 3: (thrift.I32, 0), 4: (thrift.BINARY, b"s")}
    if converted is not None:
        texts[schema.CONVERTED] = thrift.I32, converted
    (leaf,) = read_schema(thrift.encoded_list([thrift.encode(element) for element in (root, texts)])).leaves
    assert leaf.ordered is (converted in {None, 0, 4, 19, 20})


@pytest.mark.parametrize("sign", [1, -1])
def test_milliseconds_have_room_for_their_microseconds(sign):
    """DuckDB multiplies a minimum or maximum by 1000 before it reads."""
    (leaf,) = footer(written(pa.table({"t": pa.array([0], pa.timestamp("ms"))}))).schema.leaves
    most = ((1 << 63) - 1) // 1000
    require_bound((sign * (most - 1)).to_bytes(8, "little", signed=True), leaf)
    with pytest.raises(MalformedError, match="no room"):
        require_bound((sign * (most + 1)).to_bytes(8, "little", signed=True), leaf)
