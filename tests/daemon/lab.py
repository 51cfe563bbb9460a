"""
What the real Hive 4.0.1 left, put back to life: its metastore in a PostgreSQL database, its warehouse in a folder; and
our daemon on both, in this process.
"""

import re
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func, select

from compactor.acid.compaction import CompactionKind
from compactor.daemon import Daemon
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity, QueueState
from compactor.settings import Settings
from tests.compacting import NothingRuns
from tests.demo.rows import MetastoreLedger
from tests.fixtures import hive
from tests.metastore.actor import OUTLIVED_MS, Hive
from tests.reference.compare import read_directory
from tests.reference.values import from_jdbc, parse_type

PATIENCE = 120.0
OPEN_TXN = 97
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
UNREADABLE = "types_tsltz"
"""Hive can't read it, so there is nothing printed, and its own compactions failed."""

SECTIONS = {
    "initiator": {"enabled": False},
    "worker": {"threads": 2, "poll_seconds": 0.1},
    "cleaner": {"interval_seconds": 0.2},
    "housekeeper": {"enabled": "never"},
    "spark": {"master": "local[2]"},
    "http": {"enabled": False},
    "host": "here",
    "user": "compactor",
}
"""
Quick cycles, small stripes are recoded as ever; nobody keeps house, so that what is gone afterwards is Worker's and
Cleaner's doing.
"""


class Shared(NothingRuns):
    """Spark for one daemon after the other: a daemon that ends leaves it running."""

    def __init__(self, submitter) -> None:
        self._submitter = submitter
        self.jobs = []

    def run(self, job, *arguments, **options):
        self.jobs.append(job)
        return self._submitter.run(job, *arguments, **options)


@contextmanager
def running(url, submitter, **sections):
    """A daemon at work for as long as the block runs; it must end in time."""
    daemon = Daemon(Settings(database={"url": url}, **(SECTIONS | sections)), submitter=submitter, configure_log=False)
    daemon.start()
    try:
        yield daemon
    finally:
        assert daemon.stop()


