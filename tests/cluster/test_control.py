"""Two daemons and the command line: paused, resumed, drained, by ZooKeeper and by the database alone."""

import contextlib
import itertools
import json
import os
import signal
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from compactor.acid.compaction import CompactionKind
from compactor.daemon import Daemon
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity, QueueState
from compactor.roles import steps
from compactor.settings import Settings
from tests import forked
from tests.cluster.daemons import PATIENT_TIMES, Fleet
from tests.compacting import InProcess
from tests.crash.scene import PATIENCE, ended, url_of
from tests.reference.compare import assert_as_expected

pytestmark = [pytest.mark.cluster, pytest.mark.postgres, pytest.mark.timeout(240)]
_roots = itertools.count(1)
NOBODY = {"initiator": {"enabled": False}}


class Paused(Fleet):
    """Daemons, a table more, and the command line."""

    times = PATIENT_TIMES

    def __init__(self, url: str, folder: Path, zookeeper: dict | None) -> None:
        super().__init__(url, folder, zookeeper)
        self.config.write_text(yaml.safe_dump(self.watching | {"host": "edge"}), encoding="utf-8")

    def _build(self):
        super()._build()
        self.other = self.warehouse.create_table("db", "u", [("id", "int"), ("v", "string")])
        for number in range(5):
            with self.warehouse.begin() as txn:
                txn.insert(self.other, [(number, f"v{number}")])

    def run(self, *arguments):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COMPACTOR_")}
        done = forked.command(
            ["--config", str(self.config), "--output", "json", *arguments], environment=environment, folder=self.folder
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def enqueue(self, table):
        return Queue(self.database).enqueue(Entity("db", table), CompactionKind.MAJOR)

    def compacted(self, table):
        return Queue(self.metastore).history(QueueState.SUCCEEDED, entity=Entity("db", table))

    def fetch(self, running, path):
        port = next(
            int(event["http"].rsplit(":", 1)[1]) for event in running.events() if event["event"] == "daemon.started"
        )
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.read().decode()

    def ready(self, running):
        with contextlib.suppress(urllib.error.HTTPError):
            return self.fetch(running, "/-/ready") == "OK\n"
        return False

    def did(self, running):
        """Whether it compacted something."""
        return any(event["event"] == "compaction.committed" for event in running.events())

    def waits(self, running, why):
        said = [event.get("sentence", "") for event in running.events()]
        return any(sentence.startswith("waiting: ") and why in sentence for sentence in said)

    def assert_all_rows(self):
        with Database(self.url) as database:
            self.warehouse.ledger = self._warehouse(database).ledger
            for table in (self.table, self.other):
                assert_as_expected(self.warehouse, table)

    def stop(self):
        for running in self.daemons:
            running.send(signal.SIGTERM)
        for running in self.daemons:
            assert ended(running.process) == 0, running.said()[-3000:]


@pytest.fixture(params=["database", "zookeeper"])
def fleet(request, tmp_path):
    """On PostgreSQL; control state in a table of ours, or in ZooKeeper, whose sessions nobody here loses."""
    servers = request.getfixturevalue("zookeeper_1") if request.param == "zookeeper" else None
    section = (
        {"hosts": servers.hosts, "root": f"/control-{next(_roots)}", "session_timeout_seconds": 20} if servers else None
    )
    made = Paused(url_of("postgres-4", request, tmp_path), tmp_path, section)
    yield made
    made.end()


def test_a_paused_table_waits_while_others_run(fleet):
    """
    Neither queued by the Initiator nor claimed when asked for by hand, and everybody is told why; readiness isn't
    touched; resumed, it is compacted.
    """
    fleet.run("pause", "--table", "db.t", "--reason", "history is loaded")
    daemons = [fleet.daemon(name) for name in ("first", "second")]
    fleet.wait(lambda: fleet.compacted("u"), "u compacted and cleaned")
    fleet.wait(lambda: fleet.seen("first") and fleet.seen("second"), "both there")
    assert not Queue(fleet.metastore).entries(entity=Entity("db", "t"))
    asked = fleet.run("enqueue", "db.t")
    assert (asked["accepted"], asked["waits"]) == (True, "paused")
    for running in daemons:
        fleet.wait(
            lambda running=running: fleet.waits(running, "history is loaded"), f"{running.name} says why it waits"
        )
        fleet.wait(lambda running=running: fleet.ready(running), f"{running.name} is ready")
        fleet.wait(
            lambda running=running: 'compactor_paused{scope="table:db.t"} 1.0' in fleet.fetch(running, "/metrics"),
            f"{running.name} shows it",
        )
    (entry,) = fleet.run("queue", "db.t")
    assert (entry["state"], entry["waits"]) == ("initiated", "paused")
    assert entry["waits_because"].endswith("until it is resumed: history is loaded")
    assert [one["scope"] for one in fleet.run("pauses")] == ["table:db.t"]
    assert fleet.run("explain", "db.t")["waits"]["reason"] == "paused"
    fleet.run("resume", "--table", "db.t")
    fleet.wait(lambda: fleet.compacted("t"), "t compacted and cleaned")
    fleet.assert_all_rows()
    fleet.stop()


def test_a_pause_cancels_what_runs(fleet):
    """
    A compaction that has done its work, and is to be verified: paused with --cancel it is undone and given back, and
    stays; resumed, it is compacted.
    """
    fleet.enqueue("t")
    reached, go = threading.Event(), threading.Event()

    def observe(step, _):
        if step == steps.WORKER_RAN:
            reached.set()
            assert go.wait(PATIENCE)

    settings = Settings(**(fleet.settings | NOBODY | {"host": "here", "control": {"refresh_seconds": 0.2}}))
    daemon = Daemon(settings, observers=[observe], submitter=InProcess(), configure_log=False)
    daemon.start()
    try:
        assert reached.wait(PATIENCE)
        assert fleet.run("pause", "--database", "db", "--reason", "now", "--cancel")["running"] == 1
        seen = daemon.metrics.registry.get_sample_value
        fleet.wait(lambda: seen("compactor_paused", {"scope": "database:db"}) == 1, "seen")
        cycles = seen("compactor_cycle_duration_seconds_count", {"role": "control"})
        fleet.wait(
            lambda: seen("compactor_cycle_duration_seconds_count", {"role": "control"}) > cycles + 1,
            "told to the worker",
        )
        go.set()
        fleet.wait(lambda: seen("compactor_jobs_total", {"kind": "major", "outcome": "given-back"}) == 1, "given back")
        (entry,) = fleet.run("queue")
        assert (entry["state"], entry["waits"], entry["worker"]) == ("initiated", "paused", None)
        assert not [name for name in fleet.names() if name.startswith((".", "base"))]
        fleet.wait(lambda: daemon.unready() == [], "ready")
        fleet.run("resume", "--every")
        fleet.wait(lambda: fleet.compacted("t"), "compacted")
    finally:
        go.set()
        assert daemon.stop()
    fleet.assert_all_rows()


def test_a_drained_host_leaves_everything_to_the_others(fleet):
    """Its worker finishes and claims nothing more, also after a restart; undone, it claims again."""
    before = fleet.daemon("first", **NOBODY)
    fleet.wait(lambda: fleet.seen("first"), "there")
    fleet.run("drain", "first", "--reason", "new disks")
    before.send(signal.SIGTERM)
    assert ended(before.process) == 0
    fleet.daemons.remove(before)
    before.log.unlink()
    first = fleet.daemon("first", **NOBODY)
    fleet.wait(lambda: fleet.waits(first, "host first is drained"), "drained")
    fleet.enqueue("t")
    second = fleet.daemon("second", **NOBODY)
    fleet.wait(lambda: fleet.compacted("t"), "compacted")
    fleet.wait(lambda: fleet.did(second), "compacted by the second")
    assert not fleet.did(first)
    assert "compactor_drained 1.0" in fleet.fetch(first, "/metrics")
    fleet.run("drain", "second")
    fleet.run("drain", "first", "--undo")
    fleet.enqueue("u")
    fleet.wait(lambda: fleet.compacted("u"), "compacted")
    fleet.wait(lambda: fleet.did(first), "compacted by the first")
    fleet.assert_all_rows()
    fleet.stop()


def test_jobs_at_a_time_over_all_daemons(fleet):
    """One compaction is stopped in the middle on one host: on the other the rest waits for it."""
    control = {"budgets": [{"name": "one", "tables": ["db.*"], "jobs": 1}]}
    both = {"control": control, **NOBODY}
    fleet.enqueue("t")
    first = fleet.daemon("first", stop_at=steps.WORKER_STAGED, **both)
    fleet.wait(first.stopped, "at work")
    fleet.enqueue("u")
    second = fleet.daemon("second", **both)
    fleet.wait(lambda: fleet.waits(second, "budget one allows 1 at a time"), "waits")
    assert sorted(entry.state.value for entry in Queue(fleet.metastore).entries()) == ["initiated", "working"]
    first.send(signal.SIGCONT)
    fleet.wait(lambda: fleet.compacted("t") and fleet.compacted("u"), "both compacted")
    fleet.assert_all_rows()
    fleet.stop()
