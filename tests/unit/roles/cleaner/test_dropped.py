"""
Cleaner and what was dropped: a directory that Hive left to it goes, unless somebody uses it again or the file system
isn't there.
"""

import shutil

import pytest
from sqlalchemy import event, select, update

from compactor.metastore.compaction_queue.properties import encode_properties
from compactor.metastore.db.database import Database
from compactor.metastore.locations.places import Places
from compactor.metastore.txn.transactions import TxnState
from compactor.roles import steps
from compactor.roles.cleaner import dropped
from tests.demo.rows import CatalogRows
from tests.unit.roles.tables import visible
from tests.unit.roles.test_places import move_just_now
from tests.unit.roles.world import World


def soft_deleted(world, table, partition=None, *, kind="a"):
    """Hive's entry for something that was dropped and left to the Cleaner."""
    location = table.location / partition if partition else table.location
    txn = world.hive.begin()
    world.hive.commit(txn)
    properties = encode_properties({"location": f"file:{location}", "ifPurge": "true"})
    number = world.hive.queued(
        "db.t" + (f"/{partition}" if partition else ""),
        state="r",
        highest_write_id=9,
        txn_id=txn,
        next_txn_id=txn,
        tblproperties=properties,
        type=kind,
    )
    world.hive.change(update(world.database.schema.compaction_queue).values(cq_commit_time=world.services.now_ms()))
    return number


def drop_partition(world, name):
    schema = world.database.schema
    gone = select(schema.partitions.c.part_id).where(schema.partitions.c.part_name == name)
    for rows in (schema.partition_params, schema.partition_key_vals):
        world.hive.change(rows.delete().where(rows.c.part_id.in_(gone)))
    world.hive.change(schema.partitions.delete().where(schema.partitions.c.part_name == name))


@pytest.mark.parametrize("hidden", ["_tmp.x", ".hive-staging_x", "-tmp.delta_0000003_0000003_0000", "-mr-10000"])
def test_a_dropped_table_that_hive_left_is_removed(world, hidden):
    """The whole directory goes, with what a statement left in it, in two steps as everything, and counts as cleaned."""
    table = world.table(rows=2, insert_only=True)
    (table.location / hidden).mkdir()
    (table.location / hidden / "f").write_bytes(b"x")
    CatalogRows(world.database).drop_table(table)
    soft_deleted(world, table)
    assert world.clean().startswith("cleaned 1 entry, 1 directory")
    assert not table.location.exists()
    assert world.names(table.location.parent) == []
    assert world.ended() == [("succeeded", None)]
    assert world.services.metrics.registry.get_sample_value("compactor_cleanings_total", {"outcome": "cleaned"}) == 1


@pytest.mark.parametrize("name", ["_t", ".t", "-tmp.t"])
@pytest.mark.parametrize("hours", [0, 1])
def test_a_dropped_table_whose_directory_has_a_hidden_name_is_removed(world, name, hours):
    """No listing of the directory above looks into it: what was moved is compared by a listing of its own."""
    world.configure(cleaner={"quarantine_hours": hours})
    table = world.table(rows=2, insert_only=True)
    CatalogRows(world.database).drop_table(table)
    table.location = table.location.rename(table.location.with_name(name))
    soft_deleted(world, table)
    assert world.clean().startswith("cleaned 1 entry, 1 directory")
    assert not table.location.exists()
    assert len(world.names(table.location.parent)) == (1 if hours else 0)
    assert world.ended() == [("succeeded", None)]


@pytest.mark.parametrize("key", ["p", "_p"])
def test_a_dropped_partition_that_hive_left_is_removed(world, key):
    """The table and its other partitions stay."""
    table = world.table(rows=0, insert_only=True, partition_keys=[(key, "int")])
    for value in ("1", "2"):
        world.insert(table, [(1, "x")], (value,))
    drop_partition(world, f"{key}=1")
    soft_deleted(world, table, f"{key}=1")
    world.clean()
    assert world.names(table.location) == [f"{key}=2"]


def test_a_directory_that_is_used_again_is_not_removed(world):
    """The name was given to another table whose directory lies there: nothing is touched, and the reason is stored."""
    table = world.table(rows=2, insert_only=True)
    CatalogRows(world.database).drop_table(table)
    soft_deleted(world, table)
    world.hive.create_table("db.other", location=f"file:{table.location}/below")
    assert "but the catalog has table db.other (file:" in world.clean()
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
    """
    Its directory can't be seen, nor the one above, nor anything that the catalog has near it: the entry waits, says so,
    and removes it afterwards.
    """
    table = world.table(rows=2, insert_only=True)
    if beside:
        world.table("u", rows=1, database="other")
    CatalogRows(world.database).drop_table(table)
    if what == "database":
        drop_database(world, "db")
        world.configure(
            warehouse={"roots": [f"file:{world.folder}/warehouse"]}
        )  # its own directory is no root any more
    soft_deleted(world, table)
    world.unmount()
    for _ in range(2):
        assert "is the file system mounted?" in world.clean()
        assert world.states() == ["ready for cleaning"]
    world.mount()
    assert world.clean().startswith("cleaned 1 entry, 1 directory")
    assert not table.location.exists()


