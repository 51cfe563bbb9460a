"""Delete events: one per key, the right ones hit, at any size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.acid.row_id import Hit, RowKey, encode
from compactor.errors import CorruptFileError
from compactor.orc.events.deletes import DeleteEvents, visible
from compactor.orc.events.keys import stripe_bounds
from compactor.orc.format.key_columns import KeyColumns
from compactor.orc.reading.consistency import check_key_statistics
from tests import strategies
from tests.unit.orc.files import acid_file, delete, insert, opened


def columns(keys, currents=None):
    currents = currents or [1] * len(keys)
    return KeyColumns(
        np.full(len(keys), 2, np.int32),
        np.array([key.write_id for key in keys], np.int64),
        np.array([key.bucket for key in keys], np.int32),
        np.array([key.row_id for key in keys], np.int64),
        np.array(currents, np.int64),
    )


def listed(events):
    parts = (events.write_id, events.bucket, events.row_id)
    return [RowKey(*map(int, key)) for key in zip(*parts, strict=True)]


deleting = st.lists(st.tuples(strategies.row_keys(), st.integers(4, 12)), max_size=40)


@given(deleting)
def test_one_event_per_key_the_earliest_stays(events):
    """Two deletes of one row leave the one with the smaller write id (Hive's registry loses rows on two)."""
    kept = DeleteEvents.of(columns([key for key, _ in events], [current for _, current in events]))
    earliest = {}
    for key, current in events:
        earliest[key] = min(current, earliest.get(key, current))
    assert dict(zip(listed(kept), kept.current.tolist(), strict=True)) == earliest
    assert listed(kept) == sorted(earliest)


@given(deleting, strategies.sorted_keys())
def test_a_row_is_deleted_exactly_if_its_key_is_named(events, keys):
    """The mask is set membership."""
    named = {key for key, _ in events}
    mask = DeleteEvents.of(columns([key for key, _ in events])).mask(columns(keys))
    assert mask.tolist() == [key in named for key in keys]


@pytest.mark.parametrize("many", [False, True])
def test_the_same_row_number_of_another_statement_stays(many):
    """
    Statements of one transaction number their rows alike: the event lies right before the other statement's row, and
    isn't its.
    """
    first, second, third = (RowKey(2, encode(0, statement), 1) for statement in range(3))
    if many:  # more events than rows
        events, rows = [second, *(second._replace(row_id=number) for number in (2, 3))], [first, third]
    else:
        events, rows = [second], [first, third]
    assert DeleteEvents.of(columns(events)).mask(columns(rows)).tolist() == [False, False]


@given(deleting, strategies.sorted_keys(min_size=1))
def test_a_hit_is_never_overlooked(events, keys):
    """NONE means no row is deleted, CERTAIN means one is."""
    named = {key for key, _ in events}
    _, tail = opened(acid_file([insert(key, (1, "v")) for key in keys]))
    hit = DeleteEvents.of(columns(list(named))).hit(stripe_bounds(tail, 0))
    touched = any(key in named for key in keys)
    assert not (hit is Hit.NONE and touched)
    assert not (hit is Hit.CERTAIN and not touched)


@pytest.mark.parametrize(
    ("keys", "event", "hit"),
    [
        ([(1, 0), (1, 1), (1, 2)], (1, 0), Hit.CERTAIN),
        ([(1, 0), (1, 1), (1, 2)], (1, 1), Hit.CERTAIN),
        ([(1, 0), (1, 1), (1, 2)], (1, 2), Hit.CERTAIN),
        ([(1, 0), (1, 1), (1, 2)], (1, 3), Hit.NONE),
        ([(1, 0), (1, 2), (1, 4)], (1, 4), Hit.CERTAIN),
        ([(1, 0), (1, 2), (1, 4)], (1, 3), Hit.POSSIBLE),
        ([(1, 0), (2, 1)], (1, 1), Hit.POSSIBLE),  # as many row ids as rows, but of two writes
    ],
)
def test_what_bounds_tell_of_a_hit(keys, event, hit):
    """Both ends count; inside, an event is certain to hit only where no key of one write is missing."""
    (named, *rows) = (RowKey(write_id, encode(0, 0), row_id) for write_id, row_id in (event, *keys))
    _, tail = opened(acid_file([insert(key, (1, "v")) for key in rows]))
    assert DeleteEvents.of(columns([named])).hit(stripe_bounds(tail, 0)) is hit


def files(events, per_file):
    parts = [events[start : start + per_file] for start in range(0, len(events), per_file)]
    return [opened(acid_file([delete(key, current) for key, current in sorted(part)])) for part in parts]


@given(
    deleting,
    st.integers(1, 7),
    st.integers(1, 20),
    st.sets(st.integers(4, 12), max_size=3),
    st.none() | st.integers(4, 12),
)
def test_loading_is_the_same_spilled_or_not(events, per_file, limit, aborted, watermark):
    """Beyond the limit sorted runs on disk give the same arrays; aborted and later events don't count."""
    ids = np.array(sorted(aborted), np.int64)
    whole = DeleteEvents.load(files(events, per_file), aborted=ids, high_watermark=watermark)
    spilled = DeleteEvents.load(files(events, per_file), aborted=ids, high_watermark=watermark, limit=limit)
    assert listed(spilled) == listed(whole)
    assert spilled.current.tolist() == whole.current.tolist()
    valid = {key for key, current in events if current not in aborted and (watermark is None or current <= watermark)}
    assert set(listed(whole)) == valid


def test_spilled_events_leave_no_file_behind(tmp_path):
    """The files are unlinked from the start: a killed process leaves nothing."""
    events = [(RowKey(1, encode(0, 0), number), 5) for number in range(500)]
    loaded = DeleteEvents.load(files(events, 50), limit=60, spill_directory=tmp_path)
    assert len(loaded) == 500
    assert list(tmp_path.iterdir()) == []


def test_a_large_run_is_searched_in_blocks(monkeypatch):
    """More events than a block, and more rows than events: the same answer."""
    monkeypatch.setattr("compactor.orc.events.deletes._BLOCK", 16)
    keys = [RowKey(1 + number // 100, encode(0, 0), number) for number in range(1000)]
    events = DeleteEvents.of(columns(keys[::3]))
    assert events.mask(columns(keys)).tolist() == [number % 3 == 0 for number in range(1000)]
    assert DeleteEvents.of(columns(keys)).mask(columns(keys[500:505])).all()
    assert events.buckets() == (0,)
    assert sum(len(part) for part in events.blocks(7)) == len(events)


def test_events_of_all_statements_of_a_bucket_are_of_that_bucket():
    """Buckets are told by what their fields decode to."""
    keys = [RowKey(1, encode(bucket, statement), 0) for bucket in (0, 1) for statement in (0, 1)]
    assert DeleteEvents.of(columns(keys)).buckets() == (0, 1)


def test_an_insert_file_among_delete_files_is_corruption():
    """Rows with another operation aren't delete events."""
    with pytest.raises(CorruptFileError, match="aren't delete events"):
        DeleteEvents.load([opened(acid_file([insert(RowKey(1, 536870912, 0), (1, "v"))]))])


def test_visible_leaves_out_aborted_and_later_write_ids():
    """The write id of the event decides, not that of the row."""
    keys = columns([RowKey(1, 0, number) for number in range(4)], [5, 6, 7, 8])
    assert visible(keys, np.array([6], np.int64), 7).tolist() == [True, False, True, False]
    assert visible(keys, np.empty(0, np.int64), None).all()


def test_a_row_deleted_twice_in_one_file_is_no_damage():
    """
    MERGE without its cardinality check, or an aborted and a later transaction of one stream, write two events for a
    row; inserts can't share a key.
    """
    key = RowKey(1, encode(0, 0), 0)
    reader, tail = opened(acid_file([delete(key, 4), delete(key, 5)]))
    check_key_statistics(tail)
    events = DeleteEvents.load([(reader, tail)], aborted=np.array([4]))
    assert (len(events), events.current.tolist()) == (1, [5])
    with pytest.raises(CorruptFileError, match="rowIds from 0 to 0"):
        check_key_statistics(opened(acid_file([insert(key, (1, "a")), insert(key, (2, "b"))]))[1])


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_a_buckets_share_of_many_events_stays_on_disk(wanted):
    """
    What doesn't fit memory doesn't come back into it when one bucket's events are chosen; none at all is fine too.
    """
    keys = [RowKey(write_id, encode(bucket, 0), 0) for write_id in range(1, 60) for bucket in (0, 1)]
    file = opened(acid_file([delete(key, 99) for key in keys]))
    spilled = DeleteEvents.load([file], limit=10)
    share = spilled.select(np.asarray(spilled.bucket) == encode(wanted, 0))
    assert listed(share) == [key for key in keys if key.bucket == encode(wanted, 0)]
    assert isinstance(spilled.row_id, np.memmap)
    assert isinstance(share.row_id, np.memmap) == (wanted < 2)
