"""
A small world for tests of the roles: a metastore, a warehouse, and the roles over both, with Spark's place taken by
this process.
"""

import threading
from pathlib import Path

import pytest
from sqlalchemy import update

from compactor.metastore.model import Entity, QueueState
from compactor.roles.cleaner.cleaner import Cleaner
from compactor.roles.housekeeper.housekeeper import Housekeeper
from compactor.roles.identity import Identity
from compactor.roles.initiator.initiator import Initiator
from compactor.roles.services import Services
from compactor.roles.worker.backoff import Backoff
from compactor.roles.worker.worker import Worker
from compactor.settings import Settings
from compactor.spark.submitter import JobName
from tests.compacting import NothingRuns
from tests.demo.rows import CatalogRows, MetastoreLedger
from tests.demo.warehouse import Warehouse
from tests.metastore.actor import OUTLIVED_MS, Hive
from tests.reference.compare import assert_as_expected, read_table


class Inline(NothingRuns):
    """Runs a job's tasks one after the other, here; a test may have something happen before."""

    def __init__(self) -> None:
        self.before = lambda _: None
        self.jobs: list[JobName] = []

    def run(self, job, function, tasks, *, progress=lambda _: None, cancelled=lambda: False):
        self.jobs.append(job)
        self.before(job)
        made = []
        for task in tasks:
            if cancelled():
                from compactor.errors import CancelledError

                raise CancelledError(f"{job.name} was cancelled")
            made.append(function(task))
        progress(1.0)
        return made


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds

    def forward(self, seconds: float) -> None:
        self.seconds += seconds


