"""
Rows cut out of encoded stripes: compared with the rows that stay, read by pyorc and Arrow, from every row group, beside
the statistics of a file that was encoded anew.
"""

import io
import zlib
from decimal import Decimal
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyorc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import orc

from compactor.acid.row_id import RowKey
from compactor.acid.types import Kind, row_type
from compactor.errors import RefusedError
from compactor.orc.cutting import columns, streams, stripe
from compactor.orc.cutting.runs import (
    UncutError,
    decoded_bytes,
    decoded_integers,
    encoded_bytes,
    encoded_integers,
    integer_runs,
)
from compactor.orc.cutting.streams import Edit, Stream
from compactor.orc.cutting.stripe import cut
from compactor.orc.events.keys import read_keys
from compactor.orc.format.codec import Compression
from compactor.orc.format.key_columns import KeyColumns
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.tail import read_stripe_footer
from compactor.orc.reading.single_stripe import batches_of, image_of
from compactor.orc.writing.output import OutputFormat
from compactor.orc.writing.splice import Splicer
from compactor.orc.writing.writer_choice import needs_pyorc
from tests import strategies
from tests.unit.orc.files import MemorySink, acid_file, insert, opened, plain_file, rows_of
from tests.unit.orc.test_recompress import STRIDE, compressed, encoded, reached

KINDS = (
    Compression.NONE,
    Compression.ZLIB,
    Compression.ZSTD,
    Compression.SNAPPY,
    Compression.LZ4,
)


@pytest.fixture(scope="module", autouse=True)
def _small_pieces():
    """Streams without compression have many pieces in files as small as these."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "_PIECE", 64)
        yield


@pytest.fixture(autouse=True)
def _many_rows(monkeypatch):
    """Also where encoding anew would take less."""
    monkeypatch.setattr(stripe, "_FEW", 1.0)
    monkeypatch.setattr(stripe, "_RUN", 1 << 30)


def file_of(tree, rows, kind=Compression.ZLIB, block_size=65_536, **options):
    """A file of one stripe; chunks may be smaller than C++'s writer makes them."""
    data = encoded(tree, rows, **options)
    return data if kind is Compression.NONE else compressed(data, kind, block_size)


def without(data, gone, said=None):
    """The file without these rows; None where they aren't cut out. `said`: as if the file said this block size."""
    reader, tail = opened(data)
    tail.postscript.compression_block_size = said or tail.block_size
    kept = np.ones(tail.rows, np.bool_)
    kept[list(gone)] = False
    keys = KeyColumns.concat(list(read_keys(reader, tail, 0))) if tail.is_acid else None
    made = cut(reader, tail, 0, kept, keys)
    if made is None:
        return None
    sink = MemorySink()
    splicer = Splicer(
        sink, OutputFormat(tail.tree, compression=tail.compression, block_size=tail.block_size, stride=tail.stride)
    )
    splicer.add_stripe(made.reader, made.tail, 0)
    splicer.finish("insert" if tail.is_acid else None)
    return sink.getvalue()


