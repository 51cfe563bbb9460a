"""
The daemon on a metastore of Hive 3.1 in PostgreSQL: directories without transaction in their names, `_metadata_acid`,
cleaning held back by locks alone.
"""

from dataclasses import dataclass

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity, QueueState
from tests.daemon.lab import Shared, pass_cycles, running, until
from tests.demo.ledger import COMMITTED
from tests.demo.rows import CatalogRows, MetastoreLedger
from tests.demo.warehouse import Warehouse
from tests.metastore.actor import Hive
from tests.metastore.servers import UnavailableError
from tests.needs import missing
from tests.reference.compare import expected_rows, read_table, schema_of

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

COLUMNS = [("id", "int"), ("v", "string")]


def change(row):
    return (row[0], f"{row[1]} changed")


def build(warehouse, hive):
    """
    Plain, grown by inserts alone, bucketed, partitioned, converted, insert-only tables; updates, deletes, aborted
    writers.
    """
    plain = warehouse.create_table("d", "plain", COLUMNS)
    bucketed = warehouse.create_table("d", "bucketed", COLUMNS, buckets=2, bucket_columns=["id"])
    grown = warehouse.create_table("d", "grown", COLUMNS)
    parts = warehouse.create_table("d", "parts", COLUMNS, partition_keys=[("k", "string")])
    migrated = warehouse.create_table("d", "migrated", COLUMNS, transactional=False)
    only = warehouse.create_table("d", "only", COLUMNS, insert_only=True)
    warehouse.write_original(migrated, [(1, "old"), (2, "old")])
    warehouse.write_original(migrated, [(3, "old")])
    warehouse.convert(migrated)
    for table, key in (
        (plain, None),
        (grown, None),
        (bucketed, None),
        (parts, ["a b"]),
        (parts, ["c/d"]),
        (migrated, None),
        (only, None),
    ):
        for start in (10, 20, 30):
            with warehouse.begin() as txn:
                txn.insert(table, [(start + number, "new") for number in range(4)], key)
        aborted = warehouse.begin()
        aborted.insert(table, [(99, "never")], key)
        aborted.abort()
        hive.fall_silent(aborted.id)
        if table not in (grown, only):
            with warehouse.begin() as txn:
                txn.update(table, lambda row: row[0] % 3 == 0, change, key)
            with warehouse.begin() as txn:
                txn.delete(table, lambda row: row[0] % 5 == 0, key)
    return plain, grown, bucketed, parts, migrated, only


@dataclass
class World:
    kind: str
    url: str
    database: Database
    warehouse: Warehouse
    tables: tuple

    @property
    def directories(self):
        return [
            (table, name, directory.location) for table in self.tables for name, directory in table.directories.items()
        ]

    def names(self, location):
        return sorted(path.name for path in location.iterdir())


@pytest.fixture(scope="module", params=["major", "minor"])
def world(request, tmp_path_factory, postgres, submitter):
    """Everything compacted and cleaned."""
    try:
        url = postgres.create("3.1.0")
    except UnavailableError as error:
        missing(str(error))
    with Database(url) as database:
        warehouse = Warehouse(
            tmp_path_factory.mktemp(request.param) / "warehouse", MetastoreLedger(database), CatalogRows(database)
        )
        made = World(request.param, url, database, warehouse, build(warehouse, Hive(database)))
        queue, reader = Queue(database), Hive(database)
        lock = reader.lock("d.plain")
        with running(url, Shared(submitter)) as daemon:
            for table, name, _ in made.directories:
                assert queue.enqueue(Entity("d", table.name, name), CompactionKind(request.param)).accepted
            until(
                lambda: [entry.entity for entry in queue.entries()] in ([Entity("d", "plain")], []),
                "all but the locked table cleaned",
            )
            pass_cycles(daemon, "cleaner")
            if queue.entries():
                assert [entry.state for entry in queue.entries()] == [QueueState.READY_FOR_CLEANING]
            assert any("delta" in name for name in made.names(made.tables[0].location))
            reader.unlock(lock)
            until(lambda: not queue.entries(), "all cleaned")
        yield made


def test_rows_stay(world):
    """The reference reader, for which no transaction matters in this layout, sees the builder's books."""
    for table in world.tables:
        assert world.warehouse.snapshot(table).txns is None
        assert read_table(world.warehouse, table) == expected_rows(world.warehouse, table)


@pytest.mark.hive
@pytest.mark.parametrize("mode", ["vector", "row"])
def test_hive_3_reads_the_same(world, hive_3, mode):
    """Hive 3.1.3's own reader, row and vector, ROW__IDs and all."""
    for table, name, location in world.directories:
        if not table.insert_only:
            snapshot = world.warehouse.snapshot(table)
            rows = hive_3.rows(location, schema_of(table), snapshot.write_ids, mode=mode, buckets=table.buckets)
            assert rows == expected_rows(world.warehouse, table)[name], (table.name, name)


def test_directories_have_no_transaction_in_their_names(world):
    """
    One base with `_metadata_acid`, also where a minor would need two renames, which 3.1 can't make one; one delta where
    there were but inserts. An aborted write above the result waits for a later compaction.
    """
    for table, _, location in world.directories:
        if table.insert_only and world.kind == "minor":
            continue
        names = world.names(location)
        high = max(write_id for write_id, txn in table.writers.items() if world.warehouse.states[txn] == COMMITTED)
        if table.name == "parts" and location.name == "k=a b":
            high = 6
        above = ["delta_0000004_0000004_0000"] if table.name in {"grown", "only"} else []
        if table.name == "grown" and world.kind == "minor":
            assert names == ["delta_0000001_0000003", *above]
        else:
            assert names == [f"base_{high:07d}", *above], table.name
            assert (
                location / names[0] / "_metadata_acid"
            ).read_text() == '{"thisFileVersion":"0","dataFormat":"compacted"}'


def test_entries_end_in_states_that_hive_3_knows(world):
    """
    Succeeded; a minor compaction of an insert-only table, which Hive 3.1 doesn't have, is failed. Locks and components
    are gone where it is cleaned; those of aborted writes to a partitioned table stay until the whole table is swept,
    which isn't due here, and those above the result until a later compaction.
    """
    ended = {str(entry.entity): entry.state for entry in Queue(world.database).history()}
    refused = {"d.only"} if world.kind == "minor" else set()
    assert ended == {
        f"d.{table.name}" + (f"/{name}" if name else ""): QueueState.REFUSED
        if table.insert_only and refused
        else QueueState.SUCCEEDED
        for table, name, _ in world.directories
    }
    schema, actor = world.database.schema, Hive(world.database)
    assert not actor.rows(schema.hive_locks, "hl_lock_ext_id")
    assert {f"d.{table}" for (table,) in actor.rows(schema.txn_components, "tc_table")} == {
        "d.parts",
        "d.grown",
        "d.only",
    }
    assert {f"d.{table}" for (table,) in actor.rows(schema.completed_txn_components, "ctc_table")} == refused
