"""Spark's session is there before an entry is claimed, and doesn't start for entries that no worker here may take."""

import pytest

from compactor.control import Pause, Scope
from compactor.control.records import HOLDS, Drain, with_drain, with_pause
from compactor.errors import UnreachableError
from compactor.metastore.model import Entity
from compactor.roles.worker.worker import DRAINING, IDLE, STARTING
from tests.unit.roles.world import Inline

ALWAYS = {"name": "always", "begin": "2000-01-01T00:00", "until": "2100-01-01T00:00"}
PAST = {"name": "past", "begin": "2000-01-01T00:00", "until": "2000-01-02T00:00"}
AWAY = "Spark can't be started with master yarn: no ResourceManager"


class Slow(Inline):
    """A session that has to start first: it takes as many looks as a test says, or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.cold, self.looks, self.asked, self.error = True, 2, 0, None

    def warm_up(self, seconds):
        self.asked += 1
        if self.error is not None:
            raise self.error
        self.cold = self.asked < self.looks
        return not self.cold


@pytest.fixture
def cold(world):
    """A table that is due and queued, and a session that isn't there."""
    world.submitter = Slow()
    world.services.submitter = world.submitter
    world.table(rows=4, insert_only=True)
    world.settle_time()
    return world


def held(world, change):
    world.services.coordinator.update(HOLDS, change)
    world.services.control.judge(fresh=True)


def test_the_entry_is_claimed_when_spark_is_there(cold):
    """Until then the entry stays where it is, and the sentence says what the worker waits for."""
    cold.enqueue(Entity("db", "t"))
    assert cold.worker().run_once() == STARTING
    assert cold.states() == ["initiated"]
    assert cold.passed == []
    assert cold.worker().run_once() == STARTING  # it came; whether the entry may be claimed is asked again
    assert cold.states() == ["initiated"]
    assert "published" in cold.worker().run_once().sentence


def test_nothing_is_claimed_when_the_daemon_was_told_to_stop_meanwhile(cold):
    """A start takes a while, in which a TERM, a lost coordinator or another worker's pause may have come."""
    cold.enqueue(Entity("db", "t"))
    cold.submitter.looks = 1
    real = cold.submitter.warm_up

    def told(seconds):
        cold.services.stopping.set()
        return real(seconds)

    cold.submitter.warm_up = told
    worker = cold.worker()
    assert worker.run_once() == STARTING
    assert worker.run_once() == DRAINING
    assert cold.states() == ["initiated"]


def test_an_entry_that_comes_after_the_look_waits_for_spark_too(cold, monkeypatch):
    """Queued between the look and the claim: it isn't claimed without a session."""
    queue = cold.services.queue
    look = queue.claimable

    def then_one_comes(*arguments, **named):
        found = look(*arguments, **named)
        cold.enqueue(Entity("db", "t"))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(queue, "claimable", then_one_comes)
        assert cold.worker().run_once() == IDLE
    assert cold.states() == ["initiated"]
    assert cold.worker().run_once() == STARTING


def test_nothing_starts_for_an_empty_queue(cold):
    """The start waits for an entry."""
    assert cold.worker().run_once() == IDLE
    assert cold.submitter.asked == 0


@pytest.mark.parametrize(
    ("hold", "sections"),
    [
        (lambda data: with_pause(data, Pause(Scope.parse("all"), "why", "ann", 0), 0), {}),
        (lambda data: with_pause(data, Pause(Scope.parse("table:db.t"), "why", "ann", 0), 0), {}),
        (lambda data: with_drain(data, Drain("here", "why", "ann", 0)), {}),
        (None, {"windows": {"blackouts": [ALWAYS]}}),
        (None, {"windows": {"maintenance": [PAST]}}),
        (None, {"control": {"budgets": [{"name": "one", "jobs": 1}]}}),
        (None, {"worker": {"pool": "night"}}),
    ],
    ids=["all", "table", "drained", "blackout", "window", "budget", "pool"],
)
def test_nothing_starts_for_what_may_not_begin(cold, hold, sections):
    """Pauses, drains, windows, budgets and pools count before the start, not only at the claim."""
    cold.enqueue(Entity("db", "u"))
    assert cold.services.queue.claim("another", "1") is not None
    cold.enqueue(Entity("db", "t"))
    cold.configure(**sections)
    if hold is not None:
        held(cold, hold)
    cold.worker().run_once()
    assert cold.submitter.asked == 0
    assert sorted(cold.states()) == ["initiated", "working"]


def test_a_start_that_fails_costs_no_entry_an_attempt(cold):
    """The workers pause together, longer each time, the daemon isn't ready, and the entry wasn't claimed once."""
    cold.enqueue(Entity("db", "t"))
    cold.submitter.error = UnreachableError(AWAY)
    one, two = cold.worker(), cold.worker(2)
    for times, pause in enumerate([5, 10, 20], 1):
        assert one.run_once().sentence == f"waiting: {AWAY}"
        assert two.run_once().sentence == f"waiting: {AWAY}; next try in {pause} s"
        assert cold.services.backoff.in_a_row == times == cold.submitter.asked
        assert AWAY in cold.services.backoff.trouble()
        cold.clock.forward(pause)
    assert cold.states() == ["initiated"]
    assert cold.passed == []
    cold.submitter.error = None
    assert one.run_once() == STARTING
    assert "published" in one.run_once().sentence
    assert cold.services.backoff.trouble() is None