def drop_with_everything(world):
    """DROP DATABASE … CASCADE, beside another database."""
    table = world.table(rows=2, insert_only=True)
    world.table("u", rows=1, database="other")
    CatalogRows(world.database).drop_table(table)
    drop_database(world, "db")
    soft_deleted(world, table)
    shutil.rmtree(table.location.parent)


@pytest.mark.parametrize("near", ["beside", "around"])
def test_a_database_that_was_dropped_with_its_tables_needs_no_waiting(world, near):
    """
    DROP DATABASE CASCADE took the directory above as well: another database's is seen where it lay, so the file system
    is there.
    """
    drop_with_everything(world)
    if near == "around":
        dbs = world.database.schema.dbs
        world.hive.change(
            update(dbs).where(dbs.c.name == "other").values(db_location_uri=f"file:{world.folder}/warehouse")
        )
        if "db_managed_location_uri" in dbs.c:
            world.hive.change(update(dbs).where(dbs.c.name == "other").values(db_managed_location_uri=None))
    assert world.clean().startswith("cleaned 1 entry, 0 directories")


def test_a_dropped_partition_whose_parents_were_removed_needs_no_waiting(world):
    """
    Hive removes directories between a table and its partitions when they are empty: the table's own tells that the file
    system is there.
    """
    table = world.table(rows=0, insert_only=True, partition_keys=[("p", "int"), ("q", "int")])
    soft_deleted(world, table, "p=1/q=1")
    assert world.clean().startswith("cleaned 1 entry, 0 directories")


def test_a_re_created_table_is_not_robbed(world):
    """
    The entry names the directory that the new table uses: it is cleaned like any other, only what is replaced goes.
    """
    table = world.table(rows=2, insert_only=True)
    soft_deleted(world, table)
    world.clean()
    assert len(visible(table)) == 2
    assert world.services.transactions.state(1) is not TxnState.OPEN


def test_a_deferred_clean_up_of_a_later_hive_is_one_of_a_dropped_table(world):
    """
    DEFERRED_CLEANUP (HIVE-29587), which outlives the rows of a database that is dropped: the directory goes as with
    entries of type major.
    """
    table = world.table(rows=2, insert_only=True)
    CatalogRows(world.database).drop_table(table)
    soft_deleted(world, table, kind="d")
    assert world.worker().run_once().sentence == "nothing is queued"
    assert world.clean().startswith("cleaned 1 entry, 1 directory")
    assert not table.location.exists()
    assert world.ended() == [("succeeded", None)]


def test_a_deferred_clean_up_says_nothing_of_a_later_table_of_that_name(world):
    """What it covered is gone: the Initiator goes by the new table's own writes."""
    world.table(rows=12)
    world.hive.queued("db.t", state="r", type="d", highest_write_id=99)
    world.settle_time()
    assert "queued 1 of 1 candidates" in world.initiator().run_once().sentence


@pytest.mark.parametrize("partition", [None, "p=1"])
def test_only_who_could_have_seen_what_was_dropped_is_waited_for(world, partition):
    """
    A lock on the table that was there when the entry was first seen holds it, one that came later doesn't: it found
    nothing of it in the catalog.
    """
    table = world.table(rows=0, insert_only=True, partition_keys=[("p", "int")])
    for value in ("1", "2"):
        world.insert(table, [(1, "x")], (value,))
    cleaner = world.cleaner()
    before = world.hive.lock("db.t")
    if partition is None:
        CatalogRows(world.database).drop_table(table)
    else:
        drop_partition(world, partition)
    soft_deleted(world, table, partition)
    world.settle_time()
    assert "lock" in cleaner.run_once().sentence
    after = world.hive.lock("db.t")
    world.hive.unlock(before)
    assert cleaner.run_once().sentence.startswith("cleaned 1 entry, 1 directory")
    assert not (table.location / (partition or "")).exists()
    assert [lock.lock_id for lock in world.services.locks.all()] == [after]


