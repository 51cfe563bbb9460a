"""
The cost of an idle daemon: 100,000 partitions, all examined, one of them compacted. Spark's JVM has been stopped, and
isn't counted.

ZooKeeper elects. A thread reads /metrics every 15 s, as Prometheus would. CPU is that of five minutes, with an ordinary
cycle of the Initiator, plus the share of the hourly full scan.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import harness
from benchmarks.initiator import build
from compactor.acid.compaction import CompactionKind
from compactor.log import configure
from compactor.metastore.candidates import Initiating
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity, QueueState
from compactor.roles.initiator.initiator import Initiator
from compactor.roles.services import Services
from compactor.settings import Settings
from tests.cluster.zookeeper_servers import free_ports, zookeeper
from tests.metastore.servers import postgres_server

PARTITIONS = 100_000
WINDOW = 310.0
FULL_SCAN = 3600.0
SCRAPE = 15.0
_TICKS = os.sysconf("SC_CLK_TCK")
_PATIENCE = 600.0


def run() -> list[harness.Result]:
    """Measure memory and CPU of the idle daemon."""
    configure("error", "console")
    with postgres_server() as server, harness.scratch() as folder, zookeeper(folder / "zookeeper", 1) as servers:
        url = server.create("4.0.0")
        build(folder, url, PARTITIONS)
        scan = _full_scan(url)
        looked = _last_look(url)
        (port,) = free_ports(1)
        with _daemon(folder, url, servers.hosts, port) as process, _scraper(port):
            _wait("the Initiator's first look didn't end", lambda: _last_look(url) != looked, process)
            _compact_one(url, process)
            _wait("Spark's JVM wasn't stopped", lambda: not _children(process.pid), process)
            before, begin = _cpu(process.pid), time.monotonic()
            time.sleep(WINDOW)
            busy = (_cpu(process.pid) - before) / (time.monotonic() - begin)
            resident = _resident(process.pid)
    share = 100 * (busy + scan / FULL_SCAN)
    return [
        harness.at_most(
            "at_rest/memory", resident / 2**20, 300, "MiB", f"resident, {PARTITIONS:,} partitions; no JVM is left"
        ),
        harness.at_most(
            "at_rest/cpu",
            share,
            1,
            "% of a core",
            f"{100 * busy:.2f} % in {WINDOW:.0f} s, and {scan:.1f} CPU s for the full scan of each hour",
        ),
    ]


def _full_scan(url: str) -> float:
    """CPU seconds of a full scan that finds nothing changed."""
    settings = Settings(
        database={"url": url},
        initiator={"interval_seconds": 0.001, "full_scan_seconds": 0.001},
        http={"enabled": False},
        log={"level": "error"},
    )
    services = Services.open(settings)
    try:
        initiator = Initiator(services)
        initiator.run_once()
        begin = time.process_time()
        initiator.run_once()
        return time.process_time() - begin
    finally:
        services.close()


def _last_look(url: str) -> int | None:
    """When the last completed cycle of an Initiator began."""
    client = Database(url).connect()
    try:
        return Initiating(client).last_cycle_ms()
    finally:
        client.close()


@contextmanager
def _daemon(folder: Path, url: str, zookeepers: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run `compactor run` with ZooKeeper; Spark stops when it has been idle for 5 s, all else is as delivered."""
    config = folder / "compactor.json"
    settings = {
        "database": {"url": url},
        "zookeeper": {"hosts": zookeepers},
        "spark": {"idle_seconds": 5},
        "http": {"host": "127.0.0.1", "port": port},
        "log": {"level": "error"},
    }
    config.write_text(json.dumps(settings), encoding="utf-8")
    process = subprocess.Popen([sys.executable, "-m", "compactor.cli", "--config", str(config), "run"])
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _scraper(port: int) -> Iterator[None]:
    """Read the metrics as Prometheus would."""
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(SCRAPE):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                answer.read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _compact_one(url: str, process: subprocess.Popen[bytes]) -> None:
    client = Database(url).connect()
    try:
        queue = Queue(client)
        number = queue.enqueue(Entity("bench", "parts", "p=0"), CompactionKind.MAJOR).id
        _wait(
            "the one compaction didn't end",
            lambda: (
                (entry := queue.entry(number)) is None or entry.state not in {QueueState.INITIATED, QueueState.WORKING}
            ),
            process,
        )
    finally:
        client.close()


def _wait(trouble: str, over: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _PATIENCE
    while not over():
        if time.monotonic() > end or process.poll() is not None:
            raise RuntimeError(trouble)
        time.sleep(0.5)


def _cpu(pid: int) -> float:
    """User and system seconds of a process, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _resident(pid: int) -> int:
    """Resident bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _children(pid: int) -> list[str]:
    found: list[str] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended since
            found += (task / "children").read_text(encoding="ascii").split()
    return found
