"""Splicing: the stripes' bytes under a new tail read as the rows one after the other."""

import io

import pyorc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.acid.row_id import RowKey
from compactor.acid.types import acid_type, row_type
from compactor.errors import CorruptFileError, RefusedError, VerificationError
from compactor.handles import MemoryReader
from compactor.orc.events.keys import acid_stats, stripe_bounds
from compactor.orc.format.codec import Compression
from compactor.orc.format.tail import Tail, read_tail
from compactor.orc.writing.copied import difference
from compactor.orc.writing.output import OutputFormat, common_calendar, compatible
from compactor.orc.writing.splice import Splicer
from compactor.storage.local_fs.files import LocalReader, LocalWriter
from tests import strategies
from tests.unit.orc.files import ROW, MemorySink, acid_file, delete, insert, opened, plain_file, rows_of

BUCKET = 536870912
OUTPUT = OutputFormat(acid_type(ROW))


def events(write_id, count, start=0):
    return [insert(RowKey(write_id, BUCKET, start + n), (n, f"v{n}")) for n in range(count)]


def spliced(files, output=OUTPUT, operation="insert"):
    sink = MemorySink()
    splicer = Splicer(sink, output)
    for data in files:
        reader, tail = data if isinstance(data, tuple) else opened(data)
        for index in range(len(tail.stripes)):
            splicer.add_stripe(reader, tail, index)
    return sink, splicer.finish(operation)


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=5),
    st.sampled_from([kind for kind in Compression if kind not in (Compression.LZO, Compression.BROTLI)]),
)
def test_a_spliced_file_is_its_sources_one_after_the_other(sizes, kind):
    """Rows, counts, keys and user metadata, with every codec."""
    files = [acid_file(events(write_id, size), compression=int(kind)) for write_id, size in enumerate(sizes, start=1)]
    sink, summary = spliced(files, OutputFormat(acid_type(ROW), compression=kind))
    assert rows_of(sink) == [row for data in files for row in rows_of(data)]
    _, tail = opened(sink.getvalue())
    assert (tail.rows, len(tail.stripes), summary.length) == (sum(sizes), len(sizes), len(sink.getvalue()))
    assert tail.key_index == [RowKey(write_id, BUCKET, size - 1) for write_id, size in enumerate(sizes, start=1)]
    assert acid_stats(tail) == (sum(sizes), 0, 0)
    assert tail.user_metadata["hive.acid.version"] == b"2"
    assert (summary.first_key, summary.last_key) == (RowKey(1, BUCKET, 0), RowKey(len(sizes), BUCKET, sizes[-1] - 1))
    written = tail.footer.statistics[4].integers
    assert (written.minimum, written.maximum) == (0, max(sizes) - 1)


@given(st.data(), strategies.row_structs())
def test_every_type_survives_a_splice(data, row):
    """Values, types and statistics of any columns are those of the sources."""
    batches = data.draw(st.lists(st.lists(strategies.filled(row), min_size=1, max_size=5), min_size=1, max_size=3))
    files = [
        acid_file([insert(RowKey(write_id, BUCKET, n), value) for n, value in enumerate(values)], row)
        for write_id, values in enumerate(batches, start=1)
    ]
    tree = opened(files[0])[1].tree
    sink, _ = spliced(files, OutputFormat(tree))
    assert rows_of(sink) == [found for one in files for found in rows_of(one)]
    assert opened(sink.getvalue())[1].tree == tree


def test_every_row_group_can_be_reached():
    """A reader that seeks by the row index finds each row where it is, also in copied stripes."""
    files = [acid_file(events(write_id, 5000), row_index_stride=1000) for write_id in (1, 2, 3)]
    sink, _ = spliced(files, OutputFormat(acid_type(ROW), stride=1000))
    reader = pyorc.Reader(io.BytesIO(sink.getvalue()))
    expected = rows_of(sink)
    for place in (0, 999, 1000, 4999, 5000, 7001, 12_000, 14_999):
        reader.seek(place)
        assert next(reader) == expected[place]


