"""The compactor's own table of the work on entries, on every kind of metastore."""

import json
from dataclasses import replace
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.acid.compaction import CompactionKind
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.work import SHARE_STEP, StoredWork, Work, WorkTable
from compactor.metastore.db.own_tables import WORK, loaded
from compactor.metastore.model import Entity
from tests.metastore.entries import working

DONE = Work(worker="here-1", compacted_as="major", share=1.0, bytes_after=10**12, writing_seconds=1.5, rows_after=0)


@pytest.fixture
def work(database):
    """The table, which isn't there yet."""
    with database.transaction() as connection:
        WORK.drop(connection, checkfirst=True)
    return WorkTable(database)


def test_what_was_stored_is_found(database, work):
    """Before the table is there nothing is found; a later write of the same attempt replaces the row."""
    assert work.find([1]) == {}
    assert work.forget_gone() == 0
    assert work.put(1, 5, Work(share=0.2))
    assert work.put(1, 5, DONE)
    assert work.put(2, 7, Work())
    found = WorkTable(database).find([1, 2, 3])
    assert {number: (one.start_ms, one.work) for number, one in found.items()} == {1: (5, DONE), 2: (7, Work())}
    now = database.read(database.now_ms)
    assert all(0 <= now - one.updated_ms < 600_000 for one in found.values())


def test_an_attempt_never_writes_over_a_later_one(work):
    """A worker that was stopped for long, and lost its claim meanwhile, changes nothing."""
    assert work.put(1, 50, DONE)
    assert not work.put(1, 49, Work(share=0.9))
    assert work.find([1])[1].work == DONE
    assert work.put(1, 51, Work(share=0.1))
    assert work.find([1])[1].start_ms == 51


def test_an_undone_attempt_keeps_what_it_achieved(work):
    """Who undid it and when stands beside; of an entry without a row, too, and never of an earlier claim."""
    work.put(1, 50, DONE)
    work.put_undone(1, 50, "ann@edge1", 99)
    assert work.find([1])[1].work == replace(DONE, undone_by="ann@edge1", undone_ms=99)
    work.put_undone(1, 49, "bob", 100)
    assert work.find([1])[1].work.undone_by == "ann@edge1"
    work.put_undone(2, 7, "ann@edge1", 99)
    assert work.find([2])[2].work == Work(undone_by="ann@edge1", undone_ms=99)


def test_work_is_kept_as_long_as_its_entry(database, work):
    """In queue and history it stays; what has left both is forgotten."""
    queue = Queue(database)
    entry, txn_id = working(database)
    waiting = queue.enqueue(Entity("db", "other"), CompactionKind.MAJOR)
    for number in (entry.id, waiting.id, waiting.id + 1):
        work.put(number, 1, Work())
    assert work.forget_gone() == 1
    queue.mark_compacted_and_commit(entry, entry.worker_id, txn_id)
    Cleaning(database).mark_cleaned(queue.entry(entry.id))
    assert [one.id for one in queue.history()] == [entry.id]
    assert work.forget_gone() == 0
    history = database.schema.completed_compactions
    with database.transaction() as connection:
        connection.execute(history.delete().where(history.c.cc_id == entry.id))
    assert work.forget_gone() == 1
    assert set(work.find([entry.id, waiting.id, waiting.id + 1])) == {waiting.id}


def test_what_another_release_wrote_is_read_as_far_as_it_is_known():
    """Unknown keys and values of another type are left out."""
    assert Work.of({"share": "half", "bytes_after": 3, "worker": 7, "new": 1, "rows_after": True}) == Work(
        bytes_after=3
    )


def test_each_field_is_read_as_it_was_written():
    """None is taken for one that another release wrote."""
    examples = {str: "text", int: 2, float: 0.5}
    types = {name: get_args(kind)[0] for name, kind in get_type_hints(Work).items()}
    full = Work(**{name: examples[kind] for name, kind in types.items()})
    assert Work.of(loaded(json.dumps(full.record()))) == full


@pytest.mark.parametrize(
    "text",
    [
        "[" * 60_000,
        "[]",
        "",
        '{"files_before": 1.5, "files_after": -1}',
        '{"rows_before": NaN, "share": NaN, "planning_seconds": Infinity, "waiting_seconds": -Infinity}',
        '{"bytes_after": ' + "9" * 400 + "}",
    ],
)
def test_rubbish_is_nothing_that_is_known(text):
    """One row keeps no other from being shown."""
    assert Work.of(loaded(text)) == Work()


@given(
    st.builds(
        Work,
        worker=st.text() | st.none(),
        share=st.floats(0, 1) | st.none(),
        bytes_after=st.integers(0, (1 << 63) - 1) | st.none(),
    )
)
def test_a_record_is_read_as_it_was_made(made):
    """`of` is the inverse of `record`."""
    assert Work.of(made.record()) == made


@given(
    share=st.integers(1, 1000).map(lambda parts: parts / 1000),
    planned=st.integers(0, 10**6),
    elapsed=st.integers(0, 10**8),
    silent=st.integers(0, 10**8),
)
def test_the_forecast(share, planned, elapsed, silent):
    """
    What is left takes as long, share by share, as what is done; it is never past, and work that stands still is
    expected to end later and later.
    """
    began, updated = 1000 + planned * 1000, 1000 + planned * 1000 + elapsed
    stored = StoredWork(1000, updated, Work(share=share, planning_seconds=float(planned)))
    end = stored.expected_end_ms(updated + silent)
    assert end >= updated + silent - 1
    assert end >= began + elapsed / share - 1
    if silent * share <= elapsed * SHARE_STEP * 0.99 and share <= 0.9:
        assert end == pytest.approx(began + elapsed / share, abs=1)
    assert stored.expected_end_ms(updated + silent + 1000) >= end


@pytest.mark.parametrize("unknown", [Work(), Work(share=0.0, planning_seconds=1.0), Work(share=0.5)])
def test_no_forecast_before_a_share_is_done(unknown):
    """Nothing is known of the speed yet."""
    assert StoredWork(0, 0, unknown).expected_end_ms(1000) is None
