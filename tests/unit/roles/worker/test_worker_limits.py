"""
How many run at once: a pool's workers in this daemon, and a budget of jobs over all; docs/control.md says what both
together do.
"""

import pytest

from compactor.metastore.model import Entity, QueueState
from compactor.roles.worker.worker import IDLE, Worker


def all_at_once(world):
    """
    Each of a daemon's workers begins while those before it are in the middle of their work; returns the pools at work
    then, and what each worker said.
    """
    services = world.services
    workers = [Worker(services, number, pool) for number, pool in enumerate(services.settings.worker.pool_of_each, 1)]
    told, seen = {}, []

    def go(number):
        if number == len(workers):
            seen.extend(entry.pool for entry in services.queue.entries(QueueState.WORKING))
            return
        begun = []

        def meanwhile(_):
            if not begun:
                begun.append(True)
                go(number + 1)

        world.submitter.before = meanwhile
        told[number + 1] = workers[number].run_once().sentence
        world.submitter.before = lambda _: None
        if not begun:
            go(number + 1)

    go(0)
    return sorted(seen, key=str), told


@pytest.mark.parametrize(
    ("jobs", "running"),
    [
        (1, ["etl"]),
        (2, ["etl", "etl"]),
        (9, ["etl", "etl", "etl"]),
        (None, ["etl", "etl", "etl"]),
    ],
)
def test_the_smaller_of_both_limits_holds(world, jobs, running):
    """
    Three workers of a pool, and a budget of it: one below leaves workers idle, which say why; one above changes
    nothing; other pools' workers go on.
    """
    budgets = [] if jobs is None else [{"name": "few", "pools": ["etl"], "jobs": jobs}]
    world.configure(worker={"threads": 1, "pools": {"etl": 3}}, control={"budgets": budgets})
    for name in "abcde":
        world.table(name, rows=4, insert_only=True)
        world.enqueue(Entity("db", name), pool="etl")
    world.table("free", rows=4, insert_only=True)
    world.enqueue(Entity("db", "free"))
    world.settle_time()
    seen, told = all_at_once(world)
    assert [str(pool) for pool in seen] == ["None", *running]
    assert "db.free: published" in told[1]
    waiting = [sentence for sentence in told.values() if f"budget few allows {jobs} at a time" in sentence]
    assert len(waiting) == 3 - len(running)
    world.assert_rows()


def test_a_budget_over_pools_counts_them_together(world):
    """
    Two pools with two workers each, and a budget that covers both: three run, of whichever pools; nobody else's entry
    is needed.
    """
    world.configure(
        worker={"threads": 1, "pools": {"etl": 2, "bi": 2}},
        control={"budgets": [{"name": "both", "tables": ["db.*"], "jobs": 3}]},
    )
    for pool in ("etl", "bi"):
        for number in range(3):
            world.table(f"{pool}{number}", rows=4, insert_only=True)
            world.enqueue(Entity("db", f"{pool}{number}"), pool=pool)
    world.settle_time()
    seen, told = all_at_once(world)
    assert seen == ["bi", "etl", "etl"]
    assert told[1] == IDLE.sentence
    assert "budget both allows 3 at a time, being worked on: 3" in told[5]