def until(done, what):
    """Wait for a state of the world."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, f"not {what}"
        time.sleep(0.05)


def cycles(daemon, role):
    """How many cycles a role has completed."""
    return daemon.metrics.registry.get_sample_value("compactor_cycle_duration_seconds_count", {"role": role}) or 0


def pass_cycles(daemon, role, count=2):
    """Wait until a whole cycle has begun and ended from now on."""
    before = cycles(daemon, role)
    until(lambda: cycles(daemon, role) >= before + count, f"{count} more cycles of {role}")


@dataclass
class Lab:
    """One restored snapshot."""

    url: str
    folder: Path
    database: Database

    @classmethod
    def restore(cls, postgres, folder: Path, snapshot: str = "before") -> "Lab":
        """
        As if Hive had stopped an hour ago, whatever the clock says now, and what was rolled back had been silent for
        long.
        """
        hive.restore(folder, snapshot)
        url = postgres.restore(hive.metastore_sql(snapshot, folder))
        made = cls(url, folder, Database(url).connect())
        made._move_times(3_600_000)
        return made

    def _move_times(self, age_ms: int) -> None:
        txns, components = self.database.schema.txns, self.database.schema.completed_txn_components
        newest = self.database.read(lambda connection: connection.scalar(select(func.max(txns.c.txn_started))))
        shift = self.database.read(self.database.now_ms) - age_ms - newest
        moved = {"txn_started": txns.c.txn_started + shift, "txn_last_heartbeat": txns.c.txn_last_heartbeat + shift}
        self.hive.change(txns.update().where(txns.c.txn_id > 0).values(moved))
        aborted = txns.update().where(txns.c.txn_state == "a")
        self.hive.change(aborted.values(txn_last_heartbeat=txns.c.txn_last_heartbeat - OUTLIVED_MS))
        self.hive.change(
            components.update().values(
                ctc_timestamp=components.c.ctc_timestamp + func.make_interval(0, 0, 0, 0, 0, 0, shift / 1000)
            )
        )

    @property
    def hive(self) -> Hive:
        """Somebody else at the same metastore."""
        return Hive(self.database)

    @property
    def queue(self) -> Queue:
        return Queue(self.database)

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse"

    def enqueue_everything(self, kind: str) -> dict[int, Entity]:
        """A request for every table and partition, in the order in which Hive was asked; by id."""
        asked = {}
        for table in sorted(TABLES):
            for partition, _, _ in sorted(TABLES[table].directories, key=lambda one: one[0] or ""):
                entity = Entity(hive.DATABASE, table, partition)
                answer = self.queue.enqueue(entity, CompactionKind(kind), initiator_id="lab-manual")
                assert answer.accepted
                asked[answer.id] = entity
        return asked

    def waiting(self) -> list[Entity]:
        """What no worker has finished."""
        return [entry.entity for entry in self.queue.entries(QueueState.INITIATED, QueueState.WORKING)]

    def history(self):
        """Finished compactions by id."""
        return {entry.id: entry for entry in self.queue.history()}

    def rows(self, table: str):
        """A table's rows as whoever starts to read now sees them, partition values included."""
        facts = hive.metastore("before").tables[table]
        seen = self.snapshot(table)
        found = []
        for _, path, keys in facts.directories:
            shown = tuple(
                None if key == NULL_PARTITION and kind != "string" else key
                for key, (_, kind) in zip(keys, facts.partition_keys, strict=True)
            )
            rows = read_directory(self.warehouse / path, facts.schema, seen, insert_only=facts.insert_only)
            found.extend((key, (*row, *shown)) for key, row in rows)
        return sorted(found, key=repr)

    def snapshot(self, table: str):
        """What a reader that starts now may see, told by the metastore's rows as Hive would."""
        return MetastoreLedger(self.database).snapshot(hive.DATABASE, table)

    def files(self) -> set[str]:
        """Every file below the warehouse."""
        return {str(path.relative_to(self.warehouse)) for path in self.warehouse.rglob("*") if path.is_file()}

    def table_rows(self, name: str, *columns: str):
        """Rows of a metastore table as a sorted list of tuples of text, NULL as None: comparable with a dump's."""
        table = getattr(self.database.schema, name)
        found = self.database.read(
            lambda connection: connection.execute(select(*(table.c[column] for column in columns))).all()
        )
        return sorted(([None if value is None else str(value) for value in row] for row in found), key=repr)

    def close(self) -> None:
        self.database.close()


TABLES = hive.metastore("before").tables


def dumped(snapshot: str, name: str, *columns: str):
    """The same of a dump."""
    rows = hive.metastore(snapshot).rows.get(name.upper(), [])
    return sorted(([row[column.upper()] for column in columns] for row in rows), key=repr)


def hive_files(snapshot: str) -> set[str]:
    """Every file of a snapshot's warehouse."""
    lines = (hive.HERE / snapshot / "files.tsv").read_text(encoding="utf-8").split("\n")
    return {line.rpartition("\t")[0] for line in lines if line}


def without_txn(paths) -> set[str]:
    """Paths without the transactions that made directories visible: those differ from run to run."""
    return {re.sub(r"_v\d+(?=/|$)", "", path) for path in paths}


def printed(table: str):
    """What Hive printed of a table before any compaction, in the form of `Lab.rows`."""
    facts = TABLES[table]
    kinds = [(name, parse_type(kind)) for name, kind in facts.columns]
    found = []
    for row in hive.hive_rows("before", table):
        key = () if facts.insert_only else tuple(int(row[f"row__{part}"]) for part in ("writeid", "bucketid", "rowid"))
        values = tuple(from_jdbc(kind, row[name]) for name, kind in kinds)
        found.append((key, (*values, *(row[name] for name, _ in facts.partition_keys))))
    return sorted(found, key=repr)