def test_a_predicate_skips_by_the_written_statistics_and_loses_nothing():
    """Pushing a predicate down finds the rows that it would find without statistics."""
    files = [acid_file(events(write_id, 3000, start=3000 * write_id), row_index_stride=1000) for write_id in (1, 2, 3)]
    sink, _ = spliced(files, OutputFormat(acid_type(ROW), stride=1000))
    wanted = (pyorc.predicates.PredicateColumn(pyorc.TypeKind.LONG, name="rowId") >= 6500) & (
        pyorc.predicates.PredicateColumn(pyorc.TypeKind.LONG, name="rowId") < 6600
    )
    found = list(pyorc.Reader(io.BytesIO(sink.getvalue()), predicate=wanted))
    assert len(found) < 9000
    assert {row[3] for row in found} >= set(range(6500, 6600))


def test_gaps_between_stripes_are_no_obstacle():
    """A store that shares blocks between files has some bytes left out before a stripe; readers go by its place."""

    class Sharing(MemorySink):
        def gap_before(self, offset, length):
            return (offset + length) % 4096

    files = [acid_file(events(write_id, 100)) for write_id in (1, 2, 3)]
    sink = Sharing()
    splicer = Splicer(sink, OUTPUT)
    for reader, tail in map(opened, files):
        splicer.add_stripe(reader, tail, 0)
    splicer.finish("insert")
    assert rows_of(sink) == [found for one in files for found in rows_of(one)]
    stripes = opened(sink.getvalue())[1].stripes
    assert (
        stripes[1].offset
        > stripes[0].offset + stripes[0].index_length + stripes[0].data_length + stripes[0].footer_length
    )


def test_a_local_file_is_copied_like_memory(tmp_path):
    """Handles on local files give the same bytes."""
    data = acid_file(events(1, 100))
    (tmp_path / "source").write_bytes(data)
    with LocalReader(str(tmp_path / "source")) as reader, LocalWriter(str(tmp_path / "target")) as sink:
        splicer = Splicer(sink, OUTPUT)
        splicer.add_stripe(reader, read_tail(reader), 0)
        assert splicer.finish("insert").length == sink.position
    assert (tmp_path / "target").read_bytes() == spliced([data])[0].getvalue()
    with pytest.raises(FileExistsError):
        LocalWriter(str(tmp_path / "target"))


def test_a_source_that_ends_early_stops_the_copy(tmp_path):
    """A stripe is copied whole or not at all."""
    data = acid_file(events(1, 100))
    _, tail = opened(data)
    with pytest.raises(CorruptFileError, match="ended inside"), LocalWriter(str(tmp_path / "target")) as sink:
        Splicer(sink, OUTPUT).add_stripe(MemoryReader(data[: tail.stripes[0].offset + 10]), tail, 0)
    assert not (tmp_path / "target").exists()


def test_an_empty_file_has_columns_and_no_stripes():
    """No rows: a valid file with empty key index and integer statistics of the key columns."""
    sink, summary = spliced([])
    _, tail = opened(sink.getvalue())
    assert (summary.rows, summary.stripes, tail.rows, tail.user_metadata["hive.acid.key.index"]) == (0, 0, 0, b"")
    assert rows_of(sink) == []
    assert all(tail.footer.statistics[column].HasField("integers") for column in range(1, 6))


def test_delete_files_say_that_they_hold_deletes():
    """The third of Hive's counts is the number of delete events."""
    files = [acid_file([delete(RowKey(1, BUCKET, n), 5) for n in range(4)])]
    sink, _ = spliced(files, operation="delete")
    assert acid_stats(opened(sink.getvalue())[1]) == (0, 0, 4)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"compression": 2}, "1 stripes, SNAPPY, row index stride 10000"),
        ({"row_index_stride": 1000}, "1 stripes, ZLIB, row index stride 1000"),
        (None, "2 stripes, ZLIB, row index stride 10000"),
    ],
)
def test_a_stripe_in_another_form_than_asked_for_is_noticed(options, said):
    """The file's tail states one codec and one stride; of two stripes the second would be lost."""
    one = acid_file(events(1, 2), **options or {})
    image = opened(one if options else spliced([one, acid_file(events(2, 2))])[0].getvalue())
    with pytest.raises(VerificationError, match=said):
        Splicer(MemorySink(), OUTPUT).add_recoded(*image, RowKey(1, BUCKET, 1))


def test_rows_of_another_operation_are_noticed():
    """Deletes can't stand in a file of inserts, nor the other way round."""
    with pytest.raises(VerificationError, match="operation"):
        spliced([acid_file([delete(RowKey(1, BUCKET, 0), 5)])])
    with pytest.raises(VerificationError, match="operation"):
        spliced([acid_file(events(1, 2))], operation="delete")


