"""Queue metrics: what the metrics tell of the metastore."""

import pytest
from structlog.testing import capture_logs

from compactor.acid.compaction import CompactionKind
from compactor.control import Pause, Scope
from compactor.control.records import HOLDS, with_pause, without_pauses
from compactor.daemon.queue_metrics import QueueMetrics
from compactor.errors import UnreachableError
from compactor.metastore.model import Entity
from tests.metastore.actor import OUTLIVED_MS


def test_aborted_writes_are_counted(world):
    """
    Rows, age and crowded tables are those of aborted writes that nobody cleaned; committed and open writes don't count.
    """
    table = world.table(rows=2)
    for number in range(3):
        world.hive.fall_silent(world.aborted_insert(table, [(number, "never")]), 0)
    value = world.services.metrics.registry.get_sample_value
    QueueMetrics(world.services).run_once()
    assert (value("compactor_aborted_writes"), value("compactor_aborted_writes_oldest_age_seconds")) == (3, 0)
    assert world.services.aborts.totals(3, world.services.settings.cleaner.late_ms).crowded == 0
    world.settle_time()
    QueueMetrics(world.services).run_once()
    assert value("compactor_aborted_writes") == 3
    a_day = (OUTLIVED_MS - world.services.settings.cleaner.late_ms) / 1000
    assert a_day <= (value("compactor_aborted_writes_oldest_age_seconds") or 0) < a_day + 100
    assert value("compactor_tables_with_many_aborted_writes") == 0
    assert world.services.aborts.totals(3, world.services.settings.cleaner.late_ms).crowded == 1


def test_a_database_that_does_not_answer(world, monkeypatch):
    """`compactor_database_up` is 0 while it can't be asked, and 1 again afterwards."""
    queue_metrics = QueueMetrics(world.services)

    def up():
        return world.services.metrics.registry.get_sample_value("compactor_database_up")

    queue_metrics.run_once()
    assert up() == 1

    def away():
        raise UnreachableError("the database is away")

    with monkeypatch.context() as patched:
        patched.setattr(world.services.queue, "entries", away)
        with pytest.raises(UnreachableError):
            queue_metrics.run_once()
        assert up() == 0
    queue_metrics.run_once()
    assert up() == 1


def test_who_works_is_told_while_it_is_known(world, monkeypatch):
    """
    An entry that nobody's workers may take is counted as such; a coordinator that doesn't answer is no fault of the
    database, and no reason to say that nobody works.
    """
    world.table(rows=2)
    world.services.queue.enqueue(Entity("db", "t"), CompactionKind.MAJOR)
    value = world.services.metrics.registry.get_sample_value
    QueueMetrics(world.services).run_once()
    assert value("compactor_held_entries", {"reason": "no-worker"}) == 1

    def away():
        raise UnreachableError("the coordinator is away")

    monkeypatch.setattr(world.services.coordinator, "members", away)
    QueueMetrics(world.services).run_once()
    assert (value("compactor_database_up"), value("compactor_held_entries", {"reason": "no-worker"})) == (1, None)


def test_the_oldest_open_transaction_is_told_whoever_leads(world):
    """
    Its age while it is open and 0 afterwards; a transaction of replication, which stays open for as long as its
    source's, is none.
    """
    value = world.services.metrics.registry.get_sample_value
    queue_metrics = QueueMetrics(world.services)
    forgotten = world.hive.begin(age=7_200_000)
    world.hive.begin(age=1_000_000_000, kind=1)
    queue_metrics.run_once()
    assert 7200 <= (value("compactor_oldest_open_writer_age_seconds") or 0) < 8000
    world.hive.commit(forgotten)
    queue_metrics.run_once()
    assert value("compactor_oldest_open_writer_age_seconds") == 0


def figure(world, name, **labels):
    return world.services.metrics.registry.get_sample_value(f"compactor_{name}", labels)


def test_a_compaction_that_nobody_cleans_is_told_whatever_the_reason(any_world):
    """How long it could have been cleaned, the retention left out; 0 once it is, and of a pause that is meant."""
    world = any_world
    table = world.table(rows=4, insert_only=True)
    world.compact(table)
    queue_metrics = QueueMetrics(world.services)
    queue_metrics.run_once()
    queue = world.database.schema.compaction_queue
    if "cq_commit_time" in queue.c:
        world.hive.change(queue.update().values(cq_commit_time=queue.c.cq_commit_time - 90_000_000))
    else:  # 3.1 doesn't note it: since it was seen first
        queue_metrics._seen_ms = {key: seen - 90_000_000 for key, seen in queue_metrics._seen_ms.items()}
    queue_metrics.run_once()
    assert 90_000 <= (figure(world, "cleaning_overdue_seconds") or 0) < 91_000
    world.configure(cleaner={"retention_seconds": 86_400})
    queue_metrics.run_once()
    assert 3_600 <= (figure(world, "cleaning_overdue_seconds") or 0) < 4_600
    pause = Pause(Scope.parse("all"), "why", "ann", 0, cleaner=True)
    world.services.coordinator.update(HOLDS, lambda data: with_pause(data, pause, 0))
    world.services.control.judge(fresh=True)
    queue_metrics.run_once()
    assert figure(world, "cleaning_overdue_seconds") == 0


def test_who_waited_on_purpose_is_young_when_the_wait_is_over(world):
    """A queue that waited for its window is neither old nor long in the minute in which the window opens."""
    world.hive.queued("db.t", enqueue_time=world.services.now_ms() - 50_000_000)
    queue_metrics = QueueMetrics(world.services)
    queue_metrics.run_once()
    assert (figure(world, "queue_oldest_age_seconds", state="initiated") or 0) >= 50_000
    assert figure(world, "claimable_entries") == 1
    pause = Pause(Scope.parse("all"), "why", "ann", 0)
    world.services.coordinator.update(HOLDS, lambda data: with_pause(data, pause, 0))
    world.services.control.judge(fresh=True)
    queue_metrics.run_once()
    assert figure(world, "queue_oldest_age_seconds", state="initiated") == figure(world, "claimable_entries") == 0
    assert figure(world, "queue_entries", state="initiated", kind="major") == 1
    assert figure(world, "held_entries", reason="paused") == 1
    world.services.coordinator.update(HOLDS, lambda data: without_pauses(data, frozenset({"all"}), 0))
    world.services.control.judge(fresh=True)
    queue_metrics.run_once()
    assert (figure(world, "queue_oldest_age_seconds", state="initiated") or 0) < 1000
    assert figure(world, "claimable_entries") == 1
    assert figure(world, "held_entries", reason="paused") is None


def test_what_is_left_to_hive_is_counted_and_said_once(world):
    """
    Types and states that a later Hive wrote; a rebalance that waits for Hive's own workers is held on purpose: its age
    wakes nobody.
    """
    world.hive.queued(type="*")
    world.hive.queued("db.x", type="*", state="w")
    world.hive.queued("db.y", state="?")
    world.hive.queued("db.z", type="r", enqueue_time=0)
    queue_metrics = QueueMetrics(world.services)
    with capture_logs() as logs:
        for _ in range(2):
            queue_metrics.run_once()
    assert [(line["type"], line["state"]) for line in logs if line["event"] == "entry.left_to_hive"] == [
        ("*", "i"),
        ("a", "?"),
    ]
    assert (figure(world, "foreign_entries", type="*"), figure(world, "foreign_entries", type="a, state ?")) == (2, 1)
    assert figure(world, "held_entries", reason="unsupported-kind") == 1
    assert figure(world, "queue_oldest_age_seconds", state="initiated") == 0
    assert figure(world, "claimable_entries") == 0
