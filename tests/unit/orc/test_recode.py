"""
Recoding: the rows that count, as they were, in key order, in the table's columns. Compared with a model in plain
Python, read back by pyorc.
"""

from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.acid.row_id import RowKey, SyntheticIds
from compactor.acid.types import HiveType, Kind, acid_type, row_type
from compactor.errors import CorruptFileError, RefusedError
from compactor.orc import recode as recoding
from compactor.orc.digests.digest import Digester
from compactor.orc.events.deletes import DeleteEvents
from compactor.orc.events.keys import format_key_index
from compactor.orc.format.codec import Compression
from compactor.orc.format.key_columns import KeyColumns
from compactor.orc.format.tail import KEY_INDEX, read_stripe_footer
from compactor.orc.reading.consistency import check_key_statistics
from compactor.orc.reading.single_stripe import BATCH_ROWS
from compactor.orc.recode import recode_into, write_delete_events
from compactor.orc.rows import RowFilter, StripeSource
from compactor.orc.writing.encode import Encoder
from compactor.orc.writing.output import OutputFormat
from compactor.orc.writing.splice import Splicer
from compactor.reasons import Reason
from tests import strategies
from tests.recoding import recode
from tests.unit.orc.files import ROW, MemorySink, acid_file, delete, insert, opened, plain_file, rows_of

BUCKET = 536870912
OUTPUT = OutputFormat(acid_type(ROW))


def source(data, **options):
    return StripeSource(*opened(data), **options)


def deletes(keys):
    return DeleteEvents.load([opened(acid_file([delete(key, 9) for key in sorted(keys)]))]) if keys else None


def run(sources, output=OUTPUT, row_filter=None):
    sink = MemorySink()
    result = recode(sources, output, sink, row_filter)
    return sink.getvalue(), result


@settings(max_examples=150)
@given(st.data(), strategies.row_structs())
def test_every_value_of_every_type_survives(data, row):
    """
    Nulls at any depth, old and far timestamps, extreme numbers, padded texts: rows in, the same rows out, with the same
    statistics.
    """
    values = data.draw(st.lists(strategies.filled(row), min_size=1, max_size=8))
    file = acid_file([insert(RowKey(1, BUCKET, n), value) for n, value in enumerate(values)], row)
    _, tail = opened(file)
    made, result = run([source(file)], OutputFormat(tail.tree))
    assert repr(rows_of(made)) == repr(rows_of(file))
    _, after = opened(made)
    assert after.tree == tail.tree
    assert (result.rows_in, result.rows_out) == (len(values), len(values))
    for before, now in zip(tail.footer.statistics, after.footer.statistics, strict=True):
        assert (now.number_of_values, now.dates, now.integers, now.strings.minimum, now.timestamps.minimum_utc) == (
            before.number_of_values,
            before.dates,
            before.integers,
            before.strings.minimum,
            before.timestamps.minimum_utc,
        )


@settings(max_examples=60)
@given(st.data(), strategies.row_structs(), st.sets(st.integers(0, 29)))
def test_rows_between_deleted_ones_stay_as_they_are(data, row, gone):
    """Slices around deleted rows carry nested nulls along with their own rows."""
    some = data.draw(st.lists(strategies.filled(row), min_size=1, max_size=4))
    file = acid_file([insert(RowKey(1, BUCKET, n), some[n % len(some)]) for n in range(30)], row)
    made, result = run(
        [source(file)], OutputFormat(opened(file)[1].tree), RowFilter(deletes({RowKey(1, BUCKET, n) for n in gone}))
    )
    assert repr(rows_of(made)) == repr([found for n, found in enumerate(rows_of(file)) if n not in gone])
    assert (result.deleted, result.rows_out) == (len(gone), 30 - len(gone))


rows = st.dictionaries(strategies.row_keys(), st.tuples(st.integers(1, 9), st.text("ab", max_size=2)), max_size=30)


