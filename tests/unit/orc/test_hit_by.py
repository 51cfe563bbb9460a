"""Which delete files have events of which stripes: none that has one is left out."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from compactor.acid.row_id import RowKey, encode
from compactor.orc.events.deletes import DeleteEvents
from compactor.orc.events.event_share import Share
from compactor.orc.events.event_windows import event_windows
from compactor.orc.events.hit_by import HitBy
from compactor.orc.format.key_columns import KeyColumns
from tests import strategies
from tests.unit.orc.files import acid_file, delete, opened
from tests.unit.orc.test_event_windows import listed

BUCKET = encode(0, 0)
spans = st.lists(
    st.none() | st.tuples(strategies.row_keys(), strategies.row_keys()).map(sorted).map(tuple), max_size=30
)
unsorted_files = st.lists(st.lists(strategies.row_keys(), max_size=12), min_size=1, max_size=12)
ABORTED = 9


def naive(stripes, files):
    """Of each stripe the files with an event between its keys, looked up one by one."""
    return [
        None
        if span is None
        else sum(1 << number for number, keys in enumerate(files) if any(span[0] <= key <= span[1] for key in keys))
        for span in stripes
    ]


def masks(stripes, files):
    hits = HitBy(stripes, len(files))
    for number, keys in enumerate(files):
        for part in (keys[:5], keys[5:]):
            if part:
                hits.add(number, KeyColumns.of(part))
    return hits.masks()


@given(spans, unsorted_files)
def test_no_file_with_an_event_of_a_stripe_is_left_out(stripes, files):
    """However stripes overlap, and in whichever order a file holds its events."""
    for found, wanted in zip(masks(stripes, files), naive(stripes, files), strict=True):
        assert (found is None) == (wanted is None)
        assert found is None or found & wanted == wanted


@given(strategies.sorted_keys(), unsorted_files)
def test_of_stripes_apart_only_files_that_hit_are_noted(ends, files):
    """So the files that are opened grow with the hits."""
    stripes = list(zip(ends[::2], ends[1::2], strict=False))
    assert masks(stripes, files) == naive(stripes, files)


def test_many_stripes_and_files():
    """More of both than stand in one byte, or in one block."""
    stripes = [(RowKey(1, BUCKET, 10 * n), RowKey(1, BUCKET, 10 * n + 9)) for n in range(3000)]
    files = [[RowKey(1, BUCKET, 10 * n) for n in range(number, 3000, 701)] for number in range(701)]
    assert masks(stripes, files) == [1 << number % 701 for number in range(3000)]


deletions = st.lists(st.tuples(strategies.row_keys(), st.integers(4, 12)), max_size=12)


@given(spans, st.lists(deletions, min_size=1, max_size=8), st.integers(1, 9))
def test_the_noted_files_hold_all_events_of_a_stripe(stripes, files, most):
    """What a task loads from them for its stripes is what it would load from all, in however many windows they were read."""
    aborted = np.array([ABORTED], np.int64)
    sources = [opened(acid_file([delete(key, current) for key, current in events])) for events in files]
    hits = HitBy(stripes, len(files))
    for _ in event_windows(lambda: sources, most, aborted=aborted, seen=hits.add):
        pass
    for span, mask in zip(stripes, hits.masks(), strict=True):
        if span is None:
            assert mask is None
            continue
        share = Share(None, *span)
        some = [source for number, source in enumerate(sources) if mask >> number & 1]
        assert listed(DeleteEvents.load(some, aborted=aborted, share=share)) == listed(
            DeleteEvents.load(sources, aborted=aborted, share=share)
        )


def test_events_of_aborted_writes_hit_nothing():
    """A file of them alone isn't opened."""
    sources = [opened(acid_file([delete(RowKey(1, BUCKET, 3), ABORTED)]))]
    hits = HitBy([(RowKey(1, BUCKET, 0), RowKey(1, BUCKET, 9))], 1)
    for _ in event_windows(lambda: sources, 10, aborted=np.array([ABORTED], np.int64), seen=hits.add):
        pass
    assert hits.masks() == [0]
