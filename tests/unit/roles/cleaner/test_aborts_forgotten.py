"""
Rolled-back rows stay rolled back, whatever Hive wrote of where they are: nothing is forgotten before all of the table
was seen without them.
"""

import ast
import shutil
from pathlib import Path

import pytest
from sqlalchemy import update

import compactor
from compactor.metastore.housekeeping import Duty
from compactor.roles import steps

MAKERS = {"Proof", "Cleared"}


@pytest.fixture
def partitions(any_world):
    """
    A table whose partition's name Hive folds or escapes, with a rolled-back write between committed ones; the world is
    told to clean it.
    """
    world = any_world
    name = "p=10%3A00" if world.services.layout == "hive-4" else "p=ABC"
    table = world.table(rows=0, partition_keys=[("p", "string")], insert_only=True)
    value = ("10:00",) if world.services.layout == "hive-4" else ("ABC",)
    world.insert(table, [(1, "x")], value)
    world.aborted_insert(table, [(2, "never")], value)
    world.insert(table, [(3, "y")], value)
    components = world.database.schema.txn_components
    stored = world.services.database.schema.generation.stored_as(name)[-1]
    assert stored != name
    assert (
        world.hive.change(update(components).where(components.c.tc_partition == name).values(tc_partition=stored)) == 1
    )
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    return world, table, name, stored


def live(world):
    """A while later: whatever may be forgotten is, and readers see what was committed."""
    world.services.aborts._put_off.clear()
    world.settle_time()
    for _ in range(2):
        world.housekeeper().run_once()
        for duty in (Duty.EMPTY_TRANSACTIONS, Duty.WRITE_ID_MAPPINGS):
            world.services.housekeeping.run(duty)
    world.hive.commit(world.hive.begin())
    world.assert_rows()


def known(world):
    return {write_id for (write_id,) in world.hive.rows(world.database.schema.txn_components, "tc_writeid")}


def test_a_misspelt_partition_is_swept_before_it_is_forgotten(partitions):
    """No directory lies where the stored name would be: that isn't where the rows are."""
    world, table, name, _ = partitions
    assert "1 directory" in world.clean()
    assert len(world.names(table.location / name)) == 2
    assert known(world) == set()
    live(world)


def test_a_partition_of_the_stored_name_is_not_the_one_that_was_meant(partitions):
    """It is in the catalog, and empty of aborted writes, which says nothing of the other one."""
    world, table, name, stored = partitions
    value = "10%3A00" if world.services.layout == "hive-4" else "abc"
    world.insert(table, [(4, "z")], (value,))
    assert (table.location / stored).is_dir()
    world.clean()
    assert len(world.names(table.location / name)) == 2
    live(world)


def test_a_partition_that_hive_renames_meanwhile(partitions):
    """
    Its directory moves before the catalog says so: seen neither where it was nor where it is, nothing is forgotten; the
    next sweep finds it.
    """
    world, table, name, _ = partitions
    world.insert(table, [(4, "z")], ("0",))  # swept first
    moved = table.location / "p=00"

    def rename():
        if not moved.exists():
            (table.location / name).rename(moved)

    world.at_step[steps.CLEANER_LISTED] = rename
    world.configure(initiator={"thresholds": {"aborted_count": 0}}, cleaner={"threads": 1})
    world.clean()
    assert known(world) == {2}
    world.at_step.clear()
    moved.rename(table.location / name)
    live(world)


def test_a_directory_that_is_missing_proves_nothing(any_world):
    """The table is being renamed: its directory is elsewhere, and the catalog doesn't say so yet."""
    world = any_world
    table = world.table(rows=1, insert_only=True)
    world.aborted_insert(table, [(9, "never")])
    world.hive.queued("db.t", state="r", highest_write_id=2)
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    away = table.location.parent / "renamed"
    table.location.rename(away)
    (table.location.parent / "other").mkdir()
    world.clean()
    assert known(world) == {2}
    away.rename(table.location)
    live(world)


def test_other_partitions_of_one_aborted_write(any_world):
    """
    Hive 4 replaces the row without partition by those of the first statement that ended; what the second one had
    written is found all the same.
    """
    world = any_world
    table = world.table(rows=0, partition_keys=[("p", "int")], insert_only=True)
    for number in (1, 2):
        world.insert(table, [(number, "x")], (str(number),))
    world.aborted_insert(table, [(9, "never")], ("1",))
    delta = max((table.location / "p=1").glob("delta_*"))
    shutil.copytree(delta, table.location / "p=2" / delta.name)
    world.hive.queued("db.t/p=1", state="r", highest_write_id=3)
    world.clean()
    live(world)
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    world.clean()
    assert not list(table.location.glob(f"*/{delta.name}"))
    assert known(world) == set()
    live(world)


