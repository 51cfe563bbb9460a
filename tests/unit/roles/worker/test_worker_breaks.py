"""
Worker: a job that breaks, is cancelled, or whose table or claim is taken away leaves nothing and publishes nothing.
"""

import shutil
import threading

import pytest
from sqlalchemy import update

from compactor.errors import RetryableError, UnreachableError
from compactor.roles import steps
from compactor.roles.housekeeper.recovery import Recovery
from compactor.roles.worker.cancellation import DrainedError
from compactor.spark.submitter import BrokenDownError
from tests.demo.rows import CatalogRows
from tests.metastore.actor import T
from tests.unit.roles.tables import hidden


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (RetryableError("Spark's JVM died"), "given back: Spark's JVM died"),
        (UnreachableError("Java isn't installed"), "given back: Java isn't installed"),
        (ValueError("a bug"), "failed: ValueError: a bug"),
        (OSError("disk on fire"), "failed: OSError: disk on fire"),
    ],
)
def test_a_broken_job_leaves_nothing(any_world, error, end):
    """
    Whatever the job raises: staging is gone, the transaction is rolled back and forgotten, the files are untouched.
    """
    world = any_world
    table = world.table(rows=4, insert_only=True)
    names = world.names(table.location)

    def broken(_: object) -> None:
        raise error

    world.submitter.before = broken
    assert world.compact(table).endswith(end)
    assert world.names(table.location) == names
    assert world.states() == (["initiated"] if end.startswith("given back") else [])
    assert world.services.locks.all() == []
    assert world.services.transactions.open_transactions() == []
    assert world.components() <= {"c"}
    world.assert_rows()


def test_a_drained_worker_gives_its_entry_back(world, table):
    """
    Cancelled because the daemon stops: the entry is initiated again, nothing is left, and the next worker does it.
    """
    worker = world.worker()
    world.submitter.before = lambda _: worker.cancel(DrainedError("the daemon stops"))
    world.settle_time()
    world.enqueue(T)
    assert worker.run_once().sentence.endswith("given back: the daemon stops")
    assert world.states() == ["initiated"]
    assert hidden(table) == []
    world.submitter.before = lambda _: None
    assert "published base_0000004_v" in world.worker(2).run_once().sentence
    world.assert_rows()


class SignalledWhileWaiting(threading.Event):
    """The signal that ended Spark reaches this process a moment later."""

    def wait(self, timeout: float | None = None) -> bool:
        self.set()
        return super().wait(timeout)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_session_that_ends_with_the_daemon_gives_the_entry_back(any_world, when):
    """
    TERM went to all processes at once, and Spark's JVM died of it: not the compaction's fault, so it is undone and
    given back, not failed.
    """
    world = any_world
    table = world.table(rows=4, insert_only=True)
    names = world.names(table.location)
    if when == "after":
        world.services.stopping = SignalledWhileWaiting()

    def broken(_: object) -> None:
        if when == "before":
            world.services.stopping.set()
        raise BrokenDownError("Spark's JVM died")

    world.submitter.before = broken
    assert world.compact(table).endswith("given back: Spark's JVM died")
    assert world.states() == ["initiated"]
    assert world.names(table.location) == names
    assert world.components() <= {"c"}


def test_out_of_time(world, table):
    """`worker.timeout_hours` fails the entry."""
    world.configure(worker={"timeout_hours": 1e-9})
    assert "failed: timed out" in world.compact(table)
    assert hidden(table) == []


def test_a_transaction_that_was_taken_away_ends_the_compaction(world, table):
    """Timed out by housekeeping while the job ran: nothing is published, the entry fails, the files stay."""
    names = world.names(table.location)

    def reap(_: object) -> None:
        (open_one,) = world.services.transactions.open_transactions()
        world.services.transactions.abort(open_one.txn_id, "timed out")

    world.submitter.before = reap
    assert "was ended by another process" in world.compact(table)
    assert world.ended()[0][0] == "failed"
    assert world.names(table.location) == names


