"""
From `enqueue`, on a connection of its own, to the first Spark task, in a daemon whose session is warm; settings as
delivered.
"""

import statistics
import time
from pathlib import Path

from benchmarks import harness
from compactor.acid.compaction import CompactionKind
from compactor.daemon import Daemon
from compactor.demo.rows import CatalogRows, MetastoreLedger
from compactor.demo.warehouse import Warehouse
from compactor.log import configure
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity, QueueState
from compactor.settings import Settings
from tests.metastore.servers import postgres_server

ROUNDS = 7


def run() -> list[harness.Result]:
    """Measure the bar."""
    configure("error", "console")
    with postgres_server() as server, harness.scratch() as folder:
        url = server.create("4.0.0")
        client = Database(url).connect()
        warehouse = Warehouse(folder / "warehouse", MetastoreLedger(client), CatalogRows(client))
        tables = [warehouse.create_table("bench", f"t{number}", [("id", "int")]) for number in range(ROUNDS + 1)]
        for table in tables:
            for value in range(2):
                with warehouse.begin() as txn:
                    txn.insert(table, [(value,)])
        settings = Settings(
            database={"url": url},
            initiator={"enabled": False},
            spark={"master": "local[2]"},
            http={"enabled": False},
            log={"level": "error"},
        )
        daemon = Daemon(settings)
        daemon.start()
        try:
            waits = [_enqueue_and_wait(client, table.name, table.location) for table in tables][1:]
        finally:
            daemon.stop()
            client.close()
    detail = f"until its first file is written; median of {ROUNDS}, longest {max(waits):.2f} s"
    return [harness.at_most("latency", statistics.median(waits), 0.5, "s", detail)]


def _enqueue_and_wait(client: Database, name: str, location: Path) -> float:
    """Seconds until a task has written the result's file: later than the task's start, but measured by one clock."""
    queue = Queue(client)
    begin = time.time()
    number = queue.enqueue(Entity("bench", name, None), CompactionKind.MAJOR).id
    while time.time() < begin + 120:
        entry = queue.entry(number)
        if entry is not None and entry.state not in {QueueState.INITIATED, QueueState.WORKING}:
            (written,) = location.glob("base_*/bucket_00000")
            return written.stat().st_mtime - begin
        time.sleep(0.05)
    raise RuntimeError(f"{name} was not compacted within two minutes")
