"""
Writes a real ACID warehouse into a folder, as Hive writes it, for `make demo` and for tests.

    warehouse = Warehouse(folder, MemoryLedger())
    orders = warehouse.create_table("shop", "orders", [("id", "int"), ("state", "string")])
    with warehouse.begin() as txn:
        txn.insert(orders, [(1, "new"), (2, "new")])
    with warehouse.begin() as txn:
        txn.update(orders, lambda row: row[0] == 1, lambda row: (row[0], "paid"))

With a `MetastoreLedger` (see `rows`) the same calls also write the rows that Hive writes into the metastore database.
"""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from compactor.acid.row_id import RowKey, encode
from tests.demo import files
from tests.demo.files import Row
from tests.demo.ledger import COMMITTED, Ledger, LedgerSnapshot
from tests.demo.tables import DemoTable, DirectoryRows
from tests.demo.writer import Partition, StreamingBatch, Transaction

FIRST_WRITE_ID_AFTER_CONVERSION = 10_000_001
"""Hive reserves the write ids below for the rows that a plain table had when it was made transactional (HIVE-19750)."""


class CatalogWriter(Protocol):
    """Registers databases, tables and partitions; `rows.CatalogRows` does so in a metastore database."""

    def add_database(self, name: str, location: Path, parameters: Mapping[str, str]) -> None: ...
    def add_table(self, table: DemoTable) -> None: ...
    def add_partition(self, table: DemoTable, directory: DirectoryRows) -> None: ...
    def set_parameters(self, table: DemoTable) -> None: ...
    def set_columns(self, table: DemoTable, *, cascade: bool) -> None: ...
    def drop_table(self, table: DemoTable) -> None: ...


