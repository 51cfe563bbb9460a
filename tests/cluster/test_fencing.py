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
INITIATOR_STEPS = (steps.INITIATOR_SEARCHED, steps.INITIATOR_LISTED, steps.INITIATOR_QUEUED)
_roots = itertools.count(1)


@pytest.fixture
def fleet(request, tmp_path):
    """Daemons on PostgreSQL; the parameter says of which Hive, and whether ZooKeeper elects."""
    version, elected = getattr(request, "param", ("4.0.0", True))
    servers = request.getfixturevalue("zookeeper_1") if elected else None
    section = {"hosts": servers.hosts, "root": f"/fencing-{next(_roots)}"} if servers else None
    made = Fleet(url_of(version, request, tmp_path), tmp_path, section)
    yield made
    made.end()


def stop_succeed_continue(fleet, step):
    stopped = fleet.daemon("first", stop_at=step)
    fleet.wait(stopped.stopped, f"stopped at {step}")
    successor = fleet.daemon("second")
    fleet.wait(fleet.settled, "settled by the second")
    fleet.assert_rows()
    fleet.wait(lambda: fleet.seen("first") is None, "missed")
    before = len(stopped.events())
    stopped.send(signal.SIGCONT)
    role = step.partition(".")[0]
    fleet.wait(lambda: any(event.get("role", "").startswith(role) for event in stopped.events()[before:]), "at the end of the cycle that was stopped")
    fleet.wait(lambda: fleet.seen("first") is not None, "seen again")
    assert_as_if_one(fleet)
    for running in (stopped, successor):
        running.send(signal.SIGTERM)
        assert ended(running.process) == 0
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


@pytest.mark.parametrize("step", [*INITIATOR_STEPS, *steps.WORKER_STEPS, *steps.CLEANER_STEPS])
def test_elected_by_zookeeper(fleet, step):
    """Its session expires, its transactions end, its claims are given back: the second does everything, the first finds nothing left to do."""
    stop_succeed_continue(fleet, step)


@pytest.mark.parametrize("fleet", [("3.1.0", True)], indirect=True)
@pytest.mark.parametrize("step", [steps.WORKER_VERIFIED, steps.WORKER_PUBLISHED, steps.CLEANER_TRASHED])
def test_on_hive_3(fleet, step):
    """Without transactions the rename is the commit, and the staging directory the fence."""
    stop_succeed_continue(fleet, step)


@pytest.mark.parametrize("fleet", [("4.0.0", False)], indirect=True)
@pytest.mark.parametrize("step", [steps.INITIATOR_LISTED, steps.WORKER_RAN, steps.CLEANER_TRASHED])
def test_elected_by_the_database_alone(fleet, step):
    """The server ends the silent transaction that holds the mutex; whoever held it notices."""
    stop_succeed_continue(fleet, step)
