"""Who works on what: an entry is claimed once, and taken back from whoever is gone."""

import threading

import pytest
from sqlalchemy import update

from compactor.errors import OwnershipLostError
from compactor.metastore.compaction_queue.properties import encode_properties
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.requests import Request
from compactor.metastore.model import Entity, QueueState
from tests.metastore.actor import P, T, run_all
from tests.metastore.entries import MAJOR, MINOR, claimed


def test_the_oldest_is_claimed_first(database):
    """A claim takes the smallest id, notes worker and time, and leaves nothing for a second."""
    queue = Queue(database)
    first = queue.enqueue(T, MAJOR).id
    queue.enqueue(P, MINOR)
    entry = queue.claim("compactor-edge-1", "1.0")
    assert (entry.id, entry.entity, entry.kind, entry.state, entry.worker_id) == (
        first,
        T,
        MAJOR,
        QueueState.WORKING,
        "compactor-edge-1",
    )
    assert entry.start_ms is not None
    assert queue.claim("compactor-edge-2", "1.0").entity == P
    assert queue.claim("compactor-edge-2", "1.0") is None


def test_entries_are_passed_over(database):
    """
    Those of `without`, and those that aren't `among`, however many they are: the next one is taken, the oldest first.
    """
    queue = Queue(database)
    queue.enqueue_all([Request(Entity("db", "t", f"p={number}"), MAJOR) for number in range(400)])
    numbers = sorted(entry.id for entry in queue.entries())
    assert queue.claimable(without=set(numbers[:398])) == numbers[398]
    assert queue.claim("w", "1", without=set(numbers[:398])).id == numbers[398]
    assert queue.claim("w", "1", among=set(numbers[300:])).id == numbers[300]
    assert queue.claim("w", "1", without={numbers[0]}, among=set(numbers[:2])).id == numbers[1]
    assert queue.claim("w", "1", without={numbers[0]}, among=set(numbers[:2])) is None


def test_of_many_that_are_passed_over_each_is_read_once(database):
    """The queue is read on behind the last one, also among those that were queued in one minute."""
    queue = Queue(database)
    queue.enqueue_all([Request(Entity("db", "t", f"p={number}"), MAJOR) for number in range(400)])
    asked = []

    class Every(frozenset):
        def __contains__(self, number):
            asked.append(number)
            return True

    assert queue.claimable(without=Every()) is None
    assert asked == sorted(entry.id for entry in queue.entries())


def test_unknown_kinds_are_left_alone(database, hive):
    """A row of a type or state of a later Hive is neither claimed nor an error; it is told of apart."""
    first = hive.queued(type="*")
    second = hive.queued("db.x", state="?")
    queue = Queue(database)
    assert queue.claim("compactor-edge-1", "1") is None
    assert queue.entries() == []
    assert [(entry.id, entry.entity, entry.type, entry.state) for entry in queue.foreign()] == [
        (first, T, "*", "i"),
        (second, Entity("db", "x"), "a", "?"),
    ]


@pytest.mark.parametrize("code", ["I", "A", "\u00e1"])
def test_a_letter_is_no_other_of_another_case(database, hive, code):
    """MySQL's own comparison takes `A` and `\u00e1` for `a`: a type or state of a later Hive would be ours."""
    typed, standing = hive.queued(type=code), hive.queued("db.x", state=code)
    mine = Queue(database).enqueue(Entity("db", "y"), MAJOR).id
    queue = Queue(database)
    assert queue.claim("compactor-edge-1", "1").id == mine
    assert queue.claim("compactor-edge-1", "1") is None
    assert [entry.id for entry in queue.entries()] == [mine]
    assert [entry.id for entry in queue.foreign()] == [typed, standing]


def test_a_claim_writes_names_as_the_catalog_has_them(database, hive):
    """
    A client may have named database and table in capitals. Hive compares names exactly: with queue and history when it
    asks whether a materialized view's source was compacted.
    """
    number = hive.queued("DB.T")
    assert Queue(database).claim("compactor-edge-1", "1").id == number
    queue = database.schema.compaction_queue
    assert hive.rows(queue, "cq_database", "cq_table") == [("db", "t")]


def test_what_our_workers_cannot_do_is_left_to_hives(database, hive):
    """A rebalance is neither claimed nor refused: Hive's own workers may be running beside ours."""
    number = hive.queued(type="r")
    queue = Queue(database)
    assert queue.claim("compactor-edge-1", "1") is None
    assert queue.entry(number).state is QueueState.INITIATED


