"""
From `enqueue`, on a connection of its own, to the first Spark task: in a daemon whose session is warm, settings as
delivered; and in one whose session was stopped because it was idle, against Spark's own start.
"""

import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkConf, SparkContext

from benchmarks import harness, processes
from compactor.acid.compaction import CompactionKind
from compactor.daemon import Daemon
from compactor.log import configure
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity, QueueState
from compactor.settings import Settings
from tests.demo.rows import CatalogRows, MetastoreLedger
from tests.demo.tables import DemoTable
from tests.demo.warehouse import Warehouse
from tests.metastore.servers import postgres_server

ROUNDS, COLD_ROUNDS = 7, 3


def run() -> list[harness.Result]:
    """Measure both bars."""
    configure("error", "console")
    with postgres_server() as server, harness.scratch() as folder:
        url = server.create("4.0.0")
        client = Database(url).connect()
        warehouse = Warehouse(folder / "warehouse", MetastoreLedger(client), CatalogRows(client))
        tables = [_small_table(warehouse, f"t{number}") for number in range(ROUNDS + 1 + COLD_ROUNDS)]
        try:
            with _daemon(url, {}):
                warm = [_enqueue_and_wait(client, table) for table in tables[: ROUNDS + 1]][1:]
            with _daemon(url, {"idle_seconds": 1}):
                bare, cold = harness.alternate(
                    lambda: harness.in_child("benchmarks.latency")["seconds"],
                    lambda: _after_idle(client, tables.pop()),
                    COLD_ROUNDS,
                )
        finally:
            client.close()
    detail = f"until its first file is written; median of {ROUNDS}, longest {max(warm):.2f} s"
    idle = f"{cold:.1f} s; Spark alone takes {bare:.1f} s from its start to its first task"
    return [
        harness.at_most("latency", statistics.median(warm), 0.5, "s", detail),
        harness.at_most("latency/after_idle", cold / bare, 1.5, "x Spark's start", idle),
    ]


def main() -> None:
    """How long Spark takes from its start to the end of a first task, in a process that has done nothing else."""
    begin = time.perf_counter()
    context = SparkContext("local[2]", conf=SparkConf().set("spark.ui.enabled", "false"))
    context.parallelize([0], 1).map(str).collect()
    took = time.perf_counter() - begin
    context.stop()
    print(json.dumps({"seconds": took}))


@contextmanager
def _daemon(url: str, spark: Mapping[str, object]) -> Iterator[None]:
    """A daemon with a worker alone."""
    settings = Settings(
        database={"url": url},
        initiator={"enabled": False},
        spark={"master": "local[2]", **spark},
        http={"enabled": False},
        log={"level": "error"},
    )
    daemon = Daemon(settings)
    daemon.start()
    try:
        yield
    finally:
        daemon.stop()


def _small_table(warehouse: Warehouse, name: str) -> DemoTable:
    table = warehouse.create_table("bench", name, [("id", "int")])
    for value in range(2):
        with warehouse.begin() as txn:
            txn.insert(table, [(value,)])
    return table


def _after_idle(client: Database, table: DemoTable) -> float:
    """As `_enqueue_and_wait`, once the session has been stopped."""
    while any(Path(f"/proc/{pid}/comm").read_text() == "java\n" for pid in processes.below(os.getpid())):
        time.sleep(0.2)
    return _enqueue_and_wait(client, table)


def _enqueue_and_wait(client: Database, table: DemoTable) -> float:
    """Seconds until a task has written the result's file: later than the task's start, but measured by one clock."""
    queue = Queue(client)
    begin = time.time()
    number = queue.enqueue(Entity("bench", table.name, None), CompactionKind.MAJOR).id
    while time.time() < begin + 120:
        entry = queue.entry(number)
        if entry is not None and entry.state not in {QueueState.INITIATED, QueueState.WORKING}:
            (written,) = table.location.glob("base_*/bucket_00000")
            return written.stat().st_mtime - begin
        time.sleep(0.05)
    raise RuntimeError(f"{table.name} was not compacted within two minutes")


if __name__ == "__main__":
    main()
