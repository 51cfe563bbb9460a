"""The order of claims: by urgency, with ageing; the same in Python, which shows it, and in each database, which claims."""

import math
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, insert, select

from compactor.acid.compaction import CompactionKind
from compactor.metastore.compaction_queue.properties import encode_properties
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.requests import PROPERTIES_LIMIT, Request
from compactor.metastore.compaction_queue.urgency import (
    MOST,
    STEP_ENTRIES,
    URGENCY,
    is_timed,
    rank_column,
    rank_of,
    reason_of,
    urgency_for,
    urgency_of,
)
from compactor.metastore.compaction_queue.window import SIZE
from compactor.metastore.db.sql import fitting
from compactor.metastore.model import Entity, QueueEntry, QueueState
from tests import strategies
from tests.metastore.actor import T
from tests.metastore.databases import kinds, metastore
from tests.metastore.entries import MAJOR

HOUR_MS = 3_600_000
DAY_MS, MINUTE_MS = 24 * HOUR_MS, 60_000


def in_order(entries, *, timed):
    """The entries as workers claim them."""
    return sorted(entries, key=lambda entry: (rank_of(entry, timed=timed), entry.id))


def store(database, entries):
    """Put the entries into the queue, and nothing else."""
    queue = database.schema.compaction_queue
    rows = [
        fitting(
            queue,
            {
                "cq_id": entry.id,
                "cq_database": entry.entity.database,
                "cq_table": entry.entity.table,
                "cq_partition": entry.entity.partition,
                "cq_state": "i",
                "cq_type": "a",
                "cq_tblproperties": encode_properties(entry.properties),
                "cq_enqueue_time": entry.enqueue_ms,
                "cq_pool_name": entry.pool,
                "cq_initiator_id": entry.initiator_id,
                "cq_retry_retention": 0,
            },
        )
        for entry in entries
    ]
    with database.transaction() as connection:
        connection.execute(delete(queue))
        connection.execute(insert(queue), rows)


class Lets:
    """A gate that lets entries of some databases through."""

    counts = False

    def __init__(self, databases):
        self.databases = databases

    def open(self, _working):
        return lambda database, _table, _pool: database in self.databases


@given(strategies.queues())
def test_nothing_is_overtaken_by_what_is_queued_a_day_later(entries):
    """Nor by a higher id in the same minute at equal urgency; where there are no times, nor by the 200th id after it."""
    for timed in (True, False):
        place = {entry.id: number for number, entry in enumerate(in_order(entries, timed=timed))}
        for older, newer in combinations(entries, 2):
            if place[newer.id] > place[older.id]:
                continue
            assert urgency_of(newer) > urgency_of(older)
            if timed:
                assert newer.enqueue_ms - older.enqueue_ms < DAY_MS + MINUTE_MS
            else:
                assert newer.id - older.id < MOST * STEP_ENTRIES