class Warehouse:
    """
    A folder of databases and tables, the ledger of its transactions, and the rows that a reader of each table should
    see.

    Args:
        root: the warehouse folder; made when missing.
        ledger: keeps transactions and write ids.
        catalog: registers databases, tables and partitions; None: files alone are written.
    """

    def __init__(self, root: Path, ledger: Ledger, catalog: CatalogWriter | None = None) -> None:
        self.root = root
        self.ledger = ledger
        self.states: dict[int, str] = {}
        self.tables: dict[str, DemoTable] = {}
        self._catalog = catalog
        self._databases: set[str] = set()
        self._registered: set[tuple[str, str]] = set()
        root.mkdir(parents=True, exist_ok=True)

    def create_database(self, name: str, parameters: Mapping[str, str] | None = None) -> None:
        """Make the database's folder `<root>/<name>.db`."""
        location = self.root / f"{name}.db"
        location.mkdir()
        self._databases.add(name)
        if self._catalog:
            self._catalog.add_database(name, location, parameters or {})

    def create_table(
        self,
        database: str,
        name: str,
        columns: Sequence[tuple[str, str]],
        *,
        partition_keys: Sequence[tuple[str, str]] = (),
        buckets: int = 0,
        bucket_columns: Sequence[str] = (),
        insert_only: bool = False,
        transactional: bool = True,
        file_format: str = "orc",
        parameters: Mapping[str, str] | None = None,
    ) -> DemoTable:
        """Make an empty table, and its database when that is missing. Bucketed tables use `bucketing_version` 1."""
        if database not in self._databases:
            self.create_database(database)
        own = {"bucketing_version": "1" if buckets else "2"}
        if transactional:
            own |= {"transactional": "true", "transactional_properties": "insert_only" if insert_only else "default"}
        table = DemoTable(
            database=database,
            name=name,
            columns=tuple(columns),
            partition_keys=tuple(partition_keys),
            buckets=buckets,
            bucket_columns=tuple(bucket_columns),
            insert_only=insert_only,
            transactional=transactional,
            file_format=file_format,
            parameters=own | dict(parameters or {}),
            location=self.root / f"{database}.db" / name,
        )
        table.location.mkdir()
        self.tables[table.full_name] = table
        if self._catalog:
            self._catalog.add_table(table)
        if not partition_keys:
            self.directory(table, ())
        return table

    def begin(self) -> Transaction:
        """Open a transaction; commit or abort it, or leave it open."""
        return Transaction(self)

    def stream(
        self,
        table: DemoTable,
        rows_by_transaction: Sequence[Sequence[Row]],
        partition: Partition = None,
        *,
        side_file: bool = False,
    ) -> StreamingBatch:
        """Open a batch of transactions that write into one delta directory."""
        return StreamingBatch(self, table, rows_by_transaction, partition, side_file=side_file)

    def write_original(
        self, table: DemoTable, rows: Sequence[Row], partition: Partition = None, *, bucket: int = 0
    ) -> None:
        """
        Write a file as a table has it that isn't transactional yet: `000000_0`, then `000000_0_copy_1` and so on.
        """
        directory = self.directory(table, tuple(partition or ()))
        self.register(table, directory)
        copies = len(list(directory.location.glob(f"{bucket:06d}_0*")))
        name = f"{bucket:06d}_0" + (f"_copy_{copies}" if copies else "")
        files.write_plain(directory.location / name, table.columns, rows, table.options)
        self._number_originals(directory, bucket, name, rows)

    def convert(self, table: DemoTable) -> None:
        """ALTER TABLE ... SET TBLPROPERTIES ('transactional'='true')."""
        table.transactional = True
        table.parameters |= {"transactional": "true", "transactional_properties": "default"}
        self.ledger.seed(table.database, table.name, FIRST_WRITE_ID_AFTER_CONVERSION)
        if self._catalog:
            self._catalog.set_parameters(table)

    def add_columns(self, table: DemoTable, columns: Iterable[tuple[str, str]], *, cascade: bool = False) -> None:
        """
        ALTER TABLE ... ADD COLUMNS: allocates a write id that has no directory. Partitions keep their own columns
        unless `cascade`.
        """
        with self.begin() as txn:
            txn.write_id(table)
        added = tuple(columns)
        table.columns = (*table.columns, *added)
        for directory in table.directories.values():
            directory.inserted = {key: (*row, *([None] * len(added))) for key, row in directory.inserted.items()}
        if self._catalog:
            self._catalog.set_columns(table, cascade=cascade)

    def set_parameters(self, table: DemoTable, parameters: Mapping[str, str]) -> None:
        """ALTER TABLE ... SET TBLPROPERTIES."""
        table.parameters |= parameters
        if self._catalog:
            self._catalog.set_parameters(table)

    def drop_table(self, table: DemoTable) -> None:
        """DROP TABLE: remove the catalog's rows and the folder. A new table of the same name gets another id."""
        if self._catalog:
            self._catalog.drop_table(table)
        shutil.rmtree(table.location)
        del self.tables[table.full_name]

    def directory(self, table: DemoTable, values: Sequence[str | None]) -> DirectoryRows:
        name = table.partition_name(values)
        if name not in table.directories:
            location = table.location / name if name else table.location
            location.mkdir(parents=True, exist_ok=True)
            table.directories[name] = DirectoryRows(name, tuple(values), location)
        return table.directories[name]

    def register(self, table: DemoTable, directory: DirectoryRows) -> None:
        if directory.name is None or (table.full_name, directory.name) in self._registered:
            return
        self._registered.add((table.full_name, directory.name))
        if self._catalog:
            self._catalog.add_partition(table, directory)

    def snapshot(self, table: DemoTable) -> LedgerSnapshot:
        """The snapshot of a reader that starts now, in Hive's strings."""
        return self.ledger.snapshot(table.database, table.name)

    def compactor_snapshot(self, table: DemoTable) -> LedgerSnapshot:
        """The snapshot of a compactor that starts now, in Hive's strings."""
        return self.ledger.compactor_snapshot(table.database, table.name)

    def expected(self, table: DemoTable) -> Mapping[str | None, dict[RowKey, Row]]:
        """The rows that a reader has to see now, by partition name: known from the statements, not from the files."""
        return table.rows(self.committed(table))

    def committed(self, table: DemoTable) -> Callable[[int], bool]:
        """A predicate that holds for those of the table's write ids that are committed now."""
        known = frozenset(write_id for write_id, txn in table.writers.items() if self.states[txn] == COMMITTED)
        return known.__contains__

    @staticmethod
    def _number_originals(directory: DirectoryRows, bucket: int, name: str, rows: Sequence[Row]) -> None:
        # row ids run over the files of a bucket in path order, and _copy_10 sorts before _copy_2
        known = directory.originals.setdefault(bucket, {})
        known[name] = list(rows)
        everything = [row for file in sorted(known) for row in known[file]]
        directory.inserted.update(
            (RowKey(0, encode(bucket, 0), position), row) for position, row in enumerate(everything)
        )
