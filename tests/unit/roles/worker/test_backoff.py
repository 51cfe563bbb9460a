"""
Backoff: what the worker gives back because something is away doesn't fail, isn't tried without end, and doesn't hold
up the others.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from compactor.daemon.daemon import Daemon
from compactor.errors import RetryableError, UnreachableError
from compactor.metastore.model import Entity
from compactor.roles import steps
from compactor.roles.worker.backoff import LONGEST_SECONDS, Backoff
from compactor.roles.worker.failures import ATTEMPTS
from compactor.roles.worker.worker import Worker

AWAY = UnreachableError("Spark can't be started with master yarn: no ResourceManager")


def breaking(world, error, *tables):
    """Jobs of these tables (or all) raise this."""

    def broken(job):
        if not tables or job.name.rpartition(".")[2] in tables:
            raise error

    world.submitter.before = broken


def mended(world):
    world.submitter.before = lambda _: None


def gauge(world):
    return world.services.metrics.registry.get_sample_value("compactor_worker_given_back_in_a_row")


def test_an_outage_of_spark_takes_no_table_out_of_compaction(world):
    """
    Initiator and Worker in turn while Spark is away, as often as a failed threshold would need: the entry stays; when
    Spark is back it is compacted.
    """
    world.table(rows=12, insert_only=True)
    breaking(world, AWAY)
    initiator, worker = world.initiator(), world.worker()
    for _ in range(2 * ATTEMPTS):
        world.settle_time()
        initiator.run_once()
        assert f"given back: {AWAY}" in worker.run_once().sentence
        assert world.states() == ["initiated"]
        world.clock.forward(2 * LONGEST_SECONDS)
    assert world.ended() == []
    mended(world)
    assert "published base_0000012_v" in worker.run_once().sentence
    world.assert_rows()


def test_an_outage_does_not_flush_the_queue(world):
    """Three entries, one worker, Spark away: after the first the worker pauses and says why; no entry ends."""
    for name in "abc":
        table = world.table(name, rows=4, insert_only=True)
        world.enqueue(Entity("db", table.name))
    world.settle_time()
    breaking(world, AWAY)
    worker = world.worker()
    assert "compaction 1 of db.a: given back" in worker.run_once().sentence
    said = worker.run_once().sentence
    assert said == f"waiting: compaction 1 of db.a was given back: {AWAY}; next try in 5 s"
    assert world.states() == ["initiated"] * 3
    assert world.ended() == []
    assert len(world.submitter.jobs) == 1


def test_pauses_grow_and_end_with_the_first_success(world):
    """
    10, 20, 40 … seconds between tries of the same entry, never more than twice the longest pause; the metric counts up,
    and falls to 0 with a compaction.
    """
    world.table(rows=4, insert_only=True)
    world.settle_time()
    world.enqueue(Entity("db", "t"))
    breaking(world, AWAY)
    worker = world.worker()
    for times, pause in enumerate([10, 20, 40, 80, 160, 320, 640, 640], 1):
        assert "given back" in worker.run_once().sentence
        assert gauge(world) == times
        assert f"{times} given back in a row" in (world.services.backoff.trouble() or "")
        world.clock.forward(pause - 1)
        assert worker.run_once().sentence.startswith("waiting: ")
        world.clock.forward(1)
    mended(world)
    assert "published" in worker.run_once().sentence
    assert gauge(world) == 0
    assert world.services.backoff.trouble() is None


def test_several_at_once_are_one_failure(world):
    """
    All workers wait for the same start, or lose the same session: their entries were claimed before the pause, which is
    as long as for one of them.
    """
    for name in "abc":
        world.table(name, rows=4, insert_only=True)
        world.enqueue(Entity("db", name))
    world.settle_time()
    others = [world.worker(2), world.worker(3)]

    def broken(job):
        if others:
            others.pop().run_once()
        raise AWAY

    world.submitter.before = broken
    worker = world.worker()
    worker.run_once()
    assert world.states() == ["initiated"] * 3
    assert gauge(world) == 3
    assert worker.run_once().sentence.endswith("next try in 5 s")


def test_others_get_their_turn(world):
    """
    One table's file system is away: after a short pause the next entry is compacted, and so all is well; the first
    comes back in its own time.
    """
    for name in ("bad", "good", "fine"):
        world.table(name, rows=4, insert_only=True)
        world.enqueue(Entity("db", name))
    world.settle_time()
    breaking(world, UnreachableError("can't read '/mnt/bad'"), "bad")
    worker = world.worker()
    assert "db.bad: given back" in worker.run_once().sentence
    world.clock.forward(5)
    assert "db.good: published" in worker.run_once().sentence
    assert world.services.backoff.trouble() is None
    assert "db.fine: published" in worker.run_once().sentence
    assert (
        worker.run_once().sentence
        == "waiting: compaction 1 of db.bad was given back: can't read '/mnt/bad'; next try in 5 s"
    )
    world.clock.forward(5)
    assert "db.bad: given back" in worker.run_once().sentence


def test_what_breaks_down_again_and_again_fails(world):
    """An executor that is killed each time: the third time the entry fails, and its message tells how often."""
    world.table(rows=4, insert_only=True)
    world.settle_time()
    world.enqueue(Entity("db", "t"))
    breaking(world, RetryableError("Spark job here-compactor-db.t failed: ExecutorLostFailure"))
    worker = world.worker()
    for _ in range(ATTEMPTS - 1):
        assert "given back" in worker.run_once().sentence
        world.clock.forward(2 * LONGEST_SECONDS)
    assert "failed: " in worker.run_once().sentence
    assert world.ended() == [("failed", "Spark job here-compactor-db.t failed: ExecutorLostFailure (3 times in a row)")]


def test_what_is_away_never_counts(world):
    """Unreachable ten times, broken down twice: not given up."""
    world.table(rows=4, insert_only=True)
    world.settle_time()
    world.enqueue(Entity("db", "t"))
    worker = world.worker()
    for error in [AWAY] * 5 + [RetryableError("x")] + [AWAY] * 5 + [RetryableError("x")]:
        breaking(world, error)
        assert "given back" in worker.run_once().sentence
        world.clock.forward(2 * LONGEST_SECONDS)
    mended(world)
    assert "published" in worker.run_once().sentence


def test_a_deadlock_after_planning_is_no_failure(world):
    """Nothing was written: the entry goes back, and is compacted when its turn comes again."""
    world.table(rows=4, insert_only=True)

    def deadlock() -> None:
        raise RetryableError("metastore database: deadlock detected")

    world.at_step[steps.WORKER_PLANNED] = deadlock
    world.settle_time()
    world.enqueue(Entity("db", "t"))
    worker = world.worker()
    assert "given back: metastore database: deadlock detected" in worker.run_once().sentence
    world.at_step.clear()
    world.clock.forward(10)
    assert "published" in worker.run_once().sentence
    world.assert_rows()


@pytest.mark.parametrize("pool", [None, "etl"])
def test_who_finds_nothing_while_another_tries_again_takes_nothing_for_well(world, pool):
    """
    A start that takes minutes to fail: another worker, also one of another pool, looks meanwhile. Readiness still
    tells, and pauses go on growing.
    """
    world.table(rows=4, insert_only=True)
    world.settle_time()
    world.enqueue(Entity("db", "t"))
    other = Worker(world.services, 2, pool)
    said = []

    def broken(job):
        said.append(other.run_once().sentence)
        world.services.shared_looks.over()  # which lasts less than a second
        raise AWAY

    world.submitter.before = broken
    worker = world.worker()
    pauses = []
    for number in range(3):
        assert "given back" in worker.run_once().sentence
        pauses.append(worker.run_once().sentence.rpartition(" try in ")[2])
        assert world.services.backoff.trouble().startswith(f"{number + 1} given back in a row")
        world.clock.forward(2 * LONGEST_SECONDS)
        assert (
            pool is None or other.run_once().sentence == "nothing is queued"
        )  # the entry's time has come, and it is for the other pool's worker
        world.services.shared_looks.over()
    assert pauses == ["5 s", "10 s", "20 s"]
    assert set(said) == {"nothing is queued"}


@pytest.mark.parametrize("end", ["cancelled", "done elsewhere", "left out"])
def test_an_entry_that_left_the_queue_is_not_waited_for(world, end):
    """
    Somebody cancelled it, another daemon did it, or a reload leaves it to others: when its time has come and nothing is
    there, all is well.
    """
    world.table(rows=4, insert_only=True)
    world.settle_time()
    world.enqueue(Entity("db", "t"))
    breaking(world, AWAY)
    worker = world.worker()
    assert "given back" in worker.run_once().sentence
    (entry,) = world.services.queue.entries()
    if end == "cancelled":
        world.services.queue.cancel(entry.id, "not needed")
    elif end == "left out":
        world.configure(control={"only": ["shop.*"]})
    else:
        world.services.queue.mark_failed(world.services.queue.claim("x-1", "1"), "x")
    world.clock.forward(10)
    assert worker.run_once().sentence == "nothing is queued"
    assert world.services.backoff.trouble() is None
    looks = []
    world.services.backoff.claim(None, lambda *look: looks.append(look))
    assert looks == [(frozenset(), None)], "who is idle asks once, as if nothing had been"


def test_what_does_not_come_back_is_forgotten(world):
    """A day after its time somebody else has it, or it is gone; whether something was away, or it only had to wait."""
    world.table(rows=4, insert_only=True)
    world.enqueue(Entity("db", "t"))
    (entry,) = world.services.queue.entries()
    backoff = Backoff(world.clock)
    for number in range(10):
        (backoff.leave if number % 2 else backoff.given_back)(replace(entry, id=number), AWAY)
        world.clock.forward(25 * 3600)
        assert len(backoff._aside) == 1


def test_readiness_tells(world):
    """`/-/ready` has the reason while entries are given back, and nothing once one was compacted."""
    world.table(rows=4, insert_only=True)
    world.settle_time()
    world.enqueue(Entity("db", "t"))
    daemon = Daemon(world.services.settings)
    daemon._services, daemon._loops = world.services, {"worker-1": SimpleNamespace(working=True)}
    breaking(world, AWAY)
    world.worker().run_once()
    assert daemon.unready() == [f"1 given back in a row, the latest: compaction 1 of db.t was given back: {AWAY}"]
    mended(world)
    world.clock.forward(10)
    world.worker().run_once()
    assert daemon.unready() == []