class World:
    """Everything a test needs; `settings` are changed by key: `world.configure(cleaner={"quarantine_hours": 1})`."""

    def __init__(self, database, folder: Path, observers=()) -> None:
        self.database = database
        self.folder = folder
        self.warehouse = Warehouse(folder / "warehouse", MetastoreLedger(database), CatalogRows(database))
        self.hive = Hive(database)
        self.submitter = Inline()
        self.passed: list[str] = []
        self.at_step: dict[str, object] = {}
        self.late_writers = False
        self.observers = (self._observe, *observers)
        self.clock = Clock()
        self.services = self.new_services()

    def new_services(self, **sections) -> Services:
        """Services of another process of the same machine."""
        (self.folder / "alive").mkdir(exist_ok=True)
        settings = Settings(database={"url": "sqlite:////unused.db"}, host="here", user="compactor", **sections)
        identity = Identity("here", "compactor", self.folder / "alive")
        services = Services.over(
            self.database, settings, observers=self.observers, identity=identity, submitter=self.submitter
        )
        services.backoff = Backoff(self.clock)
        return services

    def configure(self, **sections) -> None:
        self.services.settings = Settings(
            database={"url": "sqlite:////unused.db"}, host="here", user="compactor", **sections
        )

    def _observe(self, step, about) -> None:
        self.passed.append(step)
        action = self.at_step.get(step)
        if action is not None:
            action()

    # Tables

    def table(self, name="t", rows=12, *, database="db", columns=(("id", "int"), ("v", "string")), **options):
        """A table with so many single-row inserts."""
        table = self.warehouse.create_table(database, name, list(columns), **options)
        for number in range(rows):
            self.insert(table, [(number, f"v{number}")])
        return table

    def root(self, location) -> None:
        """Another database, which lies there: whatever is inside may be written and deleted."""
        dbs = self.database.schema.dbs
        number = 900 + len(self.hive.rows(dbs, "name"))
        self.hive.change(
            dbs.insert().values(db_id=number, name=f"root{number}", ctlg_name="hive", db_location_uri=str(location))
        )
        self.services.places.forget()

    def insert(self, table, rows, partition=None):
        with self.warehouse.begin() as txn:
            txn.insert(table, rows, partition)

    def insert_into_itself(self, table, count):
        """Insert rows, one a transaction, as INSERTs into a table from which they read: no commit of them is noted."""
        completed = self.database.schema.completed_txn_components
        known = [txn for (txn,) in self.hive.rows(completed, "ctc_txnid")]
        for number in range(count):
            self.insert(table, [(100 + number, "x")])
        self.hive.change(completed.delete().where(completed.c.ctc_txnid.not_in(known)))
        self.settle_time()

    def delete(self, table, *ids, partition=None):
        with self.warehouse.begin() as txn:
            txn.delete(table, lambda row: row[0] in ids, partition)

    def aborted_insert(self, table, rows, partition=None):
        """An insert that wrote and was rolled back, so long ago that its tasks are over; returns the transaction."""
        txn = self.warehouse.begin()
        txn.insert(table, rows, partition)
        txn.abort()
        self.hive.fall_silent(txn.id)
        return txn.id

    def steps_of_a_rename(self, table, old, new):
        """
        The two transactions of Hive's that change a partition's name, in Hive's order; it has moved the directory
        before.
        """
        steps = [lambda: self.rename_in_the_queue(old, new), lambda: self._rename_in_the_catalog(table, old, new)]
        return steps if self.services.layout == "hive-4" else steps[::-1]

    def rename_in_the_queue(self, old, new):
        """As Hive's TxnHandler.onRename does."""
        schema = self.database.schema
        for table, prefix in ((schema.compaction_queue, "cq"), (schema.completed_txn_components, "ctc")):
            partition = table.c[f"{prefix}_partition"]
            self.hive.change(update(table).where(partition == old).values({partition: new}))

    def _rename_in_the_catalog(self, table, old, new):
        """As Hive's HiveAlterHandler does."""
        schema = self.database.schema
        partitions, sds = schema.partitions, schema.sds
        ((part_id, sd_id),) = self.hive.rows(partitions, "part_id", "sd_id", where=partitions.c.part_name == old)
        self.hive.change(update(partitions).where(partitions.c.part_id == part_id).values(part_name=new))
        self.hive.change(update(sds).where(sds.c.sd_id == sd_id).values(location=f"file:{table.location}/{new}"))
        self.services.places.forget()

    def components(self):
        """
        Operations of the components of transactions; that of an attempt that was rolled back stays until its tasks are
        over.
        """
        rows = self.hive.rows(self.database.schema.txn_components, "tc_operation_type")
        return {operation for (operation,) in rows}

    def settle_time(self) -> None:
        """
        Make every transaction old enough for its neighbours to be sure of it, and, unless `late_writers` is set, every
        aborted one so old that its tasks are over: nobody waits in tests.
        """
        txns = self.database.schema.txns
        self.hive.change(txns.update().values(txn_started=txns.c.txn_started - 10_000))
        if not self.late_writers:
            self.outlive()

    def outlive(self) -> None:
        """Time goes by until no task of an aborted transaction can be running any more."""
        txns = self.database.schema.txns
        aborted = txns.update().where(txns.c.txn_state == "a")
        self.hive.change(aborted.values(txn_last_heartbeat=txns.c.txn_last_heartbeat - OUTLIVED_MS))

    def unmount(self) -> None:
        """The warehouse's file system isn't mounted any more: an empty mount point."""
        warehouse = self.folder / "warehouse"
        warehouse.rename(self.folder / "elsewhere")
        warehouse.mkdir()

    def mount(self) -> None:
        """It is back; nobody wrote into the mount point meanwhile."""
        warehouse = self.folder / "warehouse"
        warehouse.rmdir()
        (self.folder / "elsewhere").rename(warehouse)

    # Roles

    def initiator(self) -> Initiator:
        return Initiator(self.services)

    def worker(self, number=1) -> Worker:
        return Worker(self.services, number)

    def cleaner(self) -> Cleaner:
        return Cleaner(self.services)

    def housekeeper(self) -> Housekeeper:
        return Housekeeper(self.services)

    def enqueue(self, entity, kind="major", **options):
        from compactor.acid.compaction import CompactionKind

        return self.services.queue.enqueue(entity, CompactionKind(kind), **options)

    def compact(self, table, kind="major", partition=None) -> str:
        """Ask for one compaction and do it; the Cleaner comes later."""
        self.settle_time()
        assert self.enqueue(Entity(table.database, table.name, partition), kind).accepted
        return self.worker().run_once().sentence

    def clean(self) -> str:
        self.settle_time()
        return self.cleaner().run_once().sentence

    def clean_until_it_breaks(self, step: str) -> None:
        """A cycle of the Cleaner that ends at this step, as if it had been killed."""

        def broken() -> None:
            raise KeyboardInterrupt

        self.at_step[step] = broken
        with pytest.raises(KeyboardInterrupt):
            self.clean()
        self.at_step.clear()

    # Looking

    def names(self, location) -> list[str]:
        return sorted(path.name for path in Path(location).iterdir())

    def states(self) -> list[str]:
        return [entry.state.value for entry in self.services.queue.entries()]

    def ended(self) -> list[tuple[str, str | None]]:
        """States and messages of the history, newest first."""
        return [(entry.state.value, entry.error_message) for entry in self.services.queue.history()]

    def assert_rows(self, *tables) -> None:
        for table in tables or self.warehouse.tables.values():
            assert_as_expected(self.warehouse, table)

    def rows(self, table):
        return read_table(self.warehouse, table)


def succeeded(world: World) -> bool:
    return all(state == QueueState.SUCCEEDED.value for state, _ in world.ended())


class Barrier:
    """Lets a test hold a thread at a point and let it go."""

    def __init__(self) -> None:
        self.reached, self.go = threading.Event(), threading.Event()

    def __call__(self, *_: object) -> None:
        self.reached.set()
        assert self.go.wait(60)
