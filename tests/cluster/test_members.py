"""
Several daemons as their users see them: who is there, who leads, what happens when one is killed, cut off, of another
version, or on a host with a wrong clock.
"""

import itertools
import json
import signal
import urllib.request

import pytest
from click.testing import CliRunner

from compactor.cli.root import cli
from compactor.coordination import Role
from compactor.metastore.compaction_queue.queue import Queue
from compactor.roles import steps
from tests.cluster.daemons import Fleet
from tests.cluster.network import Relay
from tests.crash.scene import ended, url_of

pytestmark = [pytest.mark.cluster, pytest.mark.postgres, pytest.mark.timeout(240)]
_roots = itertools.count(1)


@pytest.fixture
def fleet(request, tmp_path):
    """
    Daemons on PostgreSQL; by parameter with ZooKeeper (unless told otherwise) or without. A session is over when its
    daemon is, not when the machine is busy.
    """
    elected = getattr(request, "param", "zookeeper") == "zookeeper"
    servers = request.getfixturevalue("zookeeper_1") if elected else None
    section = (
        {"hosts": servers.hosts, "root": f"/members-{next(_roots)}", "session_timeout_seconds": 8} if servers else None
    )
    made = Fleet(url_of("postgres-4", request, tmp_path), tmp_path, section)
    yield made
    made.end()


def listed(fleet, form="json"):
    (fleet.folder / "cli.json").write_text(json.dumps(fleet.watching), encoding="utf-8")
    answer = CliRunner().invoke(cli, ["--config", str(fleet.folder / "cli.json"), "-o", form, "members"])
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.stdout) if form == "json" else answer.stdout


def leads_all(fleet, name):
    seen = fleet.seen(name)
    return seen is not None and set(seen.leads) == set(Role)


def metrics(running):
    address = next(event["http"] for event in running.events() if event["event"] == "daemon.started")
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))
    }


def test_killed_it_is_succeeded(fleet):
    """
    `compactor members` and the metrics show leader and standby, and after SIGKILL the one that is left, which leads.
    """
    first = fleet.daemon("first")
    fleet.wait(lambda: leads_all(fleet, "first"), "led by the first")
    second = fleet.daemon("second")
    fleet.wait(lambda: fleet.seen("second") is not None and fleet.settled(), "settled")
    one, other = listed(fleet)
    assert (one["host"], one["leads"], one["stands_by"], one["state"]) == (
        "first",
        ["initiator", "cleaner", "housekeeper"],
        [],
        "alive",
    )
    assert (other["host"], other["leads"], set(other["stands_by"]), other["state"]) == (
        "second",
        [],
        set(Role),
        "alive",
    )
    assert one["roles"] == ["housekeeper", "initiator", "cleaner", "worker"]
    assert (one["pid"], other["pid"]) == (first.process.pid, second.process.pid)
    assert {activity["name"] for activity in one["doing"]} >= {"initiator", "cleaner", "housekeeper", "worker-1"}
    assert {"HOST", "LEADS", "HEARTBEAT", "first", "initiator, cleaner, housekeeper"} <= set(
        listed(fleet, "table").replace("  ", "\n").replace("\n ", "\n").split("\n")
    )
    assert listed(fleet, "tsv").splitlines()[0].startswith("host\tpid\tversion\tstate\tleads")
    assert metrics(first)['compactor_leader{role="cleaner"}'] == 1
    assert metrics(second)['compactor_leader{role="cleaner"}'] == 0
    latest = [f'compactor_last_cycle_timestamp_seconds{{role="{role.value}"}}' for role in Role]
    fleet.wait(lambda: all(metrics(first)[name] > 0 for name in latest), "done by the first")
    assert [metrics(second)[name] for name in latest] == [0] * len(latest)
    assert metrics(second)["compactor_ready"] == 1
    first.send(signal.SIGKILL)
    fleet.wait(lambda: leads_all(fleet, "second"), "led by the second")
    fleet.wait(lambda: metrics(second)["compactor_members"] == 1, "counted")
    fleet.wait(
        lambda: metrics(second)['compactor_leader{role="cleaner"}'] == 1, "shown as leader"
    )  # ZooKeeper may tell us before it tells the daemon
    fleet.wait(
        lambda: metrics(second)['compactor_last_cycle_timestamp_seconds{role="cleaner"}'] > 0, "cleaned by the second"
    )
    assert metrics(second)['compactor_coordination_connection{by="zookeeper",state="connected"}'] == 1
    assert [record["host"] for record in listed(fleet)] == ["second"]
    second.send(signal.SIGTERM)
    assert ended(second.process) == 0
    assert listed(fleet) == []