def test_stripes_out_of_order_are_noticed():
    """A stripe whose keys don't come after those before it is refused."""
    with pytest.raises(VerificationError, match="don't come after"):
        spliced([acid_file(events(2, 3)), acid_file(events(1, 3))])
    with pytest.raises(VerificationError, match="don't come after"):
        spliced([acid_file(events(1, 3)), acid_file(events(1, 3))])


@pytest.mark.parametrize("rows", [1, 3])
def test_a_stripe_that_comes_twice_is_noticed(rows):
    """Its rows would be there twice: keys must ascend, equal ones don't."""
    with pytest.raises(VerificationError, match="don't come after"):
        spliced([acid_file(events(1, rows))] * 2)


def test_stripes_that_overlap_at_their_ends_are_noticed():
    """The later one ends after the earlier, and begins before its end."""
    with pytest.raises(VerificationError, match="don't come after"):
        spliced([acid_file(events(1, 10)), acid_file(events(1, 15, start=5))])


def test_each_stripe_keeps_its_own_statistics():
    """Those of a file's second stripe aren't its first's: readers skip by them."""
    source, _ = spliced([acid_file(events(1, 3)), acid_file(events(2, 5, start=7))])
    made, _ = spliced([source.getvalue()])
    before, after = (opened(sink.getvalue())[1] for sink in (source, made))
    assert [stripe_bounds(after, index) for index in (0, 1)] == [stripe_bounds(before, index) for index in (0, 1)]
    assert stripe_bounds(after, 1).first == RowKey(2, BUCKET, 7)


def test_a_stripe_begins_right_after_the_last_key_of_the_one_before():
    """As far as the key index tells, where statistics give only ranges; its first row is no later than that."""
    made, _ = spliced([acid_file(events(1, 10)), acid_file([*events(1, 1, start=10), *events(2, 1)])])
    _, tail = opened(made.getvalue())
    assert (stripe_bounds(tail, 1).first, stripe_bounds(tail, 1).exact) == (RowKey(1, BUCKET, 10), False)


def test_a_wrong_last_key_is_noticed():
    """The caller's last key has to be inside the statistics."""
    reader, tail = opened(acid_file(events(1, 3)))
    splicer = Splicer(MemorySink(), OUTPUT)
    with pytest.raises(VerificationError, match="outside its statistics"):
        splicer.add_stripe(reader, tail, 0, RowKey(1, BUCKET, 3))


def test_a_file_starts_at_byte_zero():
    """Stripe offsets count from the start of the file."""
    sink = MemorySink()
    sink.write(b"x")
    with pytest.raises(ValueError, match="byte 0"):
        Splicer(sink, OUTPUT)


def test_an_operation_belongs_to_acid_files_only():
    """A plain file has no events, an ACID file isn't without."""
    with pytest.raises(ValueError, match="doesn't fit"):
        spliced([acid_file(events(1, 1))], operation=None)


def test_plain_files_are_spliced_without_user_metadata():
    """Files without ACID columns get a tail without Hive's three keys."""
    files = [plain_file(ROW, [(n, "x")]) for n in range(3)]
    sink, summary = spliced(files, OutputFormat(ROW), operation=None)
    assert rows_of(sink) == [(0, "x"), (1, "x"), (2, "x")]
    assert (opened(sink.getvalue())[1].user_metadata, summary.last_key) == ({}, None)


def labelled(data, writer, version, *, calendar=0, software=""):
    """The file as another writer's."""
    reader, tail = opened(data)
    tail.postscript.writer_version = version
    tail.footer.writer = writer
    tail.footer.calendar = calendar
    tail.footer.software_version = software
    return reader, Tail(tail.name, tail.postscript, tail.footer, tail.metadata, tail.length)


