"""
Compressing an encoded stripe: the values stay, the file shrinks, and row indexes lead to each row group. Read back by
pyorc (the C++ library); Java reads such stripes in tests/spark/test_orc_pushdown.py.
"""

import io

import pyorc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.acid.types import Kind, row_type
from compactor.errors import VerificationError
from compactor.orc.format.codec import Compression
from compactor.orc.format.tail import read_stripe_footer
from compactor.orc.reading.converters import CONVERTERS
from compactor.orc.writing import recompress as recompressing
from compactor.orc.writing.output import OutputFormat
from compactor.orc.writing.recompress import recompress
from compactor.orc.writing.splice import Splicer
from tests import strategies
from tests.unit.orc.files import MemorySink, opened, plain_file, rows_of

STRIDE = 50
KINDS = (Compression.ZLIB, Compression.ZSTD, Compression.SNAPPY, Compression.LZ4)


def encoded(tree, rows, **options):
    """One stripe without compression."""
    return plain_file(tree, rows, compression=pyorc.CompressionKind.NONE, row_index_stride=STRIDE, **options)


def compressed(data, kind=Compression.ZLIB, block_size=256):
    """The same as a whole file, compressed."""
    reader, tail = opened(data)
    sink = MemorySink()
    splicer = Splicer(sink, OutputFormat(tail.tree, compression=kind, block_size=block_size, stride=STRIDE))
    splicer.add_recoded(*recompress(reader, tail, kind, block_size), None)
    splicer.finish(None)
    return sink.getvalue()


def reached(data, places):
    """The row at each place, found by seeking; or that pyorc can't seek there, which it can't everywhere."""
    reader = pyorc.Reader(io.BytesIO(data), struct_repr=pyorc.StructRepr.TUPLE, converters=CONVERTERS)

    def at(place):
        try:
            reader.seek(place)
            return next(reader)
        except (pyorc.ParseError, RuntimeError) as error:
            return type(error)

    return [at(place) for place in places]


@settings(max_examples=200)
@given(st.data(), strategies.row_structs(), st.sampled_from(KINDS), st.sampled_from((64, 256, 4096, 65_536)))
def test_every_row_group_of_every_type_is_reached(data, row, kind, block_size):
    """Nulls at any depth; chunks smaller and larger than a row group; a seek finds what it found before."""
    some = data.draw(st.lists(strategies.filled(row), min_size=1, max_size=9))
    count = data.draw(st.integers(1, 500))
    rows = [some[number * number % 7 % len(some)] for number in range(count)]
    before = encoded(row, rows)
    after = compressed(before, kind, block_size)
    assert repr(rows_of(after)) == repr(rows_of(before))
    places = [
        place for start in range(0, count, STRIDE) for place in (start, start - 1, start + 37) if 0 <= place < count
    ]
    assert repr(reached(after, places)) == repr(reached(before, places))


def test_a_wrong_position_would_be_noticed(monkeypatch):
    """The test above isn't blind: with positions as they were before, a seek finds other rows or none."""
    row = row_type([("n", "bigint"), ("s", "string")])
    before = encoded(row, [(n * n, f"text {n * 7919 % 1000}") for n in range(1000)])
    places = list(range(0, 1000, STRIDE))
    assert reached(compressed(before), places) == reached(before, places)
    right = recompressing._positions
    monkeypatch.setattr(
        recompressing,
        "_positions",
        lambda found, indexed, size: (
            0 if number == 1 else said for number, said in enumerate(right(found, indexed, size))
        ),
    )
    assert reached(compressed(before), places) != reached(before, places)


def test_what_does_not_shrink_is_stored_as_it_is():
    """Statistics and Bloom filters stay; a chunk is never larger than what it holds and its header."""
    row = row_type([("n", "bigint"), ("s", "string")])
    before = encoded(row, [(n, f"{n:x}") for n in range(3000)], bloom_filter_columns=("n", "s"))
    after = compressed(before)
    (reader, tail), (_, old) = opened(after), opened(before)
    assert tail.metadata == old.metadata
    kinds = [stream.kind for stream in read_stripe_footer(reader, tail, 0).streams]
    assert kinds.count(8) == 2
    assert len(after) < len(before)


def test_a_stripe_tells_how_long_its_index_is():
    """As its writer told: row indexes and Bloom filters stand first, and the data behind them."""
    row = row_type([("n", "bigint"), ("s", "string")])
    before = encoded(row, [(n, f"{n:x}") for n in range(3000)], bloom_filter_columns=("n", "s"))
    for file in (before, compressed(before)):
        reader, tail = opened(file)
        (stripe,) = tail.stripes
        streams = read_stripe_footer(reader, tail, 0).streams
        index = [stream.length for stream in streams if stream.kind in {6, 7, 8}]
        assert stripe.index_length == sum(index) > 0
        assert stripe.data_length == sum(stream.length for stream in streams) - sum(index) > 0


@pytest.mark.parametrize(
    "kind",
    [Kind.BOOLEAN, Kind.STRING, Kind.LIST],
    ids=["one number more", "one stream more", "another stream of as many numbers"],
)
def test_a_row_index_of_another_form_is_refused(kind):
    """Positions that the streams don't explain are never guessed at."""
    reader, tail = opened(encoded(row_type([("n", "bigint")]), [(n,) for n in range(300)]))
    tail.footer.types[1].kind = kind
    with pytest.raises(VerificationError, match="row index of column 1"):
        recompress(reader, tail, Compression.ZLIB, 256)
