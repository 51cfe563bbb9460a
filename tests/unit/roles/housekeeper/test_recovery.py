"""
Giving back claims of the dead in rounds that end: a store that is away, or a great many claims, keep nobody from other
duties, and everybody gets a turn.
"""

import pytest
from structlog.testing import capture_logs

from compactor.metastore.housekeeping import Duty
from compactor.roles import steps
from compactor.roles.cycle import Progress
from compactor.roles.housekeeper.recovery import ROUND_SECONDS, Recovery
from tests.unit.roles.dead_store import DeadStore

DEAD = "compactor-here-" + "0" * 32 + "-1"


@pytest.fixture
def dead(world, monkeypatch):
    return DeadStore(world, monkeypatch)


def claimed(world, *names):
    """Tables with a claim of a worker that is dead."""
    tables = [world.table(name, rows=1) for name in names]
    for name in names:
        world.hive.queued(f"db.{name}", state="w", worker_id=DEAD, start=world.services.now_ms(), highest_write_id=1)
    world.services.identity._path("0" * 32).touch()
    return tables


def freed(recovery):
    return [entry.entity.table for entry in recovery.give_back_claims_of_the_dead()]


def test_a_store_that_is_away_is_asked_once_in_a_round(world, dead):
    """
    The claim on another store is given back; of those on this one another is tried each time, and all stay claimed.
    """
    a, b, _ = claimed(world, "a", "b", "c")
    dead.holds(a, b)
    recovery = Recovery(world.services)
    assert freed(recovery) == ["c"]
    assert freed(recovery) == []
    assert freed(recovery) == []
    assert dead.names() == ["a", "b", "a"]
    assert world.states() == ["working", "working", "initiated"]
    dead.gives(a)
    dead.gives(b)
    assert freed(recovery) == ["b", "a"]
    assert not world.services.identity._path("0" * 32).exists()


def test_a_round_ends_and_the_next_one_goes_on(world, dead):
    """Claims that can't be given back don't take all the time there is, again and again."""
    a, b, *_ = claimed(world, "a", "b", "c", "d")
    dead.holds(a, b)
    dead.before = lambda: world.clock.forward(ROUND_SECONDS)
    recovery = Recovery(world.services, clock=world.clock)
    assert freed(recovery) == []
    assert freed(recovery) == []
    assert dead.names() == ["a", "b"]
    assert freed(recovery) == ["c", "d"]
    assert world.services.identity._path("0" * 32).exists()


def test_a_drain_begins_no_other_claim(world):
    """What was begun is ended; the rest is the next daemon's."""
    claimed(world, "a", "b")
    world.at_step[steps.RECOVERY_UNSTAGED] = world.services.stopping.set
    assert freed(Recovery(world.services)) == ["a"]
    assert world.states() == ["initiated", "working"]


def test_every_claim_is_progress(world, dead):
    """Whether it could be given back or not: a round that gets on isn't stuck."""
    (a, _) = claimed(world, "a", "b")
    dead.holds(a)
    told = []

    class Told(Progress):
        def made(self):
            told.append(world.states().count("initiated"))

    Recovery(world.services, Told()).give_back_claims_of_the_dead()
    assert told == [0, 0]


def test_what_waits_for_a_store_is_told_once(world, dead):
    """A claim that nobody tried is no news, nor that the store is away for longer by now."""
    dead.holds(*claimed(world, "a", "b"))
    recovery = Recovery(world.services)
    with capture_logs() as lines:
        for _ in range(4):
            recovery.give_back_claims_of_the_dead()
    assert [line["log_level"] for line in lines].count("warning") == 2


def test_duties_are_done_while_claims_wait(world, dead, monkeypatch):
    """A warehouse that is away isn't a metastore that nobody keeps."""
    dead.holds(*claimed(world, "a", "b"))
    done = []
    monkeypatch.setattr(world.services.housekeeping, "run", lambda duty, **_: done.append(duty) or 0)
    assert world.housekeeper().run_once().sentence == "nothing to keep"
    assert done == list(Duty)
    assert dead.names() == ["a"]
