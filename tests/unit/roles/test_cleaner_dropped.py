"""Cleaner and what was dropped: a directory that Hive left to it goes, unless somebody uses it again or the file system isn't there."""

import shutil

import pytest
from sqlalchemy import select, update

from compactor.demo.rows import CatalogRows
from compactor.metastore.properties import encode_properties
from compactor.metastore.transactions import TxnState
from compactor.roles import steps
from tests.unit.roles.tables import visible


def soft_deleted(world, table, partition=None):
    """Hive's entry for something that was dropped and left to the Cleaner."""
    location = table.location / partition if partition else table.location
    txn = world.hive.begin()
    world.hive.commit(txn)
    properties = encode_properties({"location": f"file:{location}", "ifPurge": "true"})
    number = world.hive.queued(
        "db.t" + (f"/{partition}" if partition else ""), state="r", highest_write_id=9, txn_id=txn, next_txn_id=txn, tblproperties=properties
    )
    world.hive.change(update(world.database.schema.compaction_queue).values(cq_commit_time=world.services.now_ms()))
    return number


def test_a_dropped_table_that_hive_left_is_removed(world):
    """The whole directory goes, in two steps as everything, and counts as cleaned."""
    table = world.table(rows=2, insert_only=True)
    (table.location / "_tmp.x").mkdir()
    (table.location / "_tmp.x" / "f").write_bytes(b"x")
    CatalogRows(world.database).drop_table(table)
    soft_deleted(world, table)
    assert world.clean().startswith("cleaned 1 entries, 1 directories")
    assert not table.location.exists()
    assert world.names(table.location.parent) == []
    assert world.ended() == [("succeeded", None)]
    assert world.services.metrics.registry.get_sample_value("compactor_cleanings_total", {"outcome": "cleaned"}) == 1


def test_a_dropped_partition_that_hive_left_is_removed(world):
    """The table and its other partitions stay."""
    table = world.table(rows=0, insert_only=True, partition_keys=[("p", "int")])
    for value in ("1", "2"):
        world.insert(table, [(1, "x")], (value,))
    schema = world.database.schema
    gone = select(schema.partitions.c.part_id).where(schema.partitions.c.part_name == "p=1")
    world.hive.change(schema.partition_params.delete().where(schema.partition_params.c.part_id.in_(gone)))
    world.hive.change(schema.partition_key_vals.delete().where(schema.partition_key_vals.c.part_id.in_(gone)))
    world.hive.change(schema.partitions.delete().where(schema.partitions.c.part_name == "p=1"))
    soft_deleted(world, table, "p=1")
    world.clean()
    assert world.names(table.location) == ["p=2"]


def test_a_directory_that_is_used_again_is_not_removed(world):
    """The name was given to another table whose directory lies there: nothing is touched, and the reason is stored."""
    table = world.table(rows=2, insert_only=True)
    CatalogRows(world.database).drop_table(table)
    soft_deleted(world, table)
    world.hive.create_table("db.other", location=f"file:{table.location}/below")
    assert "but the catalog has file:" in world.clean()
    assert len(visible(table)) == 2
    assert world.states() == ["ready for cleaning"]


@pytest.mark.parametrize("step", [steps.CLEANER_TRASHED, steps.CLEANER_COMPARED])
def test_a_dropped_table_is_removed_after_a_crash(world, step):
    """What was cut off is found again beside it."""
    table = world.table(rows=2, insert_only=True)
    CatalogRows(world.database).drop_table(table)
    soft_deleted(world, table)
    world.clean_until_it_breaks(step)
    world.clean()
    assert world.names(table.location.parent) == []
    assert world.ended() == [("succeeded", None)]


def drop_database(world, name):
    schema = world.database.schema
    numbers = select(schema.dbs.c.db_id).where(schema.dbs.c.name == name)
    world.hive.change(schema.database_params.delete().where(schema.database_params.c.db_id.in_(numbers)))
    world.hive.change(schema.dbs.delete().where(schema.dbs.c.name == name))


@pytest.mark.parametrize("what", ["table", "database"])
@pytest.mark.parametrize("beside", [True, False])
def test_a_dropped_table_on_a_file_system_that_is_not_mounted_waits(world, what, beside):
    """Its directory can't be seen, nor the one above, nor anything that the catalog has near it: the entry waits, says so, and removes it afterwards."""
    table = world.table(rows=2, insert_only=True)
    if beside:
        world.table("u", rows=1, database="other")
    CatalogRows(world.database).drop_table(table)
    if what == "database":
        drop_database(world, "db")
    soft_deleted(world, table)
    world.unmount()
    for _ in range(2):
        assert "is the file system mounted?" in world.clean()
        assert world.states() == ["ready for cleaning"]
    world.mount()
    assert world.clean().startswith("cleaned 1 entries, 1 directories")
    assert not table.location.exists()


@pytest.mark.parametrize("near", ["beside", "around"])
def test_a_database_that_was_dropped_with_its_tables_needs_no_waiting(world, near):
    """DROP DATABASE CASCADE took the directory above as well: another database's is seen where it lay, so the file system is there."""
    table = world.table(rows=2, insert_only=True)
    world.table("u", rows=1, database="other")
    CatalogRows(world.database).drop_table(table)
    drop_database(world, "db")
    soft_deleted(world, table)
    shutil.rmtree(table.location.parent)
    if near == "around":
        dbs = world.database.schema.dbs
        world.hive.change(update(dbs).where(dbs.c.name == "other").values(db_location_uri=f"file:{world.folder}/warehouse"))
        if "db_managed_location_uri" in dbs.c:
            world.hive.change(update(dbs).where(dbs.c.name == "other").values(db_managed_location_uri=None))
    assert world.clean().startswith("cleaned 1 entries, 0 directories")


def test_a_dropped_partition_whose_parents_were_removed_needs_no_waiting(world):
    """Hive removes directories between a table and its partitions when they are empty: the table's own tells that the file system is there."""
    table = world.table(rows=0, insert_only=True, partition_keys=[("p", "int"), ("q", "int")])
    soft_deleted(world, table, "p=1/q=1")
    assert world.clean().startswith("cleaned 1 entries, 0 directories")


def test_a_re_created_table_is_not_robbed(world):
    """The entry names the directory that the new table uses: it is cleaned like any other, only what is replaced goes."""
    table = world.table(rows=2, insert_only=True)
    soft_deleted(world, table)
    world.clean()
    assert len(visible(table)) == 2
    assert world.services.transactions.state(1) is not TxnState.OPEN
