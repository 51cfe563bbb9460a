"""A daemon that is stopped at a named step, succeeded by another, and continued later does no harm: rows, directories, queue and history are as if it had died."""

import itertools
import re
import signal

import pytest
from sqlalchemy import text

from compactor.metastore.queue import Queue
from compactor.roles import steps
from tests.cluster.daemons import Fleet
from tests.crash.test_kill import ended, url_of

pytestmark = [pytest.mark.cluster, pytest.mark.postgres, pytest.mark.timeout(240)]
_roots = itertools.count(1)


@pytest.fixture
def fleet(request, tmp_path):
    """Daemons on PostgreSQL; the parameter says of which Hive, and how many ZooKeeper servers elect."""
    version, servers = getattr(request, "param", ("4.0.0", 1))
    name = {1: "zookeeper_1", 3: "zookeeper_trio"}.get(servers)
    section = {"hosts": request.getfixturevalue(name).hosts, "root": f"/fencing-{next(_roots)}"} if name else None
    made = Fleet(url_of(version, request, tmp_path), tmp_path, section)
    yield made
    made.end()


def stop_succeed_continue(fleet, step, role=None, servers=None, skew=0.0):
    """
    Stop the first at a step, let the second finish, continue the first.

    Args:
        role: whose loop goes through the step; None: as its name says.
        servers: ZooKeeper's, whose leader is killed while the first is stopped, and started again before it is continued.
        skew: seconds by which the first's clock is ahead, and the second's behind.
    """
    stopped = fleet.daemon("first", stop_at=step, skew=skew)
    fleet.wait(stopped.stopped, f"stopped at {step}")
    killed = None if servers is None else servers.leader()
    if servers is not None:
        servers.kill(killed)
    successor = fleet.daemon("second", skew=-skew)
    fleet.wait(fleet.settled, "settled by the second")
    fleet.assert_rows()
    fleet.wait(lambda: fleet.seen("first") is None, "missed")
    if servers is not None:
        servers.start_one(killed)
        servers.wait()
    go_on(fleet, stopped, role or step.partition(".")[0])
    for running in (stopped, successor):
        running.send(signal.SIGTERM)
        assert ended(running.process) == 0
    assert_as_if_one(fleet)


def go_on(fleet, stopped, role):
    before = len(stopped.events())
    stopped.send(signal.SIGCONT)
    fleet.wait(lambda: any(event.get("role", "").startswith(role) for event in stopped.events()[before:]), "at the end of the cycle that was stopped")
    fleet.wait(lambda: fleet.seen(stopped.name) is not None, "seen again")
    assert_as_if_one(fleet)


def assert_as_if_one(fleet):
    """One compaction, once; no row, directory or component of another."""
    fleet.assert_rows()
    names = fleet.names()
    assert len(names) == 1, names
    assert re.fullmatch(r"base_0000008(_v\d{7})?", names[0])
    assert fleet.settled()
    assert len(Queue(fleet.metastore).history()) == 1
    with fleet.metastore.reading() as connection:
        assert connection.scalar(text('SELECT count(*) FROM "TXN_COMPONENTS"' if fleet.metastore.schema.hive_4 else "SELECT count(*) FROM TXN_COMPONENTS")) == 0


OWN_STEPS = [step for step in steps.ALL_STEPS if step not in steps.RECOVERY_STEPS]
"""Of a daemon that works by itself; whoever recovers needs a dead one."""


@pytest.mark.parametrize("step", OWN_STEPS)
def test_elected_by_zookeeper(fleet, step):
    """Its session expires, its transactions end, its claims are given back: the second does everything, the first finds nothing left to do."""
    stop_succeed_continue(fleet, step)


@pytest.mark.parametrize("fleet", [("4.0.0", 3)], indirect=True)
@pytest.mark.parametrize("step", OWN_STEPS)
def test_whose_leader_dies_meanwhile(fleet, zookeeper_trio, step):
    """Three ZooKeeper servers, whose leader is killed while the daemon is stopped, on hosts whose clocks differ by a quarter of an hour: the same end."""
    stop_succeed_continue(fleet, step, servers=zookeeper_trio, skew=450)


@pytest.mark.parametrize("fleet", [("3.1.0", 1)], indirect=True)
@pytest.mark.parametrize("step", [steps.WORKER_VERIFIED, steps.WORKER_PUBLISHED, steps.CLEANER_TRASHED])
def test_on_hive_3(fleet, step):
    """Without transactions the rename is the commit, and the staging directory the fence."""
    stop_succeed_continue(fleet, step)


@pytest.mark.parametrize("fleet", [("4.0.0", 0)], indirect=True)
@pytest.mark.parametrize("step", OWN_STEPS)
def test_elected_by_the_database_alone(fleet, step):
    """The server ends the silent transaction that holds the mutex; whoever held it notices."""
    stop_succeed_continue(fleet, step)


@pytest.mark.parametrize(
    ("fleet", "step"),
    [
        *((("4.0.0", 1), step) for step in steps.RECOVERY_STEPS),
        *((("3.1.0", 1), step) for step in steps.RECOVERY_STEPS if step != steps.RECOVERY_ABORTED),
    ],
    indirect=["fleet"],
)
def test_clearing_up_after_the_dead(fleet, step):
    """A worker is killed in its work; who clears up after it is stopped, a third one does it all; continued, the second takes nothing away that isn't the dead one's."""
    dead = fleet.daemon("dead", stop_at=steps.WORKER_RAN)
    fleet.wait(dead.stopped, "at work")
    dead.send(signal.SIGKILL)
    stopped = fleet.daemon("second", stop_at=step)
    fleet.wait(stopped.stopped, f"stopped at {step}")
    third = fleet.daemon("third")
    fleet.wait(fleet.settled, "settled by the third")
    fleet.assert_rows()
    go_on(fleet, stopped, "housekeeper")
    for running in (stopped, third):
        running.send(signal.SIGTERM)
        assert ended(running.process) == 0
    assert_as_if_one(fleet)
