"""
A rolling upgrade: two versions that are really installed, side by side on one metastore; the queue goes on, and what
only one of them knows does no harm.
"""

import itertools
import signal

import pytest
import yaml

from compactor.acid.compaction import CompactionKind
from compactor.coordination import Role
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity, QueueState
from compactor.metrics import version
from tests.cluster.daemons import PATIENT_TIMES, Fleet, Running
from tests.cluster.versions import CHANGES, NEWER, Installed
from tests.crash.scene import ended, url_of
from tests.reference.compare import assert_as_expected

pytestmark = [pytest.mark.cluster, pytest.mark.postgres, pytest.mark.timeout(240)]
_roots = itertools.count(1)
PAUSE = """
import sys
from compactor.control.records import HOLDS, Pause, with_pause
from compactor.control.scope import Scope
from compactor.coordination import open_coordinator
from compactor.metastore.db.database import Database
from compactor.settings import load_settings
from pathlib import Path

settings = load_settings(Path(sys.argv[1]))
coordinator = open_coordinator(settings, lambda: Database(settings.database.url))
coordinator.connect()
pause = Pause(Scope.parse("owner:ann"), "ann is away", "newer", 0)
assert pause.scope.kind.value == "owner"
coordinator.update(HOLDS, lambda data: with_pause(data, pause, 0))
coordinator.close()
"""


class Mixed(Fleet):
    """Daemons of two versions, and three tables."""

    times = PATIENT_TIMES | {"members": {"heartbeat_seconds": 2}}

    def __init__(self, url, folder, zookeeper):
        super().__init__(url, folder, zookeeper)
        self.old = Installed(folder / "old", version())
        self.new = Installed(folder / "new", NEWER, CHANGES)
        self.config.write_text(yaml.safe_dump(self.watching | {"host": "edge"}), encoding="utf-8")

    def _build(self):
        super()._build()
        self.others = [self.warehouse.create_table("db", name, [("id", "int"), ("v", "string")]) for name in ("u", "w")]
        for table in self.others:
            for number in range(5):
                with self.warehouse.begin() as txn:
                    txn.insert(table, [(number, f"v{number}")])

    def start(self, installed, name):
        home = self.folder / name
        home.mkdir()
        config = home / "compactor.yaml"
        config.write_text(
            yaml.safe_dump(
                self.settings
                | {"host": name, "initiator": {"interval_seconds": 0.5, "thresholds": {"delta_count": 1000}}}
            ),
            encoding="utf-8",
        )
        process = installed.daemon(config, home, home / "log")
        self.processes.append(process)
        self.daemons.append(Running(name, process, home / "log"))
        return self.daemons[-1]

    def enqueue(self, table):
        assert Queue(self.database).enqueue(Entity("db", table), CompactionKind.MAJOR).accepted

    def compacted_by(self, table):
        """The version of the worker that compacted it, once it is cleaned."""
        return next(
            (
                entry.worker_version
                for entry in Queue(self.metastore).history(QueueState.SUCCEEDED, entity=Entity("db", table))
            ),
            None,
        )

    def leads(self, name):
        seen = self.seen(name)
        return seen is not None and set(seen.leads) >= {Role.INITIATOR, Role.CLEANER}

    def assert_all_rows(self):
        with Database(self.url) as database:
            self.warehouse.ledger = self._warehouse(database).ledger
            for table in (self.table, *self.others):
                assert_as_expected(self.warehouse, table)

    def stop(self, running):
        running.send(signal.SIGTERM)
        assert ended(running.process) == 0, running.said()[-3000:]
        self.daemons.remove(running)


@pytest.fixture(params=["database", "zookeeper"])
def fleet(request, tmp_path):
    """On PostgreSQL; coordinated by the database, or by ZooKeeper."""
    servers = request.getfixturevalue("zookeeper_1") if request.param == "zookeeper" else None
    section = (
        {"hosts": servers.hosts, "root": f"/upgrade-{next(_roots)}", "session_timeout_seconds": 20} if servers else None
    )
    made = Mixed(url_of("postgres-4", request, tmp_path), tmp_path, section)
    yield made
    made.end()


def lists_both(fleet, installed):
    """Whether the command line of one version lists both daemons, alive and at work."""
    listed = installed.command(fleet.config, "members")
    shown = [(one["host"], one["version"], one["state"]) for one in listed]
    at_work = all(
        {activity["name"] for activity in one["doing"]} >= {"initiator", "cleaner", "worker-1"} for one in listed
    )
    return at_work and shown == [("first", fleet.old.number, "alive"), ("second", fleet.new.number, "alive")]


def test_rolling_upgrade(fleet):
    """
    The old one leads and works; the new one stands by, and both list both. Stopped, the old one is succeeded by the new
    one, which works through what is queued. Then an old one comes back, and somebody pauses by a kind that only the new
    one knows: it holds the old one's workers entirely, the new one's as it is meant.
    """
    old, new = fleet.old, fleet.new
    assert old.number != new.number
    first = fleet.start(old, "first")
    fleet.wait(
        lambda: fleet.leads("first") or (fleet.settings.get("zookeeper") is None and fleet.seen("first")),
        "the old one leads",
    )
    fleet.enqueue("t")
    fleet.wait(lambda: fleet.compacted_by("t"), "compacted and cleaned")
    assert fleet.compacted_by("t") == old.number

    second = fleet.start(new, "second")
    fleet.wait(lambda: fleet.seen("first") and fleet.seen("second"), "both there")
    for installed in (old, new):
        fleet.wait(lambda installed=installed: lists_both(fleet, installed), f"both listed by {installed.number}")
    fleet.wait(
        lambda: (seen := fleet.seen("second")) and seen.member.extra["zone"] == {"name": "b"},
        "seen with what only the new one tells",
    )

    old.command(fleet.config, "pause", "--table", "db.u", "--reason", "until the new one has taken over")
    fleet.enqueue("u")
    fleet.stop(first)
    fleet.wait(lambda: fleet.leads("second"), "the new one leads")
    new.command(fleet.config, "resume", "--table", "db.u")
    fleet.wait(lambda: fleet.compacted_by("u"), "compacted and cleaned by the new one")
    assert fleet.compacted_by("u") == new.number

    third = fleet.start(old, "third")
    fleet.wait(lambda: fleet.seen("third"), "an old one is back")
    new.run(PAUSE, str(fleet.config))
    held = "'owner:ann', which only a newer version understands, is paused"
    fleet.wait(
        lambda: any(held in event.get("sentence", "") for event in third.events() if event.get("role") == "control"),
        "the old one holds everything",
    )
    fleet.enqueue("w")
    fleet.wait(lambda: fleet.compacted_by("w"), "compacted and cleaned")
    assert fleet.compacted_by("w") == new.number
    assert [one["scope"] for one in old.command(fleet.config, "pauses")] == ["owner:ann"]
    assert not any(event.get("step") == "worker.claimed" for event in third.events())
    assert not any(held in str(event.get("sentence")) for event in second.events())
    for running in (second, third):
        fleet.stop(running)
    fleet.assert_all_rows()
