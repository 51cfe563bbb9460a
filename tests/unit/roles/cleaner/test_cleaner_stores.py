"""
Cleaner and stores that are away: one call to one of them may take minutes, and entries on others get their turn in
every cycle.
"""

from functools import partial
from itertools import count

import pytest

from compactor.errors import OutcomeUnknownError
from compactor.roles import steps
from compactor.roles.cleaner.cleaner import Cleaner
from compactor.roles.cleaner.schedule import CYCLE_SECONDS
from compactor.roles.services import Services
from tests.unit.roles.dead_store import STORE, DeadStore
from tests.unit.roles.tables import bases, compacted, hidden, visible
from tests.unit.roles.troubled import Troubled


@pytest.fixture
def dead(world, monkeypatch):
    world.configure(cleaner={"threads": 1})
    return DeadStore(world, monkeypatch)


def ready(world, *names):
    """Tables whose compactions may be cleaned."""
    tables = [compacted(world, name=name) for name in names]
    world.settle_time()
    return tables


def left(world):
    return [entry.entity.table for entry in world.services.queue.entries()]


def test_a_store_that_is_away_is_asked_once_in_a_cycle(world, dead):
    """
    What else lies there isn't tried, and the sentence says why; what lies elsewhere is cleaned, though its entry is the
    latest.
    """
    dead.holds(*ready(world, "a", "b", "c"))
    ready(world, "healthy")
    cleaner = Cleaner(world.services)
    sentence = cleaner.run_once().sentence
    assert sentence.startswith("cleaned 1 entry, ")
    assert sentence.endswith(f"2 not tried: {STORE} is away; 1 failed: db.a: no answer for 5 s")
    assert dead.names() == ["a"]
    assert left(world) == ["a", "b", "c"]
    cleaner.run_once()
    cleaner.run_once()
    cleaner.run_once()
    assert dead.names() == ["a", "b", "c", "a"]


def test_a_store_that_was_away_is_asked_after_all_others(world, dead):
    """Asked first it would use up each cycle: a call may take longer than all the time there is."""
    tables = ready(world, "a", "b")
    dead.holds(*tables)
    cleaner = Cleaner(world.services, clock=world.clock)
    dead.before = lambda: world.clock.forward(CYCLE_SECONDS)
    ready(world, "u")
    assert cleaner.run_once().sentence == "2 left for the next cycle; 1 failed: db.a: no answer for 5 s"
    for name in ("v", "w"):
        ready(world, name)
        assert cleaner.run_once().sentence.startswith("cleaned ")
        assert left(world) == ["a", "b"]
    assert dead.names() == ["a", "b", "a"]
    for table in tables:
        dead.gives(table)
    assert cleaner.run_once().sentence.startswith("cleaned 2 entries")


def test_a_backlog_elsewhere_does_not_keep_a_store_from_being_asked(world, dead):
    """When others took all the time its entries are as good as any in the cycle after that: it may be back."""
    dead.holds(*ready(world, "a", "b"))
    cleaner = Cleaner(world.services, clock=world.clock)
    cleaner.run_once()
    ready(world, "u", "v", "w")
    world.at_step[steps.CLEANER_MARKED] = lambda: world.clock.forward(CYCLE_SECONDS)
    assert cleaner.run_once().sentence.endswith("4 left for the next cycle")
    assert dead.names() == ["a"]
    cleaner.run_once()
    assert dead.names() == ["a", "b"]


def test_aborted_writes_on_a_store_that_is_away_are_put_off(world, dead):
    """
    It was found away with the first: the others aren't tried, and all wait for their next time; those elsewhere are
    cleaned.
    """
    tables = {name: world.table(name, rows=1, insert_only=True) for name in ("a", "b", "healthy")}
    for table in tables.values():
        world.aborted_insert(table, [(9, "x")])
    world.settle_time()
    dead.holds(tables["a"], tables["b"])
    world.configure(cleaner={"threads": 1}, initiator={"thresholds": {"aborted_count": 0}})
    cleaner = Cleaner(world.services)
    assert cleaner.run_once().sentence.endswith(
        f"forgot 1 aborted write; 1 not tried: {STORE} is away; 1 failed: db.a: no answer for 5 s"
    )
    assert dead.names() == ["a"]
    assert cleaner.run_once().sentence == "nothing to clean"


def test_aborted_writes_elsewhere_come_before_those_on_a_store_that_was_away(world, dead):
    """Though they are younger: asking the store again may take all the time there is."""
    world.configure(cleaner={"threads": 1}, initiator={"thresholds": {"aborted_count": 0}})
    cleaner = Cleaner(world.services, clock=world.clock)

    def failed_write(name):
        table = world.table(name, rows=1, insert_only=True)
        world.aborted_insert(table, [(9, "x")])
        world.settle_time()
        return table

    dead.holds(failed_write("a"))
    cleaner.run_once()
    dead.holds(failed_write("b"))
    failed_write("healthy")
    dead.before = lambda: world.clock.forward(CYCLE_SECONDS)
    assert "forgot 1 aborted write; 1 failed: db.b: no answer" in cleaner.run_once().sentence
    assert dead.names() == ["a", "b"]


@pytest.mark.parametrize("done", [False, True], ids=["not done", "done"])
def test_a_change_without_an_answer_is_no_failed_attempt(world, monkeypatch, done):
    """
    Each change in turn: the next cycle looks what became of it, and ends the entry; no pause, and nothing given up.
    """
    whole = Services.storage
    for at in count():
        table, counted = compacted(world, name=f"t{at}"), count()
        world.settle_time()
        troubled = partial(
            Troubled, counted=counted, at=at, error=OutcomeUnknownError("no answer"), on=False, done=done
        )
        with monkeypatch.context() as patched:
            patched.setattr(
                Services, "storage", lambda its, location, troubled=troubled: troubled(whole(its, location))
            )
            world.clean()
        if next(counted) <= at:
            break
        world.clean()
        assert left(world) == []
        assert (visible(table), hidden(table)) == (bases(table), [])
        world.assert_rows(table)
    assert at >= 7


@pytest.mark.parametrize("done", [False, True], ids=["not done", "done"])
def test_answers_that_never_come_are_failures(world, monkeypatch, done):
    """The first is looked at in the next cycle; the second in a row is stored, and tried again later."""
    compacted(world)
    world.settle_time()
    whole, never = Services.storage, OutcomeUnknownError("no answer")
    monkeypatch.setattr(
        Services,
        "storage",
        lambda its, location: Troubled(whole(its, location), count(), 0, never, on=True, done=done),
    )
    cleaner = Cleaner(world.services)
    messages = []
    for _ in range(2):
        cleaner.run_once()
        messages.append(world.services.queue.entries()[0].error_message)
    assert messages == [None, "cleaning failed: no answer"]
