"""
Cleaner and aborted rows among committed ones: which ids are aborted stays known for as long as somebody may come upon
their rows.
"""

import pytest
from sqlalchemy import delete

from tests.hive_merge import join_files
from tests.unit.roles.tables import visible


def test_aborted_writes_among_committed_ones_stay_known(any_world):
    """
    A streaming delta with one aborted transaction: the directory stays, and so does the row that says which is aborted;
    it isn't tried every cycle.
    """
    world = any_world
    table = world.table(rows=0)
    batch = world.warehouse.stream(table, [[(1, "a")], [(2, "b")], [(3, "c")]])
    for index, commit in enumerate((True, False, True)):
        batch.finish(index, commit=commit)
    batch.close()
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    world.clean()
    assert len(visible(table)) == 1
    assert len(world.hive.rows(world.database.schema.txn_components, "tc_writeid")) == 1
    world.settle_time()
    world.assert_rows()
    assert world.services.aborts.groups(0, -1) == []


def test_aborted_writes_beside_an_open_one_stay_known(any_world):
    """
    A streaming delta whose last transaction is still open is no part of what is judged: the aborted one before it is
    remembered, even so.
    """
    world = any_world
    table = world.table(rows=0)
    batch = world.warehouse.stream(table, [[(1, "a")], [(2, "ABORTED")], [(3, "c")]])
    batch.finish(0, commit=True)
    batch.finish(1, commit=False)
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    world.clean()
    assert (2,) in world.hive.rows(world.database.schema.txn_components, "tc_writeid")
    batch.finish(2, commit=True)
    batch.close()
    world.settle_time()
    world.assert_rows()


def stream_then_minor(world):
    """
    Two inserts, a stream whose second transaction was rolled back, and a minor compaction over all: ids 1 to 4, of
    which 4 is aborted.
    """
    table = world.table(rows=2)
    batch = world.warehouse.stream(table, [[(10, "a")], [(11, "ABORTED")]])
    batch.finish(0, commit=True)
    batch.finish(1, commit=False)
    batch.close()
    inputs = [path / "bucket_00000" for path in sorted(table.location.iterdir())]
    inputs = [path if path.exists() else path.with_name("bucket_00000_0") for path in inputs]
    kept = [path.read_bytes() for path in inputs]
    world.compact(table, "minor")
    (result,) = table.location.glob("delta_0000001_0000004_v*")
    copies = [world.folder / f"input{number}" for number in range(len(kept))]
    for path, data in zip(copies, kept, strict=True):
        path.write_bytes(data)
    return table, result, copies


def insert_and_forget(world, table):
    """A while later: another insert, and whatever may be forgotten is."""
    world.insert(table, [(12, "later")])
    world.settle_time()
    for _ in range(2):
        world.housekeeper().run_once()


@pytest.mark.parametrize("by", ["entry", "group"])
def test_aborted_rows_that_a_merge_compaction_kept_stay_aborted(world, by):
    """
    Hive's merge compaction leaves them in its result: the id stays known until a major compaction has taken them out,
    whichever cleaning comes by.
    """
    table, result, inputs = stream_then_minor(world)
    for path in result.iterdir():
        path.unlink()
    assert join_files(inputs, result / "bucket_00000")
    world.assert_rows()
    if by == "group":
        world.configure(initiator={"thresholds": {"aborted_count": 0}})
    world.clean()
    assert visible(table) == [result.name]
    insert_and_forget(world, table)
    world.assert_rows()
    world.compact(table)
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    world.hive.change(
        delete(world.database.schema.compaction_queue).where(world.database.schema.compaction_queue.c.cq_type == "c")
    )
    world.clean()
    insert_and_forget(world, table)
    world.assert_rows()
    assert world.hive.rows(world.database.schema.txn_components, "tc_writeid") == []


