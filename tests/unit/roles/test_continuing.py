"""A compaction that was too large for one: the worker queues part after part until all of it is done."""

import pytest

from compactor.metastore.model import Entity, QueueState
from compactor.planning.document import Parts
from compactor.roles.continuing import Continuing
from tests.unit.roles.world import Clock


@pytest.mark.parametrize("kind", ["major", "minor"])
def test_parts_follow_each_other(any_world, kind):
    """Each is an entry of its own, after it was said what it was; the Cleaner comes in between or not at all; the rows stay."""
    world = any_world
    world.configure(limits={"deltas": 3})
    table = world.table(rows=8)
    before = world.rows(table)
    world.settle_time()
    assert world.enqueue(Entity("db", "t"), kind).accepted
    worker, said = world.worker(), []
    while (sentence := worker.run_once()) != "nothing is queued" or world.services.queue.entries(QueueState.READY_FOR_CLEANING):
        said.append(sentence)
        world.clean()
    assert "planned in" in said[0]
    assert "because 8 deltas are more than limits.deltas = 3; now a minor of 3 deltas, write ids 1 to 3" in said[0]
    assert world.rows(table) == before
    names = world.names(table.location)
    assert len(names) == 1
    assert names[0].startswith("base_0000008" if kind == "major" else "delta_0000001_0000008")
    assert {state for state, _ in world.ended()} == {"succeeded"}


def test_a_part_that_needs_room_waits_for_the_cleaner(world):
    """Its predecessor's inputs are still there: not before they are removed."""
    table = world.table(rows=4)
    size = sum(path.stat().st_size for path in table.location.glob("delta_*/bucket*"))
    world.configure(limits={"scratch_bytes": size * 3 // 5})
    world.settle_time()
    world.enqueue(Entity("db", "t"), "minor")
    worker = world.worker()
    assert "planned in 2 parts" in worker.run_once()
    assert worker.run_once() == "nothing is queued"
    world.clean()
    assert worker.run_once() != "nothing is queued"
    world.assert_rows()


def test_what_somebody_else_queued_meanwhile_is_enough(world):
    """The next part isn't queued beside another entry of the same table, nor remembered any longer."""
    world.configure(limits={"deltas": 3})
    world.table(rows=8)
    world.settle_time()
    world.enqueue(Entity("db", "t"), "major")
    worker = world.worker()
    worker.run_once()
    world.enqueue(Entity("db", "t"), "minor")
    worker.run_once()
    assert [entry.kind.value for entry in world.services.queue.entries() if entry.id > 1] == ["minor"]


def test_a_next_part_is_forgotten_after_a_day(world):
    """If the Cleaner is held back for so long, the Initiator has looked many times since."""
    table = world.table(rows=4)
    size = sum(path.stat().st_size for path in table.location.glob("delta_*/bucket*"))
    world.configure(limits={"scratch_bytes": size * 3 // 5})
    world.settle_time()
    world.enqueue(Entity("db", "t"), "minor")
    worker, clock = world.worker(), Clock()
    worker._continuing = continuing = Continuing(world.services.queue, clock)
    worker.run_once()
    assert continuing.go_on() == []
    clock.forward(25 * 3600)
    assert continuing.go_on() == []
    world.clean()
    assert continuing.go_on() == []


def test_what_a_part_left_below_is_found_after_a_restart(any_world):
    """The Cleaner forgets no commits of it: whoever starts anew looks there; when all is joined they are forgotten."""
    world = any_world
    table = world.table(rows=0)
    for number in range(8):
        world.insert(table, [(number, f"{row * 2654435761 % (1 << 32):x}" * 9) for row in range(300 if number < 2 else 1)])
    world.configure(limits={"scratch_bytes": 6000})
    world.settle_time()
    world.enqueue(Entity("db", "t"), "minor")
    assert "now a minor of 6 deltas, write ids 3 to 8" in world.worker().run_once()
    world.clean()
    assert [candidate.entity for candidate in world.services.initiating.candidates()] == [Entity("db", "t")]
    world.configure()
    world.compact(table, "minor")
    world.clean()
    assert [name[:21] for name in world.names(table.location)] == ["delta_0000001_0000008"]
    assert world.services.initiating.candidates() == []
    world.assert_rows()


def test_a_later_part_takes_nothing_from_readers_of_the_one_before(any_world):
    """Hive 3.1's names don't tell which compaction made a directory: when the earlier part is cleaned, the later one's inputs would look as obsolete as its own."""
    world = any_world
    world.configure(limits={"deltas": 5})
    table = world.table(rows=0)
    for number in range(8):
        world.insert(table, [(row, "v") for row in range(300 if number < 3 else 1)])
    before = world.hive.begin(age=0)
    world.settle_time()
    world.enqueue(Entity("db", "t"), "minor")
    worker = world.worker()
    assert "write ids 4 to 8" in worker.run_once()
    cleaner = world.cleaner()
    assert "1 wait" in cleaner.run_once()
    reader = world.hive.begin(age=0)
    read = {name for name in world.names(table.location) if name < "delta_0000004" or name.startswith("delta_0000004_0000008")}
    for _ in range(6):
        worker.run_once()
    world.hive.commit(before)
    for _ in range(3):
        world.settle_time()
        cleaner.run_once()
    assert read <= set(world.names(table.location))
    world.hive.commit(reader)
    while worker.run_once() != "nothing is queued" or world.services.queue.entries(QueueState.READY_FOR_CLEANING):
        world.settle_time()
        cleaner.run_once()
    assert [name[:21] for name in world.names(table.location)] == ["delta_0000001_0000008"]
    world.assert_rows()


@pytest.mark.parametrize(("total", "follows"), [(1, 0), (2, 1)])
def test_nothing_follows_the_only_part(world, total, follows):
    """Where no more than a part can be planned, another entry would only be refused."""
    table = world.table(rows=4)
    world.compact(table)
    after = world.services.queue.entry(1)
    world.clean()
    world.insert(table, [(9, "more")])
    continuing = Continuing(world.services.queue)
    continuing.remember(after, Parts(total, "why", wait=False))
    assert len(continuing.go_on()) == follows
