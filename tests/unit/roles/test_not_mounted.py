"""
A warehouse that isn't mounted: nothing is refused, nothing becomes history; when it is back, work goes on. A directory
that was removed is told as such.
"""

import shutil

import pytest

from compactor.metastore.model import Entity
from compactor.roles import steps

T = Entity("db", "t")


@pytest.mark.parametrize("partitioned", [False, True])
def test_the_initiator_records_nothing(world, partitioned):
    """Its sentence names the directory; the history stays empty; the next cycle queues what is due."""
    if partitioned:
        table = world.table(rows=0, insert_only=True, partition_keys=[("p", "int")])
        for number in range(12):
            world.insert(table, [(number, "v")], ("1",))
    else:
        world.table(rows=12, insert_only=True)
    world.settle_time()
    initiator = world.initiator()
    world.unmount()
    for _ in range(2):
        sentence = initiator.run_once().sentence
        assert "1 could not be judged" in sentence
        assert "is the file system mounted?" in sentence
    assert world.ended() == []
    world.mount()
    assert "queued 1 of 1" in initiator.run_once().sentence


@pytest.mark.parametrize("run_as", [None, "hive"])
def test_the_worker_gives_back(any_world, run_as):
    """Also an entry that was asked for by hand: initiated again, and compacted when the file system is back."""
    world = any_world
    world.table(rows=4, insert_only=True)
    world.settle_time()
    world.enqueue(T, run_as=run_as)
    world.unmount()
    worker = world.worker()
    assert "given back: " in worker.run_once().sentence
    assert "is the file system mounted?" in worker.run_once().sentence
    assert world.states() == ["initiated"]
    assert world.ended() == []
    assert world.services.locks.all() == []
    world.mount()
    world.clock.forward(10)
    assert "published" in worker.run_once().sentence
    world.settle_time()
    world.assert_rows()


def test_a_table_whose_directory_was_removed_is_refused(world):
    """The database's directory is there, with another table's in it: this isn't a matter of mounting."""
    table = world.table(rows=4, insert_only=True)
    other = world.table("u", rows=1, insert_only=True)
    shutil.rmtree(table.location)
    assert f"refused: input-changed: db.t: its directory {table.location} isn't there" in world.compact(table).replace(
        "file:", ""
    )
    world.settle_time()
    world.insert(other, [(1, "x")])
    world.initiator().run_once()


def test_an_empty_directory_above_may_be_a_mount_point(world):
    """
    A database on a file system of its own: not mounted, its directory is there and empty. Nothing is refused and
    nothing forgotten; the work waits.
    """
    table = world.table(rows=4, insert_only=True)
    above, elsewhere = table.location.parent, world.folder / "elsewhere"
    world.enqueue(T)
    above.rename(elsewhere)
    above.mkdir()
    worker = world.worker()
    assert (
        f"{above} is empty, as a mount point would be: is the file system mounted?"
        in worker.run_once().sentence.replace("file:", "")
    )
    assert (world.states(), world.ended()) == (["initiated"], [])
    above.rmdir()
    elsewhere.rename(above)
    world.clock.forward(10)
    assert "published" in worker.run_once().sentence
    world.settle_time()
    world.assert_rows()


@pytest.mark.parametrize("step", [steps.WORKER_LISTED, steps.WORKER_STAGED, steps.WORKER_RAN])
def test_a_directory_that_is_removed_under_the_work_is_named(world, step):
    """The message tells of the partition's directory, not of ours inside it."""
    table = world.table(rows=4, insert_only=True)
    world.table("u", rows=1, insert_only=True)
    world.at_step[step] = lambda: shutil.rmtree(table.location)
    sentence = world.compact(table)
    assert f"input-changed: db.t: its directory {table.location} isn't there" in sentence.replace("file:", ""), sentence
    assert ".compactor-" not in sentence
