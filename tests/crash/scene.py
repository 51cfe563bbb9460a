"""A warehouse with a table that is due, and the daemon as a process that tests kill, stop and start again."""

import contextlib
import json
import os
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import yaml

from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.model import QueueState
from tests.crash import launcher
from tests.demo.rows import CatalogRows, MetastoreLedger
from tests.demo.warehouse import Warehouse
from tests.metastore.databases import require_schema, server_for
from tests.reference.compare import assert_as_expected

PATIENCE = 120.0

SETTINGS = {
    "initiator": {"interval_seconds": 0.5, "full_scan_seconds": 0.5, "thresholds": {"delta_count": 3}},
    "worker": {"threads": 2, "poll_seconds": 0.2, "heartbeat_seconds": 0.5},
    "cleaner": {"interval_seconds": 0.2},
    "housekeeper": {"enabled": "always", "interval_seconds": 0.5},
    "http": {"host": "127.0.0.1", "port": 0},
    "txn": {"timeout_seconds": 3},
    "drain": {"timeout_seconds": 30},
    "host": "here",
    "log": {"format": "json", "level": "debug"},
    "spark": {"master": "local[1]"},
}

UNHURRIED = {"txn": {"timeout_seconds": 60}}


class Scene:
    """A warehouse with a table that is due, and the daemon as a process."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.processes: list[BaseProcess] = []
        self.config = folder / "compactor.yaml"
        self.config.write_text(yaml.safe_dump(SETTINGS | {"database": {"url": url}}), encoding="utf-8")
        self.log = folder / "log"
        with Database(url, create=url.startswith("sqlite")) as database:
            self.warehouse = self._warehouse(database)
            self._build()
        self.metastore = Database(url, read_only=True)

    def _warehouse(self, database: Database) -> Warehouse:
        return Warehouse(self.folder / "warehouse", MetastoreLedger(database), CatalogRows(database))

    def _build(self) -> None:
        table = self.table = self.warehouse.create_table("db", "t", [("id", "int"), ("v", "string")])
        for number in range(5):
            with self.warehouse.begin() as txn:
                txn.insert(table, [(number, f"v{number}"), (number + 100, "w")])
        with self.warehouse.begin() as txn:
            txn.delete(table, lambda row: row[0] in {2, 103})
        aborted = self.warehouse.begin()
        aborted.insert(table, [(999, "never")])
        aborted.abort()
        with self.warehouse.begin() as txn:
            txn.insert(table, [(7, "last")])

    def unhurried(self) -> None:
        """
        Before it is started: where no transaction's time-out is waited for, and Spark takes the machine for itself.
        """
        settings = yaml.safe_load(self.config.read_text(encoding="utf-8"))
        self.config.write_text(yaml.safe_dump(settings | UNHURRIED), encoding="utf-8")

    def start(self, *, kill_at: str | None = None, hold_at: str | None = None, spark: bool = False) -> BaseProcess:
        process = launcher.start(self.config, self.log, kill_at=kill_at, hold_at=hold_at, spark=spark)
        self.processes.append(process)
        return process

    def end(self) -> None:
        """Nothing that was started outlives its test, Spark's children included."""
        self.metastore.close()
        for process in self.processes:
            assert process.pid is not None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.join()

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def events(self) -> list[dict]:
        return [json.loads(line) for line in self.said().rpartition("\n")[0].splitlines() if line.startswith("{")]

    def until(self, process: BaseProcess, done, what: str) -> None:
        """Wait for a state of the world; the daemon must not end before."""
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert process.exitcode is None, (
                f"the daemon ended with {process.exitcode} before {what}:\n{self.said()[-4000:]}"
            )
            assert time.monotonic() < deadline, f"not {what}:\n{self.said()[-6000:]}"
            time.sleep(0.05)

    def settled(self) -> bool:
        """Nothing is in the queue, and at least one compaction was cleaned."""
        queue = Queue(self.metastore)
        failed = queue.history(QueueState.FAILED, QueueState.REFUSED, QueueState.DID_NOT_INITIATE)
        assert not failed, f"{failed[0].state.value}: {failed[0].error_message}"
        return not queue.entries() and bool(queue.history(QueueState.SUCCEEDED))

    def starts(self) -> int:
        """How often a daemon came up."""
        return sum(event["event"] == "daemon.started" for event in self.events())

    def drain(self, process: BaseProcess) -> int | None:
        send(process, signal.SIGTERM)
        return ended(process)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.table.location.iterdir())

    def assert_rows(self) -> None:
        with Database(self.url) as database:
            self.warehouse.ledger = self._warehouse(database).ledger
            assert_as_expected(self.warehouse, self.table)

    def port(self) -> int:
        return next(
            int(event["http"].rsplit(":", 1)[1])
            for event in reversed(self.events())
            if event["event"] == "daemon.started"
        )


def send(process: BaseProcess, number: int) -> None:
    """To a daemon that may have ended by now."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)


def ended(process: BaseProcess) -> int | None:
    """Its exit code, the signal's number negated; None when it goes on."""
    process.join(PATIENCE)
    return process.exitcode


def url_of(kind: str, request, folder: Path) -> str:
    """A new metastore's address, by its kind (`tests.metastore.databases`)."""
    if kind == "sqlite":
        return f"sqlite:///{folder}/metastore.db"
    version, server = require_schema(kind), server_for(request, kind)
    if kind.startswith("postgres"):
        return server.create(version)  # a copy of a template, which takes less than emptying
    url = server.borrow(version)
    request.addfinalizer(lambda: server.give_back(version, url))
    return url


def given_back_and_compacted(scene: Scene) -> None:
    """
    The entry of a daemon that ended in order is in the queue again, nothing failed, nothing hidden stayed; the next
    start compacts it.
    """
    queue = Queue(scene.metastore)
    assert queue.history(QueueState.FAILED) == []
    assert [entry.state for entry in queue.entries()] == [QueueState.INITIATED]
    assert not [name for name in scene.names() if name.startswith(".")]
    again = scene.start()
    scene.until(again, scene.settled, "settled")
    assert scene.drain(again) == 0
    scene.assert_rows()
