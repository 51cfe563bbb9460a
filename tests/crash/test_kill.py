"""
The daemon, killed with SIGKILL at each named step of Worker and Cleaner: the next start converges to the same end, and
no row changes.
"""

import contextlib
import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import yaml

from compactor.acid.compaction import CompactionKind
from compactor.demo.rows import CatalogRows, MetastoreLedger
from compactor.demo.warehouse import Warehouse
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity, QueueState
from compactor.roles import steps
from tests.crash import launcher
from tests.metastore.conftest import postgres  # noqa: F401 - a fixture
from tests.metastore.servers import UnavailableError, schema_script
from tests.needs import missing
from tests.reference.compare import assert_as_expected

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]

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


def url_of(version: str | None, request, folder: Path) -> str:
    """A new metastore's address: embedded, or on PostgreSQL with Hive's schema of that version."""
    if version is None:
        return f"sqlite:///{folder}/metastore.db"
    try:
        schema_script(version)
    except UnavailableError as error:
        missing(str(error))
    return request.getfixturevalue("postgres").create(version)


@pytest.fixture
def scene(tmp_path, request):
    """On an embedded metastore unless the test's parameter says otherwise."""
    made = Scene(url_of(getattr(request, "param", None), request, tmp_path), tmp_path)
    yield made
    made.end()


def kill_and_converge(scene: Scene, step: str, *, spark: bool = False) -> None:
    killed = scene.start(kill_at=step, spark=spark)
    assert ended(killed) == -signal.SIGKILL, scene.said()[-4000:]
    scene.assert_rows()
    before = scene.starts()
    again = scene.start(spark=spark)
    scene.until(again, lambda: scene.starts() > before and scene.settled(), "settled")
    assert scene.drain(again) == 0
    scene.assert_rows()
    names = scene.names()
    assert len(names) == 1, names
    assert re.fullmatch(r"base_0000008(_v\d{7})?", names[0])


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


@pytest.mark.parametrize("step", [*steps.WORKER_STEPS, *steps.CLEANER_STEPS])
def test_killed_at_any_step_it_converges(scene, step):
    """One base with the same rows; nothing hidden, nothing in the queue; no compaction counts as failed."""
    kill_and_converge(scene, step)


SHARED = [
    steps.WORKER_LOCKED,
    steps.WORKER_STAGED,
    steps.WORKER_PUBLISHED,
    steps.WORKER_COMMITTED,
    steps.CLEANER_TRASHED,
]


@pytest.mark.postgres
@pytest.mark.parametrize("scene", ["4.0.0", "3.1.0"], indirect=True)
@pytest.mark.parametrize("step", SHARED)
def test_killed_on_a_shared_metastore_it_converges(scene, step):
    """There others could be alive: the dead one is known by its file, its transaction or lock times out."""
    kill_and_converge(scene, step)


NOTHING_BY_ITSELF = {"thresholds": {"delta_count": 1000, "delta_ratio": 1000.0, "aborted_count": 1000}}


@pytest.mark.parametrize(
    ("step", "waits"), [(steps.WORKER_COMMITTED, False), (steps.WORKER_COMMITTED, True), (steps.CLEANER_MARKED, True)]
)
def test_killed_between_two_parts_the_rest_is_done(scene, step, waits):
    """
    A compaction that somebody asked for, and that is too large for one: nobody else would look at the table, and all of
    it is done all the same.
    """
    rest_is_done(scene, step, waits=waits)


@pytest.mark.postgres
@pytest.mark.parametrize("scene", ["4.0.0", "3.1.0"], indirect=True)
@pytest.mark.parametrize(("step", "waits"), [(steps.WORKER_COMMITTED, False), (steps.CLEANER_MARKED, True)])
def test_killed_between_two_parts_on_a_shared_metastore(scene, step, waits):
    """As above, by the leader among several daemons."""
    rest_is_done(scene, step, waits=waits)