@pytest.mark.parametrize("fleet", ["database"], indirect=True)
def test_by_the_database_alone(fleet):
    """
    Heartbeats lie in a table of our own: who went without a word is shown as gone, who left isn't shown; both may do
    cycles, one at a time.
    """
    fleet.settings["members"] = {"heartbeat_seconds": 2}
    first, second = fleet.daemon("first"), fleet.daemon("second")
    fleet.wait(lambda: fleet.seen("first") and fleet.seen("second") and fleet.settled(), "settled")
    fleet.wait(lambda: [record["state"] for record in listed(fleet)] == ["alive", "alive"], "both listed")
    fleet.wait(lambda: sorted(role for record in listed(fleet) for role in record["leads"]) == sorted(Role), "led")
    first.send(signal.SIGKILL)
    fleet.wait(
        lambda: (
            [(record["host"], record["state"]) for record in listed(fleet)] == [("first", "gone"), ("second", "alive")]
        ),
        "noticed",
    )
    second.send(signal.SIGTERM)
    assert ended(second.process) == 0
    assert [record["host"] for record in listed(fleet)] == ["first"]
    assert len(Queue(fleet.metastore).history()) == 1
    fleet.assert_rows()


def test_cut_off_from_zookeeper_it_lets_go(fleet, zookeeper_1):
    """
    The metastore answers it still: it begins nothing and isn't ready, the other leads and does the work; back, it
    stands by.
    """
    with Relay(zookeeper_1.ports[0]) as relay:
        section = fleet.settings["zookeeper"] | {"hosts": f"127.0.0.1:{relay.port}"}
        first = fleet.daemon(
            "first",
            zookeeper=section,
            initiator={"enabled": True, "interval_seconds": 3600, "thresholds": {"delta_count": 100}},
        )
        fleet.wait(lambda: leads_all(fleet, "first"), "led by the first")
        relay.cut()
        fleet.wait(
            lambda: any(
                event.get("sentence", "").startswith("waiting: nothing new is begun") for event in first.events()
            ),
            "nothing begun",
        )
        second = fleet.daemon("second")
        fleet.wait(lambda: leads_all(fleet, "second") and fleet.settled(), "done by the second")
        assert not any("worker.claimed" in str(event.get("step")) for event in first.events())
        assert metrics(first)['compactor_leader{role="cleaner"}'] == 0
        relay.mend()
        fleet.wait(lambda: fleet.seen("first") is not None, "back")
        assert leads_all(fleet, "second")
        for running in (first, second):
            running.send(signal.SIGTERM)
            assert ended(running.process) == 0
    fleet.assert_rows()
    assert len(Queue(fleet.metastore).history()) == 1


@pytest.mark.parametrize("fleet", ["zookeeper", "database"], indirect=True)
@pytest.mark.parametrize("step", [steps.WORKER_PUBLISHED, steps.CLEANER_TRASHED])
def test_clocks_of_hosts_decide_nothing(fleet, step):
    """
    Seven minutes ahead and seven behind, more than every time-out: nobody is taken for dead who lives, or the other way
    round.
    """
    first = fleet.daemon("first", stop_at=step, skew=420)
    fleet.wait(first.stopped, "stopped")
    second = fleet.daemon("second", skew=-420)
    fleet.wait(fleet.settled, "settled")
    first.send(signal.SIGCONT)
    fleet.wait(lambda: fleet.seen("first") and fleet.seen("second"), "both there")
    assert all(record["heartbeat_age_ms"] < 60_000 for record in listed(fleet))
    for running in (first, second):
        running.send(signal.SIGTERM)
        assert ended(running.process) == 0
    fleet.assert_rows()
    assert len(Queue(fleet.metastore).history()) == 1
    assert len(fleet.names()) == 1
