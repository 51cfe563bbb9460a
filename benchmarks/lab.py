"""
A small installation for measuring: embedded metastore, warehouse, one worker with its Spark session, all in this
process.

All parts are those of the daemon itself. Only the large files are made by `tables`, and hard-linked into each table, so
that several rounds need the space once.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from pyarrow import orc

from benchmarks import tables
from compactor.acid.compaction import CompactionKind
from compactor.acid.names import delete_delta_name, delta_name
from compactor.log import configure
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity
from compactor.roles.services import Services
from compactor.roles.worker.worker import STARTING, Worker
from compactor.settings import Settings
from compactor.settings.stores import Hdfs
from compactor.settings.work import WarehouseSettings as Roots
from tests.demo import files
from tests.demo.rows import CatalogRows, MetastoreLedger
from tests.demo.tables import DemoTable
from tests.demo.warehouse import Warehouse

DATABASE = "bench"
Writer = Callable[[Path, int], None]


def run_once(worker: Worker) -> str:
    """One cycle of a worker in which it claims what waits, after Spark's start; returns its sentence."""
    while (cycle := worker.run_once()) == STARTING:
        pass
    return cycle.sentence


class Lab:
    """
    Makes tables, compacts them.

    Args:
        root: an empty folder.
        cores: of the Spark session.
        hdfs: how an HDFS is reached, for tables that are moved there.
        spark: the `spark` section of the settings, for a session on a cluster.
        content: of the tables.
    """

    def __init__(
        self,
        root: Path,
        cores: int = 2,
        hdfs: Hdfs | None = None,
        spark: Mapping[str, object] | None = None,
        content: tables.Content = tables.RANDOM,
    ) -> None:
        self.content = content
        configure("warning", "console")
        url = f"sqlite:///{root}/metastore.db"
        Database(url, create=True).connect().close()
        where = spark or {"master": f"local[{cores}]"}
        settings = Settings(
            database={"url": url}, spark=where, http={"enabled": False}, log={"level": "warning"}, hdfs=hdfs or Hdfs()
        )
        self.services = Services.open(settings)
        ledger = MetastoreLedger(self.services.database)
        self.warehouse = Warehouse(root / "warehouse", ledger, CatalogRows(self.services.database))
        self.ledger = ledger
        self.worker = Worker(self.services, 0)

    def allow(self, location: str) -> None:
        """Allow tables at this location, too."""
        roots = self.services.settings.warehouse.roots or (f"file:{self.warehouse.root}",)
        self.services.settings = self.services.settings.model_copy(
            update={"warehouse": Roots(roots=tuple(dict.fromkeys((*roots, location))))}
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.services.close()

    def table(self, name: str, source: Path, deleted: Iterable[int] = ()) -> DemoTable:
        """
        Make a table of one large delta (a link to `source`), one row in a second, and deletes of the given row ids of
        the first.
        """
        codec = orc.ORCFile(source).compression  # the table must name it, else the files are compressed
        parameters = {"orc.compress": "NONE" if codec == "UNCOMPRESSED" else codec}
        table = self.warehouse.create_table(DATABASE, name, self.content.columns, parameters=parameters)
        self._write(table, "i", lambda where, write_id: self._link(source, where / delta_name(write_id, write_id, 0)))
        with self.warehouse.begin() as txn:
            txn.insert(table, [self.content.row])
        keys = sorted(deleted)
        if keys:
            self._write(
                table,
                "d",
                lambda where, write_id: self._delete(where / delete_delta_name(write_id, write_id, 0), keys, write_id),
            )
        return table

    def compact(self, table: DemoTable, kind: CompactionKind = CompactionKind.MAJOR) -> str:
        """Queue a compaction and let the worker run it, from claim to commit; returns its sentence."""
        self.services.queue.enqueue(Entity(table.database, table.name, None), kind)
        sentence = run_once(self.worker)
        if ": published " not in sentence:
            raise RuntimeError(sentence)
        return sentence

    def warm_up(self) -> None:
        """Start Spark and its Python workers by compacting a tiny table."""
        table = self.warehouse.create_table(DATABASE, "warm", [("a", "int")])
        for number in range(2):
            with self.warehouse.begin() as txn:
                txn.insert(table, [(number,)])
        self.compact(table)

    def _write(self, table: DemoTable, operation: str, write: Writer) -> None:
        txn = self.ledger.open()
        write_id = self.ledger.write_id(txn, table.database, table.name)
        self.ledger.touch(txn, table.database, table.name, None, operation)
        write(table.location, write_id)
        self.ledger.commit(txn)

    @staticmethod
    def _link(source: Path, directory: Path) -> None:
        directory.mkdir()
        os.link(source, directory / "bucket_00000_0")
        files.write_version_file(directory)

    def _delete(self, directory: Path, row_ids: list[int], write_id: int) -> None:
        events = [(files.DELETE, 1, tables.BUCKET_PROPERTY, row_id, write_id, None) for row_id in row_ids]
        files.write_acid(directory / "bucket_00000_0", self.content.columns, events)
        files.write_version_file(directory)
