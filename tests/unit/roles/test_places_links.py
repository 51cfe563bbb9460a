"""Symbolic links in a warehouse: none is followed but where a root that was set by hand leads."""

import pytest
from sqlalchemy import select, update

from compactor.errors import RefusedError
from tests.unit.roles.tables import visible
from tests.unit.roles.test_places import move, refused


def swap(world, place, victim):
    """The owner of a table's directory moves it away, and puts a link to another's there."""
    place.rename(world.folder / "moved away")
    place.symlink_to(victim.location)
    return place


def with_aborted_writes(world, partition):
    """A table whose first two write ids are aborted, and the directory to exchange."""
    table = world.table("t", rows=0, partition_keys=[("p", "int")] if partition else [])
    for insert in (world.aborted_insert, world.aborted_insert, world.insert, world.insert):
        insert(table, [(1, "x")], ("1",) if partition else None)
    return table, table.location / partition if partition else table.location


@pytest.mark.parametrize("partition", ["p=1", None])
def test_a_worker_does_not_follow_a_link_to_anothers_directory(world, partition):
    """
    A partition's directory, or a table's own, became a link: nothing is written at its target, and the refusal names
    the link.
    """
    victim = world.table("u", rows=4, database="other")
    table, place = with_aborted_writes(world, partition)
    link, before = swap(world, place, victim), world.names(victim.location)
    said = world.compact(table, partition=partition)
    assert "unsafe-location" in said
    assert f"{link} is a symbolic link, which isn't followed" in said
    assert world.names(victim.location) == before


@pytest.mark.parametrize("partition", ["p=1", None])
def test_a_cleaner_does_not_follow_a_link_to_anothers_directory(world, partition):
    """
    After a compaction the directory became a link: what another committed isn't judged by this table's write ids, and
    stays.
    """
    victim = world.table("u", rows=4, database="other")
    table, place = with_aborted_writes(world, partition)
    assert "published base_" in world.compact(table, partition=partition)
    link, before = swap(world, place, victim), world.names(victim.location)
    world.clean()
    assert world.names(victim.location) == before
    ((why,),) = world.hive.rows(world.database.schema.compaction_queue, "cq_error_message")
    assert f"{link} is a symbolic link, which isn't followed" in why


def test_aborted_writes_are_not_looked_for_behind_a_link(world):
    """Nothing of the target is removed, and nothing of the table's aborted writes is forgotten."""
    victim = world.table("u", rows=4, database="other")
    _, place = with_aborted_writes(world, None)
    swap(world, place, victim)
    before = world.names(victim.location)
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    assert "is a symbolic link, which isn't followed" in world.clean()
    assert world.names(victim.location) == before
    assert len(world.hive.rows(world.database.schema.txn_components, "tc_table")) >= 2


def test_a_link_further_up_is_refused_too_and_reading_through_it(world):
    """The table's directory is a link, and its partition a directory behind it; each refusal counts."""
    behind = world.table("behind", rows=0, partition_keys=[("p", "int")])
    world.insert(behind, [(1, "x")], ("1",))
    link = behind.location.parent / "link"
    link.symlink_to(behind.location)
    storage, before = world.services.storage(str(link)), refused(world)
    for attempt in (storage.list_tree, storage.exists, storage.mkdir, storage.delete_tree):
        with pytest.raises(RefusedError, match=f"{link} is a symbolic link"):
            attempt(f"{link}/p=1")
    assert refused(world) == before + 4
    assert storage.exists(str(link))


def test_a_root_may_be_a_link_or_lie_below_one(world):
    """Whoever runs the daemon named it."""
    table = world.table("t", rows=3)
    (world.folder / "link").symlink_to(world.folder / "warehouse")
    move(world, "t", f"file:{world.folder}/link/db.db/t")
    for root in ("link", "link/db.db"):
        world.configure(warehouse={"roots": [f"file:{world.folder}/{root}"]})
        world.insert(table, [(7, "x")])
        assert "published base_" in world.compact(table)
        assert "cleaned 1 entry" in world.clean()


def test_a_database_at_a_link_makes_no_root_of_it(any_world):
    """
    CREATE DATABASE … LOCATION at one's own link to another's directory: nothing behind it is read, compacted, or taken
    for what its aborted writes left.
    """
    world = any_world
    victim = world.table("t", rows=5, database="sales")
    evil = world.table("t", rows=0, database="evil")
    for number in range(3):
        world.aborted_insert(evil, [(number, "x")])
    link = world.folder / "home" / "link"
    link.parent.mkdir()
    link.symlink_to(victim.location.parent)
    dbs, sds, tbls = (getattr(world.database.schema, name) for name in ("dbs", "sds", "tbls"))
    columns = [name for name in ("db_location_uri", "db_managed_location_uri") if name in dbs.c]
    world.hive.change(update(dbs).where(dbs.c.name == "evil").values(dict.fromkeys(columns, f"file:{link}")))
    of_evil = select(tbls.c.sd_id).join(dbs, tbls.c.db_id == dbs.c.db_id).where(dbs.c.name == "evil")
    world.hive.change(update(sds).where(sds.c.sd_id.in_(of_evil)).values(location=f"file:{link}/t"))
    world.services.places.forget()
    before = visible(victim)
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    assert f"{link} is a symbolic link, which isn't followed" in world.clean()
    assert visible(victim) == before
    assert len(world.hive.rows(world.database.schema.txn_components, "tc_table")) >= 3
    world.assert_rows(victim)


def test_two_names_of_one_directory_are_one_place(world):
    """
    Two roots that were set by hand, of which one is a link to the other: a table whose LOCATION has the second name has
    no share in what lies there.
    """
    victim = world.table("u", rows=3, database="other")
    table = world.table("t", rows=0)
    for number in range(3):
        world.aborted_insert(table, [(number, "x")])
    link = world.folder / "link"
    link.symlink_to(victim.location.parent)
    world.configure(
        warehouse={"roots": [f"file:{world.folder}/warehouse", f"file:{link}"]},
        initiator={"thresholds": {"aborted_count": 0}},
    )
    move(world, "t", f"file:{link}/u")
    before = visible(victim)
    world.clean()
    ((why,),) = world.hive.rows(world.database.schema.compaction_queue, "cq_error_message")
    assert "the catalog has table other.u (" in why
    assert visible(victim) == before
    assert "overlapping-location" in world.compact(victim)
    world.configure(warehouse={"roots": [f"file:{world.folder}/warehouse"]})
    world.services.places.forget()
    assert "published base_" in world.compact(victim)