@pytest.mark.parametrize(
    ("sources", "label"),
    [
        ([(1, 6)], (1, 6)),
        ([(1, 6), (1, 6)], (1, 6)),
        ([(0, 9), (0, 9)], (0, 9)),
        ([(0, 9), (0, 7)], (0, 7)),
        ([(0, 9), (1, 6)], (0, 6)),
        ([(1, 6), (0, 6)], (0, 6)),
    ],
)
def test_the_label_promises_no_more_than_the_oldest_stripe_keeps(sources, label):
    """Java's lowest version; at most 6 beside C++; C++ only where all is C++."""
    files = [labelled(acid_file(events(write_id, 2)), *source) for write_id, source in enumerate(sources, start=1)]
    _, tail = opened(spliced(files)[0].getvalue())
    assert (tail.writer, tail.writer_version) == label


@pytest.mark.parametrize("source", [(0, 5), (0, 10), (1, 7), (4, 6), (2, 6)])
def test_stripes_of_other_writers_are_not_copied(source):
    """Older Java versions, unknown ones, Presto and Trino are recoded."""
    reader, tail = labelled(acid_file(events(1, 2)), *source)
    assert "writer" in compatible(tail, OUTPUT)
    with pytest.raises(RefusedError, match="can't be copied"):
        spliced([(reader, tail)])


def test_a_version_that_all_sources_share_is_kept():
    """The writer's software version stays when it is one."""
    files = [labelled(acid_file(events(write_id, 2)), 0, 9, software="1.8.5") for write_id in (1, 2)]
    assert opened(spliced(files)[0].getvalue())[1].footer.software_version == "1.8.5"
    files[1] = labelled(acid_file(events(2, 2)), 0, 9, software="1.9.0")
    assert opened(spliced(files)[0].getvalue())[1].footer.software_version == ""


def test_fields_of_the_footer_that_nobody_knows_survive():
    """What a newer writer says in every source, the output says too."""
    reader, tail = opened(acid_file(events(1, 2)))
    tail.footer.MergeFromString(b"\xf8\x07\x2a")
    assert opened(spliced([(reader, tail)])[0].getvalue())[1].footer.SerializeToString().endswith(b"\xf8\x07\x2a")


DATED = row_type([("d", "date"), ("t", "timestamp")])
OLD, NEW = (-200_000, (-10_000_000_000_0, 0)), (0, (0, 0))


def dated(write_id, value, calendar):
    return labelled(acid_file([insert(RowKey(write_id, BUCKET, 0), value)], DATED), 0, 9, calendar=calendar)


@pytest.mark.parametrize(
    ("one", "other", "calendar"),
    [
        ((OLD, 1), (OLD, 1), 1),
        ((OLD, 0), (OLD, 1), 1),
        ((OLD, 2), (OLD, 2), 2),
        ((OLD, 0), (OLD, 0), 0),
        ((NEW, 2), (OLD, 1), 1),
        ((NEW, 1), (OLD, 2), 2),
        ((NEW, 2), (NEW, 2), 2),
        ((OLD, 1), (OLD, 2), None),
        ((OLD, 0), (OLD, 2), None),
        (((OLD[0], NEW[1]), 1), (OLD, 2), None),
        (((NEW[0], OLD[1]), 1), (OLD, 2), None),
        (((None, NEW[1]), 2), (OLD, 1), 1),
        (((-141_427, NEW[1]), 2), (OLD, 1), 1),
        (((-141_428, NEW[1]), 2), (OLD, 1), None),
        (((NEW[0], (-141_426 * 86_400, 0)), 2), (OLD, 1), 1),
        (((NEW[0], (-141_426 * 86_400 - 1, 0)), 2), (OLD, 1), None),
    ],
)
def test_calendars_agree_or_the_file_is_refused(one, other, calendar):
    """Dates before 1582-10-15 differ between calendars; without such dates either label is right. Unsaid is hybrid."""
    files = [dated(1, *one), dated(2, *other)]
    if calendar is None:
        with pytest.raises(RefusedError, match="different calendars"):
            common_calendar([tail for _, tail in files])
        return
    assert opened(spliced(files, OutputFormat(acid_type(DATED)))[0].getvalue())[1].footer.calendar == calendar


@pytest.mark.parametrize("column", [7, 8])
def test_dates_without_a_minimum_may_be_old(column):
    """Statistics that don't tell leave the question open."""
    files = [dated(1, OLD, 1)[1], dated(2, NEW, 2)[1]]
    assert common_calendar(files) == 1
    statistics = files[1].metadata.stripe_stats[0].columns[column]
    for field in ("dates", "timestamps"):
        statistics.ClearField(field)
    with pytest.raises(RefusedError, match="different calendars"):
        common_calendar(files)