@settings(max_examples=200)
@given(
    st.lists(rows, min_size=1, max_size=4),
    st.sets(strategies.row_keys(), max_size=15),
    st.sets(st.integers(1, 9), max_size=3),
    st.none() | st.integers(1, 9),
)
def test_recoding_is_filter_and_sort(files, gone, aborted, watermark):
    """
    Several files that overlap: every row that is neither deleted nor aborted nor too new, once, in key order; all
    others are counted.
    """
    seen = {}
    for file in files:
        for key in [key for key in file if key in seen]:
            del file[key]
        seen.update(file)
    sources = [
        source(acid_file([insert(key, (key.row_id, value), current) for key, (current, value) in sorted(file.items())]))
        for file in files
    ]
    made, result = run(sources, row_filter=RowFilter(deletes(gone), np.array(sorted(aborted), np.int64), watermark))
    invisible = {
        key
        for key, (current, _) in seen.items()
        if current in aborted or (watermark is not None and current > watermark)
    }
    expected = [
        insert(key, (key.row_id, value), current)
        for key, (current, value) in sorted(seen.items())
        if key not in invisible and key not in gone
    ]
    assert rows_of(made) == expected
    assert (result.rows_in, result.rows_out, result.aborted) == (len(seen), len(expected), len(invisible))
    assert result.deleted == len(seen) - len(expected) - len(invisible)
    _, tail = opened(made)
    if expected:
        assert tail.key_index[-1] == RowKey(*expected[-1][1:4])
        for column in range(1, 6):
            numbers = [row[column - 1] for row in expected]
            noted = tail.footer.statistics[column]
            assert (noted.number_of_values, noted.has_null, noted.integers.sum) == (len(numbers), False, sum(numbers))
            assert (noted.integers.minimum, noted.integers.maximum) == (min(numbers), max(numbers))


def test_nothing_is_cut_out_of_files_that_overlap():
    """Their rows are merged, though each lost only one and is large enough."""
    left = [RowKey(1, BUCKET, 0), RowKey(3, BUCKET, 0), RowKey(3, BUCKET, 1)]
    right = [RowKey(2, BUCKET, 0), RowKey(2, BUCKET, 1), RowKey(4, BUCKET, 0)]
    gone = {left[1], right[1]}
    files = [acid_file([insert(key, (1, "x")) for key in keys]) for keys in (left, right)]
    output = OutputFormat(acid_type(ROW), stripe_rows=3)
    made, result = run([source(file) for file in files], output, RowFilter(deletes(gone)))
    assert [RowKey(*found[1:4]) for found in rows_of(made)] == sorted({*left, *right} - gone)
    assert {part.checksum for part in result.parts} == {None}


def test_cut_and_encoded_stripes_in_order():
    """A stripe that lost a row, one that lost many, and another that lost a row."""
    files = [acid_file([insert(RowKey(w, BUCKET, n), (n, f"{w}")) for n in range(1000)]) for w in (1, 2, 3)]
    gone = {RowKey(1, BUCKET, 7), RowKey(3, BUCKET, 999), *(RowKey(2, BUCKET, n) for n in range(0, 1000, 3))}
    output = OutputFormat(acid_type(ROW), stripe_rows=1000)
    made, result = run([source(file) for file in files], output, RowFilter(deletes(gone)))
    assert [part.checksum is not None for part in result.parts] == [True, False, True]
    assert [part.rows for part in result.parts] == [999, 666, 999]
    assert (result.rows_in, result.deleted, result.rows_out) == (3000, 336, 2664)
    assert [RowKey(*found[1:4]) for found in rows_of(made)] == [
        key for key in (RowKey(w, BUCKET, n) for w in (1, 2, 3) for n in range(1000)) if key not in gone
    ]


def test_stripes_without_statistics_are_read_one_after_the_other(monkeypatch):
    """Of one file, though each was looked at by itself: disorder is found, and they aren't all open at once."""
    made, _ = run(
        [source(acid_file([insert(RowKey(1, BUCKET, n), (n, "x")) for n in range(300)]))],
        OutputFormat(acid_type(ROW), stripe_rows=100),
    )
    whole = source(made)
    assert len(whole.chosen) == 3
    whole.tail.metadata.ClearField("stripe_stats")
    seen = []
    monkeypatch.setattr(recoding, "_encode", lambda sources, *_: seen.extend(sources))
    recode_into([whole], Splicer(MemorySink(), OUTPUT))
    assert [found.chosen for found in seen] == [(0, 1, 2)]