def test_pools_are_kept_apart(database_4, hive_4):
    """
    A worker of a pool takes its pool's entries only; one without takes those without a pool, and what waited half a day
    for its own.
    """
    queue = Queue(database_4)
    plain = queue.enqueue(T, MAJOR).id
    pooled = queue.enqueue(P, MAJOR, pool="night").id
    assert queue.claim("compactor-edge-1", "1", "night").id == pooled
    assert queue.claim("compactor-edge-1", "1", "night") is None
    stale = hive_4.queued("db.x", pool_name="gone", enqueue_time=database_4.read(database_4.now_ms) - 13 * 3_600_000)
    fresh = hive_4.queued("db.y", pool_name="gone", enqueue_time=database_4.read(database_4.now_ms))
    assert [queue.claim("compactor-edge-1", "1").id for _ in range(2)] == [stale, plain]
    assert queue.claim("compactor-edge-1", "1") is None
    assert queue.entry(fresh).state is QueueState.INITIATED


def test_no_entry_is_claimed_twice(shared_database):
    """Six workers claiming at once share a queue of thirty without overlap."""
    Queue(shared_database).enqueue_all([Request(Entity("db", "t", f"p={number}"), MAJOR) for number in range(30)])
    start = threading.Barrier(6)
    taken = []

    def work(worker):
        queue = Queue(shared_database)
        start.wait()
        while (entry := queue.claim(worker, "1")) is not None:
            taken.append(entry.id)

    run_all([lambda worker=f"compactor-edge-{number}": work(worker) for number in range(6)])
    assert len(taken) == len(set(taken)) == 30


def test_a_claim_given_back_is_anybodys(database):
    """
    Given back, an entry is initiated without worker and start, and is claimed again; giving back twice is fine, giving
    back another's claim isn't.
    """
    entry = claimed(database)
    queue = Queue(database)
    queue.give_back(entry)
    queue.give_back(entry)
    again = queue.claim("compactor-edge-2", "1")
    assert again.id == entry.id
    with pytest.raises(OwnershipLostError):
        queue.give_back(entry)


def test_what_is_given_back_comes_in_its_turn(database):
    """An entry that was queued first is the next, though its process read others a moment ago."""
    queue = Queue(database)
    first, second, third = (queue.enqueue(Entity("db", name), MAJOR).id for name in "tuv")
    entry = queue.claim("compactor-edge-1", "1")
    assert (entry.id, queue.claim("compactor-edge-2", "1").id) == (first, second)
    queue.give_back(entry)
    assert [queue.claim("compactor-edge-2", "1").id for _ in range(2)] == [first, third]


def test_a_claim_of_hive_goes_back_only_while_it_has_no_transaction(database_4, hive_4):
    """As it was read: one that has got a transaction since may commit."""
    number = hive_4.queued("db.t", state="w", worker_id="hms-1", start=1000)
    queue, table = Queue(database_4), database_4.schema.compaction_queue
    entry = queue.entry(number)
    hive_4.change(update(table).values(cq_txn_id=hive_4.begin()))
    with pytest.raises(OwnershipLostError):
        queue.take_back(entry, "too long")
    hive_4.change(update(table).values(cq_txn_id=None))
    queue.take_back(entry, "too long")
    assert queue.entry(number).state is QueueState.INITIATED


def test_a_later_claim_by_the_same_worker_is_not_given_back(database, hive):
    """
    Given back and claimed again meanwhile, as workers' names are used again: the second claim stands, whoever still
    believes in the first.
    """
    entry = claimed(database)
    hive.change(update(database.schema.compaction_queue).values(cq_start=entry.start_ms + 1000))
    with pytest.raises(OwnershipLostError):
        Queue(database).give_back(entry)
    assert Queue(database).entry(entry.id).state is QueueState.WORKING


def test_timed_out_claims_are_found(database, hive):
    """By the claim's time alone, whoever made it."""
    now = database.read(database.now_ms)
    old = hive.queued("db.a", state="w", worker_id="hms-1", start=now - 90_000_000)
    hive.queued("db.b", state="w", worker_id="hms-2", start=now)
    assert [entry.id for entry in Queue(database).timed_out(86_400_000)] == [old]


def test_a_claim_takes_out_what_only_hive_may_ask_for(database, hive):
    """Of the row too: the Cleaner that handles the entry later may be Hive's, and would remove the directory."""
    asked = {"a": "b", "location": "file:/w/db.db/t", "ifPurge": "true"}
    number = hive.queued(tblproperties=encode_properties(asked))
    other = hive.queued("db.u", tblproperties=encode_properties({"c": "d"}))
    queue = Queue(database)
    assert queue.claim("compactor-edge-1", "1").properties == {"a": "b"}
    assert queue.entry(number).properties == {"a": "b"}
    assert queue.entry(other).properties == {"c": "d"}
