"""
A queue of many small minor compactions, in a daemon whose session is warm, with two workers for each core; PostgreSQL.

Each partition has ten deltas of one row. The clock runs from the moment when all entries are queued until the last one
is committed. Initiator and Cleaner are off: they would work beside it. `MANY_SMALL` takes another number of partitions,
for a quick look.
"""

import os
import time
from pathlib import Path
from typing import Final

from sqlalchemy import func, select

from benchmarks import harness
from benchmarks.initiator import register
from compactor.acid.compaction import CompactionKind
from compactor.acid.names import delta_name
from compactor.daemon import Daemon
from compactor.log import configure
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.requests import Request
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity, QueueState
from compactor.settings import Settings
from tests.demo import files
from tests.demo.rows import CatalogRows, MetastoreLedger
from tests.demo.warehouse import Warehouse
from tests.metastore.servers import postgres_server

PARTITIONS: Final = int(os.environ.get("MANY_SMALL", "2000"))
CORES: Final = 2
WARM: Final = 8
"""Partitions that are compacted before the clock runs: each Python worker of Spark then runs."""
DELTAS: Final = 10
COLUMNS: Final = (("id", "int"), ("name", "string"))


def run() -> list[harness.Result]:
    """Measure the bar."""
    configure("error", "console")
    with postgres_server() as server, harness.scratch() as folder:
        url = server.create("4.0.0")
        client = Database(url).connect()
        build(folder, client, PARTITIONS + WARM)
        settings = Settings(
            database={"url": url},
            initiator={"enabled": False},
            cleaner={"enabled": False},
            worker={"threads": 2 * CORES},
            spark={"master": f"local[{CORES}]"},
            http={"enabled": False},
            log={"level": "error"},
        )
        daemon = Daemon(settings)
        daemon.start()
        try:
            _compact(client, range(PARTITIONS, PARTITIONS + WARM))
            seconds = _compact(client, range(PARTITIONS))
        finally:
            daemon.stop()
            client.close()
    detail = f"{PARTITIONS:,} minors of {DELTAS} deltas in {seconds:.1f} s"
    return [harness.at_least("many_small", PARTITIONS / seconds, 15, "minors/s", detail)]


def build(folder: Path, client: Database, partitions: int) -> None:
    """Make a table whose partitions have the same ten deltas; their files are links to ten real ones."""
    ledger = MetastoreLedger(client)
    warehouse = Warehouse(folder / "warehouse", ledger, CatalogRows(client))
    table = warehouse.create_table("bench", "parts", COLUMNS, partition_keys=[("p", "int")])
    txns = [ledger.open() for _ in range(DELTAS)]
    writes = {txn: ledger.write_id(txn, table.database, table.name) for txn in txns}
    for write_id in writes.values():
        source = folder / f"source-{write_id}"
        files.write_acid(source, COLUMNS, [(0, write_id, 1 << 29, 0, write_id, (write_id, f"name {write_id}"))])
        for number in range(partitions):
            delta = table.location / f"p={number}" / delta_name(write_id, write_id, 0)
            delta.mkdir(parents=True)
            os.link(source, delta / "bucket_00000_0")
            files.write_version_file(delta)
    register(client, table, writes, partitions)
    for txn in txns:
        ledger.commit(txn)


def _compact(client: Database, partitions: range) -> float:
    """Queue a minor compaction of each partition; returns the seconds until all are committed."""
    queue, rows = Queue(client), client.schema.compaction_queue.c
    queue.enqueue_all([Request(Entity("bench", "parts", f"p={number}"), CompactionKind.MINOR) for number in partitions])
    begin = time.perf_counter()
    states = [state.code for state in (QueueState.INITIATED, QueueState.WORKING)]
    left = select(func.count()).where(rows.cq_state.in_(states))
    while client.read(lambda connection: connection.scalar(left)):
        if time.perf_counter() > begin + 60 + 2 * len(partitions):
            raise RuntimeError("the queue isn't empty yet")
        time.sleep(0.2)
    seconds = time.perf_counter() - begin
    done = select(func.count()).where(rows.cq_state == QueueState.READY_FOR_CLEANING.code)
    committed = client.read(lambda connection: connection.scalar(done))
    if not isinstance(committed, int) or committed < len(partitions):
        raise RuntimeError(f"{committed} of {len(partitions)} compactions were committed")
    return seconds
