"""What attempts and statements that are over left behind: shown with its proof, and removed only with one."""

import os
import time
from dataclasses import replace

import pytest

from compactor.metastore.model import Entity
from compactor.metastore.txn.snapshots import COMPACTION
from compactor.roles.cleaner.quarantine.orphans import Leftovers
from tests.unit.roles.cleaner.quarantine.test_expiry import HOUR_MS
from tests.unit.roles.cleaner.quarantine.test_restore import replaced

DAY_MS = 24 * 3_600_000
OLD = time.time() - 10 * 86_400


def leftovers(world, table, partition=None):
    ((found, part),) = world.services.catalog.facts_for([Entity("db", "t", partition)]).values()
    return Leftovers(world.services, found, part, part.location if part else found.location)


def left(table, name, *, old=True, inside="out/bucket_00000"):
    """A directory of that name with a file in it."""
    file = table.location / name / inside
    file.parent.mkdir(parents=True)
    file.write_bytes(b"12345")
    if old:
        for path in (file, *file.parents):
            if table.location in path.parents:
                os.utime(path, (OLD, OLD))
    return table.location / name


def proofs(place):
    return {orphan.name: (orphan.proven, orphan.bytes) for orphan in place.find()}


def test_each_kind_has_its_proof(any_world):
    """And what has none says so; what readers read isn't named."""
    world = any_world
    table = world.table(rows=2)
    for name in (".compactor-99-a", ".evidence-compactor-7-b", "_tmp_x", ".hive-staging_hive_1", "-tmp.delta_1"):
        left(table, name)
    left(table, ".trash-compactor-7-12345678-delete")
    unproven = (".trash-compactor-7-12345678", ".trash-compactor-mine", ".trash-compactor-7-12345678-kept")
    for name in unproven:
        left(table, name)
    found = proofs(leftovers(world, table))
    assert {name: proven for name, (proven, _) in found.items()} == {
        ".compactor-99-a": True,
        ".evidence-compactor-7-b": True,
        ".trash-compactor-7-12345678-delete": True,
        "_tmp_x": True,
        ".hive-staging_hive_1": True,
        "-tmp.delta_1": True,
        **dict.fromkeys(unproven, False),
    }
    assert {size for _, size in found.values()} == {5}


def test_staging_of_an_attempt_at_work_is_none(world):
    """Its entry is being worked on; once the worker has ended, it is."""
    table = world.table(rows=3)
    seen = []
    world.at_step["worker.staged"] = lambda: seen.append(proofs(leftovers(world, table)))
    world.compact(table)
    assert [proven for (proven, _) in seen[0].values()] == [False]


@pytest.mark.parametrize("by", ["reader", "writer", "rolled back"])
def test_a_lock_or_a_writer_leaves_hives_directories_alone(any_world, by):
    """A statement may be using them, in any partition of the table; also tasks of one that was rolled back."""
    world = any_world
    table = world.table(rows=1)
    left(table, ".hive-staging_hive_1")
    if by == "reader":
        world.hive.lock("db.t", kind="r")
    elif by == "rolled back":
        txn, _ = world.hive.fail_write("db.t", silent=3_600_000)
    else:
        txn = world.hive.begin()
        world.hive.allocate(txn, "db.t")
    place = leftovers(world, table)
    (orphan,) = place.find()
    assert not orphan.proven
    assert not place.remove(orphan, 0)
    assert (table.location / ".hive-staging_hive_1").is_dir()
    if by == "rolled back":
        world.hive.fall_silent(txn)
        assert place.remove(orphan, 0)


@pytest.mark.parametrize(("agent", "proven"), [("Unknown", False), (f"compactor-there-{'0' * 32}-1", True)])
def test_whose_aborted_compaction_leaves_hives_directories_alone(world, agent, proven):
    """A job of Hive's compactor stages in `_tmp_…`, and an abort doesn't end it; one of ours stages elsewhere."""
    table = world.table(rows=1)
    left(table, "_tmp_x")
    schema = world.services.database.schema
    txn = world.hive.begin(kind=COMPACTION, silent=1_000)
    row = {"tc_txnid": txn, "tc_database": "db", "tc_table": "t", "tc_operation_type": "c", "tc_writeid": 1}
    world.hive.change(schema.txn_components.insert().values(row))
    mine = schema.txns.c.txn_id == txn
    world.hive.change(schema.txns.update().where(mine).values(txn_state="a", txn_agent_info=agent))
    (orphan,) = leftovers(world, table).find()
    assert orphan.proven is proven


def test_only_what_is_old_enough_goes(world):
    """By its newest file, also below hidden directories; judged again right before."""
    table = world.table(rows=1)
    old, young = left(table, "_tmp_old"), left(table, "_tmp_young", old=False, inside="-ext-10000/000000_0")
    os.utime(young, (OLD, OLD))
    place = leftovers(world, table)
    assert [place.remove(orphan, 7 * DAY_MS) for orphan in place.find()] == [True, False]
    assert (old.exists(), young.exists()) == (False, True)
    (orphan,) = place.find()
    world.hive.lock("db.t", kind="r")
    assert not place.remove(orphan, 0)
    world.assert_rows()


def test_quarantine_whose_time_is_not_over_is_none(world):
    """Its manifest says when."""
    table = replaced(world)
    ((name, (proven, _)),) = proofs(leftovers(world, table)).items()
    assert name.endswith("-kept")
    assert not proven


def test_quarantine_can_be_emptied_before_its_time(world):
    """
    Where a store is full: nothing else is looked at then; what was kept is old enough by when it was kept, and without
    a readable manifest it stays.
    """
    table = replaced(world)
    left(table, ".trash-compactor-7-12345678-kept")
    left(table, ".evidence-compactor-7-b")
    place = replace(leftovers(world, table), only_quarantine=True)
    without, kept = sorted(place.find(), key=lambda orphan: orphan.proven)
    assert (without.name, without.proven) == (".trash-compactor-7-12345678-kept", False)
    assert kept.why.endswith(", for which --quarantine doesn't wait")
    assert not place.remove(kept, HOUR_MS)
    assert place.remove(kept, 0)
    assert not place.remove(without, 0)
    assert [orphan.name for orphan in place.find()] == [without.name]
    world.assert_rows()


def test_quarantine_whose_time_is_over_goes_where_no_cleaner_comes(world, later):
    """As that of aborted writes, of which no entry tells."""
    table = replaced(world)
    later(2 * HOUR_MS)
    place = leftovers(world, table)
    (orphan,) = place.find()
    assert orphan.proven
    assert place.remove(orphan, 0)
    assert place.find() == ()
    world.assert_rows()
