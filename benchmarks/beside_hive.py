"""
The same compactions by Hive 4.0.1's own worker and by ours, in turn, on one table of one metastore.

Hive writes the table (4 million rows of `tables.ORDINARY`, four buckets, its own stripes), the deltas and the deletes.
Each case is run by both on the very same directories: the result of one is put aside before the other begins. Then
Hive's reader scans each result, and both must hold the same rows. Hive's worker runs in the JVM of its metastore, which
is warm, two tasks at a time, and its MapReduce is asked every 20 ms; ours has a session that is warm, of two cores. No
time that an entry waits for a worker counts.
"""

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyarrow import orc
from sqlalchemy import delete

from benchmarks import harness, processes, tables
from compactor.acid.compaction import CompactionKind
from compactor.log import configure
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import Entity, QueueState
from compactor.roles.services import Services
from compactor.roles.worker.worker import Worker
from compactor.settings import Settings
from tests.hive.server.hive import HiveServer, hive_server
from tests.metastore.servers import postgres_server

ROWS = 4_000_000
ROUNDS = 5
POOL = "ours"
MANY = 200
ACID = "stored as orc tblproperties ('transactional'='true')"
SCAN = "select count(*), sum(quantity), max(ordered_at), min(city), sum(length(comment)), sum(price) from {}"