@st.composite
def cuts(draw):
    """A table's columns, the rows of a stripe, and those that go; every form in which C++'s writer encodes."""
    row = draw(strategies.flat_rows())
    some = draw(st.lists(strategies.filled(row), min_size=1, max_size=9))
    count = draw(st.integers(2, 600))
    repeated, step = draw(st.integers(1, 30)), draw(st.integers(1, 9))
    rows = [some[number // repeated * step % len(some)] for number in range(count)]
    start = draw(st.integers(0, count - 1) | st.integers(0, (count - 1) // STRIDE).map(lambda group: group * STRIDE))
    scattered = draw(st.sets(st.integers(0, count - 1), max_size=12))
    length = draw(st.integers(0, count) | st.sampled_from((STRIDE - 1, STRIDE, 2 * STRIDE)))
    gone = scattered | set(range(start, min(count, start + length)))
    return row, rows, gone or {start}


@settings(max_examples=300)
@given(cuts(), st.sampled_from(KINDS), st.sampled_from((64, 256, 4096, 65_536)), st.booleans(), st.booleans())
def test_what_stays_is_there_and_reached(drawn, kind, block_size, words, larger):
    """
    Every type, NULLs, texts with and without a dictionary, chunks smaller and larger than a row group, and smaller than
    the file says: the same rows, also from the middle.
    """
    row, rows, gone = drawn
    options = {"dict_key_size_threshold": float(words)}
    before = file_of(row, rows, kind, block_size, **options)
    after = without(before, gone, 65_536 if larger else None)
    left = [found for number, found in enumerate(rows_of(before)) if number not in gone]
    if after is None:
        assert not left or needs_pyorc(*opened(before), 0)
        return
    assert repr(rows_of(after)) == repr(left)
    anew = file_of(row, [found for number, found in enumerate(rows) if number not in gone], kind, **options)
    places = [
        place
        for start in range(0, len(left), STRIDE)
        for place in (start, start - 1, start + 37)
        if 0 <= place < len(left)
    ]
    assert repr(reached(after, places)) == repr(reached(anew, places))


@settings(max_examples=200)
@given(cuts())
def test_statistics_are_those_of_what_stays(drawn):
    """
    Of the stripe and of each row group: counts and sums; minimum and maximum may be those of rows that went, and cover
    all that stay.
    """
    row, rows, gone = drawn
    after = without(file_of(row, rows), gone)
    if after is None:
        return
    anew = file_of(row, [found for number, found in enumerate(rows) if number not in gone])
    for found, expected in zip(statistics(after), statistics(anew), strict=True):
        assert len(found) == len(expected)
        for here, there in zip(found, expected, strict=True):
            same_statistics(here, there)


def statistics(data):
    """Of the stripe, and of each row group, by column."""
    reader, tail = opened(data)
    yield list(tail.metadata.stripe_stats[0].columns)
    footer, at = read_stripe_footer(reader, tail, 0), tail.stripes[0].offset
    for stream in footer.streams:
        if stream.kind == 6:
            index = pb.RowIndex()
            packed = reader.read_at(at, stream.length)
            index.ParseFromString(Stream.read(packed, tail.compression, tail.block_size, "index").data)
            yield [entry.statistics for entry in index.entries]
        at += stream.length


def same_statistics(here, there):
    assert (here.number_of_values, here.has_null) == (there.number_of_values, there.has_null)
    if not here.number_of_values:
        return
    for name in ("integers", "dates", "strings", "doubles", "decimals"):
        if there.HasField(name) and (name != "doubles" or here.HasField(name)):
            low, high = (
                (Decimal if name == "decimals" else lambda value: value)(getattr(getattr(here, name), end))
                for end in ("minimum", "maximum")
            )
            for end in ("minimum", "maximum"):
                value = getattr(getattr(there, name), end)
                assert low <= (Decimal(value) if name == "decimals" else value) <= high
    if there.HasField("timestamps"):
        first = (here.timestamps.minimum_utc, here.timestamps.minimum_nanos)
        last = (here.timestamps.maximum_utc, here.timestamps.maximum_nanos or 1_000_000)
        assert first <= (there.timestamps.minimum_utc, there.timestamps.minimum_nanos)
        assert last >= (there.timestamps.maximum_utc, there.timestamps.maximum_nanos or 1_000_000)
    for name in ("integers", "strings", "binaries"):
        if getattr(here, name).HasField("sum"):
            assert getattr(here, name).sum == getattr(there, name).sum
    assert here.buckets == there.buckets
    if here.decimals.sum:
        assert Decimal(here.decimals.sum) == Decimal(there.decimals.sum or 0)
    if here.HasField("doubles"):  # sums are rounded as values come and go
        most = max(abs(here.doubles.minimum), abs(here.doubles.maximum))
        assert here.doubles.sum == there.doubles.sum or abs(here.doubles.sum - there.doubles.sum) <= 1e-9 * most


@st.composite
def numbers(draw):
    """Integers in shapes that make C++'s writer choose each of its encodings."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    count = draw(st.integers(1, 1500))
    low, high = sorted(draw(st.tuples(*[st.integers(-(1 << 63), (1 << 63) - 1)] * 2)))
    small = draw(st.integers(0, 70))
    values = draw(
        st.sampled_from(
            (
                np.arange(count) * small,
                random.integers(low, high, count, endpoint=True),
                random.integers(-small, small, count, endpoint=True),
                np.cumsum(random.integers(0, small, count, endpoint=True)),
                -np.cumsum(random.integers(0, small, count, endpoint=True)),
                np.repeat(random.integers(-small, small, count, endpoint=True), small // 5 + 1)[:count],
                np.where(random.random(count) < 0.02, high, random.integers(0, 9, count)),
            )
        )
    )
    return values.astype(np.int64)


@settings(max_examples=300)
@given(numbers(), st.booleans(), st.integers(0, 1 << 32), st.sampled_from((0.001, 0.01, 0.3)))
def test_runs_of_integers(values, signed, seed, share):
    """C++'s runs are found and decoded; what is left of each is encoded, and C++'s reader finds it."""
    values = values if signed else np.abs(values % 300)
    data, kept = written_by_arrow(values, signed=signed), np.random.default_rng(seed).random(len(values)) >= share
    found = integer_runs(data, len(values))
    assert (decoded_integers(data, found, np.arange(len(found)), signed=signed) == values).all()
    left = [
        run
        for start, end in pairwise(found.firsts.tolist())
        for run in encoded_integers(values[start:end][kept[start:end]], signed=signed)
    ]
    assert sum(count for _, count in left) == kept.sum()
    if kept.any():
        assert (read_by_arrow(b"".join(run for run, _ in left), values[kept], signed=signed) == values[kept]).all()


def written_by_arrow(values, *, signed):
    """A stream of integers: those of a bigint, or lengths of texts."""
    sink = io.BytesIO()
    column = pa.array(values) if signed else pa.array(["x" * value for value in values.tolist()])
    with orc.ORCWriter(sink, compression="uncompressed", stripe_size=1 << 30) as writer:
        writer.write(pa.table({"n": column}))
    reader, tail = opened(sink.getvalue())
    at = tail.stripes[0].offset
    for stream in read_stripe_footer(reader, tail, 0).streams:
        if (stream.column, stream.kind) == (1, columns.DATA if signed else columns.LENGTH):
            return reader.read_at(at, stream.length)
        at += stream.length
    return b""


def read_by_arrow(data, expected, *, signed):
    """The values of such a stream."""
    row = row_type([("n", "bigint" if signed else "string")])
    _, tail = opened(plain_file(row, [(1,) if signed else ("x",)], dict_key_size_threshold=0.0))
    footer = pb.StripeFooter(columns=[pb.ColumnEncoding(kind=0), pb.ColumnEncoding(kind=2)])
    streams = [(pb.Stream(column=1, kind=columns.DATA), [data])]
    if not signed:
        streams = [
            (pb.Stream(column=1, kind=columns.DATA), [b"x" * int(expected.sum())]),
            (pb.Stream(column=1, kind=columns.LENGTH), [data]),
        ]
    image = image_of(tail, footer, streams, len(expected))
    batches = list(batches_of(image, len(expected), 1 << 16, "runs"))
    found = pa.chunked_array([batch.column(0) for batch in batches])
    return (found if signed else pc.binary_length(found)).to_numpy()


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 255), st.integers(1, 300)), max_size=20), st.binary(max_size=300))
def test_runs_of_bytes(repeated, others):
    """Repeats and literals, as long as they may be and longer."""
    values = np.frombuffer(others + b"".join(bytes([value]) * count for value, count in repeated), np.uint8)
    data, found = encoded_bytes(values)
    assert (decoded_bytes(data, len(values)) == values).all()
    with pytest.raises(UncutError):
        decoded_bytes(data, len(values) + 1)
    assert (found.starts[-1], found.firsts[-1]) == (len(data), len(values))


def test_without_compression_only_pieces_with_an_edit_are_copied():
    """A stripe of any size then takes hardly more memory than its bytes."""
    data = bytes(range(256))
    before = Stream.read(memoryview(data), Compression.NONE, 0, "stream")
    after = before.edited([Edit(100, 101), Edit(130, 130, b"xyz")])
    assert after.data == data[:100] + data[101:130] + b"xyz" + data[130:]
    assert [chunk in before.chunks and isinstance(chunk, memoryview) for chunk in after.chunks] == [
        True,
        False,
        False,
        True,
    ]


@settings(max_examples=200)
@given(
    st.integers(0, 2000),
    st.binary(min_size=1, max_size=9),
    st.lists(st.tuples(st.integers(1, 80), st.integers(1, 50), st.binary(max_size=300)), min_size=1),
)
@example(256, b"0123456", [(10, 1, bytes(40))])
@example(256, b"0123456", [(70, 60, bytes(range(200)))])
def test_edits_of_a_stream(size, some, places):
    """
    The stream reads as it should, positions lead to their bytes inside a chunk, however many chunks one becomes, and
    chunks that no edit touches are the same.
    """
    edits, expected, at = [], [], 0
    data = (some * size)[:size]
    for gap, length, made in places:
        if at + gap + length > len(data):
            break
        edits.append(Edit(at + gap, at + gap + length, made))
        expected += (data[at : at + gap], made)
        at += gap + length
    before = Stream.of(data, Compression.ZLIB, 64)
    after = before.edited(edits)
    packed = b"".join(after.chunks)
    whole = b"".join([*expected, data[at:]])
    assert Stream.read(packed, Compression.ZLIB, 64, "stream").data == after.data == whole
    assert after.starts == [0, *accumulate(map(len, Stream.read(packed, Compression.ZLIB, 64, "stream").contents))]
    for offset, (start, inside) in zip(range(len(whole)), after.positions(range(len(whole))), strict=True):
        rest = Stream.read(packed[start:], Compression.ZLIB, 64, "stream")
        assert (inside < len(rest.contents[0]), rest.data[inside:]) == (True, whole[offset:])
    touched = {place for edit in edits for place in range(edit.start // 64, (edit.end - 1) // 64 + 1)}
    assert [
        chunk for place, chunk in enumerate(before.chunks) if place not in touched and chunk not in after.chunks
    ] == []


@pytest.mark.parametrize("kind", [Compression.ZLIB, Compression.SNAPPY])
def test_only_chunks_that_are_asked_for_are_inflated(kind):
    """Where the size tells that all others are full; a chunk that isn't is found when it is inflated."""
    data = bytes(range(256)) * 4
    chunks = Stream.of(data, kind, 100).chunks
    broken = (*chunks[:3], b"\x09\0\0" + b"\xff" * 4, *chunks[4:])
    stream = Stream(broken, kind, 100)
    assert stream.has(len(data))
    assert stream.span(450, 612) == data[450:612]
    edited = stream.edited([Edit(450, 452)])
    assert (edited.span(440, 460), edited.chunks[3]) == (data[440:450] + data[452:462], broken[3])
    with pytest.raises(ValueError, match="chunk 4 isn't full"):
        stream.span(399, 401)
    shorter = Stream((*chunks[:3], *Stream.of(b"short", kind, 100).chunks, *chunks[4:]), kind, 100)
    assert not shorter.has(len(data) - 1)
    assert shorter.has(len(data) - 95)
    longer = Stream((*chunks[:3], b"\x01\x02\0" + bytes(256), *chunks[4:]), kind, 100)
    assert not longer.has(len(data))


@pytest.mark.parametrize("gone", [[1000], [1000, 31_007, 31_008], range(500, 390_000, 20_000)])
@pytest.mark.parametrize("kind", ["zlib", "snappy", "zstd", "uncompressed"])
def test_every_row_group_is_found_behind_chunks_that_grew(kind, gone):
    """
    A progression that lost a value takes more bytes than before, so a full chunk becomes two: the positions of all
    that follows in the stream move by more than the removed bytes.
    """
    numbers = np.cumsum(np.random.default_rng(1).integers(1, 250, 400_000))
    sink = pa.BufferOutputStream()
    options = {
        "compression": kind,
        "compression_block_size": 65_536,
        "row_index_stride": 10_000,
        "stripe_size": 1 << 30,
    }
    with orc.ORCWriter(sink, **options) as writer:
        writer.write(pa.table({"t": numbers}))
    reader, tail = opened(sink.getvalue().to_pybytes())
    kept = np.ones(len(numbers), np.bool_)
    kept[list(gone)] = False
    made = cut(reader, tail, 0, kept)
    assert made is not None
    out = MemorySink()
    splicer = Splicer(out, OutputFormat(tail.tree, tail.compression, tail.block_size or 65_536, stride=tail.stride))
    splicer.add_stripe(made.reader, made.tail, 0)
    splicer.finish(None)
    left = numbers[kept]
    found = pyorc.Reader(io.BytesIO(out.getvalue()))
    for place in range(0, len(left), 10_000):
        found.seek(place)
        assert next(found) == (int(left[place]),), place


def test_a_block_size_may_be_missing_without_compression():
    """Java writes it only where there is one; texts are cut all the same."""
    data = plain_file(row_type([("s", "string")]), [(f"text {n}",) for n in range(3000)], compression=0)
    reader, tail = opened(data)
    tail.postscript.ClearField("compression_block_size")
    kept = np.ones(3000, np.bool_)
    kept[7] = False
    assert cut(reader, tail, 0, kept) is not None


def test_chunks_without_a_removed_value_keep_their_bytes():
    """A row of ten thousand costs one chunk of each stream."""
    row = row_type([("n", "bigint"), ("s", "string")])
    rows = [(n * n % 7919, f"text {n * 40503 % 65_536:x}") for n in range(10_000)]
    before = file_of(row, rows, block_size=1024, dict_key_size_threshold=0.0)
    after = without(before, {5000})
    reader, tail = opened(before)
    at, kept = tail.stripes[0].offset, {}
    for stream in read_stripe_footer(reader, tail, 0).streams:
        if stream.kind < 6:
            chunks = Stream.read(reader.read_at(at, stream.length), tail.compression, tail.block_size, "stream").chunks
            kept[stream.column, stream.kind] = [chunk in after for chunk in chunks].count(False)
        at += stream.length
    assert max(kept.values()) <= 2  # a run may begin in one chunk and end in the next


@pytest.mark.parametrize(
    ("columns", "values", "options"),
    [
        ([("n", "bigint")], (1,), {"bloom_filter_columns": ("n",)}),
        ([("n", "array<bigint>")], ([1],), {}),
        ([("n", "struct<a:bigint>")], ((1,),), {}),
        ([("n", "bigint")], (1,), {"row_index_stride": 0}),
    ],
    ids=["Bloom filters", "list", "struct", "no row index"],
)
def test_other_forms_are_encoded_anew(columns, values, options):
    """What isn't understood is never guessed at."""
    data = plain_file(row_type(columns), [values] * 300, **options)
    assert without(data, {7}) is None


@pytest.mark.parametrize("kind", [Kind.LONG, Kind.STRING, Kind.TIMESTAMP, Kind.DECIMAL, Kind.LIST])
def test_older_encodings_are_not_known(kind):
    """Hive before 0.12 encoded integers otherwise."""
    streams = {columns.DATA: Stream((b"",), Compression.NONE, 64)}
    column = columns.Column(pb.Type(kind=kind), pb.ColumnEncoding(kind=0), streams)
    nothing = np.zeros(0, np.int64)
    with pytest.raises(UncutError):
        columns.cut_column(column, columns.ValueCut(np.ones(0, np.bool_), np.zeros(1, np.int64), nothing))


def test_the_checksum_is_that_of_all_bytes(monkeypatch):
    """However many are read at once, and wherever the pieces of a cut stripe end."""
    monkeypatch.setattr(stripe, "_TOGETHER", 100)
    reader, tail = opened(file_of(row_type([("n", "bigint")]), [(n * n % 7919,) for n in range(3000)], block_size=256))
    made = cut(reader, tail, 0, np.arange(3000) != 7)
    data = made.reader.read_at(0, made.reader.size)
    end = made.tail.stripes[0].offset + made.tail.stripe_length(0)
    assert made.checksum == zlib.crc32(data[made.tail.stripes[0].offset : end])
    assert [made.reader.read_at(at, 77) for at in range(0, len(data), 77)] == [
        data[at : at + 77] for at in range(0, len(data), 77)
    ]


def test_nothing_and_everything_are_no_cuts():
    data = file_of(row_type([("n", "bigint")]), [(n,) for n in range(300)])
    assert without(data, ()) is None
    assert without(data, range(300)) is None


def test_few_rows_only(monkeypatch):
    """Where many go, encoding anew takes less."""
    monkeypatch.undo()
    data = file_of(row_type([("n", "bigint")]), [(n,) for n in range(4096)])
    assert without(data, range(32)) is not None
    assert without(data, range(33)) is None
    assert without(data, range(7, 4096, 1024)) is not None
    assert without(data, range(7, 4096, 512)) is None


@pytest.mark.parametrize("wrong", ["a value", "a value too few", "no run at all"])
def test_a_cut_that_went_wrong_is_none(monkeypatch, wrong):
    """What was made is compared with its source: what differs isn't used."""
    right = columns.encoded_integers

    def wrongly(values, *, signed):
        match wrong:
            case "a value":
                return right(values ^ 1, signed=signed)
            case "a value too few":
                return right(values[:-1], signed=signed)
            case _:
                return [(b"\xff\xff", len(values))]

    data = file_of(row_type([("n", "bigint")]), [(n * n,) for n in range(1000)])
    assert without(data, {7}) is not None
    monkeypatch.setattr(columns, "encoded_integers", wrongly)
    assert without(data, {7}) is None


def test_a_row_that_is_null_is_not_cut_around():
    """Columns hold nothing for it: their values are fewer than the rows."""
    events = [insert(RowKey(1, 536870912, n), (n, f"v{n}")) for n in range(10)]
    events[0] = (0, 1, 536870912, 0, 1, None)
    assert without(acid_file(events, row_index_stride=STRIDE), {3}) is None


def test_statistics_of_keys_are_exact():
    """Of each row group, also where the ends of one went."""
    events = [insert(RowKey(n // 400 + 1, 536870912, n % 400 * 3), (n, f"v{n}")) for n in range(1000)]
    gone = {*range(55), 399, 420, *range(570, 620), 999}
    after = without(acid_file(events, row_index_stride=STRIDE), gone)
    anew = acid_file([event for number, event in enumerate(events) if number not in gone], row_index_stride=STRIDE)
    found, expected = (
        [[one.integers for one in part] for part in list(statistics(data))[2:7]] for data in (after, anew)
    )
    assert found == expected


def test_a_sum_beyond_64_bits_is_left_out():
    """What goes may have kept it inside."""
    large = 1 << 62
    after = without(file_of(row_type([("n", "bigint")]), [(large,), (-large,), (large,)]), {1})
    numbers = next(statistics(after))[1]
    assert (numbers.integers.minimum, numbers.integers.HasField("sum")) == (-large, False)


def test_groups_without_statistics_are_encoded_anew():
    """Their bounds aren't those of values that only came."""
    data = encoded(row_type([("n", "bigint")]), [(n,) for n in range(300)])
    reader, tail = opened(data)
    footer = read_stripe_footer(reader, tail, 0)
    at = tail.stripes[0].offset
    changed = bytearray(data)
    for stream in footer.streams:
        if (stream.column, stream.kind) == (1, 6):
            index = pb.RowIndex()
            index.ParseFromString(data[at : at + stream.length])
            index.entries[2].statistics.number_of_values = 49
            changed[at : at + stream.length] = index.SerializeToString()
        at += stream.length
    assert len(changed) == len(data)
    assert without(data, {7}) is not None
    assert without(bytes(changed), {7}) is None


def test_a_stripe_is_cut_again(monkeypatch):
    """Its chunks are smaller than the block size that the file says by now, and not all are full."""
    monkeypatch.setattr(stripe, "_MOST_BYTES", 200_000)
    row = row_type([("n", "bigint"), ("d", "double"), ("s", "string")])
    rows = [(n * n % 7919, n / 7, f"text {n * 40503 % 65_536:x}") for n in range(3000)]
    found = file_of(row, rows, block_size=1024, dict_key_size_threshold=0.0)
    for gone in ({1500}, {0, 700, 2998}, set(range(60, 90))):
        found = without(found, gone, 65_536)
        rows = [one for number, one in enumerate(rows) if number not in gone]
        assert rows_of(found) == rows


def test_a_large_stripe_is_encoded_anew(monkeypatch):
    """By its rows, and by its bytes, which are counted while they are inflated."""
    data = file_of(row_type([("n", "bigint")]), [(n * n * 7919,) for n in range(3000)], block_size=1024)
    for name, most in (("_MOST_ROWS", 2999), ("_MOST_BYTES", 12_000)):
        with monkeypatch.context() as patched:
            patched.setattr(stripe, name, most)
            assert without(data, {7}) is None
    assert without(data, {7}) is not None


@settings(max_examples=300)
@given(cuts(), st.sampled_from((Compression.NONE, Compression.ZLIB)), st.data())
def test_damage_raises_nothing_but_refusals(drawn, kind, data):
    """A few changed bytes end in a refusal, in no cut, or in just the rows that the damaged file holds."""
    row, rows, gone = drawn
    file = bytearray(file_of(row, rows, kind, 256))
    end = opened(bytes(file))[1].stripes[0]
    for place in data.draw(st.lists(st.integers(3, end.offset + end.index_length + end.data_length - 1), max_size=3)):
        file[place] ^= data.draw(st.integers(1, 255))
    try:
        after = without(bytes(file), gone)
    except RefusedError:
        return
    if after is not None:
        before = table_of(bytes(file))
        if before is not None:
            kept = [number for number in range(len(rows)) if number not in gone]
            assert table_of(after).equals(before.take(kept))


def table_of(data):
    """All rows, by Arrow, with floating point numbers as bits; None: it can't read them."""
    try:
        table = orc.read_table(pa.BufferReader(data))
    except (pa.ArrowException, OSError):
        return None
    bits = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    return pa.table(
        [
            pa.chunked_array(
                [chunk.view(bits.get(chunk.type, chunk.type)) for chunk in column.chunks],
                bits.get(column.type, column.type),
            )
            for column in table.columns
        ],
        names=[str(number) for number in range(table.num_columns)],
    )
