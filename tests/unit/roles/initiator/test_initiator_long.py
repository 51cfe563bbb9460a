"""
Initiator: a cycle ends in time, and what it didn't come to is looked at in the next one: by whoever leads then, and
nothing is lost.
"""

import pytest

from compactor.errors import UnreachableError
from compactor.roles.cycle import Progress
from compactor.roles.initiator import initiator as module
from compactor.roles.initiator import spread
from compactor.roles.initiator.initiator import CYCLE_SECONDS, Initiator
from tests.unit.roles.dead_store import DeadStore
from tests.unit.roles.test_pauses import pause, resume

NAMES = ("a", "b", "c", "d", "e")


@pytest.fixture
def slow(world, monkeypatch):
    """There is time for two partitions in a cycle; each call adds the table's name to the list."""
    judged = []
    verdict_on = module.verdict_on

    def judging(services, subject, *rest):
        judged.append(subject.candidate.entity.table)
        world.clock.forward(CYCLE_SECONDS / 2)
        return verdict_on(services, subject, *rest)

    monkeypatch.setattr(module, "verdict_on", judging)
    world.configure(initiator={"thresholds": {"delta_count": 1}})
    return judged


def due(world, *names):
    """Tables that are due, and one that isn't where the name says so."""
    for name in names:
        world.table(name, rows=1 if name.startswith("quiet") else 2)
    world.settle_time()


def begin(world, services=None):
    return Initiator(services or world.services, clock=world.clock)


def to_the_end(initiator):
    """Cycles until one has left nothing."""
    assert any("left for the next cycle" not in initiator.run_once().sentence for _ in range(10))


def queued(world):
    return sorted(entry.entity.table for entry in world.services.queue.entries())


def test_what_a_cycle_did_not_come_to_is_next(world, slow):
    """
    Two in each cycle, none twice, without another full scan; Hive's own Initiator isn't told of a completed cycle
    before all were looked at.
    """
    due(world, *NAMES)
    before = world.services.initiating.last_cycle_ms()
    initiator = begin(world)
    assert initiator.run_once().sentence == "full scan: queued 2 of 5 candidates, 2 listed, 3 left for the next cycle"
    assert len(queued(world)) == 2
    assert initiator.run_once().sentence == "queued 2 of 5 candidates, 2 listed, 1 left for the next cycle"
    assert world.services.initiating.last_cycle_ms() == before
    assert initiator.run_once().sentence == "queued 1 of 5 candidates, 1 listed"
    assert world.services.initiating.last_cycle_ms() != before
    assert sorted(slow) == queued(world) == list(NAMES)


def test_what_was_left_comes_before_what_is_new(world, slow):
    """New writes all the time don't keep an old one waiting for ever."""
    due(world, *NAMES)
    initiator = begin(world)
    initiator.run_once()
    due(world, "a1", "a2", "a3")
    initiator.run_once()
    initiator.run_once()
    assert set(slow[:5]) == set(NAMES)
    initiator.run_once()
    assert sorted(slow) == queued(world) == sorted({*NAMES, "a1", "a2", "a3"})


def test_a_cycle_that_fails_loses_nothing_that_was_left(world, slow, monkeypatch):
    """It broke before anything was queued: the same is left as before it, and what it had judged is judged again."""
    due(world, *NAMES)
    initiator = begin(world)
    initiator.run_once()
    with monkeypatch.context() as patched:
        patched.setattr(initiator, "_enqueue", _away)
        with pytest.raises(UnreachableError):
            initiator.run_once()
    to_the_end(initiator)
    assert queued(world) == list(NAMES)


def _away(*_):
    raise UnreachableError("the metastore is away")


def test_leadership_that_moves_loses_nothing(world, slow):
    """
    Each daemon goes by its own looks: whichever leads last comes to all that was written, before, between and while the
    other led, and nothing is queued twice.
    """
    other_services = world.new_services(initiator={"thresholds": {"delta_count": 1}})
    due(world, *NAMES)
    here, there = begin(world), begin(world, other_services)
    assert "3 left" in here.run_once().sentence
    due(world, "f")
    assert "2 left" in there.run_once().sentence
    due(world, "g")
    to_the_end(here)
    assert queued(world) == [*NAMES, "f", "g"]
    due(world, "h")
    to_the_end(there)
    assert queued(world) == [*NAMES, "f", "g", "h"]
    due(world, "i")
    here.run_once()
    assert queued(world) == [*NAMES, "f", "g", "h", "i"]


def test_a_new_leader_does_not_count_on_what_another_had_judged(world, slow):
    """The first one ends for good with three of them left: its successor's first look is at everything."""
    due(world, *NAMES)
    begin(world).run_once()
    there = begin(world, world.new_services(initiator={"thresholds": {"delta_count": 1}}))
    to_the_end(there)
    assert queued(world) == list(NAMES)


def test_a_drain_does_not_wait_for_the_cycle(world, slow):
    """What was judged is queued, nothing else is begun."""
    due(world, *NAMES)
    world.clock.forward = lambda _: world.services.stopping.set()
    assert (
        begin(world).run_once().sentence == "full scan: queued 1 of 5 candidates, 1 listed, 4 left for the next cycle"
    )
    assert len(slow) == 1