def test_a_cut_stripe_counts_in_the_files_calendar():
    """Its timestamps fit both calendars, but it has no statistics of them that show it."""
    row = row_type([("n", "int"), ("t", "timestamp")])
    events = [[insert(RowKey(w, BUCKET, n), (n, (1_500_000_000, 0))) for n in range(9)] for w in (1, 2)]
    files = [acid_file(found, row, timezone=ZoneInfo("America/New_York")) for found in events]
    sources = [source(file) for file in files]
    for one, calendar in zip(sources, (1, 2), strict=True):
        one.tail.footer.calendar = calendar
    gone = {RowKey(1, BUCKET, 3), RowKey(2, BUCKET, 3)}
    made, result = run(sources, OutputFormat(acid_type(row), stripe_rows=9), RowFilter(deletes(gone)))
    assert opened(made)[1].footer.calendar == 1
    assert None not in {part.checksum for part in result.parts}


def many(count, value=lambda n: (n, f"value {n % 7}")):
    return acid_file([insert(RowKey(1, BUCKET, n), value(n)) for n in range(count)])


@pytest.mark.parametrize("kind", [kind for kind in Compression if kind not in (Compression.LZO, Compression.BROTLI)])
def test_any_codec_in_and_out(kind):
    """The input's codec may differ from the output's."""
    made, _ = run([source(many(3000))], OutputFormat(acid_type(ROW), compression=kind))
    assert rows_of(made) == rows_of(many(3000))
    assert opened(made)[1].compression is kind


