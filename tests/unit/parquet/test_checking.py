"""Whether `check` finds what could go wrong: each part of a joined file is broken once."""

from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.errors import VerificationError
from compactor.handles import MemoryReader
from compactor.parquet import checking, fields, thrift, view
from compactor.parquet.checking import check
from compactor.parquet.footer import read_footer
from compactor.parquet.joining import join
from tests.unit.orc.files import MemorySink
from tests.unit.parquet.files import joined, opened, piece, with_footer, written


def table(first, count=300):
    numbers = list(range(first, first + count))
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "x": pa.array([0.0 if n % 3 else -1.5 for n in numbers]),
            "s": [None if n % 7 == 0 else f"text {n}" for n in numbers],
            "l": pa.array([[n, None][: n % 3] for n in numbers], pa.list_(pa.int64())),
        }
    )


def sources(recode, **options):
    settings = {"row_group_size": 200, "write_page_index": True, **options}
    return [piece(written(table(n * 300), **settings), recode=recode, name=f"part-{n}") for n in range(3)]


def finds(made, pieces, said):
    with pytest.raises(VerificationError, match=said) as caught:
        check(MemoryReader(made, "result"), pieces)
    assert str(caught.value).startswith("result differs from its sources: ")


def test_every_changed_byte_of_pages_in_a_small_copy_is_found():
    """Small row groups are compared whole."""
    pieces = sources(recode=False)
    made, _ = joined(pieces)
    footer = read_footer(MemoryReader(made))
    end = sum(group.bytes for group in footer.row_groups) + 4
    for at in range(4, end, 97):
        changed = bytearray(made)
        changed[at] ^= 1
        finds(bytes(changed), pieces, "has other bytes")


@pytest.mark.parametrize(
    ("number", "kind", "value"),
    [
        (fields.META_STATISTICS, thrift.STRUCT, b"\0"),
        (fields.META_RAW, thrift.I64, 77),
        (fields.META_CODEC, thrift.I32, 2),
        (fields.META_KEY_VALUES, thrift.LIST, thrift.encoded_list([])),
    ],
)
def test_another_description_of_a_copy_is_found(number, kind, value):
    """Everything but places must be as in the source."""
    pieces = sources(recode=False)
    made, _ = joined(pieces)

    def change(footer):
        thrift.put(chunk(footer, 4, 1)[fields.CHUNK_META][1], number, kind, value)

    finds(with_footer(made, change), pieces, "row group 5, from row group 1 of part-2, is described differently")


def chunk(footer, group, column):
    return footer[fields.FILE_ROW_GROUPS][1][group][fields.GROUP_COLUMNS][1][column]


def test_an_index_of_other_pages_is_found():
    """An offset index that wasn't moved, and a column index that belongs to another column."""
    pieces = sources(recode=False)
    made, _ = joined(pieces)
    for numbers in (
        (fields.CHUNK_OFFSET_INDEX, fields.CHUNK_OFFSET_INDEX_LENGTH),
        (fields.CHUNK_COLUMN_INDEX, fields.CHUNK_COLUMN_INDEX_LENGTH),
    ):

        def change(footer, numbers=numbers):
            for number in numbers:
                chunk(footer, 1, 0)[number] = chunk(footer, 2, 0)[number]

        finds(with_footer(made, change), pieces, "page indexes|described differently")


def test_a_bloom_filter_left_behind_is_found():
    """A filter at its old offset answers for another row group."""
    pieces = sources(recode=False, bloom_filter_options={"n": True})
    made, _ = joined(pieces)

    def change(footer):
        first, second = (chunk(footer, number, 0)[fields.CHUNK_META][1] for number in (0, 2))
        second[fields.META_BLOOM] = first[fields.META_BLOOM]

    finds(with_footer(made, change), pieces, "other Bloom filters")


@pytest.mark.parametrize("column", range(4))
def test_another_value_among_encoded_ones_is_found(column):
    """A number, the sign of a zero, a NULL, the length of a list: one row of 900 differs."""
    pieces = sources(recode=True)
    rows = [one for n in range(3) for one in table(n * 300).to_pylist()]
    name = ("n", "x", "s", "l")[column]
    rows[701][name] = {"n": -1, "x": -0.0, "s": None, "l": [None]}[name]
    assert table(0).to_pylist()[0]["x"] == -1.5
    other = written(pa.Table.from_pylist(rows, table(0).schema), row_group_size=1000, write_page_index=True)
    finds(other, pieces, f"row group 1, column {column + 1}: a value of rows 601 to 900 isn't that of part-|column")


def test_missing_doubled_and_exchanged_rows_are_found():
    """Row groups left out, taken twice, or in another order."""
    pieces = sources(recode=False)
    for wrong in ([0, 1], [0, 1, 1], [1, 0, 2], [0, 1, 2, 2]):
        sink = MemorySink()
        join([pieces[number] for number in wrong], sink)
        finds(sink.getvalue(), pieces, "rows|described differently|other bytes|page indexes")


def test_other_metadata_is_found():
    """A key too many makes another family."""
    pieces = sources(recode=True)
    made, _ = joined(pieces)
    changed = with_footer(made, lambda footer: thrift.put(footer, fields.FILE_CREATED_BY, thrift.BINARY, b"me"))
    finds(changed, pieces, "schema, metadata or writer")
    finds(made[:-1], pieces, "isn't a sound Parquet file")


