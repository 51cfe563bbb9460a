"""Small stripes that are decoded together: the same rows, counts and digests as one by one, and the same refusals."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.acid.row_id import RowKey
from compactor.acid.types import acid_type, row_type
from compactor.errors import CorruptFileError
from compactor.orc import small_stripes
from compactor.orc.digests.digest import Digester
from compactor.orc.events.deletes import DeleteEvents
from compactor.orc.format.codec import Compression
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.tail import Tail
from compactor.orc.recode import recode_into
from compactor.orc.rows import RowFilter, StripeSource
from compactor.orc.writing.output import OutputFormat
from compactor.orc.writing.splice import Splicer
from tests import strategies
from tests.unit.orc.files import ROW, MemorySink, acid_file, delete, insert, opened, refusal, rows_of

BUCKET = 536870912


def recoded(sources, row=ROW, row_filter=None):
    sink, digester = MemorySink(), Digester(row)
    splicer = Splicer(sink, OutputFormat(acid_type(row)))
    result = recode_into(sources, splicer, row_filter, None, digester)
    splicer.finish("insert")
    return sink.getvalue(), result, digester.digest


def decoded_together(sources):
    """How many sources share a reader, reader by reader."""
    return [len(group) for group in small_stripes._groups(sources)]


@settings(max_examples=120)
@given(st.data(), strategies.row_structs(), st.sets(st.integers(1, 40)), st.sets(st.integers(1, 40), max_size=3))
def test_together_is_one_by_one(data, row, gone, aborted):
    """Any types, codecs and zones in any order, rows deleted and aborted."""
    some = data.draw(st.lists(strategies.filled(row), min_size=1, max_size=4))
    sources = []
    for write in range(1, data.draw(st.integers(2, 12)) + 1):
        rows = data.draw(st.integers(1, 5))
        events = [insert(RowKey(write, BUCKET, n), some[(write + n) % len(some)]) for n in range(rows)]
        options = data.draw(
            st.sampled_from([{}, {"compression": int(Compression.SNAPPY)}, {"compression_block_size": 1 << 18}])
        )
        sources.append(StripeSource(*opened(acid_file(events, row, **options), f"file {write}")))
    sources = data.draw(st.permutations(sources))
    row = sources[0].tail.row_tree
    deletes = DeleteEvents.load([opened(acid_file([delete(RowKey(n, BUCKET, 0), 50) for n in sorted(gone)], row))])
    row_filter = RowFilter(deletes if gone else None, np.array(sorted(aborted), np.int64))
    together = recoded(sources, row, row_filter)
    with patch.object(small_stripes, "_shape", return_value=b""):
        alone = recoded(sources, row, row_filter)
    assert together == alone


def few_rows(write, values, **options):
    events = [insert(RowKey(write, BUCKET, n), value) for n, value in enumerate(values)]
    return acid_file(events, ROW, **options)


def test_which_stripes_share_a_reader():
    """Neighbours of one shape do; a stripe of many rows, another codec and a file without statistics stand apart."""
    sources = [
        StripeSource(*opened(data))
        for data in (
            few_rows(1, [(1, "a")]),
            few_rows(2, [(2, "b")]),
            few_rows(3, [(n, "c") for n in range(2000)]),
            few_rows(4, [(4, "d")]),
            few_rows(5, [(5, "e")], compression=int(Compression.ZSTD)),
            few_rows(6, [(6, "f")], compression=int(Compression.ZSTD)),
            few_rows(7, [(7, "g")], row_index_stride=0),
            few_rows(8, [(8, "h")]),
            few_rows(9, [(9, "i")]),
            few_rows(10, [(10, "j")]),
        )
    ]
    assert decoded_together(sources) == [2, 1, 1, 2, 1, 3]


def test_a_group_has_an_end(monkeypatch):
    """However many small stripes there are, only so many are in memory."""
    monkeypatch.setattr(small_stripes, "_MOST", 3)
    sources = [StripeSource(*opened(few_rows(write, [(1, "a")]))) for write in range(1, 8)]
    assert decoded_together(sources) == [3, 3, 1]
    monkeypatch.setattr(small_stripes, "BATCH_ROWS", 2)
    assert decoded_together(sources) == [2, 2, 2, 1]
    monkeypatch.setattr(small_stripes, "_MOST_BYTES", 1)
    assert decoded_together(sources) == [1] * 7


def test_texts_of_unknown_length_stand_apart():
    """Trino leaves out the statistics of texts whose bounds are long: they may be any length."""
    sources = [StripeSource(*opened(few_rows(write, [(1, "a")]))) for write in range(1, 5)]
    sources.append(damaged(few_rows(5, [(1, "a" * 5000)]), 8, lambda found: found.ClearField("strings")))
    sources.append(damaged(few_rows(6, [(1, "a")]), 8, lambda found: found.strings.ClearField("sum")))
    assert decoded_together(sources) == [4, 1, 1]
    assert len(rows_of(recoded(sources)[0])) == 6


def test_more_bytes_than_statistics_say_are_decoded_one_by_one(monkeypatch):
    """However much a stripe inflates to, no more is in memory than of one stripe; the rows are the same."""
    sources = [StripeSource(*opened(few_rows(write, [(1, "a" * 40_000)]))) for write in range(1, 6)]
    expected = recoded(sources)
    alone = []
    real = small_stripes.SourceRows.__iter__
    monkeypatch.setattr(
        small_stripes.SourceRows, "__iter__", lambda self: (alone.append(self), *real(self))[1:].__iter__()
    )
    monkeypatch.setattr(small_stripes, "_MOST_BYTES", 50_000)
    monkeypatch.setattr(small_stripes, "value_bytes", lambda *_: 10)
    assert decoded_together(sources) == [5]
    assert recoded(sources) == expected
    assert len(alone) == 5


def damaged(data, column, change):
    reader, tail = opened(data, "the damaged file")
    metadata = pb.Metadata()
    metadata.CopyFrom(tail.metadata)
    change(metadata.stripe_stats[0].columns[column])
    return StripeSource(reader, Tail(tail.name, tail.postscript, tail.footer, metadata, tail.length))


def test_the_damaged_one_of_many_is_named():
    """Statistics of other keys than the stripe's, which only decoding tells."""

    def change(found):
        row_ids = found.integers
        row_ids.minimum, row_ids.maximum, row_ids.sum = 7, 7, 7

    sources = [StripeSource(*opened(few_rows(write, [(write, "v")]))) for write in (1, 2, 4, 5)]
    sources.insert(2, damaged(few_rows(3, [(3, "v")]), 4, change))
    with pytest.raises(CorruptFileError, match="the damaged file contradicts itself: stripe 1 has rowId 0 to 0"):
        recoded(sources)


