"""Delete events by share and by window: together they are what loading all of them gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.acid.row_id import RowKey, decode_bucket
from compactor.acid.types import acid_type
from compactor.orc.events.deletes import DeleteEvents
from compactor.orc.events.event_share import Share
from compactor.orc.events.event_windows import event_windows
from compactor.orc.writing.output import OutputFormat
from compactor.orc.writing.splice import Splicer
from tests import strategies
from tests.unit.orc.files import ROW, MemorySink, acid_file, delete, opened

NOTHING = np.empty(0, np.int64)
deleting = st.lists(st.tuples(strategies.row_keys(), st.integers(4, 12)), max_size=40)


def files(events, per_file):
    parts = [events[start : start + per_file] for start in range(0, len(events), per_file)]
    return [opened(acid_file([delete(key, current) for key, current in sorted(part)])) for part in parts]


def listed(events):
    return list(
        zip(
            *(column.tolist() for column in (events.write_id, events.bucket, events.row_id, events.current)),
            strict=True,
        )
    )


@given(deleting, st.integers(1, 7), st.integers(1, 9), st.sets(st.integers(4, 12), max_size=3))
def test_windows_together_are_everything(events, per_file, most, aborted):
    """Ascending, none larger than asked for, and joined they are what `load` gives."""
    ids = np.array(sorted(aborted), np.int64)
    sources = files(events, per_file)
    windows = list(event_windows(lambda: sources, most, aborted=ids))
    assert [event for window in windows for event in listed(window)] == listed(DeleteEvents.load(sources, aborted=ids))
    assert all(len(window) <= most for window in windows)
    assert all(len(window) == most for window in windows[:-1])


@given(deleting, st.integers(1, 7), strategies.row_keys(), strategies.row_keys())
def test_a_share_is_what_lies_between_two_keys(events, per_file, one, other):
    """Both ends belong to it; nothing else does."""
    first, last = sorted([one, other])
    sources = files(events, per_file)
    found = DeleteEvents.load(sources, share=Share(first=first, last=last))
    everything = DeleteEvents.load(sources)
    start, stop = everything.between(first, last)
    assert listed(found) == listed(everything)[start:stop]


@given(deleting, st.integers(1, 7), st.integers(1, 5))
def test_windows_of_one_bucket(events, per_file, most):
    """What other buckets' rows are deleted by is no part of it."""
    sources = files(events, per_file)
    everything = listed(DeleteEvents.load(sources))
    for bucket in {decode_bucket(key.bucket) for key, _ in events}:
        windows = event_windows(lambda: sources, most, aborted=NOTHING, share=Share(bucket))
        assert [event for window in windows for event in listed(window)] == [
            event for event in everything if decode_bucket(event[1]) == bucket
        ]


def test_stripes_outside_the_share_are_not_read(monkeypatch):
    """Their statistics tell: a task reads the events of its own rows, not of the whole bucket."""
    near, far = files([(RowKey(1, 536870912, row), 5) for row in (*range(10), *range(1000, 1010))], 10)
    read = []
    from compactor.orc.events import deletes

    real = deletes.read_keys
    monkeypatch.setattr(
        deletes, "read_keys", lambda reader, tail, stripe: (read.append(tail), real(reader, tail, stripe))[1]
    )
    found = DeleteEvents.load([near, far], share=Share(first=RowKey(1, 536870912, 5), last=RowKey(1, 536870912, 500)))
    assert (len(found), read) == (5, [near[1]])


def stripes(*parts):
    """A file with these stripes, whose key index notes the last key of each, as Hive's writer does."""
    sink = MemorySink()
    splicer = Splicer(sink, OutputFormat(acid_type(ROW)))
    for part in parts:
        reader, tail = opened(acid_file([delete(key, current) for key, current in part]))
        splicer.add_stripe(reader, tail, 0, part[-1][0])
    splicer.finish("delete")
    return opened(sink.getvalue())


def test_a_row_deleted_twice_across_stripes_stays_deleted():
    """
    A stream's transaction deletes a row and is aborted, a later one deletes it again: the second event may be the first
    of the next stripe.
    """
    row, near = RowKey(1, 536870912, 5), RowKey(1, 536870912, 3)
    source = stripes([(near, 3), (row, 3)], [(row, 4), (RowKey(2, 536870912, 0), 4)])
    found = DeleteEvents.load([source], aborted=np.array([3]), share=Share(first=near, last=row))
    assert listed(found) == [(*row, 4)]


def test_events_that_ascend_only_inside_each_transaction_are_all_found():
    """The key index of such a file notes keys that aren't the greatest of their stripes."""
    one, two, three = (
        [(RowKey(write_id, 536870912, row), current) for write_id, row in keys] for current, keys in STREAM.items()
    )
    source = stripes([*one, *two], three)
    everything = listed(DeleteEvents.load([source]))
    assert len(everything) == 5
    assert [
        event for window in event_windows(lambda: [source], 2, aborted=NOTHING) for event in listed(window)
    ] == everything
    for event in everything:
        assert listed(DeleteEvents.load([source], share=Share(first=RowKey(*event[:3]), last=RowKey(*event[:3])))) == [
            event
        ]


STREAM = {5: [(1, 3), (3, 0)], 6: [(2, 5)], 7: [(4, 0), (5, 0)]}
"""Deleted rows (write id, row id) by the transaction that deleted them."""


@pytest.mark.parametrize("deleters", [1, 9])
def test_many_events_of_one_row_do_not_close_a_window(deleters):
    """They are one event in the end: what comes after them in other files has room still."""
    first = [(RowKey(1, 536870912, 0), 5 + number) for number in range(deleters)]
    sources = files([*first, *((RowKey(1, 536870912, row), 5) for row in (1, 2))], max(deleters, 2))
    assert [event[2] for window in event_windows(lambda: sources, 4, aborted=NOTHING) for event in listed(window)] == [
        0,
        1,
        2,
    ]