def dropped_partition(world):
    """`p=1` was dropped, Hive's entry for it is ready, and nobody is there who could have read it."""
    table = world.table(rows=0, insert_only=True, partition_keys=[("p", "int")])
    for value in ("1", "2"):
        world.insert(table, [(1, "x")], (value,))
    drop_partition(world, "p=1")
    soft_deleted(world, table, "p=1")
    world.settle_time()
    return table


def begin_insert(world, table, partition="p=1", name="db.t"):
    """
    An INSERT that has written its delta; its partition (or table) comes into the catalog at its end. Returns its
    transaction.
    """
    txn = world.hive.begin()
    write_id = world.hive.touch(txn, name, partition)
    delta = (table.location / partition if partition else table.location) / f"delta_{write_id:07d}_{write_id:07d}_0000"
    delta.mkdir(parents=True)
    (delta / "000000_0").write_bytes(b"rows")
    return txn


def test_a_partition_that_an_insert_re_creates_waits_for_its_end(world):
    """
    Its delta lies there before the catalog says so: the Cleaner names the transaction, and after the commit nothing is
    removed.
    """
    table = dropped_partition(world)
    txn = begin_insert(world, table)
    before = world.names(table.location / "p=1")
    assert f"transaction {txn} of bob@client" in world.clean()
    assert (world.names(table.location / "p=1"), world.states()) == (before, ["ready for cleaning"])
    tbl_id = world.hive.rows(world.database.schema.tbls, "tbl_id")[0][0]
    world.hive.add_partitions(tbl_id, ["p=1"])
    world.hive.commit(txn)
    world.clean()
    assert (world.names(table.location / "p=1"), world.ended()) == (before, [("succeeded", None)])


def test_a_partition_whose_insert_was_rolled_back_is_removed_at_last(world):
    """When the writer has ended without adding it to the catalog, the directory goes."""
    table = dropped_partition(world)
    txn = begin_insert(world, table)
    assert "may be writing there" in world.clean()
    world.hive.abort(txn)
    assert world.clean().startswith("cleaned 1 entry, 1 directory")
    assert world.names(table.location) == ["p=2"]


def test_what_an_insert_wrote_before_the_move_is_put_back(world, monkeypatch):
    """
    It began after the first look, and its delta was moved with the rest: nothing is deleted, and everything is at its
    place again.
    """
    table = dropped_partition(world)
    looks, begun, require_unused = [], [], dropped._require_unused

    def then_an_insert_begins(services, entry, location):
        require_unused(services, entry, location)
        looks.append(location)
        if len(looks) == 2:  # directly before the move
            begun.append(begin_insert(world, table))

    monkeypatch.setattr(dropped, "_require_unused", then_an_insert_begins)
    said = world.clean()
    assert steps.CLEANER_TRASHED in world.passed
    assert f"transaction {begun[0]} of bob@client" in said
    assert world.names(table.location / "p=1") == ["delta_0000001_0000001_0000", "delta_0000003_0000003_0000"]
    assert world.states() == ["ready for cleaning"]


@pytest.mark.parametrize("partition", [None, "p=1"])
@pytest.mark.parametrize("step", [steps.CLEANER_LISTED, steps.CLEANER_TRASHED])
def test_what_came_into_the_catalog_by_its_own_name_a_moment_ago_stays(world, partition, step):
    """
    An INSERT or a CTAS that has just ended, where the catalog takes long to read and was read before that: what has the
    name is asked for at each look.
    """
    slow = slow_catalog(world)
    table = world.table(rows=0, insert_only=True, partition_keys=[("p", "int")] if partition else [])
    world.insert(table, [(1, "x")], ("1",) if partition else None)
    catalog = CatalogRows(world.database)
    drop_partition(world, partition) if partition else catalog.drop_table(table)
    soft_deleted(world, table, partition)
    slow.require_alone("file:/elsewhere", None)
    before = visible(table)

    def again():
        if partition:
            ((tbl_id,),) = world.hive.rows(world.database.schema.tbls, "tbl_id")
            world.hive.add_partitions(tbl_id, [partition])
        else:
            catalog.add_table(table)

    world.at_step[step] = again
    assert "but the catalog has " in world.clean()
    assert visible(table) == before
    assert world.states() == ["ready for cleaning"]


def slow_catalog(world):
    """Its places: a read of all of it takes three seconds, and serves what follows."""
    places, glance = Places(world.database, list, world.clock), world.database.glance

    def slowly(work, *arguments):
        world.clock.forward(3.0 if getattr(work, "__name__", "") == "owners" else 0.0)
        return glance(work, *arguments)

    world.database.glance = slowly
    world.services.places = places
    return places