def test_whole_batches_are_left_without_a_look_at_the_catalog(world, slow, monkeypatch):
    """Past its end a cycle asks the metastore for nothing more than it must; one batch was read ahead by then."""
    monkeypatch.setattr(module, "_AT_ONCE", 1)
    due(world, *NAMES)
    asked = []
    places_for = world.services.catalog.places_for
    monkeypatch.setattr(
        world.services.catalog,
        "places_for",
        lambda entities: places_for(asked.extend(found := list(entities)) or found),
    )
    initiator = begin(world)
    assert initiator.run_once().sentence.endswith("3 left for the next cycle")
    assert len(asked) in {2, 3}
    initiator.run_once()
    assert initiator.run_once().sentence.startswith("queued 1 of 5")
    assert queued(world) == list(NAMES)


def test_what_was_left_alone_is_known_through_a_look_of_several_cycles(world, slow):
    """Neither the cycles that go on nor the next full scan list it again, and what is gone by then is forgotten."""
    names = [f"quiet{number}" for number in range(5)]
    due(world, *names)
    initiator = begin(world)
    to_the_end(initiator)
    assert sorted(slow) == names
    world.configure(initiator={"thresholds": {"delta_count": 1}, "full_scan_seconds": 0.001, "interval_seconds": 0.001})
    assert initiator.run_once().sentence == "full scan: queued 0 of 5 candidates, 0 listed"
    assert len(initiator._unchanged._left) == 5


def test_what_a_full_scan_has_not_met_yet_is_still_known(world, slow, monkeypatch):
    """Its first cycle ended with what is new: what was left alone by an earlier scan isn't listed again for that."""
    monkeypatch.setattr(module, "_AT_ONCE", 1)
    names = [f"quiet{number}" for number in range(3)]
    due(world, *names)
    initiator = begin(world)
    to_the_end(initiator)
    due(world, "a", "b")
    slow.clear()
    world.configure(initiator={"thresholds": {"delta_count": 1}, "full_scan_seconds": 0.001, "interval_seconds": 0.001})
    assert initiator.run_once().sentence == "full scan: queued 2 of 5 candidates, 2 listed, 3 left for the next cycle"
    world.configure(initiator={"thresholds": {"delta_count": 1}})
    assert initiator.run_once().sentence == "queued 0 of 5 candidates, 0 listed"
    assert slow == ["a", "b"]


def test_a_full_scan_that_is_due_while_one_goes_on_begins_with_what_was_left(world, slow):
    """Or the first ones would be looked at again and again, and the last ones never."""
    world.configure(
        initiator={"thresholds": {"delta_count": 99}, "full_scan_seconds": 0.001, "interval_seconds": 0.001}
    )
    due(world, *NAMES)
    initiator = begin(world)
    assert initiator.run_once().sentence == "full scan: queued 0 of 5 candidates, 2 listed, 3 left for the next cycle"
    assert initiator.run_once().sentence == "full scan: queued 0 of 5 candidates, 2 listed, 1 left for the next cycle"
    assert initiator.run_once().sentence == "full scan: queued 0 of 5 candidates, 1 listed"
    assert sorted(slow) == list(NAMES)


def test_what_a_pause_covered_in_a_look_of_several_cycles_is_found_after_it(world, slow):
    """
    It was passed over in the first of them: when the pause is over, the next cycle looks at everything, and first at
    what was left.
    """
    due(world, *NAMES)
    pause(world, "table:db.a")
    initiator = begin(world)
    assert "left" in initiator.run_once().sentence
    resume(world, "table:db.a")
    to_the_end(initiator)
    assert queued(world) == list(NAMES)


def test_every_partition_is_progress(world, monkeypatch):
    """
    The loop hears of it from the threads that list, too: a warehouse that takes hours isn't one thing that is stuck.
    """
    monkeypatch.setattr(spread, "_ENOUGH", -1.0)
    due(world, *NAMES)
    told = []

    class Told(Progress):
        def made(self):
            told.append(None)

    Initiator(world.services, Told()).run_once()
    assert len(told) >= len(NAMES)


def test_a_store_that_is_away_is_asked_once_in_a_cycle(world, monkeypatch):
    """What else lies there is looked at again in the next cycle, after all others; what lies elsewhere is queued."""
    dead = DeadStore(world, monkeypatch)
    world.configure(initiator={"thresholds": {"delta_count": 1}, "full_scan_seconds": 0.001, "interval_seconds": 0.001})
    dead.holds(*(world.table(name, rows=2) for name in ("a", "b")))
    due(world, "c")
    initiator = begin(world)
    assert (
        "queued 1 of 3 candidates, 3 listed, 2 could not be judged (no answer for 5 s)" in initiator.run_once().sentence
    )
    assert len(dead.asked) == 1
    dead.before = lambda: world.clock.forward(CYCLE_SECONDS)
    due(world, "d")
    assert (
        "queued 1 of 4 candidates, 2 listed, 1 could not be judged (no answer for 10 s), 1 left for the next cycle"
        in initiator.run_once().sentence
    )
    assert queued(world) == ["c", "d"]
    assert world.ended() == []