def test_an_aborted_delete_that_a_merge_compaction_kept_stays_aborted(world):
    """Its event names a row that was committed; who deleted it is told by another column."""
    table = world.table(rows=3)
    world.delete(table, 0)
    txn = world.warehouse.begin()
    txn.delete(table, lambda row: row[0] == 1)
    txn.abort()
    world.delete(table, 2)
    copies = []
    for number, path in enumerate(sorted(table.location.glob("delete_delta_*/bucket_*"))):
        copies.append(world.folder / f"input{number}")
        copies[-1].write_bytes(path.read_bytes())
    world.compact(table, "minor")
    (result,) = table.location.glob("delete_delta_*_v*")
    (result / "bucket_00000").unlink()
    assert join_files(copies, result / "bucket_00000")
    world.assert_rows()
    world.clean()
    assert len(visible(table)) == 2
    assert world.hive.rows(world.database.schema.txn_components, "tc_writeid") == [(5,)]
    insert_and_forget(world, table)
    world.assert_rows()


def test_aborted_rows_that_a_compaction_left_out_are_forgotten(world):
    """The keys in its result prove it, so the id needn't be kept until the next major compaction."""
    table, result, _ = stream_then_minor(world)
    world.clean()
    assert visible(table) == [result.name]
    assert world.hive.rows(world.database.schema.txn_components, "tc_writeid") == []
    insert_and_forget(world, table)
    world.assert_rows()


def test_ids_stay_known_where_a_result_cannot_be_read(world):
    """A damaged result proves nothing."""
    _, result, _ = stream_then_minor(world)
    (result / "bucket_00000").write_bytes(b"ORC, but not really")
    world.clean()
    assert len(world.hive.rows(world.database.schema.txn_components, "tc_writeid")) == 1


def test_aborted_writes_among_replaced_ones_stay_known_while_they_may_be_read(any_world):
    """
    The streaming delta is replaced but not removed: a reader from before may ask only now which of its ids are aborted.
    """
    world = any_world
    table = world.table(rows=1)
    batch = world.warehouse.stream(table, [[(1, "a")], [(2, "b")], [(3, "c")]])
    for index, commit in enumerate((True, False, True)):
        batch.finish(index, commit=commit)
    batch.close()
    reader = world.hive.begin()
    world.hive.lock("db.t", txn_id=reader)
    world.compact(table)
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    components = world.database.schema.txn_components
    world.clean()
    assert len(visible(table)) > 1
    assert len(world.hive.rows(components, "tc_writeid")) == 1
    world.hive.commit(reader)
    world.clean()
    assert len(visible(table)) == 1
    assert world.hive.rows(components, "tc_writeid") == []


@pytest.mark.parametrize("owner", ["database", "table"])
def test_ids_that_were_aborted_at_a_source_stay_known_until_it_is_replicated(any_world, owner):
    """
    REPL LOAD first makes the write ids known that were aborted at its source (`replTableWriteIdState`), and copies the
    files afterwards, one partition after the other, for days: aborted rows among committed ones come late, too.
    """
    world = any_world
    table = world.table(rows=1)
    batch = world.warehouse.stream(table, [[(1, "a")], [(2, "ABORTED")], [(3, "c")]])
    for index, commit in enumerate((True, False, True)):
        batch.finish(index, commit=commit)
    batch.close()
    (stream,) = table.location.glob("delta_0000002_0000004")
    not_copied = stream.rename(world.folder / "source")
    schema, pending = world.database.schema, {"param_key": "hive.repl.first.inc.pending", "param_value": "true"}
    found = world.services.catalog.find_table("db", "t")
    ((db_id,),) = world.hive.rows(schema.tbls, "db_id", where=schema.tbls.c.tbl_id == found.tbl_id)
    params, number = (
        (schema.table_params, {"tbl_id": found.tbl_id})
        if owner == "table"
        else (schema.database_params, {"db_id": db_id})
    )
    world.hive.change(params.insert().values(**number, **pending))
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    assert "waits for its first incremental replication" in world.clean()
    not_copied.rename(stream)
    insert_and_forget(world, table)
    world.assert_rows()
    world.hive.change(params.delete().where(params.c.param_key == pending["param_key"]))
    world.clean()
    assert len(world.hive.rows(schema.txn_components, "tc_writeid")) == 1