@given(strategies.queues(), st.randoms(use_true_random=False), st.integers(1, 10**12), st.booleans())
def test_the_order_depends_on_the_entries_alone(entries, chance, later, timed):
    """Whatever order they are read in, and however much time has passed; claiming some leaves the others' order."""
    ids = [entry.id for entry in in_order(entries, timed=timed)]
    mixed = chance.sample(entries, len(entries))
    assert [entry.id for entry in in_order(mixed, timed=timed)] == ids
    aged = [replace(entry, enqueue_ms=entry.enqueue_ms - later * MINUTE_MS) for entry in entries]
    assert [entry.id for entry in in_order(aged, timed=timed)] == ids
    left = mixed[: len(mixed) // 2]
    assert [entry.id for entry in in_order(left, timed=timed)] == [
        number for number in ids if number in {entry.id for entry in left}
    ]


@given(strategies.queues(), st.data(), st.booleans())
def test_more_urgent_is_never_later(entries, data, timed):
    """An entry that gets more urgent, all others as they are, moves to the front or stays."""
    entry = data.draw(st.sampled_from(entries))
    more = data.draw(st.integers(urgency_of(entry), MOST))
    urgent = replace(entry, properties=entry.properties | {URGENCY: str(more)})
    after = [urgent if one is entry else one for one in entries]
    before, now = in_order(entries, timed=timed), in_order(after, timed=timed)
    assert now.index(urgent) <= before.index(entry)


@given(st.floats(0, allow_nan=False), st.floats(0, allow_nan=False))
def test_the_farther_the_more_urgent(one, other):
    """From 0, without excess, to the most; never less for a larger excess."""
    low, high = sorted((one, other))
    assert 0 <= urgency_for(low) <= urgency_for(high) <= MOST


def test_each_doubling_is_a_step():
    """Up to sixteen times the threshold."""
    excess = (0.0, 1.0, 1.99, 2.0, 3.99, 4.0, 8.0, 15.9, 16.0, 1e300, math.inf)
    assert [urgency_for(one) for one in excess] == [0, 0, 0, 1, 1, 2, 3, 3, 4, 4, 4]


def test_claims_come_in_the_order(database):
    """
    By pool, for any queue: claims, looks, and either through a gate take what `rank_of` puts first among the entries
    as they are read.
    """
    queue = database.schema.compaction_queue
    timed = is_timed(queue)

    @settings(max_examples=12, deadline=None)
    @given(strategies.queues(), st.sampled_from(("a", "b", "ab")))
    def once(entries, databases):
        store(database, entries)
        ours = Queue(database)
        stored = ours.entries()
        with database.reading() as connection:
            ranks = dict(connection.execute(select(queue.c.cq_id, rank_column(queue))).all())
        assert ranks == {entry.id: rank_of(entry, timed=timed) for entry in stored}
        for pool in {entry.pool for entry in stored}:
            waiting = in_order([entry for entry in stored if entry.pool == pool], timed=timed)
            through = [entry.id for entry in waiting if entry.entity.database in databases]
            gate, last = Lets(databases), through[-2:]
            assert ours.claimable(pool, gate=gate) == next(iter(through), None)
            assert ours.claimable(pool, among=last, gate=gate) == ours.claimable(pool, among=last)
            wanted = next((number for number in last if number != through[0]), None)
            claimed = ours.claim("w", "1", pool, without=through[:1], among=last, gate=gate)
            assert (None if claimed is None else claimed.id) == wanted
            for entry in [entry for entry in waiting if entry.id != wanted]:
                assert ours.claimable(pool) == entry.id
                assert ours.claim("w", "1", pool).id == entry.id
            assert ours.claim("w", "1", pool) is None

    once()


@pytest.mark.parametrize("kind", kinds(("sqlite", "postgres-4", "mariadb-4", "mysql5-4")))
def test_a_rank_is_exact(kind, request, tmp_path):
    """To the millisecond: MySQL 9 divides with four decimals."""
    moments = [4_102_444_800_000 + ms for ms in (0, 1, 29_999, 30_000, 59_996, 59_997, 59_998, 59_999, 60_000)]
    entries = [
        QueueEntry(number, Entity("a", "t", f"p={number}"), CompactionKind.MAJOR, QueueState.INITIATED, enqueue_ms=at)
        for number, at in enumerate(moments, start=1)
    ]
    with metastore(kind, request, tmp_path) as database:
        store(database, entries)
        queue = database.schema.compaction_queue
        with database.reading() as connection:
            ranks = dict(connection.execute(select(queue.c.cq_id, rank_column(queue))).all())
    assert ranks == {entry.id: rank_of(entry, timed=True) for entry in entries}


def test_the_order_goes_on_behind_one_reading(database):
    """Entries to be left may fill a reading of the queue, and more: the first behind them is taken, also by a gate."""
    count = SIZE + 150
    moment = 4_102_444_800_000
    entries = [
        QueueEntry(
            number,
            Entity("ab"[number % 2], "t", f"p={number}"),
            MAJOR,
            QueueState.INITIATED,
            enqueue_ms=moment + number * 60_000,
            properties={URGENCY: str(number % 5)},
        )
        for number in range(1, count)
    ]
    store(database, entries)
    timed = is_timed(database.schema.compaction_queue)
    ids = [entry.id for entry in in_order(entries, timed=timed)]
    odd = [number for number in ids if number % 2]
    left = SIZE + 20
    queue = Queue(database)
    assert queue.claimable(without=set(ids[:left])) == ids[left]
    assert queue.claim("w", "1", without=set(ids[:left])).id == ids[left]
    assert queue.claim("w", "1", without=set(ids), gate=Lets("ab")) is None
    beyond = next(number for number in ids[left + 1 :] if number % 2)
    assert queue.claim("w", "1", without=set(ids[: left + 1]), gate=Lets("b")).id == beyond
    assert queue.claim("w", "1", gate=Lets("b")).id == odd[0]
    assert [queue.claim("w", "1").id for _ in range(3)] == [number for number in ids if number != odd[0]][:3]


def test_a_persons_request_comes_before_what_was_queued_today(database):
    """Hive's ALTER TABLE … COMPACT as well, where the row tells it: on Hive 4."""
    queue = Queue(database)
    for number in range(3):
        queue.enqueue(Entity("db", "t", f"p={number}"), MAJOR, initiator_id="edge1-compactor-initiator")
    person = queue.enqueue(T, MAJOR, initiator_id="edge1-manual").id
    assert queue.claim("w", "1").id == person
    assert urgency_of(queue.entry(person)) == MOST


def test_the_urgency_of_a_request_is_stored(database):
    """
    As a property, for a person's request only where no column tells it. A property that names the urgency stays, and
    without room for it there is none.
    """
    queue = Queue(database)
    timed = is_timed(database.schema.compaction_queue)
    full = {"k": "x" * (PROPERTIES_LIMIT - 12)}
    asked = [
        (Request(Entity("db", "a"), MAJOR, urgency=3), {URGENCY: "3"}, 3),
        (Request(Entity("db", "b"), MAJOR), {}, 0),
        (Request(Entity("db", "c"), MAJOR, initiator_id="e-manual"), {} if timed else {URGENCY: "4"}, 4),
        (Request(Entity("db", "d"), MAJOR, properties={URGENCY: "0"}, initiator_id="e-manual"), {URGENCY: "0"}, 0),
        (Request(Entity("db", "e"), MAJOR, properties=full, urgency=2), full, 0),
    ]
    answers = queue.enqueue_all([request for request, _, _ in asked])
    for answer, (_, properties, urgency) in zip(answers, asked, strict=True):
        entry = queue.entry(answer.id)
        assert (dict(entry.properties), urgency_of(entry)) == (properties, urgency)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, None),
        ({"properties": {URGENCY: "0"}, "initiator_id": "e-manual"}, None),
        ({"initiator_id": "e-manual"}, "24 h earlier, because a person asked for it"),
        ({"properties": {URGENCY: "9"}, "initiator_id": "e-manual"}, "24 h earlier, because a person asked for it"),
        ({"properties": {URGENCY: "4"}, "enqueue_ms": None}, "200 entries earlier, because its request says so"),
        (
            {"properties": {URGENCY: "2"}, "initiator_id": "e-initiator"},
            "12 h earlier, because a threshold was passed 4-fold when it was queued",
        ),
        (
            {"properties": {URGENCY: "4"}, "initiator_id": "e-initiator"},
            "24 h earlier, because a threshold was passed 16-fold or more when it was queued",
        ),
        ({"properties": {URGENCY: "1"}, "initiator_id": "e-manual"}, "6 h earlier, because its request says so"),
        ({"initiator_id": "e-manual", "enqueue_ms": None}, "200 entries earlier, because a person asked for it"),
    ],
)
def test_the_reason_is_told(changes, sentence):
    """For people: how far ahead, and why."""
    entry = QueueEntry(1, T, MAJOR, QueueState.INITIATED, enqueue_ms=1)
    told = reason_of(replace(entry, **changes))
    assert told is sentence is None or told.endswith(f"what was queued up to {sentence}")