def test_a_lost_heartbeat_cancels_the_job(world, table):
    """The heartbeat finds the transaction gone while Spark works: the job is cancelled, not waited for."""
    cancelled = threading.Event()

    def reap_and_wait(_: object) -> None:
        (open_one,) = world.services.transactions.open_transactions()
        world.services.transactions.abort(open_one.txn_id, "timed out")
        assert worker._cancellation is not None
        for _ in range(2000):
            if worker._cancellation():
                cancelled.set()
                return
            threading.Event().wait(0.01)

    world.configure(worker={"heartbeat_seconds": 0.01})
    worker = world.worker()
    world.submitter.before = reap_and_wait
    world.settle_time()
    world.enqueue(T)
    assert "was ended by another process" in worker.run_once().sentence
    assert cancelled.is_set()


def test_a_claim_that_was_taken_away_is_not_published(any_world):
    """Somebody else owns the entry by now: nothing becomes visible and the entry isn't touched."""
    world = any_world
    table = world.table(rows=4, insert_only=True)
    names = world.names(table.location)
    queue = world.database.schema.compaction_queue
    world.submitter.before = lambda _: world.hive.change(update(queue).values(cq_worker_id="somebody-else"))
    sentence = world.compact(table)
    assert ": lost: " in sentence
    assert "with worker somebody-else" in sentence
    assert world.names(table.location) == names
    assert world.states() == ["working"]


@pytest.mark.parametrize("what", ["dropped", "re-created", "rewritten", "truncated"])
def test_a_table_that_changes_under_the_job_is_not_published(any_world, what):
    """
    Dropped, dropped and created again, a file replaced, or emptied while the job ran: the compaction fails, and what is
    there stays.
    """
    world = any_world
    table = world.table(rows=4, insert_only=True)
    catalog = CatalogRows(world.database)

    def change(_: object) -> None:
        match what:
            case "dropped":
                catalog.drop_table(table)
            case "re-created":
                world.table("other", rows=0)
                catalog.drop_table(table)
                catalog.add_table(table)
            case "rewritten":
                file = next(table.location.glob("delta_0000001_0000001*/0*"))
                content = file.read_bytes()
                file.unlink()
                file.write_bytes(content + b"x")
            case "truncated":
                for file in table.location.glob("delta_*/0*"):
                    file.unlink()

    world.submitter.before = change
    sentence = world.compact(table)
    assert (
        ": failed: input-changed: " in sentence
        or "No such file" in sentence
        or "gone" in sentence
        or "corrupt" in sentence
    ), sentence
    assert not [name for name in world.names(table.location) if name.startswith(("base_", "."))]


def test_a_database_that_is_dropped_under_the_job_is_not_waited_for(world, table):
    """
    Its directory and the one above are gone, as when nothing is mounted; but the catalog doesn't know the table any
    more.
    """

    def dropped(_: object) -> None:
        CatalogRows(world.database).drop_table(table)
        shutil.rmtree(table.location.parent)

    world.submitter.before = dropped
    assert ": failed: " in world.compact(table)
    assert world.worker().run_once().sentence == "nothing is queued"


def test_a_sleeper_finds_no_source_for_its_rename(any_world):
    """
    Everything is staged and checked; the claim is taken for dead, cleared up and given back; what the sleeper does next
    harms nobody.
    """
    world = any_world
    table = world.table(rows=4, insert_only=True)
    names = world.names(table.location)

    def given_away() -> None:
        (entry,) = world.services.queue.entries()
        recovery = Recovery(world.services)
        assert recovery.clear(entry)
        world.services.queue.give_back(entry)

    world.at_step[steps.WORKER_VERIFIED] = given_away
    world.compact(table)
    assert world.names(table.location) == names
    assert world.states() == ["initiated"]
    world.at_step.clear()
    world.settle_time()
    assert "published" in world.worker(2).run_once().sentence
    world.settle_time()
    world.assert_rows()
