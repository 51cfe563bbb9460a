"""What is kept of the work on entries, and what happens where it can't be kept."""

import threading

import pytest
from structlog.testing import capture_logs

from compactor.errors import CompactorError, UnreachableError
from compactor.metastore.compaction_queue.work import Work, WorkTable
from compactor.metastore.model import Entity, QueueState
from compactor.planning.document import Prediction
from compactor.roles import steps
from compactor.roles.worker import monitor, work_record
from compactor.roles.worker.work_record import WorkRecord, WorkRecords
from tests.unit.roles.world import Clock, Inline


def only(world):
    """The one compaction that was done: its entry, and the work on it."""
    (entry,) = world.services.queue.entries()
    return entry, world.services.work.find([entry.id])[entry.id]


def test_a_compaction_leaves_what_it_predicted_and_achieved(any_world):
    """Files, bytes and rows before and after, what was copied and recoded, and the seconds of each step."""
    world = any_world
    table = world.table(rows=6)
    world.delete(table, 0, 1)
    before = [path for path in table.location.rglob("*") if path.name.startswith("bucket_")]
    size = sum(path.stat().st_size for path in before)
    assert "published" in world.compact(table)
    entry, stored = only(world)
    work = stored.work
    assert entry.state is QueueState.READY_FOR_CLEANING
    assert stored.start_ms == entry.start_ms
    assert (work.compacted_as, work.share, work.rows_before, work.rows_after) == ("major", 1.0, 6, 4)
    assert (work.files_before, work.files_after, work.bytes_before) == (len(before), 1, size)
    (made,) = table.location.glob("base_*/bucket_*")
    assert work.bytes_after == made.stat().st_size
    assert work.copied_bytes + work.recoded_bytes > 0
    assert work.predicted_files == 1
    assert work.predicted_read > 0
    assert work.predicted_written > 0
    assert world.services.identity.is_mine(work.worker)
    for seconds in (work.planning_seconds, work.writing_seconds, work.checking_seconds, work.publishing_seconds):
        assert seconds >= 0
    assert (work.waiting_seconds is None) == (entry.enqueue_ms is None)
    ratio = world.services.metrics.registry.get_sample_value
    assert ratio("compactor_written_to_predicted_ratio_count", {"kind": "major"}) == 1
    assert ratio("compactor_written_to_predicted_ratio_sum", {"kind": "major"}) == pytest.approx(
        work.bytes_after / work.predicted_written
    )


def test_an_attempt_that_fails_leaves_no_result(world):
    """Nothing was achieved."""
    table = world.table(rows=4)

    def broken():
        raise CompactorError("broken")

    world.at_step[steps.WORKER_RAN] = broken
    assert "failed" in world.compact(table)
    (entry,) = world.services.queue.history()
    assert world.services.work.find([entry.id]) == {}


@pytest.mark.parametrize("error", [CompactorError("permission denied"), UnreachableError("away"), OSError("broken")])
def test_where_nothing_can_be_kept_compactions_go_on(world, table, monkeypatch, error):
    """Of a right that is missing one line tells; the compaction ends as ever."""

    def refuse(*_):
        raise error

    monkeypatch.setattr(WorkTable, "put", refuse)
    with capture_logs() as logged:
        assert "published" in world.compact(table)
        world.insert(table, [(100, "x")])
        world.insert(table, [(101, "x")])
        assert "published" in world.compact(table)
    told = [line for line in logged if line["event"] == "work_record.not_kept" and line["log_level"] == "warning"]
    assert len(told) == (0 if isinstance(error, UnreachableError) else 1)
    assert world.states() == ["ready for cleaning"] * 2
    world.assert_rows()


def test_a_table_that_may_not_be_made_is_looked_for_only(world, monkeypatch):
    """Once it may be there, all is kept."""
    records, made = WorkRecords(world.services.work), []

    def refuse(self):
        made.append(1)
        raise CompactorError("permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("compactor.metastore.db.own_tables.OwnTable.make", refuse)
        for _ in range(3):
            records.keep(1, 1, Work())
    assert len(made) == 1
    world.services.work.put(2, 1, Work())
    records.keep(1, 1, Work(share=0.5))
    assert world.services.work.find([1])[1].work == Work(share=0.5)


class Kept:
    """Takes the place of `WorkRecords`."""

    def __init__(self):
        self.shares = []

    def keep(self, entry_id, start_ms, work):
        self.shares.append(work.share)


class Planned:
    """As much of a plan as is looked at."""

    prediction = Prediction(written=10)


def test_a_share_is_stored_now_and_then(world, table):
    """At the first look after the plan; then at most every ten seconds, and only when it has grown by a tenth."""
    world.enqueue(Entity(table.database, table.name, None))
    entry = world.services.queue.claim("here-1", "1")
    kept, clock = Kept(), Clock()
    record = WorkRecord(kept, entry, "here-1", clock)
    record.keep(0.0)
    assert kept.shares == []
    record.passed(steps.WORKER_PLANNED)
    record.planned(Planned())
    for seconds, share in ((2, 0.0), (2, 0.3), (8, 0.3), (2, 0.35), (20, 0.35), (2, 0.4), (2, 0.9), (9, 1.0)):
        clock.forward(seconds)
        record.keep(share)
    assert kept.shares == [0.0, 0.3, 0.4, 1.0]


class Halfway(Inline):
    """Says that half of a job is done, and runs it when that was seen."""

    def __init__(self, seen):
        super().__init__()
        self._seen = seen

    def run(self, job, function, tasks, *, progress=lambda _: None, cancelled=lambda: False):
        progress(0.5)
        while not self._seen():
            threading.Event().wait(0.01)
        return super().run(job, function, tasks, progress=progress, cancelled=cancelled)


def test_the_monitor_stores_how_far_a_running_compaction_is(world, monkeypatch):
    """While the tasks run the row tells the share, and when the writing will end; then what was achieved."""
    monkeypatch.setattr(monitor, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(work_record, "_AGAIN_SECONDS", 0.0)
    table, shares = world.table(rows=6), []

    def seen():
        (entry,) = world.services.queue.entries(QueueState.WORKING)
        for stored in world.services.work.find([entry.id]).values():
            assert stored.start_ms == entry.start_ms
            shares.append((stored.work.share, stored.expected_end_ms(stored.updated_ms) is not None))
        return (0.5, True) in shares

    world.services.submitter = Halfway(seen)
    assert "published" in world.compact(table)
    assert set(shares) <= {(0.0, False), (0.5, True)}
    assert only(world)[1].work.share == 1.0


def test_the_housekeeper_forgets_what_the_history_has_forgotten(world, table):
    """Whether or not it does Hive's duties."""
    world.configure(housekeeper={"enabled": "never"})
    world.compact(table)
    entry, _ = only(world)
    world.services.work.put(entry.id + 1000, 1, Work())
    assert "forgot the work on 1 entry" in world.housekeeper().run_once().sentence
    assert set(world.services.work.find([entry.id, entry.id + 1000])) == {entry.id}


def test_a_table_that_can_not_be_purged_keeps_no_duty_from_being_done(world, monkeypatch):
    """It is said once."""
    world.configure(housekeeper={"enabled": "always"})
    monkeypatch.setattr(WorkTable, "forget_gone", _denied)
    keeper = world.housekeeper()
    with capture_logs() as logged:
        assert "denied" not in keeper.run_once().sentence
        keeper.run_once()
    assert [line["log_level"] for line in logged if line["event"] == "work_records.not_purged"] == ["warning", "debug"]


def _denied(_):
    raise CompactorError("denied")
