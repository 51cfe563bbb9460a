"""
What one who was stopped finds when it goes on: its entry with somebody else, who must not suffer from it; and who is
taken for lost.
"""

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.coordination import Alone
from compactor.errors import OwnershipLostError
from compactor.metastore.compaction_queue.requests import Request
from compactor.metastore.model import Entity
from compactor.roles import steps
from compactor.roles.fence import remove_staging
from compactor.roles.housekeeper.recovery import Recovery
from compactor.storage.registry import storage_for

T = Entity("db", "t", None)
ELSEWHERE = "compactor-there-" + "1" * 32 + "-1"
HOUR = 3_600_000


class Others(Alone):
    """Knows who is there."""

    def __init__(self, *instances):
        super().__init__()
        self._instances = frozenset(instances)

    def present(self):
        return self._instances


@pytest.mark.parametrize("step", [steps.WORKER_STAGED, steps.WORKER_RAN, steps.WORKER_VERIFIED])
def test_undoing_leaves_the_staging_directory_of_whoever_has_the_entry_now(world, step):
    """
    A stopped worker's claim was given back and taken by another one, who is at work: only what the first made itself
    goes.
    """
    table = world.table(rows=4)
    successor = None

    def taken_over():
        nonlocal successor
        world.at_step.clear()
        recovery = Recovery(world.new_services())
        (entry,) = world.services.queue.working()
        assert recovery.clear(entry)
        world.services.queue.give_back(entry)
        claimed = world.services.queue.claim(ELSEWHERE, "1")
        successor = table.location / f".compactor-{claimed.id}-other"
        successor.mkdir()

    world.at_step[step] = taken_over
    assert "lost" in world.compact(table)
    assert [name for name in world.names(table.location) if name.startswith(".")] == [successor.name]
    assert [entry.worker_id for entry in world.services.queue.working()] == [ELSEWHERE]
    world.assert_rows()


def test_staging_is_seen_before_the_owner_is(tmp_path):
    """Whoever claims the entry while it is taken from another makes its directory after the look, and keeps it."""
    storage, place = storage_for(str(tmp_path)), str(tmp_path)
    (tmp_path / ".compactor-7-old").mkdir()

    def still():
        (tmp_path / ".compactor-7-new").mkdir()
        return True

    assert remove_staging(storage, place, 7, still) == [".compactor-7-old"]
    assert [path.name for path in tmp_path.iterdir()] == [".compactor-7-new"]
    assert remove_staging(storage, place, 7, lambda: False) == []

    def lost():
        raise OwnershipLostError("another's")

    with pytest.raises(OwnershipLostError):
        remove_staging(storage, place, 7, lost)
    assert [path.name for path in tmp_path.iterdir()] == [".compactor-7-new"]


def test_an_initiator_that_lost_its_mutex_queues_nothing(world):
    """It is asked inside the transaction that would queue, so that no pause lies between."""

    def lost():
        raise OwnershipLostError("the mutex is lost")

    with pytest.raises(OwnershipLostError):
        world.services.queue.enqueue_all([Request(T, CompactionKind.MAJOR)], lost)
    assert world.states() == []


def claimed_elsewhere(world, age_ms, **more):
    world.table(rows=1)
    now = world.services.now_ms()
    return world.hive.queued("db.t", state="w", worker_id=ELSEWHERE, start=now - age_ms, **more)


def test_a_daemon_that_nobody_sees_loses_its_claim(world):
    """
    Its transaction was ended for want of a heartbeat: the leader gives the claim back long before worker.timeout_hours.
    """
    transactions = world.services.transactions
    txn = transactions.open_compaction("u", "there", agent=ELSEWHERE)
    entry = claimed_elsewhere(world, HOUR, txn_id=txn, highest_write_id=1)
    world.services.coordinator = Others("2" * 32)
    recovery = Recovery(world.services)
    assert recovery.give_back_claims_of_the_lost() == []
    transactions.abort(txn, "silent")
    assert [freed.id for freed in recovery.give_back_claims_of_the_lost()] == [entry]
    assert world.states() == ["initiated"]


def test_a_daemon_that_nobody_sees_loses_its_claim_on_hive_3(world_3):
    """
    Where compactions have no transaction its lock tells, which times out without a heartbeat; another daemon's lock on
    the table doesn't count.
    """
    services = world_3.services
    lock = services.locks.acquire_shared(T, 0, "u", "there")
    services.locks.acquire_shared(T, 0, "u", "elsewhere")
    entry = claimed_elsewhere(world_3, HOUR, highest_write_id=1)
    services.coordinator = Others("2" * 32)
    recovery = Recovery(services)
    assert recovery.give_back_claims_of_the_lost() == []
    services.locks.release(lock)
    assert [freed.id for freed in recovery.give_back_claims_of_the_lost()] == [entry]
    assert world_3.states() == ["initiated"]


@pytest.mark.parametrize("case", ["seen", "young", "nobody can tell", "opened, not yet stored"])
def test_a_daemon_that_may_live_keeps_its_claim(world, case):
    """
    It is seen, or has only just claimed, or who is there can't be told, or its transaction is open though the entry
    doesn't name it yet.
    """
    claimed_elsewhere(world, 1000 if case == "young" else HOUR)
    world.services.coordinator = (
        Alone() if case == "nobody can tell" else Others(*(["1" * 32] if case == "seen" else []))
    )
    if case.startswith("opened"):
        world.services.transactions.open_compaction("u", "there", agent=ELSEWHERE)
    assert Recovery(world.services).give_back_claims_of_the_lost() == []
    assert world.states() == ["working"]