def test_stripes_end_where_they_are_full():
    """The compressed size that the inputs tell decides; each stripe has its entry in the key index."""
    file = acid_file(
        [insert(RowKey(1, BUCKET, n), (n * 2654435761 % 2**31, f"{n * 40503 % 65521:x}")) for n in range(200_000)]
    )
    made, result = run([source(file)], OutputFormat(acid_type(ROW), stripe_bytes=len(file) // 3))
    _, tail = opened(made)
    assert result.summary.stripes == len(tail.stripes) > 1
    assert rows_of(made) == rows_of(file)
    ends = np.cumsum(result.summary.stripe_rows)
    assert tail.key_index == [RowKey(1, BUCKET, int(end) - 1) for end in ends]


def test_the_memory_of_dictionaries_ends_a_stripe(monkeypatch):
    """Rows of low-cardinality text compress to nothing, but their dictionary entries are held until the stripe ends."""
    monkeypatch.setattr("compactor.orc.writing.encode._DICTIONARY_GUARD", 8 * 70_000)
    _, result = run([source(many(200_000))])
    assert result.summary.stripes == 2
    assert sum(result.summary.stripe_rows) == 200_000


def test_the_writers_memory_ends_a_stripe(monkeypatch):
    """
    Texts that shrink to a tenth: when the writer flushes because its buffers are full, the stripe ends there, and no
    row is lost.
    """
    monkeypatch.setattr("compactor.orc.writing.encode._STREAM_BUFFER", 1)
    file = acid_file([insert(RowKey(1, BUCKET, n), (n, f"{n * 40503:x}{'y' * 80}")) for n in range(150_000)])
    made, result = run([source(file)], OutputFormat(acid_type(ROW), stripe_bytes=4 << 20))
    assert len(made) < 4 << 20
    assert result.summary.stripes == 3
    assert rows_of(made) == rows_of(file)


def encoder(stripe_bytes, bytes_per_row=None, stripe_rows=None):
    """An encoder of rows with one number each, and the splicer that gets its stripes."""
    output = OutputFormat(row_type([("n", "bigint")]), Compression.NONE, stripe_bytes=stripe_bytes)
    splicer = Splicer(MemorySink(), output)
    return Encoder(splicer, bytes_per_row, 0, stripe_rows), splicer


def batch(numbers):
    return pa.record_batch({"n": pa.array(numbers, pa.int64())})


SCATTERED = [n * 0x9E3779B97F4A7C15 % (1 << 62) for n in range(BATCH_ROWS)]


def test_a_write_is_never_more_than_a_batch():
    """The writer may end its stripe after each batch: rows of a second one would stand in a second stripe."""
    one, splicer = encoder(1)
    one.gather([batch(SCATTERED[:10])], None)
    one.gather([batch(SCATTERED)], None)
    one.finish()
    assert splicer.stripe_rows == (BATCH_ROWS + 10,)


def test_a_stripe_that_is_exactly_full_leaves_the_next_one_its_size():
    """An empty stripe in between would tell nothing of the bytes of a row."""
    one, splicer = encoder(3600 * 8, 1, 8000)
    one.arrow([batch(SCATTERED[:8000])], None)
    for begin in range(0, 8000, 1000):
        one.python([(number,) for number in SCATTERED[begin : begin + 1000]], None)
    one.finish()
    assert splicer.stripe_rows == (8000, 4000, 4000)


@settings(max_examples=25)
@given(st.lists(st.integers(1, 70), min_size=1, max_size=5), st.integers(1, 100), st.booleans())
def test_stripes_get_as_many_rows_as_there_were(sizes, most, far):
    """All but the last have as many as may be, and never one more; by Arrow and by pyorc (which takes far timestamps)."""
    row = row_type([("id", "int"), ("at", "timestamp")])
    moment = (253_402_300_799 if far else 0, 5)
    files = [
        acid_file([insert(RowKey(number, BUCKET, n), (n, moment)) for n in range(size)], row)
        for number, size in enumerate(sizes, start=1)
    ]
    made, result = run([source(file) for file in files], OutputFormat(acid_type(row), stripe_rows=most))
    rows = result.summary.stripe_rows
    assert sum(rows) == sum(sizes)
    assert set(rows[:-1]) <= {most}
    assert 0 < rows[-1] <= most
    assert rows_of(made) == [found for file in files for found in rows_of(file)]
    _, tail = opened(made)
    assert tail.key_index == [rows_of(made)[end - 1][1:4] for end in np.cumsum(rows)]


def test_thousands_of_tiny_stripes_become_one():
    """Streaming writers leave a row a stripe; they are gathered before they are written."""
    sink = MemorySink()
    splicer = Splicer(sink, OUTPUT)
    for n in range(300):
        reader, tail = opened(acid_file([insert(RowKey(n + 1, BUCKET, 0), (n, "v"))]))
        splicer.add_stripe(reader, tail, 0)
    splicer.finish("insert")
    made, result = run([source(sink.getvalue())])
    assert (result.summary.stripes, result.rows_out) == (1, 300)
    assert rows_of(made) == rows_of(sink)


def test_some_stripes_of_a_file():
    """Only the chosen ones are read."""
    sink = MemorySink()
    splicer = Splicer(sink, OUTPUT)
    for write_id in range(1, 5):
        reader, tail = opened(acid_file([insert(RowKey(write_id, BUCKET, n), (n, "v")) for n in range(3)]))
        splicer.add_stripe(reader, tail, 0)
    splicer.finish("insert")
    made, _ = run([source(sink.getvalue(), stripes=(1, 3))])
    assert {row[1] for row in rows_of(made)} == {2, 4}


def test_copied_and_recoded_stripes_share_a_file():
    """A splicer takes copied stripes before and after recoded ones."""
    sink = MemorySink()
    splicer = Splicer(sink, OUTPUT)
    first, last = (
        opened(acid_file([insert(RowKey(1, BUCKET, 0), (1, "a"))])),
        opened(acid_file([insert(RowKey(9, BUCKET, 0), (9, "z"))])),
    )
    splicer.add_stripe(*first, 0)
    counted = recode_into(
        [source(acid_file([insert(RowKey(5, BUCKET, n), (n, "m")) for n in range(4)]))],
        splicer,
        RowFilter(deletes({RowKey(5, BUCKET, 2)})),
    )
    splicer.add_stripe(*last, 0)
    splicer.finish("insert")
    assert (counted.rows_in, counted.rows_out, counted.deleted) == (4, 3, 1)
    assert [row[1:4] for row in rows_of(sink)] == [
        (1, BUCKET, 0),
        (5, BUCKET, 0),
        (5, BUCKET, 1),
        (5, BUCKET, 3),
        (9, BUCKET, 0),
    ]


def test_nothing_left_is_an_empty_file():
    """All rows deleted: a valid file without stripes."""
    made, result = run([source(many(3))], row_filter=RowFilter(deletes({RowKey(1, BUCKET, n) for n in range(3)})))
    assert (rows_of(made), result.summary.stripes, result.deleted) == ([], 0, 3)


def test_a_base_is_trusted():
    """Rows of a base count whatever their write id; those of a delta don't."""
    filtered = RowFilter(aborted=np.array([1], np.int64))
    assert run([source(many(3), trusted=True)], row_filter=filtered)[1].rows_out == 3
    assert run([source(many(3))], row_filter=filtered)[1].aborted == 3


def test_files_without_keys_get_them():
    """Original rows: the given write id and bucket, row ids from the file's first one on; deletes hit them by these."""
    tree = row_type([("id", "int"), ("v", "string"), ("s", "struct<a:int,b:array<string>>")])
    file = plain_file(tree, [(n, f"v{n}", (n, ["x", None])) for n in range(6)])
    keys = SyntheticIds(0, BUCKET, 100)
    made, _ = run(
        [source(file, synthetic=keys)], OutputFormat(acid_type(tree)), RowFilter(deletes({RowKey(0, BUCKET, 103)}))
    )
    assert rows_of(made) == [(0, 0, BUCKET, 100 + n, 0, (n, f"v{n}", (n, ["x", None]))) for n in range(6) if n != 3]


def test_row_ids_of_a_later_stripe_count_from_the_file():
    """A stripe in the middle of an original file has the ids of its place in the file."""
    sink = MemorySink()
    splicer = Splicer(sink, OutputFormat(ROW))
    for size in (3, 2, 4):
        splicer.add_stripe(*opened(plain_file(ROW, [(size, "v")] * size)), 0)
    splicer.finish(None)
    made, _ = run([source(sink.getvalue(), synthetic=SyntheticIds(0, BUCKET, 10), stripes=(1, 2))])
    assert [row[3] for row in rows_of(made)] == list(range(13, 19))


@pytest.mark.parametrize("value", [(100, 1), (-100, 1)], ids=["arrow", "pyorc"])
def test_row_ids_go_on_from_batch_to_batch(monkeypatch, value):
    """
    An original file of several stripes, each decoded some rows at a time: numbered from its first row to its last,
    whoever decodes them.
    """
    monkeypatch.setattr("compactor.orc.reading.single_stripe.BATCH_ROWS", 4)
    tree = row_type([("id", "int"), ("t", "timestamp")])
    sink = MemorySink()
    splicer = Splicer(sink, OutputFormat(tree))
    for _ in range(2):
        splicer.add_stripe(*opened(plain_file(tree, [(n, value) for n in range(10)])), 0)
    splicer.finish(None)
    gone = DeleteEvents.of(KeyColumns.of([RowKey(0, BUCKET, 100 + n) for n in (5, 17)]))
    made, _ = run(
        [source(sink.getvalue(), synthetic=SyntheticIds(0, BUCKET, 100))],
        OutputFormat(acid_type(tree)),
        RowFilter(gone),
    )
    assert [(row[3] - 100, row[5][0]) for row in rows_of(made)] == [(n, n % 10) for n in range(20) if n not in (5, 17)]


def test_keys_are_given_where_there_are_none_and_only_there():
    """Both mistakes are named."""
    with pytest.raises(CorruptFileError, match="no ACID columns"):
        run([source(plain_file(ROW, [(1, "v")]))])
    with pytest.raises(CorruptFileError, match="has ACID columns"):
        run([source(many(1), synthetic=SyntheticIds(0, BUCKET, 0))])
    with pytest.raises(ValueError, match="full-ACID"):
        run([], OutputFormat(ROW))


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([insert(RowKey(2, BUCKET, 0), (1, "a")), insert(RowKey(1, BUCKET, 0), (1, "a"))], "isn't sorted"),
        ([insert(RowKey(1, BUCKET, 0), (1, "a"))] * 2, "isn't sorted"),
        ([delete(RowKey(1, BUCKET, 0), 5)], "has rows without values|aren't inserts"),
        ([(1, 1, BUCKET, 0, 1, (1, "a"))], "aren't inserts"),
        ([insert(RowKey(1, BUCKET, 0), None)], "rows without values"),
    ],
)
def test_rows_that_cant_be_are_corruption(events, words):
    """Disorder, deletes among inserts, updates of old writers, rows without values."""
    with pytest.raises(CorruptFileError, match=words):
        run([source(acid_file(events))])


