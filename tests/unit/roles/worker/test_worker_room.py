"""
Room: a compaction for which there is none waits in the queue with its figures, is tried again with growing pauses, and
keeps nobody else waiting.
"""

import pytest
from structlog.testing import capture_logs

from compactor.coordination import Alone
from compactor.daemon.queue_metrics import QueueMetrics
from compactor.errors import UnreachableError
from compactor.metastore.model import Entity
from compactor.reasons import Reason
from compactor.roles.worker.backoff import LONGEST_SECONDS
from compactor.roles.worker.failures import ATTEMPTS, KEY, Failures, StoredFailure, told
from compactor.storage.base import Room
from compactor.storage.registry import storage_for


@pytest.fixture
def full(monkeypatch):
    """Tables below whose names `full` holds have no room; taken back by emptying it."""
    names = {"t"}
    local = type(storage_for("/tmp"))
    room = local.room

    def little(self, location):
        return (
            Room(100, None, "the quota of /w", Reason.QUOTA_EXCEEDED)
            if location.rstrip("/").rpartition("/")[2] in names
            else room(self, location)
        )

    monkeypatch.setattr(local, "room", little)
    return names


def held(world):
    QueueMetrics(world.services).run_once()
    return world.services.metrics.registry.get_sample_value("compactor_held_entries", {"reason": "quota-exceeded"})


def test_what_has_no_room_waits_in_the_queue(any_world, full):
    """
    However often it is tried and the Initiator looks: one entry, which never ends, with the figures where they are
    shown; with room it is compacted.
    """
    world = any_world
    world.services.coordinator = coordinator = Alone()
    world.table(rows=12)
    world.settle_time()
    initiator, worker = world.initiator(), world.worker()
    initiator.run_once()
    for pause in (10, 20, 40, 80, 160, 320, 640, 640):
        said = worker.run_once().sentence
        assert ": given back: quota-exceeded: db.t: a major of all would write about " in said
        assert "the quota of /w" in said
        assert world.states() == ["initiated"]
        initiator.run_once()
        stored = told(coordinator.read(KEY).data)
        assert (stored[1].reason, stored[1].times) == ("quota-exceeded", 0)
        assert "leaves 100" in stored[1].because
        world.clock.forward(pause - 1)
        assert worker.run_once().sentence.startswith(
            "waiting: compaction 1 of db.t waits: db.t: a major of all would write about "
        )
        world.clock.forward(1)
    assert held(world) == 1
    assert world.ended() == []
    assert world.services.backoff.trouble() is None
    full.clear()
    assert "published" in worker.run_once().sentence
    assert held(world) is None
    world.assert_rows()


def test_others_are_compacted_meanwhile(world, full):
    """At once, and by the same worker."""
    for name in ("t", "other"):
        world.table(name, rows=4)
        world.enqueue(Entity("db", name))
    world.settle_time()
    worker = world.worker()
    assert "db.t: given back: quota-exceeded" in worker.run_once().sentence
    assert "db.other: published" in worker.run_once().sentence
    assert worker.run_once().sentence.startswith("waiting: compaction 1 of db.t waits")
    world.assert_rows()


def test_it_is_logged_once(world, full):
    """The first time; afterwards only for those who want everything."""
    world.table(rows=4)
    world.settle_time()
    world.enqueue(Entity("db", "t"))
    worker, levels = world.worker(), []
    for _ in range(3):
        with capture_logs() as lines:
            worker.run_once()
        levels += [
            line["log_level"]
            for line in lines
            if (line["event"], line.get("outcome")) == ("attempt.ended", "given-back")
        ]
        world.clock.forward(2 * LONGEST_SECONDS)
    assert levels == ["info", "debug", "debug"]


def test_no_room_is_not_counted_as_a_failure(world, full):
    """It may wait for ever; and what it waited for isn't shown any more when it ends otherwise."""
    world.services.coordinator = coordinator = Alone()
    world.table(rows=4)
    world.settle_time()
    world.enqueue(Entity("db", "t"))
    worker = world.worker()
    for _ in range(2 * ATTEMPTS):
        assert "given back" in worker.run_once().sentence
        world.clock.forward(2 * LONGEST_SECONDS)
    full.clear()

    def away(_):
        raise UnreachableError("Spark is away")

    world.submitter.before = away
    assert "given back: Spark is away" in worker.run_once().sentence
    assert told(coordinator.read(KEY).data) == {}


def test_what_is_stored_is_told_whatever_its_version(world):
    """
    Fields that aren't ours are passed over; those of entries that left the queue are forgotten with the next note.
    """
    coordinator = Alone()
    coordinator.write(KEY, {"waits": {"77": {"reason": "disk-full"}, "x": {}, "5": 3}, "entries": [], "newer": 1}, None)
    noting = Failures(lambda: coordinator, lambda number: number == 5)
    assert told(coordinator.read(KEY).data) == {77: StoredFailure(reason="disk-full"), 5: StoredFailure()}
    world.table(rows=4)
    world.enqueue(Entity("db", "t"))
    (entry,) = world.services.queue.entries()
    noting.waits(entry, "disk-full", "line one\nline two")
    assert coordinator.read(KEY).data == {
        "waits": {"5": 3, "1": {"reason": "disk-full", "why": "line one line two"}},
        "entries": [],
        "newer": 1,
    }
    noting.count(entry, "broke", died=False)
    assert told(coordinator.read(KEY).data)[1] == StoredFailure(1, "broke", "disk-full", "line one line two")
    assert told(coordinator.read(KEY).data)[1].sentence == "broke down 1 of 3 times, last: broke"
    noting.waits_no_more(entry)
    assert told(coordinator.read(KEY).data)[1] == StoredFailure(1, "broke")


def test_where_nothing_can_be_stored_it_waits_all_the_same(world, full):
    """Nobody is told but the log and the worker's sentence."""

    class Away(Alone):
        def read(self, key):
            raise UnreachableError(f"nobody answers for {key}")

    world.services.coordinator = Away()
    world.services.control = world.new_services().control
    world.table(rows=4)
    world.settle_time()
    world.enqueue(Entity("db", "t"))
    worker = world.worker()
    assert "given back: quota-exceeded" in worker.run_once().sentence
    full.clear()
    world.clock.forward(10)
    assert "published" in worker.run_once().sentence
