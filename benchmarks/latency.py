"""From `enqueue` in another process to the first running Spark task, in a daemon whose session is warm; settings as delivered."""

import statistics
import threading
import time

from pyspark import SparkContext

from benchmarks import harness
from compactor.acid.compaction import CompactionKind
from compactor.daemon import Daemon
from compactor.demo.rows import CatalogRows, MetastoreLedger
from compactor.demo.warehouse import Warehouse
from compactor.log import configure
from compactor.metastore.database import Database
from compactor.metastore.model import Entity, QueueState
from compactor.metastore.queue import Queue
from compactor.settings import Settings
from tests.metastore.servers import postgres_server

ROUNDS = 7


def run() -> list[harness.Result]:
    """The bar."""
    configure("error", "console")
    with postgres_server() as server, harness.scratch() as folder:
        url = server.create("4.0.0")
        client = Database(url).connect()
        warehouse = Warehouse(folder / "warehouse", MetastoreLedger(client), CatalogRows(client))
        for number in range(ROUNDS + 1):
            table = warehouse.create_table("bench", f"t{number}", [("id", "int")])
            for value in range(2):
                with warehouse.begin() as txn:
                    txn.insert(table, [(value,)])
        settings = Settings(database={"url": url}, initiator={"enabled": False}, spark={"master": "local[2]"}, http={"enabled": False}, log={"level": "error"})
        daemon = Daemon(settings)
        daemon.start()
        try:
            waits = [_enqueue_and_wait(client, f"t{number}") for number in range(ROUNDS + 1)][1:]
        finally:
            daemon.stop()
            client.close()
    detail = f"median of {ROUNDS}, longest {max(waits):.2f} s"
    return [harness.at_most("latency", statistics.median(waits), 2, "s", detail)]


def _enqueue_and_wait(client: Database, table: str) -> float:
    queue = Queue(client)
    begin = time.perf_counter()
    number = queue.enqueue(Entity("bench", table, None), CompactionKind.MAJOR).id
    seen = threading.Event()
    took = 0.0
    deadline = begin + 120
    while time.perf_counter() < deadline:
        context = SparkContext._active_spark_context  # noqa: SLF001 - the session belongs to the daemon, and there is no public way to the running one
        if context is not None and not seen.is_set() and any(_running(context)):
            took = time.perf_counter() - begin
            seen.set()
        if seen.is_set() and (entry := queue.entry(number)) is not None and entry.state is not QueueState.WORKING:
            return took
        time.sleep(0.002)
    raise RuntimeError(f"{table} was not compacted within two minutes")


def _running(context: object) -> list[bool]:
    if getattr(context, "_jsc", None) is None:  # still starting
        return []
    tracker = context.statusTracker()  # type: ignore[attr-defined]
    return [info.numActiveTasks > 0 for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