@pytest.mark.parametrize("again", [3, 2])
def test_disorder_between_two_batches_is_noticed(monkeypatch, again):
    """Rows that are decoded some at a time: the first of a batch lies above the last of the one before."""
    monkeypatch.setattr("compactor.orc.reading.single_stripe.BATCH_ROWS", 4)
    file = acid_file([insert(RowKey(1, BUCKET, row), (row, "x")) for row in (0, 1, 2, 3, again, 5, 6)])
    with pytest.raises(CorruptFileError, match="isn't sorted"):
        run([source(file)])


def test_the_same_key_in_two_files_is_refused():
    """Two rows with one ROW__ID: nobody can say which one a reader sees."""
    with pytest.raises(RefusedError) as refused:
        run([source(many(3)), source(many(2))])
    assert refused.value.reason is Reason.DUPLICATE_RANGE


def test_progress_is_told_and_may_stop():
    """The callback sees every row, and what it raises ends the work."""
    told = []
    recode([source(many(100))], OUTPUT, MemorySink(), None, told.append)
    assert sum(told) == 100

    def stop(_rows):
        raise KeyError("enough")

    with pytest.raises(KeyError):
        recode([source(many(100))], OUTPUT, MemorySink(), None, stop)


MOMENTS = row_type([("id", "int"), ("t", "timestamp"), ("deep", "array<struct<m:map<string,timestamp>>>")])


