"""
The cleaning of aborted writes that takes more than one cycle: it goes on where it was, and nothing is forgotten before
all of it is done.
"""

import shutil
from pathlib import Path

import pytest
from sqlalchemy import update

from compactor.roles import steps
from compactor.roles.cleaner.cleaner import Cleaner
from compactor.roles.cleaner.schedule import CYCLE_SECONDS
from compactor.roles.cycle import Progress
from tests.demo.rows import CatalogRows


@pytest.fixture
def table(world):
    """
    Four partitions with an aborted write each, under rows that name no partition: Hive's dynamic-partition writes.
    """
    world.configure(cleaner={"threads": 1}, initiator={"thresholds": {"aborted_count": 0}})
    made = world.table(rows=0, partition_keys=[("p", "int")], insert_only=True)
    for number in range(4):
        world.insert(made, [(number, "x")], (str(number),))
        world.aborted_insert(made, [(number, "never")], (str(number),))
    world.hive.change(update(world.database.schema.txn_components).values(tc_partition=None))
    world.settle_time()
    return made


@pytest.fixture
def cleaner(world):
    """There is time for one location in a cycle."""
    world.at_step[steps.CLEANER_LISTED] = lambda: world.clock.forward(CYCLE_SECONDS)
    return Cleaner(world.services, clock=world.clock)


def to_the_end(world, cleaner, rows):
    """Cycles until something is forgotten, with so many rows known before; returns what the last one said."""
    for _ in range(6):
        assert known(world) == rows
        if "forgot" in (said := cleaner.run_once().sentence):
            return said
    raise AssertionError(f"no end in sight: {said}")


def aborted(table):
    """Partitions in which an aborted write still lies."""
    return [path.name for path in sorted(table.location.iterdir()) if len(list(path.iterdir())) > 1]


def rename(world, table, old, new):
    """RENAME of a partition: its PART_ID stays, its directory moves below the table's, wherever it was."""
    schema = world.database.schema
    (row,) = world.hive.rows(schema.partitions, "part_id", "sd_id", where=schema.partitions.c.part_name == old)
    (before,) = world.hive.rows(schema.sds, "location", where=schema.sds.c.sd_id == row[1])
    Path(before[0].removeprefix("file:")).rename(table.location / new)
    world.hive.change(update(schema.partitions).where(schema.partitions.c.part_id == row[0]).values(part_name=new))
    relocate(world, new, table.location / new)


def relocate(world, name, location):
    schema = world.database.schema
    (row,) = world.hive.rows(schema.partitions, "sd_id", where=schema.partitions.c.part_name == name)
    world.hive.change(update(schema.sds).where(schema.sds.c.sd_id == row[0]).values(location=f"file:{location}"))


def known(world):
    return len(world.hive.rows(world.database.schema.txn_components, "tc_writeid"))


def test_a_long_sweep_goes_on_where_it_was(world, table, cleaner):
    """
    One location in each cycle, none twice; the rows go with the last one, for until then its writes would count as
    committed.
    """
    for done in (1, 2, 3):
        assert cleaner.run_once().sentence.endswith("1 left for the next cycle")
        assert len(aborted(table)) == 4 - done
        assert known(world) == 4
    assert cleaner.run_once().sentence.endswith("forgot 4 aborted writes")
    assert known(world) == 0
    assert world.passed.count(steps.CLEANER_DELETED) == world.passed.count(steps.CLEANER_LISTED) == 4
    assert cleaner.run_once().sentence == "nothing to clean"
    world.assert_rows()


def test_what_is_aborted_meanwhile_stays_known(world, table, cleaner):
    """In a partition that was swept already: what is forgotten at the end is what was aborted when it began."""
    assert "left" in cleaner.run_once().sentence
    (swept,) = {"p=0", "p=1", "p=2", "p=3"}.difference(aborted(table))
    world.aborted_insert(table, [(9, "never")], (swept.removeprefix("p="),))
    world.hive.change(update(world.database.schema.txn_components).values(tc_partition=None))
    world.settle_time()
    assert to_the_end(world, cleaner, 5).endswith("forgot 4 aborted writes")
    assert aborted(table) == [swept]
    to_the_end(world, cleaner, 1)
    assert aborted(table) == []
    world.assert_rows()


def test_a_partition_that_was_moved_meanwhile_is_swept_where_it_is(world, table, cleaner):
    """Another location is another place to look at, wherever the sweep was."""
    assert "left" in cleaner.run_once().sentence
    last = aborted(table)[-1]
    moved = table.location.parent / "elsewhere"
    (table.location / last).rename(moved)
    sds = world.database.schema.sds
    world.hive.change(sds.update().where(sds.c.location.like(f"%/{last}")).values(location=f"file:{moved}"))
    to_the_end(world, cleaner, 4)
    assert len(list(moved.iterdir())) == 1


def test_a_partition_that_moves_to_where_another_one_was_swept(world, table, cleaner):
    """The place is the same, what lies there isn't: swept is swept as the place of one partition."""
    assert "left" in cleaner.run_once().sentence
    assert aborted(table) == ["p=1", "p=2", "p=3"]
    rename(world, table, "p=0", "p=9")
    rename(world, table, "p=1", "p=0")
    for _ in range(6):
        cleaner.run_once()
    assert aborted(table) == []
    assert known(world) == 0


