"""
A partitioned network: a daemon in a network of its own, whose cable is pulled at a named step while it goes on working.

It reaches its warehouse still, which is the worst that can happen: ZooKeeper and the metastore's database it doesn't. Nobody is told; packets are lost.
"""

import contextlib
import itertools
import os
import signal
import time
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from compactor.coordination import Member, Role
from compactor.coordination.clock import elapsed
from compactor.coordination.zookeeper import ZooKeeperCoordinator
from compactor.errors import CompactorError, OwnershipLostError
from compactor.metastore.database import Database
from compactor.roles import steps
from compactor.settings import ZooKeeper
from tests import forked
from tests.cluster.daemons import Fleet
from tests.cluster.fencing import assert_as_if_one
from tests.cluster.network import Relay, enter
from tests.cluster.test_election import until
from tests.cluster.zookeeper_servers import TICK_MS, zookeeper
from tests.crash.test_kill import PATIENCE, ended, url_of

pytestmark = [pytest.mark.cluster, pytest.mark.postgres, pytest.mark.timeout(240)]
_roots = itertools.count(1)
CONNECT_SECONDS = 3
LEAD_SECONDS = 1.5
LEADS = "leads at "


@pytest.fixture
def fleet(request, tmp_path, zookeeper_1):
    """Daemons on PostgreSQL, coordinated by ZooKeeper; by parameter on another Hive."""
    section = {"hosts": zookeeper_1.hosts, "root": f"/partition-{next(_roots)}"}
    made = Fleet(url_of(getattr(request, "param", "4.0.0"), request, tmp_path), tmp_path, section)
    yield made
    made.end()


@pytest.fixture
def away(fleet, island, zookeeper_1):
    """Starts a daemon on the island; what it knows of the world comes through the cable."""
    url = make_url(fleet.url)
    with Relay(url.port, island.shore) as database, Relay(zookeeper_1.ports[0], island.shore) as zookeeper:

        def start(name, **options):
            return fleet.daemon(
                name,
                network=island.namespace,
                database=fleet.settings["database"]
                | {"url": url.set(host=island.shore, port=database.port).render_as_string(hide_password=False), "connect_timeout_seconds": CONNECT_SECONDS},
                zookeeper=fleet.settings["zookeeper"] | {"hosts": f"{island.shore}:{zookeeper.port}"},
                **options,
            )

        yield start


def cut_succeed_mend(fleet, island, away, step):
    first = away("first", stop_at=step)
    fleet.wait(first.stopped, f"stopped at {step}")
    before = len(first.events())
    island.cut()
    first.send(signal.SIGCONT)
    second = fleet.daemon("second")
    fleet.wait(fleet.settled, "settled by the second")
    fleet.assert_rows()
    told = ("connection was lost", "can't be reached", "or can't tell: it lets go", "no answer", "is lost: the database ended")
    fleet.wait(lambda: any(word in str(event) for event in first.events()[before:] for word in told), "noticed, with the cable still pulled")
    assert fleet.seen("first") is None
    island.mend()
    fleet.wait(lambda: fleet.seen("first") is not None, "seen again")
    role = step.partition(".")[0]
    fleet.wait(lambda: any(event.get("role", "").startswith(role) for event in first.events()[before:]), "at the end of the cycle that was cut off")
    assert_as_if_one(fleet)
    for running in (first, second):
        running.send(signal.SIGTERM)
        assert ended(running.process) == 0, running.said()[-3000:]
    assert_as_if_one(fleet)


@pytest.mark.parametrize(
    "step",
    [
        steps.INITIATOR_LISTED,
        steps.WORKER_CLAIMED,
        steps.WORKER_STATE_STORED,
        steps.WORKER_RAN,
        steps.WORKER_VERIFIED,
        steps.WORKER_PUBLISHED,
        steps.CLEANER_SELECTED,
        steps.CLEANER_TRASHED,
        steps.CLEANER_COMPARED,
        steps.CLEANER_DELETED,
    ],
)
def test_cut_off_with_its_warehouse(fleet, island, away, step):
    """Its session expires, its transaction ends, another one does the work: what it goes on with comes to nothing; with the cable back it stands by."""
    cut_succeed_mend(fleet, island, away, step)


