"""
The builder's rows, on each kind of metastore: what it writes is what our own readers of those tables understand, and
equals a ledger in memory.
"""

import pytest
from sqlalchemy import func, select

from compactor.acid.compaction import LayoutVersion
from compactor.acid.write_ids import CompactorWriteIdList, ValidWriteIdList
from compactor.demo.ledger import MemoryLedger
from compactor.demo.rows import CatalogRows, MetastoreLedger
from compactor.demo.warehouse import Warehouse
from compactor.metastore.catalog import Catalog
from compactor.metastore.model import Column, Entity
from compactor.metastore.txn.transactions import Transactions
from tests.model.histories import History
from tests.reference.compare import assert_as_expected


@pytest.fixture
def built(database, tmp_path):
    """A warehouse over a real metastore database."""
    return Warehouse(tmp_path / "warehouse", MetastoreLedger(database), CatalogRows(database))


@pytest.mark.parametrize("kind", ["partitioned", "streamed", "migrated"])
def test_snapshots_equal_those_of_the_metastore_package(database, built, tmp_path, kind):
    """After the same random history the builder's lists, the memory ledger's and the daemon's are one."""
    history = History(built, 5, kind)
    history.run(12)
    twin = History(Warehouse(tmp_path / "twin", MemoryLedger(database.schema.version)), 5, kind)
    twin.run(12)
    transactions = Transactions(database)
    txns = transactions.valid_txns()
    reader = transactions.valid_write_ids("h.t", txns)
    snapshot = built.snapshot(history.table)
    assert snapshot.write_ids == twin.warehouse.snapshot(twin.table).write_ids == str(reader)
    assert built.compactor_snapshot(history.table).write_ids == str(
        CompactorWriteIdList.from_reader(ValidWriteIdList.parse(snapshot.write_ids))
    )
    assert str(transactions.compactor_write_ids("h.t", txns)) == built.compactor_snapshot(history.table).write_ids
    if database.schema.version is LayoutVersion.HIVE_4:
        assert snapshot.txns == str(txns)


def test_tables_and_partitions_are_found(database, built):
    """The catalog reads back what the builder registered: columns, buckets, keys, properties, locations."""
    table = built.create_table(
        "shop",
        "orders",
        [("id", "int"), ("v", "array<string>")],
        partition_keys=[("day", "string")],
        buckets=2,
        bucket_columns=["id"],
        parameters={"orc.compress": "SNAPPY"},
    )
    with built.begin() as txn:
        txn.insert(table, [(1, ["a"], "2024/01"), (2, [], None)])
    lost = built.begin()
    lost.insert(table, [(3, [], "never")])
    lost.abort()
    built.add_columns(table, [("n", "bigint")])
    catalog = Catalog(database)
    facts = catalog.find_table("shop", "orders")
    assert (facts.columns, facts.partition_keys) == (
        (Column("id", "int"), Column("v", "array<string>"), Column("n", "bigint")),
        (Column("day", "string"),),
    )
    assert (facts.buckets, facts.bucket_columns, facts.full_acid, facts.location) == (
        2,
        ("id",),
        True,
        f"file:{table.location}",
    )
    assert facts.parameters["orc.compress"] == "SNAPPY"
    assert sorted(catalog.partition_names(facts)) == ["day=2024%2F01", "day=__HIVE_DEFAULT_PARTITION__"]
    partition = catalog.find_partition(facts, "day=2024%2F01")
    assert partition.location == f"file:{table.location}/day=2024%2F01"
    assert partition.columns == (Column("id", "int"), Column("v", "array<string>"))
    assert_as_expected(built, table)


def test_commit_and_abort_leave_the_rows_hive_leaves(database, built):
    """
    Committed components move to COMPLETED_TXN_COMPONENTS, aborted ones stay; 3.1 deletes the TXNS row of a commit;
    locks go with their transaction.
    """
    table = built.create_table("shop", "orders", [("id", "int")])
    with built.begin() as txn:
        txn.insert(table, [(1,), (2,)])
    with built.begin() as txn:
        txn.delete(table, lambda row: row[0] == 1)
    lost, held = built.begin(), built.begin()
    lost.insert(table, [(3,)])
    lost.abort()
    held.insert(table, [(4,)])
    schema = database.schema
    done, open_ones, locks, txns = (
        schema.completed_txn_components,
        schema.txn_components,
        schema.hive_locks,
        schema.txns,
    )
    with database.reading() as connection:
        assert connection.execute(
            select(done.c.ctc_writeid, done.c.ctc_update_delete).order_by(done.c.ctc_writeid)
        ).all() == [(1, "N"), (2, "Y")]
        assert connection.execute(
            select(open_ones.c.tc_writeid, open_ones.c.tc_operation_type).order_by(open_ones.c.tc_writeid)
        ).all() == [(3, "i"), (4, "i")]
        assert connection.execute(select(locks.c.hl_txnid, locks.c.hl_lock_type)).all() == [(held.id, "r")]
        states = dict(connection.execute(select(txns.c.txn_id, txns.c.txn_state).where(txns.c.txn_id > 0)).all())
        assert states == ({1: "c", 2: "c"} if database.schema.version is LayoutVersion.HIVE_4 else {}) | {
            lost.id: "a",
            held.id: "o",
        }
        assert connection.scalar(select(func.count()).select_from(schema.write_set)) == 1


def test_a_dropped_table_is_gone(database, built):
    """DROP TABLE leaves neither catalog rows nor files; its successor has another id."""
    table = built.create_table("shop", "t", [("id", "int")], partition_keys=[("k", "string")])
    with built.begin() as txn:
        txn.insert(table, [(1, "x")])
    before = Catalog(database).find_table("shop", "t").tbl_id
    keeper = built.create_table("shop", "keeper", [("id", "int")])
    built.drop_table(table)
    assert Catalog(database).find_table("shop", "t") is None
    assert not table.location.exists()
    built.create_table("shop", "t", [("id", "int")])
    assert Catalog(database).find_table("shop", "t").tbl_id != before
    assert (
        Catalog(database).facts_for([Entity("shop", "keeper")])[Entity("shop", "keeper")][0].location
        == f"file:{keeper.location}"
    )