@settings(max_examples=100)
@given(st.data())
def test_a_changed_byte_is_refused_as_it_is_of_one_stripe(data):
    """Wherever it is in a stripe, the answer is the same as without its neighbours: rows, or the same refusal."""
    whole = few_rows(3, [(n, "abc") for n in range(5)])
    reader, tail = opened(whole, "the damaged file")
    stripe = tail.stripes[0]
    at = stripe.offset + data.draw(st.integers(0, tail.stripe_length(0) - 1))
    changed = bytearray(whole)
    changed[at] ^= 1 << data.draw(st.integers(0, 7))
    reader.data = memoryview(bytes(changed))
    found = [
        StripeSource(*opened(few_rows(1, [(1, "a")]))),
        StripeSource(reader, tail),
        StripeSource(*opened(few_rows(5, [(5, "b")]))),
    ]
    answers = []

    def run():
        answers.append(recoded(found))

    together = refusal(run)
    with patch.object(small_stripes, "_shape", return_value=b""):
        assert refusal(run) == together
    assert len(answers) in {0, 2}
    assert answers[:1] == answers[1:]


def test_columns_that_were_added_since_are_null():
    """Files of two generations of a table lie beside each other; each gets what the other has not."""
    old = row_type([("id", "int")])
    files = [acid_file([insert(RowKey(write, BUCKET, 0), (write,))], old) for write in (1, 2)]
    files += [few_rows(write, [(write, "v")]) for write in (3, 4)]
    sources = [StripeSource(*opened(data)) for data in files]
    for source in sources[:2]:
        source.tail.footer.types[6].field_names[0] = "id"
    assert [row[-1] for row in rows_of(recoded(sources)[0])] == [(1, None), (2, None), (3, "v"), (4, "v")]
