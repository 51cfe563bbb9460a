"""Heartbeat and cancellation: when work is over because nobody would know that we are alive."""

import threading
from contextlib import contextmanager

import pytest

from compactor.errors import CancelledError, CompactorError, OwnershipLostError, UnreachableError
from compactor.metastore.model import Entity
from compactor.metastore.txn.snapshots import COMPACTION, REBALANCE_COMPACTION
from compactor.roles.worker.cancellation import Cancellation, DrainedError, TimedOutError
from compactor.roles.worker.lease import Heartbeat, Lease

LONG = 60.0


@contextmanager
def beating(*about):
    """A heartbeat for as long as the block runs."""
    heartbeat = Heartbeat(*about)
    heartbeat.start()
    try:
        yield
    finally:
        heartbeat.stop()


def test_it_renews_again_and_again():
    """More than one renewal happens while the block runs, none after it."""
    thrice = threading.Semaphore(0)
    with beating(thrice.release, 0.001, LONG, lambda _: None, "lock 7"):
        for _ in range(3):
            assert thrice.acquire(timeout=LONG)


def test_a_lost_owner_is_final():
    """The first renewal that finds nothing to renew ends it, and tells why, once."""
    told: list[OwnershipLostError] = []
    over = threading.Event()

    def beat() -> None:
        raise OwnershipLostError("transaction 7 is aborted")

    def lost(error: OwnershipLostError) -> None:
        told.append(error)
        over.set()

    with beating(beat, 0.001, LONG, lost, "transaction 7"):
        assert over.wait(LONG)
    assert [str(error) for error in told] == ["transaction 7 is aborted"]


def test_a_database_that_is_away_for_a_moment_is_no_loss():
    """A failed renewal is repeated; one success makes up for it."""
    calls: list[int] = []
    enough = threading.Event()

    def beat() -> None:
        calls.append(1)
        if len(calls) < 3:
            raise UnreachableError("no metastore")
        enough.set()

    told: list[OwnershipLostError] = []
    with beating(beat, 0.001, LONG, told.append, "lock 7"):
        assert enough.wait(LONG)
    assert told == []


def test_a_database_that_stays_away_is_a_loss():
    """After the time-out others may have taken ours: the reason names the last error."""
    over: list[CompactorError] = []
    done = threading.Event()

    def beat() -> None:
        raise UnreachableError("no metastore")

    def lost(error: CompactorError) -> None:
        over.append(error)
        done.set()

    with beating(beat, 0.001, 0.01, lost, "lock 7"):
        assert done.wait(LONG)
    assert "no heartbeat of lock 7 reached the metastore for" in str(over[0])
    assert "no metastore" in str(over[0])
    assert isinstance(over[0], UnreachableError)  # an outage: the entry is given back, not failed


def test_the_first_reason_holds():
    """A cancellation keeps the reason it was given first."""
    cancellation = Cancellation(LONG)
    cancellation.check()
    assert not cancellation()
    cancellation.cancel(DrainedError("stopping"))
    cancellation.cancel(OwnershipLostError("gone"))
    assert cancellation()
    with pytest.raises(DrainedError, match="stopping"):
        cancellation.check()


def test_time_runs_out():
    """A time-out is a cancellation of its own kind, naming the setting."""
    with pytest.raises(TimedOutError, match=r"not done within 0 s \(worker.timeout_hours\)") as caught:
        Cancellation(0).check()
    assert isinstance(caught.value, CancelledError)


@pytest.mark.parametrize(("kind", "txn_type"), [("minor", COMPACTION), ("rebalance", REBALANCE_COMPACTION)])
def test_the_transaction_is_of_the_entrys_kind(world, table, kind, txn_type):
    """Hive treats the commit of a rebalance otherwise, and tells it by the type of its transaction."""
    world.enqueue(Entity(table.database, table.name), kind)
    (entry,) = world.services.queue.entries()
    lease = Lease(world.services, entry, "here-1", Cancellation(), lambda _: None)
    lease.begin("ann")
    lease.end()
    txns = world.database.schema.txns
    assert world.hive.rows(txns, "txn_type", where=txns.c.txn_id == lease.txn_id) == [(txn_type,)]
