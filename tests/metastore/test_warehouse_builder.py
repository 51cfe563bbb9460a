"""
The builder's rows, on each kind of metastore: what it writes is what our own readers of those tables understand, and
equals a ledger in memory.
"""

import itertools

import pytest
from sqlalchemy import func, select

from compactor.acid.compaction import LayoutVersion
from compactor.acid.write_ids import CompactorWriteIdList, ValidWriteIdList
from compactor.metastore.catalog import Catalog
from compactor.metastore.model import CatalogColumn, Entity
from compactor.metastore.txn.transactions import Transactions
from tests import strategies
from tests.demo.ledger import MemoryLedger
from tests.demo.rows import CatalogRows, MetastoreLedger
from tests.demo.warehouse import Warehouse
from tests.model.examples import OF_EVERYTHING
from tests.model.histories import KINDS, History
from tests.model.option_sets import play_lives
from tests.reference.compare import assert_as_expected

LIVES = 1


@pytest.fixture
def built(database, tmp_path):
    """A warehouse over a real metastore database."""
    return Warehouse(tmp_path / "warehouse", MetastoreLedger(database), CatalogRows(database))


@pytest.mark.timeout(900)
def test_snapshots_equal_those_of_the_metastore_package(database, built, tmp_path, request):
    """After the same random life the builder's lists, the memory ledger's and the daemon's are one."""
    transactions, names = Transactions(database), (f"t{number}" for number in itertools.count())

    def play(kind, life):
        """Each play has a table of its own: a database is as good as new for it."""
        name = next(names)
        history = History(built, kind, life, name=name)
        history.run()
        twin = History(
            Warehouse(tmp_path / name, MemoryLedger(database.schema.generation.layout)), kind, life, name=name
        )
        twin.run()
        txns = transactions.valid_txns()
        reader = transactions.valid_write_ids(f"h.{name}", txns)
        snapshot = built.snapshot(history.table)
        assert snapshot.write_ids == twin.warehouse.snapshot(twin.table).write_ids == str(reader)
        assert built.compactor_snapshot(history.table).write_ids == str(
            CompactorWriteIdList.from_reader(ValidWriteIdList.parse(snapshot.write_ids))
        )
        compactors = built.compactor_snapshot(history.table).write_ids
        assert str(transactions.compactor_write_ids(f"h.{name}", txns)) == compactors
        if database.schema.generation.layout is LayoutVersion.HIVE_4:
            assert snapshot.txns == str(txns)
        history.read()
        return history

    play_lives(play, KINDS, strategies.lives(), request.config.getoption("--histories") or LIVES, OF_EVERYTHING)


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
        (CatalogColumn("id", "int"), CatalogColumn("v", "array<string>"), CatalogColumn("n", "bigint")),
        (CatalogColumn("day", "string"),),
    )
    assert (facts.buckets, facts.bucket_columns, facts.location) == (2, ("id",), f"file:{table.location}")
    assert (facts.transactional, facts.insert_only) == (True, False)
    assert facts.parameters["orc.compress"] == "SNAPPY"
    assert sorted(catalog.partition_names(facts)) == ["day=2024%2F01", "day=__HIVE_DEFAULT_PARTITION__"]
    partition = catalog.find_partition(facts, "day=2024%2F01")
    assert partition.location == f"file:{table.location}/day=2024%2F01"
    assert partition.columns == (CatalogColumn("id", "int"), CatalogColumn("v", "array<string>"))
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
        assert states == ({1: "c", 2: "c"} if database.schema.generation.layout is LayoutVersion.HIVE_4 else {}) | {
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