def test_statistics_are_asked_for_where_there_are_rows():
    """Of the stripe that is named, unless it has none; without a stripe the file alone is judged."""
    _, tail = opened(acid_file(events(1, 2)))
    del tail.metadata.stripe_stats[:]
    assert compatible(tail, OUTPUT) is None
    assert compatible(tail, OUTPUT, 0) is not None
    tail.stripes[0].number_of_rows = 0
    assert compatible(tail, OUTPUT, 0) is None


def test_what_keeps_a_stripe_from_being_copied_is_said():
    """Columns, codec, stride, missing statistics: each has its sentence."""
    fine = acid_file(events(1, 2))
    assert compatible(opened(fine)[1], OUTPUT, 0) is None
    assert "columns" in compatible(
        opened(fine)[1], OutputFormat(acid_type(row_type([("id", "bigint"), ("v", "string")])))
    )
    assert "columns" in compatible(opened(fine)[1], OutputFormat(ROW))
    assert "SNAPPY" in compatible(opened(acid_file(events(1, 2), compression=2))[1], OUTPUT)
    assert "stride is 1000" in compatible(opened(acid_file(events(1, 2), row_index_stride=1000))[1], OUTPUT)
    _, tail = opened(fine)
    tail.postscript.version[1] = 11
    assert "0.11" in compatible(tail, OUTPUT)
    _, tail = opened(fine)
    del tail.metadata.stripe_stats[:]
    assert "statistics" in compatible(tail, OUTPUT, 0)
    _, tail = opened(fine)
    tail.metadata.stripe_stats[0].columns[3].ClearField("integers")
    assert "ACID columns" in compatible(tail, OUTPUT, 0)


def test_names_are_exact_and_old_files_go_by_position():
    """Hive finds columns by their very letters, and `_col0` by its place; the output has the table's names."""
    file = acid_file(events(1, 2), row_type([("_col0", "int"), ("_col1", "string")]))
    sink, _ = spliced([file])
    assert opened(sink.getvalue())[1].row_tree == ROW
    for names in (("id", "w"), ("id", "V"), ("_col0", "_COL1")):
        file = acid_file(events(1, 2), row_type([(names[0], "int"), (names[1], "string")]))
        assert "columns" in compatible(opened(file)[1], OUTPUT)


def test_the_block_size_covers_every_copied_chunk():
    """A reader allocates by the postscript."""
    sink, _ = spliced([acid_file(events(1, 2), compression_block_size=1 << 20), acid_file(events(2, 2))])
    assert opened(sink.getvalue())[1].block_size == 1 << 20


def test_impossible_formats_are_mistakes_of_the_caller():
    """Files without indexes, chunks of nothing and chunks beyond 8 MiB aren't written."""
    with pytest.raises(ValueError, match="stride"):
        OutputFormat(acid_type(ROW), stride=0)
    for size in (0, 1 << 23):
        with pytest.raises(ValueError, match="block size"):
            OutputFormat(acid_type(ROW), block_size=size)


def test_bounds_of_the_output_are_those_of_the_sources():
    """The written statistics of each stripe still bound its keys."""
    sink, _ = spliced([acid_file(events(1, 3)), acid_file(events(4, 2))])
    _, tail = opened(sink.getvalue())
    assert [stripe_bounds(tail, index).write_id for index in (0, 1)] == [(1, 1), (4, 4)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tail: setattr(tail.stripes[0], "data_length", tail.stripes[0].data_length + 1), "as long as"),
        (lambda tail: setattr(tail.stripes[0], "number_of_rows", 1), "as long as"),
        (lambda tail: setattr(tail.metadata.stripe_stats[0].columns[1], "number_of_values", 7), "the statistics of"),
        (lambda tail: setattr(tail.stripes[0], "offset", tail.stripes[0].offset + 1), "the bytes of"),
        (lambda tail: None, None),
    ],
)
def test_a_copied_stripe_is_held_against_its_source(change, words):
    """Lengths, rows, statistics, first and last bytes."""
    data = plain_file(row_type([("n", "int")]), [(n,) for n in range(100)])
    source, source_tail = opened(data)
    copy, tail = opened(data)
    change(tail)
    found = difference(copy, tail, 0, source, source_tail, 0)
    assert found is None if words is None else words in found