@pytest.mark.parametrize("step", [steps.CLEANER_LISTED, steps.CLEANER_TRASHED])
@pytest.mark.parametrize("where", ["{}", "{}/below", "{}/.."])
def test_what_came_there_a_moment_ago_keeps_it(world, step, where):
    """Another table at, below or above the place, where the catalog was read before that: everything is put back."""
    slow_catalog(world).require_alone("file:/elsewhere", None)
    table, other = world.table(rows=2, insert_only=True), world.table("other", rows=0)
    CatalogRows(world.database).drop_table(table)
    soft_deleted(world, table)
    before = visible(table)
    world.at_step[step] = lambda: move_just_now(world, other.name, "file:" + where.format(table.location))
    assert "but the catalog has table db.other (" in world.clean()
    assert visible(table) == before
    assert world.states() == ["ready for cleaning"]


def test_no_location_is_searched_for_in_all_of_the_catalog(world):
    """Hive's schema has no index on locations: what `places` read serves the removals of a cycle, too."""
    table = world.table(rows=0, insert_only=True, partition_keys=[("p", "int")])
    world.insert(table, [(1, "x")], ("1",))
    dropped = world.table("u", rows=1, insert_only=True)
    drop_partition(world, "p=1")
    CatalogRows(world.database).drop_table(dropped)
    soft_deleted(world, table, "p=1")
    soft_deleted(world, dropped)
    world.settle_time()
    statements = []
    event.listen(world.database.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    assert world.clean().startswith("cleaned 2 entries, 2 directories")
    assert not [one for one in statements if '"LOCATION" LIKE' in one]


def test_a_ctas_that_is_tried_again_keeps_what_it_writes(world):
    """
    The first was rolled back and left a request for its directory; the second writes there, and isn't in the catalog
    before its end.
    """
    table = world.table(rows=1, insert_only=True)
    CatalogRows(world.database).drop_table(table)
    soft_deleted(world, table)
    txn = begin_insert(world, table, None)
    before = visible(table)
    assert f"transaction {txn} of bob@client" in world.clean()
    assert visible(table) == before


def test_a_ctas_keeps_what_it_writes_when_the_request_was_renamed(world):
    """
    A CTAS was rolled back; a table of that name came and was renamed, and Hive's rename took the request along
    (OnRenameFunction), whose location stays. The CTAS that is tried again writes there.
    """
    table = world.table(rows=1, insert_only=True)
    CatalogRows(world.database).drop_table(table)
    soft_deleted(world, table)
    world.table("u", rows=1, insert_only=True)
    world.hive.change(update(world.database.schema.compaction_queue).values(cq_table="u"))
    txn = begin_insert(world, table, None)
    before = visible(table)
    assert f"transaction {txn} of bob@client" in world.clean()
    assert visible(table) == before
    world.hive.abort(txn)
    assert world.clean().startswith("cleaned 1 entry, 1 directory")


def test_an_insert_keeps_what_it_writes_when_the_request_was_renamed(world):
    """The same of a partition that was dropped, came again, and was renamed: another INSERT makes it once more."""
    table = dropped_partition(world)
    world.hive.change(update(world.database.schema.compaction_queue).values(cq_partition="p=2"))
    txn = begin_insert(world, table)
    before = world.names(table.location / "p=1")
    assert f"transaction {txn} of bob@client" in world.clean()
    assert world.names(table.location / "p=1") == before
    world.hive.abort(txn)
    assert world.clean().startswith("cleaned 1 entry, 1 directory")


def test_writers_of_a_table_that_has_its_name_elsewhere_are_not_waited_for(world):
    """DROP and CREATE with a directory of its own, which is always written to: the old directory goes."""
    table = world.table(rows=1, insert_only=True)
    old = table.location.parent / "t.v3"
    (old / "base_0000003").mkdir(parents=True)
    properties = encode_properties({"location": f"file:{old}", "ifPurge": "true"})
    txn = world.hive.begin()
    world.hive.commit(txn)
    world.hive.queued("db.t", state="r", txn_id=txn, next_txn_id=txn, tblproperties=properties)
    begin_insert(world, table, None)
    assert world.clean().startswith("cleaned 1 entry, 1 directory")
    assert not old.exists()


def test_a_database_that_was_dropped_in_a_warehouse_behind_a_link(tmp_path):
    """Its directories are gone with it; a root that was set by hand may be a link."""
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "warehouse").symlink_to(tmp_path / "there")
    with Database(f"sqlite:///{tmp_path}/metastore.db", create=True) as database:
        world = World(database, tmp_path / "here")
        world.configure(warehouse={"roots": [f"file:{tmp_path}/here/warehouse"]})
        drop_with_everything(world)
        assert world.clean().startswith("cleaned 1 entry, 0 directories")