def rest_is_done(scene: Scene, step: str, *, waits: bool) -> None:
    size = sum(path.stat().st_size for path in scene.table.location.glob("d*/bucket*"))
    changed = yaml.safe_load(scene.config.read_text(encoding="utf-8"))
    changed["initiator"] |= NOTHING_BY_ITSELF
    changed["limits"] = {"scratch_bytes": size * 3 // 5} if waits else {"deltas": 3}
    scene.config.write_text(yaml.safe_dump(changed), encoding="utf-8")
    with Database(scene.url) as database:
        assert Queue(database).enqueue(Entity("db", "t"), CompactionKind.MAJOR, initiator_id="here-manual").accepted
    killed = scene.start(kill_at=step)
    assert ended(killed) == -signal.SIGKILL, scene.said()[-4000:]
    assert len(scene.names()) > 1
    changed["limits"] = {}
    scene.config.write_text(yaml.safe_dump(changed), encoding="utf-8")
    before = scene.starts()
    again = scene.start()
    scene.until(
        again,
        lambda: scene.starts() > before and scene.settled() and len(scene.names()) == 1,
        "settled as one directory",
    )
    assert scene.drain(again) == 0
    scene.assert_rows()


@pytest.mark.spark
def test_killed_while_spark_works(scene):
    """With a real session: its JVM and Python workers end with the daemon, what they wrote is removed."""
    scene.unhurried()
    kill_and_converge(scene, steps.WORKER_RAN, spark=True)


def test_term_drains(scene):
    """Ends with 0, says so, and leaves nothing claimed and no sign of life."""
    process = scene.start()
    scene.until(process, scene.settled, "settled")
    assert scene.drain(process) == 0
    assert scene.events()[-1]["event"] == "daemon.stopped"
    assert not list(scene.folder.glob("compactor-*.alive"))


def test_two_interrupts_leave_at_once(scene):
    """130, whatever is running; the next start converges."""
    process = scene.start(hold_at=steps.WORKER_STAGED)
    scene.until(process, (scene.folder / launcher.HELD).exists, "at work")
    while process.exitcode is None:
        send(process, signal.SIGINT)
        process.join(0.01)
    assert process.exitcode == 130
    again = scene.start()
    scene.until(again, scene.settled, "settled")
    assert scene.drain(again) == 0
    scene.assert_rows()


def test_hup_takes_over_what_it_can(scene):
    """The log names the changed keys and those that need a restart; a mistake changes nothing."""
    process = scene.start()
    scene.until(process, lambda: scene.starts() == 1, "started")
    changed = yaml.safe_load(scene.config.read_text(encoding="utf-8"))
    changed["cleaner"]["interval_seconds"] = 0.3
    changed["worker"]["threads"] = 1
    scene.config.write_text(yaml.safe_dump(changed), encoding="utf-8")
    send(process, signal.SIGHUP)
    scene.until(process, lambda: any(event["event"] == "restart.required" for event in scene.events()), "reloaded")
    (reloaded,) = [event for event in scene.events() if event["event"] == "settings.reloaded"]
    assert reloaded["changed"] == ["cleaner.interval_seconds"]
    scene.config.write_text("database: 5", encoding="utf-8")
    send(process, signal.SIGHUP)
    scene.until(
        process, lambda: any(event["event"] == "settings.not_reloaded" for event in scene.events()), "refused to reload"
    )
    assert scene.drain(process) == 0


def test_health_and_readiness(scene):
    """200 on both once all roles completed a cycle; the metrics show the queue."""
    process = scene.start()
    scene.until(process, scene.settled, "settled")
    port = scene.port()

    def get(path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    scene.until(process, lambda: get("/-/ready") == 200, "ready")
    assert get("/-/healthy") == 200
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert 'compactor_jobs_total{kind="major",outcome="compacted"} 1.0' in text
    assert scene.drain(process) == 0