@pytest.mark.parametrize(
    "moment",
    [
        (-5, 500_000_000),
        (-5, 1),
        (-62_135_596_800, 0),
        (253_402_300_799, 999_999_999),
        (-9_223_372_040, 0),
        (0, 0),
        (-1000, 0),
        (1, 999_999_999),
    ],
)
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("statistics", [True, False])
def test_timestamps_that_arrow_gets_wrong(moment, deep, statistics):
    """
    Fractions before 1970 and years that nanoseconds can't count, at the top and inside, with and without statistics:
    exact, in stripes of their own if need be.
    """
    row = (1, (5, 5), [({"k": moment},)]) if deep else (1, moment, None)
    file = acid_file([insert(RowKey(1, BUCKET, 0), (0, None, None)), insert(RowKey(1, BUCKET, 1), row)], MOMENTS)
    plain = acid_file([insert(RowKey(2, BUCKET, 0), (2, (7, 7), []))], MOMENTS)
    odd = source(file)
    if not statistics:
        odd.tail.footer.row_index_stride = 0
    made, _ = run([odd, source(plain)], OutputFormat(acid_type(MOMENTS)))
    assert rows_of(made) == rows_of(file) + rows_of(plain)


def test_overlapping_files_of_which_one_needs_pyorc():
    """Rows of both kinds are merged by key."""
    tree = row_type([("t", "timestamp")])
    odd = acid_file([insert(RowKey(1, BUCKET, n), ((-100 - n, 1),)) for n in (0, 2, 4)], tree)
    even = acid_file([insert(RowKey(1, BUCKET, n), ((n, 1),)) for n in (1, 3, 5)], tree)
    made, _ = run(
        [source(odd), source(even)], OutputFormat(acid_type(tree)), RowFilter(deletes({RowKey(1, BUCKET, 2)}))
    )
    assert [row[3] for row in rows_of(made)] == [0, 1, 3, 4, 5]