@dataclass
class Measured:
    """One side of a case: of each round seconds of wall time and of CPU, then bytes of the result, seconds of scans."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    scan: list[float] = field(default_factory=list)
    bytes: int = 0
    rows: object = None


@dataclass(frozen=True)
class Case:
    """
    What both sides measured, as medians; `peer` is Hive.

    Attributes:
        name: of the bar.
        peer, ours: what was measured.
    """

    name: str
    peer: Measured
    ours: Measured

    def ratio(self, what: str) -> float:
        """How many times as much of `what` Hive took."""
        return statistics.median(getattr(self.peer, what)) / statistics.median(getattr(self.ours, what))

    @property
    def detail(self) -> str:
        def said(side: Measured) -> str:
            wall, cpu = statistics.median(side.wall), statistics.median(side.cpu)
            return (
                f"{wall:.2f} s, {cpu:.1f} CPU s, {side.bytes / 1e6:.1f} MB, scan {statistics.median(side.scan):.2f} s"
            )

        return f"ours {said(self.ours)}; Hive {said(self.peer)}"


class Bench:
    """
    A Hive, and our worker beside it.

    Args:
        hive: the server.
        root: an empty folder on the warehouse's file system.
    """

    def __init__(self, hive: HiveServer, root: Path) -> None:
        settings = Settings(
            database={"url": hive.database},
            warehouse={"roots": [f"file:{hive.warehouse}"]},
            spark={"master": "local[2]"},
            http={"enabled": False},
            log={"level": "error"},
        )
        self.services = Services.open(settings)
        self._hive, self._aside, self._queue = hive, root / "aside", Queue(self.services.database)
        self._worker = Worker(self.services, 0, POOL)

    def fill(self, table: str, rows: int) -> None:
        """Have Hive write rows into a new table of four buckets."""
        source = self._hive.external / f"source_{table}"
        source.mkdir()
        columns = ", ".join(f"`{name}` {kind}" for name, kind in tables.ORDINARY.columns)
        with orc.ORCWriter(str(source / "rows.orc")) as writer:
            for batch in tables.batches(rows, 1, content=tables.ORDINARY):
                content = batch.column(5)
                writer.write(pa.Table.from_arrays(content.flatten(), names=[field.name for field in content.type]))
        self._hive.sql(
            f"create external table source_{table} ({columns}) stored as orc location 'file://{source}'",
            f"create table {table} ({columns}) clustered by (id) into 4 buckets {ACID}",
            f"insert into {table} select * from source_{table}",
        )

    def sql(self, *statements: str) -> None:
        self._hive.sql(*statements)

    def case(self, name: str, table: str, kind: CompactionKind = CompactionKind.MAJOR, scan: str = SCAN) -> Case:
        """
        Run a case on both sides in turn, and leave our result in the table.

        Raises:
            RuntimeError: a compaction failed, or the results hold different rows.
        """
        place, before = self._hive.warehouse / table, self._directories(table)
        peer, ours = Measured(), Measured()
        sides = ((peer, None, self._by_hive), (ours, POOL, self._by_us))
        for number in range(ROUNDS + 1):
            for side, pool, work in sides:
                os.sync()
                entry = self._queue.enqueue(Entity("default", table, None), kind, pool=pool)
                wall, cpu = work(entry.id)
                self._forget(entry.id)
                made = self._directories(table) - before
                if number:  # the first round warms both up
                    side.wall.append(wall)
                    side.cpu.append(cpu)
                    side.bytes = sum(file.stat().st_size for one in made for file in (place / one).rglob("*"))
                aside = self._aside / f"{table}-{pool}"
                shutil.rmtree(aside, ignore_errors=True)
                aside.mkdir(parents=True)
                for one in made:
                    (place / one).rename(aside / one)
        for _ in range(3):
            for side, pool, _work in sides:
                with self._there(table, self._aside / f"{table}-{pool}"):
                    began = time.perf_counter()
                    side.rows = self._hive.rows(scan.format(table))
                    side.scan.append(time.perf_counter() - began)
        if peer.rows != ours.rows:
            raise RuntimeError(f"{name}: Hive's result holds {peer.rows}, ours {ours.rows}")
        for one in (self._aside / f"{table}-{POOL}").iterdir():
            one.rename(place / one.name)
        return Case(name, peer, ours)

    def close(self) -> None:
        self.services.close()

    def _directories(self, table: str) -> set[str]:
        return {one.name for one in (self._hive.warehouse / table).iterdir() if one.is_dir()}

    @contextmanager
    def _there(self, table: str, aside: Path) -> Iterator[None]:
        place, made = self._hive.warehouse / table, list(aside.iterdir())
        for one in made:
            one.rename(place / one.name)
        yield
        for one in made:
            (place / one.name).rename(one)

    def _by_hive(self, number: int) -> tuple[float, float]:
        with processes.CpuMeter(self._hive.pid) as meter:
            took = harness.seconds(lambda: self._hive.cycle("worker"))
        self._ended(number, "Hive's worker")
        return took, meter.seconds

    def _by_us(self, number: int) -> tuple[float, float]:
        with processes.CpuMeter(os.getpid()) as every, processes.CpuMeter(self._hive.pid) as hive:
            took = harness.seconds(self._worker.run_once)
        self._ended(number, "our worker")
        return took, every.seconds - hive.seconds

    def _ended(self, number: int, who: str) -> None:
        entry = self._queue.entry(number)
        if entry is None or entry.state is not QueueState.READY_FOR_CLEANING:
            raise RuntimeError(f"compaction {number} by {who} ended as {entry}")

    def _forget(self, number: int) -> None:
        queue = self.services.database.schema.compaction_queue
        self.services.database.write(
            lambda connection: connection.execute(delete(queue).where(queue.c.cq_id == number))
        )


def _cases(bench: Bench) -> Iterator[Case]:
    bench.fill("t", ROWS)
    few = "insert into t select * from source_t limit 10"
    bench.sql(few)
    yield bench.case("untouched_first", "t")
    bench.sql(few)
    yield bench.case("untouched_next", "t")
    bench.sql("delete from t where id between 1000000 and 1000099")
    yield bench.case("range_first", "t")
    bench.sql("delete from t where id between 1000200 and 1000299")
    yield bench.case("range_next", "t")
    bench.sql("delete from t where id % 10000 = 7")
    yield bench.case("every_stripe", "t")
    for name, count in (("minor_4", 4), ("minor_200", MANY)):
        bench.sql(f"create table {name} (id int, v string) {ACID}")
        bench.sql(*(f"insert into {name} values ({number}, 'v{number}')" for number in range(count)))
        yield bench.case(name, name, CompactionKind.MINOR, "select count(*), sum(id), max(v) from {}")


def run() -> list[harness.Result]:
    """The bars of the table in docs/benchmarks.md."""
    configure("error", "console")
    settings = {"mapreduce.local.map.tasks.maximum": "2", "mapreduce.local.reduce.tasks.maximum": "2"}
    with (
        postgres_server() as postgres,
        hive_server("4", postgres, settings) as hive,
        tempfile.TemporaryDirectory(dir=hive.folder) as folder,
    ):
        bench = Bench(hive, Path(folder))
        try:
            cases = {}
            for case in _cases(bench):
                print(f"        beside_hive/{case.name}: {case.detail}", flush=True)
                cases[case.name] = case
        finally:
            bench.close()
    bars: tuple[tuple[str, str, float], ...] = (
        ("untouched_first", "wall", 10),
        ("untouched_next", "wall", 10),
        ("range_first", "wall", 8),
        ("range_next", "wall", 8),
        ("every_stripe", "wall", 3.5),
        ("every_stripe", "cpu", 2),
        ("minor_4", "wall", 2.5),
        ("minor_200", "wall", 5),
    )
    results = [
        harness.at_least(f"beside_hive/{name}/{what}", cases[name].ratio(what), bar, "x Hive's", cases[name].detail)
        for name, what, bar in bars
    ]
    slowest = max(cases.values(), key=lambda case: 1 / case.ratio("scan"))
    reading = 1 / slowest.ratio("scan")
    return [
        *results,
        harness.at_most("beside_hive/scan", reading, 1.02, "x Hive's", f"{slowest.name}: {slowest.detail}"),
    ]