def test_a_partition_that_moves_from_elsewhere_to_where_another_one_was_swept(world, table):
    """Within one cycle; its directory moves before the catalog says so."""
    elsewhere = table.location.parent / "zz"
    (table.location / "p=3").rename(elsewhere)
    relocate(world, "p=3", elsewhere)

    def move():
        if world.passed.count(steps.CLEANER_LISTED) == 2:
            (table.location / "p=0").rename(table.location / "p=9")
            elsewhere.rename(table.location / "p=0")

    world.at_step[steps.CLEANER_LISTED] = move
    world.cleaner().run_once()
    assert aborted(table) == ["p=0"]
    assert known(world) == 4


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("bad", ["name", "link"])
def test_one_place_that_is_refused_keeps_no_other_one_from_being_swept(world, table, cleaner, bad, limited):
    """
    Then the table is put off, and nothing is forgotten before that place is swept too; also where it takes several
    cycles.
    """
    culprit = table.location / "p=0" / "delta_what"
    if bad == "name":
        culprit.mkdir()
    else:
        culprit.symlink_to(table.location / "p=1")
    if not limited:
        world.at_step.clear()
    for _ in range(6 if limited else 1):
        said = cleaner.run_once().sentence
        if "failed" in said:
            break
    assert "1 failed: db.t" in said
    assert aborted(table) == ["p=0"]
    assert known(world) == 4
    culprit.unlink() if bad == "link" else culprit.rmdir()
    world.hive.change(update(world.database.schema.compaction_queue).values(cq_commit_time=1))
    to_the_end(world, cleaner, 4)
    assert aborted(table) == []


def test_a_directory_that_comes_back_is_swept(world, table, cleaner):
    """It was missing when it was looked at, in the middle of the visit; at the end it is there."""
    (table.location / "p=0").rename(table.location.parent / "away")
    assert "left" in cleaner.run_once().sentence
    (table.location.parent / "away").rename(table.location / "p=0")
    to_the_end(world, cleaner, 4)
    assert aborted(table) == []


def test_a_directory_that_vanishes_between_two_cycles(world, table, cleaner):
    """
    It was listed, and is missing before its turn came: what was in it may lie where it was looked before, so nothing is
    forgotten.
    """
    assert "left" in cleaner.run_once().sentence
    (table.location / "p=3").rename(table.location.parent / "moving")
    said = [cleaner.run_once().sentence for _ in range(3)]
    assert "1 failed: db.t" in said[-1]
    assert known(world) == 4


def test_a_directory_elsewhere_that_is_missing(world, table):
    """No list of the table's directory tells where it went: nothing is forgotten before it is back."""
    elsewhere = table.location.parent / "zz"
    relocate(world, "p=3", elsewhere)
    (table.location / "p=3").rename(table.location.parent / "moving")
    assert "1 failed: db.t" in world.cleaner().run_once().sentence
    assert aborted(table) == []
    assert known(world) == 4
    (table.location.parent / "moving").rename(elsewhere)
    queue = world.database.schema.compaction_queue
    world.hive.change(update(queue).values(cq_commit_time=1))
    assert world.cleaner().run_once().sentence.endswith("forgot 4 aborted writes")
    assert len(list(elsewhere.iterdir())) == 1


@pytest.mark.parametrize("how", ["re-created", "another led"])
def test_what_was_swept_before_counts_for_nothing(world, table, cleaner, how):
    """
    Another table of that name, or another Cleaner between two cycles: every location is looked at anew, and the one
    that was written to again is swept again.
    """
    kept = world.folder / "kept"
    shutil.copytree(table.location, kept)
    assert "left" in cleaner.run_once().sentence
    shutil.copytree(kept, table.location, dirs_exist_ok=True)
    if how == "re-created":
        world.table("other", rows=0)
        catalog = CatalogRows(world.database)
        catalog.drop_table(table)
        catalog.add_table(table)
    else:
        cleaner.no_turn()
    world.passed.clear()
    to_the_end(world, cleaner, 4)
    assert world.passed.count(steps.CLEANER_LISTED) == 4
    assert aborted(table) == []


def test_others_come_before_what_was_begun(world, table, cleaner):
    """One huge table doesn't keep small ones waiting until all of it is swept."""
    assert "left" in cleaner.run_once().sentence
    world.aborted_insert(world.table("small", rows=1, insert_only=True), [(9, "x")])
    world.settle_time()
    assert cleaner.run_once().sentence.endswith("forgot 1 aborted write; 1 left for the next cycle")
    assert len(aborted(table)) == 3


def test_a_drain_does_not_wait_for_all_of_it(world, table):
    """Nothing is begun any more when the daemon stops, and nothing is forgotten."""
    world.at_step[steps.CLEANER_DELETED] = world.services.stopping.set
    assert world.clean().endswith("1 left for the next cycle")
    assert len(aborted(table)) == 3
    assert known(world) == 4


def test_every_location_is_progress(world, table):
    """
    The loop hears of it from whatever thread: thousands of partitions that take their time aren't one thing that is
    stuck.
    """
    told = []

    class Told(Progress):
        def made(self):
            told.append(len(aborted(table)))

    Cleaner(world.services, Told()).run_once()
    assert told == [3, 2, 1, 0]