class OnlyItself(float):
    """A number that a dictionary keeps beside its equals."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__


@pytest.mark.parametrize("again", [1.0, -0.0])
@pytest.mark.parametrize(
    ("kind", "around"), [("{}", lambda found: found), ("array<struct<m:{}>>", lambda found: [({},), None, (found,)])]
)
def test_equal_keys_of_a_map_beside_timestamps_that_need_pyorc_are_refused(again, kind, around):
    """
    Dictionaries of pyorc keep one of them; nothing is refused where all entries are decoded, nor where Arrow keeps
    them.
    """
    tree = row_type([("t", "timestamp"), ("m", kind.format("map<double,map<string,timestamp>>"))])
    pair = {OnlyItself(abs(again)): {"a": (1, 1)}, OnlyItself(again): {"b": (-62_135_596_800, 7), "c": None}}

    def file(moment, entries):
        return acid_file(
            [insert(RowKey(1, BUCKET, 0), (moment, around(entries))), insert(RowKey(1, BUCKET, 1), ((5, 5), None))],
            tree,
        )

    with pytest.raises(RefusedError, match="equal keys in a map") as refused:
        run([source(file((-5, 5), pair))], OutputFormat(acid_type(tree)))
    assert refused.value.reason is Reason.UNSUPPORTED_FORMAT
    different = file((-5, 5), {1.5: {"a": (1, 1)}, again: None})
    assert rows_of(run([source(different)], OutputFormat(acid_type(tree)))[0]) == rows_of(different)
    late = file((5, 5), {key: {"a": (1, 1)} for key in pair})
    made, _ = run([source(late)], OutputFormat(acid_type(tree)))
    assert opened(made)[1].footer.statistics[9 if kind == "{}" else 11].number_of_values == 2


def test_keys_of_a_map_that_become_equal_in_the_tables_type_are_refused():
    """A char without its padding may be another key's text: such entries aren't dropped either."""
    before, after = (row_type([("t", "timestamp"), ("m", f"map<{kind},int>")]) for kind in ("char(3)", "string"))
    texts = row_type([("t", "timestamp"), ("m", "map<string,int>")])
    file = declared(acid_file([insert(RowKey(1, BUCKET, 0), ((-5, 5), {"a": 1, "a  ": 2}))], texts), before)
    with pytest.raises(RefusedError, match="equal keys in a map"):
        run([source(file)], OutputFormat(acid_type(after)))


def test_null_among_the_keys_of_a_map_is_refused():
    """Arrow ends the process at such a key, pyorc would keep one of several; a map or a value that is NULL is fine."""
    tree = row_type([("m", "map<int,int>")])

    def file(entries):
        return acid_file([insert(RowKey(1, BUCKET, 0), (entries,))], tree)

    for entries in (None, {}, {1: None}):
        assert rows_of(run([source(file(entries))], OutputFormat(acid_type(tree)))[0]) == rows_of(file(entries))
    with pytest.raises(RefusedError, match="holds NULL among the keys of a map") as refused:
        run([source(file({None: 1}))], OutputFormat(acid_type(tree)))
    assert refused.value.reason is Reason.UNSUPPORTED_FORMAT


def declared(file, row):
    """A file of one stripe of texts whose tail calls its columns something else."""
    sink = MemorySink()
    splicer = Splicer(sink, OutputFormat(acid_type(row)))
    reader, tail = opened(file)
    splicer.add_recoded(reader, tail, RowKey(*rows_of(file)[-1][1:4]))
    splicer.finish("insert")
    return sink.getvalue()


def test_texts_that_dont_fit_their_type_stay_as_they_are():
    """
    A char without padding and too long a varchar, beside a timestamp that needs pyorc: the writer neither pads nor cuts
    them, and the digests agree.
    """
    types = [("t", "timestamp"), ("c", "char(5)"), ("v", "varchar(2)"), ("m", "map<char(3),array<varchar(1)>>")]
    row, texts = (
        row_type(types),
        row_type([*types[:1], ("c", "string"), ("v", "string"), ("m", "map<string,array<string>>")]),
    )
    values = [((-5, 5), "ab", "abcdef", {"é": ["xyz", None]}), ((5, 5), "abcdefgh", "", {}), (None, None, None, None)]
    file = declared(acid_file([insert(RowKey(1, BUCKET, n), value) for n, value in enumerate(values)], texts), row)
    sink, digester, again = MemorySink(), Digester(row), Digester(row)
    splicer = Splicer(sink, OutputFormat(acid_type(row)))
    recode_into([source(file)], splicer, digester=digester)
    splicer.finish("insert")
    recode_into([source(sink.getvalue())], Splicer(MemorySink(), OutputFormat(acid_type(row))), digester=again)
    assert opened(sink.getvalue())[1].tree == acid_type(row)
    assert [found[5] for found in rows_of(sink)] == values
    assert again.digest == digester.digest


UNION = HiveType(
    Kind.STRUCT, (HiveType(Kind.INT), HiveType(Kind.UNION, (HiveType(Kind.INT), HiveType(Kind.STRING)))), ("id", "u")
)


def test_unions_of_simple_types_are_recoded():
    """A union column without NULLs, with rows deleted in between."""
    file = acid_file([insert(RowKey(1, BUCKET, n), (n, n if n % 3 else f"s{n}")) for n in range(50)], UNION)
    made, _ = run(
        [source(file)], OutputFormat(acid_type(UNION)), RowFilter(deletes({RowKey(1, BUCKET, n) for n in (3, 4, 30)}))
    )
    assert rows_of(made) == [row for row in rows_of(file) if row[3] not in (3, 4, 30)]


def test_unions_that_would_change_are_refused():
    """NULL unions, unions inside other types and unions of structs can be copied, not rewritten."""
    with_null = acid_file([insert(RowKey(1, BUCKET, n), (n, None)) for n in range(3)], UNION)
    with pytest.raises(RefusedError, match="NULL in a union column"):
        run([source(with_null)], OutputFormat(acid_type(UNION)))
    nested = HiveType(Kind.STRUCT, (HiveType(Kind.LIST, (UNION.children[1],)),), ("l",))
    with pytest.raises(RefusedError, match="unions inside other types"):
        run([source(acid_file([insert(RowKey(1, BUCKET, 0), ([1],))], nested))], OutputFormat(acid_type(nested)))
    timed = HiveType(Kind.STRUCT, (*UNION.children, HiveType(Kind.TIMESTAMP)), ("id", "u", "t"))
    with pytest.raises(RefusedError, match="both unions and timestamps"):
        run([source(acid_file([insert(RowKey(1, BUCKET, 0), (1, 5, (-5, 5)))], timed))], OutputFormat(acid_type(timed)))


def test_bloom_filters_are_written_where_asked_for():
    """A named column gets its filter; the file stays readable."""
    made, _ = run([source(many(3000))], OutputFormat(acid_type(ROW), bloom_columns=("V",)))
    reader, tail = opened(made)
    assert [stream.column for stream in read_stripe_footer(reader, tail, 0).streams if stream.kind == 8] == [8]
    assert rows_of(made) == rows_of(many(3000))


@given(st.sets(strategies.row_keys(), min_size=1))
def test_delete_events_are_written_as_hive_has_them(keys):
    """Operation 2, key of the row, the deleting write id, no row; Hive's counts say deletes."""
    sink = MemorySink()
    summary = write_delete_events(deletes(keys).blocks(), OUTPUT, sink)
    assert rows_of(sink) == [delete(key, 9) for key in sorted(keys)]
    assert (summary.rows, opened(sink.getvalue())[1].user_metadata["hive.acid.stats"]) == (
        len(keys),
        f"0,0,{len(keys)}".encode(),
    )


def test_wide_rows_are_decoded_in_small_batches():
    """Half a megabyte a row doesn't become a batch of gigabytes."""
    file = acid_file([insert(RowKey(1, BUCKET, n), (n, "x" * 500_000)) for n in range(100)])
    told = []
    recode([source(file)], OUTPUT, MemorySink(), None, told.append)
    assert max(told) == 64


@pytest.mark.parametrize("noted", [RowKey(2, BUCKET, 3), RowKey(2, BUCKET, 8)])
def test_a_key_index_of_other_rows_is_found_when_they_are_decoded(noted):
    """
    Which delete events a task holds is told by it: one that its statistics admit, but its rows don't, would let a
    deleted row through.
    """
    reader, tail = opened(
        acid_file(
            [
                insert(key, (1, "v"))
                for key in (RowKey(1, BUCKET, 0), RowKey(1, BUCKET, 9), RowKey(2, BUCKET, 3), RowKey(2, BUCKET, 9))
            ]
        )
    )
    tail.footer.metadata.add(name=KEY_INDEX, value=format_key_index([noted]))
    check_key_statistics(tail)
    with pytest.raises(CorruptFileError, match=r"which hive[.]acid[.]key[.]index excludes"):
        run([StripeSource(reader, tail)])