def test_a_write_without_components(world_3):
    """
    Hive 3.1, dynamic partitions, rolled back: a write id and a directory, and no word of either. It is swept before it
    counts as empty.
    """
    world = world_3
    table = world.table(rows=0, partition_keys=[("p", "int")], insert_only=True)
    world.insert(table, [(1, "x")], ("1",))
    world.aborted_insert(table, [(2, "never")], ("1",))
    world.insert(table, [(3, "y")], ("1",))
    world.hive.change(world.database.schema.txn_components.delete())
    live(world)
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    assert "1 directory" in world.clean()
    live(world)
    assert world.hive.rows(world.database.schema.txns, "txn_id") == []


def test_a_table_that_never_was(any_world):
    """A CREATE TABLE AS failed; a later table of that name goes on with its write ids, in its directory."""
    world = any_world
    world.table("other", rows=1)
    world.hive.fail_write("db.t", age=90_000_000)
    for _ in range(2):
        world.clean()
        world.services.housekeeping.purge_empty_transactions()
    assert known(world) == {1}
    assert not world.services.transactions.valid_write_ids("db.t", world.services.transactions.valid_txns()).is_valid(1)


def test_only_a_sweep_makes_a_proof():
    """
    Or the listing of a table that shows nothing to sweep.

    And only one module deletes what marks an aborted write; a compaction deletes its own mark as it commits, or before
    it staged anything.
    """
    makers, deleters = set(), set()
    root = Path(compactor.__file__).parent
    for path in root.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        knows = "clean.purge" in text or "cleaner.cleared" in text  # another module may call something of its own so
        for node in ast.walk(ast.parse(text)):
            if (
                knows
                and isinstance(node, ast.Call)
                and getattr(node.func, "id", getattr(node.func, "attr", "")) in MAKERS
            ):
                makers.add(path.relative_to(root).as_posix())
            if (
                isinstance(node, ast.Call)
                and getattr(node.func, "id", "") == "delete"
                and "components" in ast.unparse(node)
                and "completed" not in ast.unparse(node)
            ):
                deleters.add(path.relative_to(root).as_posix())
    assert makers == {f"roles/cleaner/{name}.py" for name in ("cleared", "partition")}
    assert deleters == {"metastore/clean/purge.py", "metastore/compaction_queue/commits.py"}


@pytest.mark.parametrize("key", ["base_date", "delta_x", "delete_delta_y"])
def test_a_partition_key_that_begins_like_an_acid_directory(any_world, key):
    """The name of the partition's directory does too, and the table's isn't a partition for that."""
    world = any_world
    table = world.table(rows=0, partition_keys=[(key, "int")], insert_only=True)
    world.insert(table, [(1, "x")], ("1",))
    world.aborted_insert(table, [(2, "never")], ("1",))
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    assert "1 directory" in world.clean()
    assert known(world) == set()
    live(world)


@pytest.mark.parametrize("word", ["", "-kept", "-delete"])
def test_trash_of_a_dropped_partition(any_world, word):
    """It lies directly in the table's directory, which is no partition for that, and stays there."""
    world = any_world
    table = world.table(rows=0, partition_keys=[("p", "int")], insert_only=True)
    world.insert(table, [(1, "x")], ("1",))
    world.aborted_insert(table, [(2, "never")], ("1",))
    trash = table.location / f".trash-compactor-7-12345678{word}"
    (trash / "p=2" / "delta_0000001_0000001_0000").mkdir(parents=True)
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    assert "1 directory" in world.clean()
    assert trash.exists()
    assert known(world) == set()


def test_staging_of_statements_is_no_place(any_world):
    """
    Hive stages what a statement writes below the partition's directory, under names of ACID directories; it may be gone
    before it is looked at.
    """
    world = any_world
    table = world.table(rows=0, partition_keys=[("p", "int")], insert_only=True)
    world.insert(table, [(1, "x")], ("1",))
    world.aborted_insert(table, [(2, "never")], ("1",))
    staging = table.location / "p=1" / ".hive-staging_hive_2026" / "-ext-10000"
    (staging / "p=1" / "delta_0000003_0000003_0000").mkdir(parents=True)
    (staging / "_tmp" / "delta_0000003_0000003_0000").mkdir(parents=True)

    world.at_step[steps.CLEANER_LISTED] = lambda: shutil.rmtree(staging.parent, ignore_errors=True)
    world.configure(initiator={"thresholds": {"aborted_count": 0}}, cleaner={"threads": 1})
    assert "1 directory" in world.clean()
    assert known(world) == set()
