"""
Worker: a store that goes away takes its own entries along, and nobody else's; what can't be undone for it is kept, and
undone when it is back.
"""

import threading
from types import SimpleNamespace

import pytest

from compactor.daemon.daemon import Daemon
from compactor.errors import RetryableError
from compactor.metastore.model import Entity
from compactor.roles import steps
from compactor.roles.housekeeper.recovery import Recovery
from compactor.roles.worker.rollback import MOST
from tests.unit.roles.stores import Stores
from tests.unit.roles.tables import hidden

STAGED = (steps.WORKER_STAGED, steps.WORKER_RAN, steps.WORKER_VERIFIED)


@pytest.fixture
def stores(monkeypatch):
    return Stores(monkeypatch)


def queued(world, *names):
    """Tables in a queue, in this order, each in the database that its name begins with."""
    made = []
    for name in names:
        database, _, table = name.rpartition(".")
        made.append(world.table(table, rows=4, database=database, insert_only=True))
        world.enqueue(Entity(database, table))
    world.settle_time()
    return made


def going_away(world, stores, step, *names):
    """From this step on the stores don't answer."""
    world.at_step[step] = lambda: stores.away.update(names)


def left(world):
    """
    Open transactions, locks and components: all that an attempt holds in the metastore. The component of an aborted one
    stays until its tasks are over.
    """
    services, txns = world.services, world.database.schema.txns
    aborted = {txn_id for txn_id, state in world.hive.rows(txns, "txn_id", "txn_state") if state == "a"}
    return [
        *services.transactions.open_transactions(),
        *services.locks.all(),
        *(row for row in world.hive.rows(world.database.schema.txn_components, "tc_txnid") if row[0] not in aborted),
    ]


@pytest.mark.parametrize(
    "step", [steps.WORKER_LOCKED, steps.WORKER_LISTED, steps.WORKER_PLANNED, steps.WORKER_STATE_STORED]
)
def test_what_staged_nothing_is_given_back_at_once(any_world, stores, step):
    """
    The store isn't asked again, the transaction ends and leaves nothing, and the worker takes the next entry without a
    pause. Back again, it is compacted.
    """
    world = any_world
    away, _ = queued(world, "a.t", "b.u")
    names = world.names(away.location)
    going_away(world, stores, step, "a.db")
    worker = world.worker()
    assert worker.run_once().sentence == "major compaction 1 of a.t: given back: a.db doesn't answer"
    assert len(stores.asked) == 1
    assert (world.states(), left(world)) == (["initiated"] * 2, [])
    world.at_step.clear()
    assert "b.u: published" in worker.run_once().sentence
    assert (
        worker.run_once().sentence
        == "waiting: compaction 1 of a.t was given back: a.db doesn't answer; next try in 10 s"
    )
    stores.away.clear()
    assert world.names(away.location) == names
    world.clock.forward(10)
    assert "a.t: published" in worker.run_once().sentence
    world.assert_rows()


@pytest.mark.parametrize("step", STAGED)
def test_what_staged_something_is_kept_while_others_are_compacted(any_world, stores, step):
    """
    Its claim and its transaction stay, and are kept alive; it is tried again with growing pauses. With the store back
    it is undone and given back.
    """
    world = any_world
    away, _, _ = queued(world, "a.t", "b.u", "b.v")
    names = world.names(away.location)
    going_away(world, stores, step, "a.db")
    worker, sign = world.worker(), threading.Event()
    world.configure(worker={"heartbeat_seconds": 0.01})
    beats = world.services.transactions if world.services.layout == "hive-4" else world.services.locks
    beats.heartbeat = lambda *_: sign.set()
    said = "compaction 1 of a.t has ended and can't be undone yet: a.db doesn't answer"
    assert worker.run_once().sentence == f"{said}; next try in 5 s"
    world.at_step.clear()
    assert "b.u: published" in worker.run_once().sentence
    assert "b.v: published" in worker.run_once().sentence
    for pause in (5, 10, 20, 40, 80, 160, 320, 320):
        assert worker.run_once().sentence == f"waiting: {said}; next try in {pause} s"
        asked = len(stores.asked)
        world.clock.forward(pause - 1)
        assert worker.run_once().sentence == f"waiting: {said}; next try in 1 s"
        assert len(stores.asked) == asked
        world.clock.forward(1)
    sign.clear()
    assert sign.wait(60)
    assert world.services.queue.entry(1).state.value == "working"
    stores.away.clear()
    assert worker.run_once().sentence == "major compaction 1 of a.t: given back: a.db doesn't answer"
    assert (world.names(away.location), left(world)) == (names, [])
    world.clock.forward(10)
    del beats.heartbeat
    assert "a.t: published" in worker.run_once().sentence
    world.assert_rows()