def test_large_chunks_are_sampled_at_both_ends_and_in_the_middle():
    """Of chunks that are too large to be compared whole, the ends are always looked at."""
    numbers = pa.table({"a": pa.array(range(400_000), pa.int64()), "b": pa.array(range(400_000), pa.int64())})
    pieces = [piece(written(numbers, use_dictionary=False, compression="none"), recode=False)]
    made, _ = joined(pieces)
    group = read_footer(MemoryReader(made)).describe(0)
    for number in range(2):
        begin, end = fields.extent(group[fields.GROUP_COLUMNS][1][number][fields.CHUNK_META][1])
        for at in (begin, begin + 4095, (begin + end) // 2, end - 4096, end - 1):
            changed = bytearray(made)
            changed[at] ^= 1
            finds(bytes(changed), pieces, "other bytes")


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=8))
def test_every_byte_of_a_small_row_group_is_compared_with_its_own(chunks):
    """A range ends only where there is a gap in one of the files."""
    extents, mine, theirs = [], 4, 4
    for length, gap, their_gap in chunks:
        mine, theirs = mine + gap, theirs + their_gap
        extents.append(((mine, mine + length), (theirs, theirs + length)))
        mine, theirs = mine + length, theirs + length
    pairs = [(at, at + theirs[0] - mine[0]) for mine, theirs in extents for at in range(*mine)]
    ranges = list(checking._samples(extents))
    assert [(mine + at, theirs + at) for mine, theirs, length in ranges for at in range(length)] == pairs
    assert len(ranges) == 1 + sum(gap + their_gap > 0 for _, gap, their_gap in chunks[1:])


@pytest.mark.parametrize("batch", [1, 7, 64, 1000])
@pytest.mark.parametrize("together", [0, 1 << 20])
def test_encoded_values_are_compared_however_many_at_once(monkeypatch, batch, together):
    """Where what is decoded of the file and of its sources ends at other rows: no row is passed over."""
    monkeypatch.setattr(view, "_BATCH_ROWS", batch)
    monkeypatch.setattr(checking, "_TOGETHER", together)
    pieces = [piece(written(table(n * 10, 10)), recode=True, name=f"part-{n}") for n in range(3)]
    made, result = joined(pieces)
    assert result.row_groups == 1
    rows = opened(made).read().to_pylist()
    for wrong in (0, 6, 7, 9, 10, 20, 29):
        changed = [{**row, "n": -1} if number == wrong else row for number, row in enumerate(rows)]
        finds(written(pa.Table.from_pylist(changed, table(0).schema)), pieces, "row group 1, column 1: a value of rows")


@pytest.mark.parametrize(("count", "said"), [(21, "more values"), (19, "fewer rows than it says")])
def test_a_row_of_lists_too_many_or_too_few_is_found(count, said):
    """A footer counts the values of lists, not those that begin a row. Arrow passes over what is behind the last row."""
    lists = [[number] for number in range(count)]
    pieces = [piece(written(pa.table({"l": [[10 * n + one] for one in range(10)]})), recode=True) for n in range(2)]
    joined(pieces)

    def twenty(footer):
        footer[fields.FILE_ROWS] = thrift.I64, 20
        footer[fields.FILE_ROW_GROUPS][1][0][fields.GROUP_ROWS] = thrift.I64, 20

    wrong = with_footer(written(pa.table({"l": lists})), twenty)
    assert opened(wrong).read().column(0).to_pylist() == lists[:20]
    finds(wrong, pieces, f"row group 1 has {said}")


@given(st.lists(st.integers(1, 12), max_size=12), st.integers(0, 30))
def test_sources_are_decoded_as_many_as_fit(sizes, limit):
    """All of them in their order, and no more bytes at a time than are meant to be, but for a source alone."""
    made = [SimpleNamespace(group=SimpleNamespace(bytes=size)) for size in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checking, "_TOGETHER", limit)
        found = list(checking._together(made))
    assert [source for some in found for source in some] == made
    stored = [sum(source.group.bytes for source in some) for some in found]
    assert all(size <= limit or len(some) == 1 for size, some in zip(stored, found, strict=True))
    assert all(size + some[0].group.bytes > limit for size, some in zip(stored, found[1:], strict=False))


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("recode", [False, True])
def test_a_row_group_without_rows_is_found(recode, place):
    """Before and behind what comes from sources: older releases of parquet-mr refuse to read one."""
    pieces = [piece(written(table(300 * n)), recode=recode) for n in range(2)]
    made, _ = joined(pieces)

    def add(footer):
        groups = footer[fields.FILE_ROW_GROUPS][1]
        chunks = [without_values(chunk) for chunk in groups[0][fields.GROUP_COLUMNS][1]]
        groups.insert(place, {1: (thrift.LIST, chunks), 2: (thrift.I64, 0), 3: (thrift.I64, 0)})

    finds(with_footer(made, add), pieces, f"row group {place + 1}[ ,]")


def without_values(chunk):
    """The same column chunk, of which its footer says that it has no values, nor bytes, nor a page index."""
    meta = {**chunk[fields.CHUNK_META][1]}
    meta.pop(fields.META_STATISTICS)
    meta |= dict.fromkeys((fields.META_VALUES, fields.META_RAW, fields.META_STORED), (thrift.I64, 0))
    return {fields.CHUNK_FILE_OFFSET: (thrift.I64, 0), fields.CHUNK_META: (thrift.STRUCT, meta)}


@pytest.mark.parametrize("recode", [False, True])
def test_row_groups_without_rows_are_left_out(recode):
    """Older releases of parquet-mr refuse one; files that have nothing else become one without a row group."""
    full, empty = (piece(written(table(0).slice(0, count)), recode=recode) for count in (300, 0))
    made, result = joined([empty, full, empty])
    assert (opened(made).num_row_groups, result.rows) == (1, 300)
    made, result = joined([empty, empty])
    assert (opened(made).num_row_groups, opened(made).schema_arrow) == (0, table(0).schema)
