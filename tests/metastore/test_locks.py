"""Shared locks, taken at once or not at all."""

import threading

import pytest
from sqlalchemy import update

from compactor.errors import OwnershipLostError, RefusedError
from compactor.metastore.model import Entity
from compactor.metastore.txn.locks import Locks
from tests.metastore.actor import P, T, run_all


def test_a_lock_is_a_granted_shared_read(database, hive):
    """The row is as Hive's: type r, state a, acquired now; it heartbeats by itself only without a transaction."""
    txn_id = hive.begin()
    locks = Locks(database)
    free, bound = locks.acquire_shared(P, 0, "ann", "edge"), locks.acquire_shared(P, txn_id, "ann", "edge")
    table = database.schema.hive_locks
    columns = (
        "hl_lock_ext_id",
        "hl_txnid",
        "hl_db",
        "hl_table",
        "hl_partition",
        "hl_lock_state",
        "hl_lock_type",
        "hl_user",
    )
    assert hive.rows(table, *columns) == [
        (free, 0, "db", "t", "p=1", "a", "r", "ann"),
        (bound, txn_id, "db", "t", "p=1", "a", "r", "ann"),
    ]
    beats = dict(hive.rows(table, "hl_lock_ext_id", "hl_last_heartbeat"))
    assert beats[bound] == 0
    assert beats[free] > 0


@pytest.mark.parametrize("kind", ["r", "w", "x"])
def test_readers_and_writers_do_not_block(database, hive, kind):
    """Only an exclusive lock is in the way of a shared one."""
    hive.lock(
        "db.t", "p=1", kind="w" if kind == "x" and database.schema.generation.layout != "hive-4" else kind
    )  # 3.1 has no exclusive writers
    assert Locks(database).acquire_shared(P, 0, "ann", "edge")


@pytest.mark.parametrize("state", ["a", "w"])
@pytest.mark.parametrize(("name", "partition"), [("db.t", "p=1"), ("db.t", None), ("db.", None)])
def test_an_exclusive_lock_blocks_and_nothing_stays(database, hive, name, partition, state):
    """
    Exclusive on the partition, its table or its database, held or waiting: refused, naming it; no row is left, the id
    counter unmoved.
    """
    standing = hive.lock(name, partition, kind="e", state=state)
    with pytest.raises(RefusedError, match=rf"lock {standing} \(exclusive.*by bob@client"):
        Locks(database).acquire_shared(P, 0, "ann", "edge")
    assert hive.rows(database.schema.hive_locks, "hl_lock_ext_id") == [(standing,)]


def test_exclusive_elsewhere_does_not_block(database, hive):
    """An exclusive lock on another partition or table leaves ours alone; one on a partition blocks the whole table."""
    hive.lock("db.t", "p=2", kind="e")
    hive.lock("db.u", kind="e")
    assert Locks(database).acquire_shared(P, 0, "ann", "edge")
    with pytest.raises(RefusedError):
        Locks(database).acquire_shared(T, 0, "ann", "edge")


def test_ones_own_exclusive_lock_does_not_block(database, hive):
    """A transaction isn't in its own way."""
    txn_id = hive.begin()
    hive.lock("db.t", kind="e", txn_id=txn_id)
    assert Locks(database).acquire_shared(T, txn_id, "ann", "edge")


@pytest.mark.parametrize("state", ["a", "w"])
@pytest.mark.parametrize("where", [("db.t", "p=1", "r"), ("db.t", None, "w"), ("db.", None, "e")])
def test_any_lock_is_in_the_way_of_an_exclusive_one(database, hive, where, state):
    """On the partition or its table, held or waiting; on the database only an exclusive one. No row is left."""
    name, partition, kind = where
    standing = hive.lock(name, partition, kind=kind, state=state)
    with pytest.raises(RefusedError, match=f"lock {standing} "):
        Locks(database).acquire_exclusive(P, 0, "ann", "edge")
    assert hive.rows(database.schema.hive_locks, "hl_lock_ext_id") == [(standing,)]


def test_an_exclusive_lock_keeps_others_out(database, hive):
    """A compaction, and a second exclusive lock; other partitions stay free."""
    hive.lock("db.t", "p=2")
    hive.lock("db.", kind="r")
    locks = Locks(database)
    held = locks.acquire_exclusive(P, 0, "ann", "edge")
    for take in (locks.acquire_shared, locks.acquire_exclusive):
        with pytest.raises(RefusedError, match=f"lock {held} "):
            take(P, 0, "bob", "edge")
    locks.release(held)
    assert locks.acquire_exclusive(P, 0, "bob", "edge")


def test_an_ended_transaction_gets_no_lock(database, hive):
    """A lock for a transaction that isn't open is refused: it would never be released."""
    txn_id = hive.begin()
    hive.abort(txn_id)
    with pytest.raises(OwnershipLostError):
        Locks(database).acquire_shared(T, txn_id, "ann", "edge")


def test_a_lock_lives_by_heartbeats(database, hive):
    """A heartbeat renews it; after release, or when it was timed out, a heartbeat raises; releasing twice is fine."""
    locks = Locks(database)
    number = locks.acquire_shared(T, 0, "ann", "edge")
    hive.change(update(database.schema.hive_locks).values(hl_last_heartbeat=1))
    locks.heartbeat(number)
    assert hive.rows(database.schema.hive_locks, "hl_last_heartbeat") > [(1,)]
    locks.release(number)
    locks.release(number)
    with pytest.raises(OwnershipLostError):
        locks.heartbeat(number)


def test_held_locks_are_those_that_may_read(database, hive):
    """For a partition: its own locks and its table's; for a table all of its partitions' too; waiting ones count."""
    own, whole = hive.lock("db.t", "p=1"), hive.lock("db.t", state="w")
    other = hive.lock("db.t", "p=2")
    hive.lock("db.u")
    locks = Locks(database)
    assert [lock.lock_id for lock in locks.held(P)] == [own, whole]
    assert [lock.lock_id for lock in locks.held(T)] == [own, whole, other]


def test_ids_are_handed_out_once(shared_database):
    """Locks taken at the same moment get different ids."""
    start = threading.Barrier(5)
    taken = []

    def take(number):
        start.wait()
        taken.append(Locks(shared_database).acquire_shared(Entity("db", f"t{number}"), 0, "ann", "edge"))

    run_all([lambda number=number: take(number) for number in range(5)])
    assert sorted(taken) == [1, 2, 3, 4, 5]