def test_it_claims_no_more_than_it_may_keep(world, stores):
    """
    Each keeps a transaction open: with eight of them the worker says why it claims nothing, and goes on when one is
    undone; all are, and compacted.
    """
    queued(world, *(f"a.t{number}" for number in range(MOST)), "b.u")
    going_away(world, stores, steps.WORKER_RAN, "a.db")
    worker = world.worker()
    for number in range(MOST):
        stores.away.clear()
        world.at_step[steps.WORKER_RAN] = lambda: stores.away.add("a.db")
        assert f"compaction {number + 1} of a.t{number} has ended and can't be undone yet" in worker.run_once().sentence
    world.at_step.clear()
    said = worker.run_once().sentence
    assert said.startswith(
        "waiting: 8 attempts have ended and can't be undone yet, so nothing more is claimed; compaction 1 of a.t0 has ended and can't be undone yet: "
    )
    assert world.states() == ["working"] * MOST + ["initiated"]
    stores.away.clear()
    world.clock.forward(5)
    assert "a.t0: given back" in worker.run_once().sentence
    for number in range(1, MOST):
        assert f"a.t{number}: given back" in worker.run_once().sentence
    assert "b.u: published" in worker.run_once().sentence
    for _ in range(MOST):
        world.clock.forward(20)
        assert "published" in worker.run_once().sentence
    assert left(world) == []


@pytest.mark.parametrize("again", ["by another worker", "by the same"])
def test_an_entry_that_was_freed_and_claimed_again_is_left_alone(world, stores, again):
    """
    Another daemon saw the store and cleared up, and the entry is being worked on anew: what the new attempt staged, and
    its claim, aren't the old one's.
    """
    (table,) = queued(world, "a.t")
    going_away(world, stores, steps.WORKER_RAN, "a.db")
    worker = world.worker()
    worker.run_once()
    world.at_step.clear()
    stores.away.clear()
    entry, queue = world.services.queue.entry(1), world.services.queue
    assert Recovery(world.services).clear(entry)
    queue.give_back(entry)
    assert worker.run_once().sentence.startswith("waiting: compaction 1 of a.t has ended"), (
        "not claimed by who has still to undo it"
    )
    anew = queue.claim(worker.worker_id if again == "by the same" else "compactor-there-1", "1")
    world.hive.change(world.database.schema.compaction_queue.update().values(cq_start=anew.start_ms + 1))
    (table.location / ".compactor-1-new").mkdir()
    world.clock.forward(5)
    assert ": lost: " in worker.run_once().sentence
    assert hidden(table) == [".compactor-1-new"]
    assert (queue.entry(1).state.value, queue.entry(1).worker_id) == ("working", anew.worker_id)


def test_somebody_who_wants_a_kept_one_stopped_is_heard(world, stores):
    """`compactor cancel` while it can't be undone: once it is, the entry ends, and isn't tried again."""
    (table,) = queued(world, "a.t")
    going_away(world, stores, steps.WORKER_RAN, "a.db")
    worker = world.worker()
    worker.run_once()
    assert world.services.queue.ask_to_stop(world.services.queue.entry(1), "ann@edge")
    stores.away.clear()
    world.clock.forward(5)
    assert "a.t: cancelled: cancelled by ann@edge" in worker.run_once().sentence
    assert (world.states(), hidden(table), left(world)) == ([], [], [])


def test_what_is_kept_is_told(world, stores):
    """
    Readiness has it, whatever else goes on, for it holds a transaction open; so has the gauge. A daemon that drains
    begins nothing, and knows what it leaves behind.
    """
    queued(world, "a.t", "b.u")
    going_away(world, stores, steps.WORKER_RAN, "a.db")
    worker = world.worker()
    daemon = Daemon(world.services.settings)
    daemon._services, daemon._loops = world.services, {"worker-1": SimpleNamespace(working=True)}
    gauge = lambda: world.services.metrics.registry.get_sample_value("compactor_worker_unsettled")  # noqa: E731
    worker.run_once()
    world.at_step.clear()
    assert "b.u: published" in worker.run_once().sentence
    assert daemon.unready() == ["compaction 1 of a.t has ended and can't be undone yet: a.db doesn't answer"]
    assert daemon.readiness().held == ()  # others are compacted: no entry waits for that
    assert gauge() == 1
    world.services.stopping.set()
    assert worker.run_once().sentence == "draining: nothing new is claimed"
    assert daemon._has_claims(world.services)
    world.services.stopping.clear()
    stores.away.clear()
    world.clock.forward(5)
    assert "given back" in worker.run_once().sentence
    assert (daemon.unready(), gauge(), daemon._has_claims(world.services)) == ([], 0, False)


def test_a_metastore_that_does_not_undo_is_no_reason_to_stand_still(world, stores, monkeypatch):
    """The abort fails, for whatever reason, though claims don't: others are compacted, and the entry stays ours."""
    queued(world, "a.t", "b.u")
    worker = world.worker()

    def broken(*_, **__):
        raise ValueError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(world.services.transactions, "abort", broken, raising=False)
        world.at_step[steps.WORKER_RAN] = lambda: (_ for _ in ()).throw(RetryableError("lost"))
        assert (
            worker.run_once().sentence
            == "compaction 1 of a.t has ended and can't be undone yet: a bug; next try in 5 s"
        )
        world.at_step.clear()
        assert "b.u: published" in worker.run_once().sentence
        assert world.services.queue.entry(1).state.value == "working"
    world.clock.forward(5)
    assert "a.t: given back: lost" in worker.run_once().sentence