@pytest.mark.parametrize("fleet", ["3.1.0"], indirect=True)
@pytest.mark.parametrize("step", [steps.WORKER_RAN, steps.WORKER_PUBLISHED, steps.CLEANER_TRASHED])
def test_on_hive_3(fleet, island, away, step):
    """Where the rename is the commit, the look before it asks the database, and finds nobody."""
    cut_succeed_mend(fleet, island, away, step)


def test_no_statement_waits_for_ever(postgres, island, tmp_path):
    """The cable is pulled while a program asks the database again and again: it is told that nobody answers, and not after the quarter of an hour TCP would take."""
    url = make_url(postgres.create("4.0.0"))
    said = tmp_path / "said"
    with Relay(url.port, island.shore) as relay:
        address = url.set(host=island.shore, port=relay.port).render_as_string(hide_password=False)
        asking = forked.start(_ask, address, island.namespace, environment=dict(os.environ), folder=tmp_path, out=said, err=tmp_path / "err")
        try:
            deadline = time.monotonic() + PATIENCE
            while not (said.exists() and "answered" in said.read_text(encoding="utf-8")):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            island.cut()
            assert ended(asking) == 0, "it waits still"
        finally:
            asking.kill()
            asking.join()
    assert said.read_text(encoding="utf-8").splitlines()[-1] == "UnreachableError"


def test_a_server_cut_off_from_the_others_elects_nobody(island, tmp_path):
    """
    One of three ZooKeeper servers, and a daemon's host with it: it answers for a while, but what it says of leadership isn't taken for true. The daemon has let go when
    another begins, but for a tick, in which servers tell each other of sessions.
    """
    places = [(island.host, island.namespace), (island.shore, None), (island.shore, None)]
    with zookeeper(tmp_path / "servers", 3, extra={"syncLimit": "60"}, places=places) as servers:
        assert servers.leader() != 0
        said = tmp_path / "said"
        first = forked.start(_lead, servers.address(0), island.namespace, environment=dict(os.environ), folder=tmp_path, out=said, err=tmp_path / "err")

        def led():
            """When the first led."""
            whole = said.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
            return [float(line.removeprefix(LEADS)) for line in whole if line.startswith(LEADS)]

        second = ZooKeeperCoordinator(ZooKeeper(hosts=f"{servers.address(1)},{servers.address(2)}", session_timeout_seconds=LEAD_SECONDS), 0.3)
        try:
            until(lambda: said.exists() and led(), "the first leads")
            second.join(Member("second", "second", 2, "1"), Role)
            until(lambda: len(second.present() or ()) == 2, "both there")
            assert second.lead(Role.CLEANER) is None
            island.cut()
            until(lambda: second.lead(Role.CLEANER), "succeeded")
            began = elapsed()
            until(lambda: elapsed() > began + 3 * LEAD_SECONDS, "so long that a mistake would show")
            assert led()[-1] < began + TICK_MS / 1000
        finally:
            island.mend()
            second.close()
            first.kill()
            first.join()


def _lead(hosts: str, network: Path) -> None:
    """Say when we lead, as often as that is so."""
    enter(network)
    coordinator = ZooKeeperCoordinator(ZooKeeper(hosts=hosts, session_timeout_seconds=LEAD_SECONDS), 600)  # only reads, which such a server answers
    coordinator.join(Member("first", "first", 1, "1"), Role)
    while True:
        if (term := coordinator.lead(Role.CLEANER)) is not None:
            with contextlib.suppress(OwnershipLostError):
                term.check()
                print(f"{LEADS}{elapsed()}", flush=True)
        time.sleep(0.01)


def _ask(url: str, network: Path) -> None:
    enter(network)
    database = Database(url, connect_timeout_seconds=CONNECT_SECONDS)
    try:
        while True:
            database.read(lambda connection: connection.scalar(text("SELECT 1")))
            print("answered", flush=True)
    except CompactorError as error:
        print(type(error).__name__, flush=True)
