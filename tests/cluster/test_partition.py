"""
A partitioned network: a daemon in a network of its own, whose cable is pulled at a named step while it goes on working.

It reaches its warehouse still, which is the worst that can happen: ZooKeeper and the metastore's database it doesn't.
Nobody is told; packets are lost.
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
from compactor.coordination.base import elapsed
from compactor.coordination.zk.coordinator import ZooKeeperCoordinator
from compactor.errors import CompactorError, OwnershipLostError
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.model import QueueState
from compactor.roles import steps
from compactor.settings import ZooKeeper
from tests import forked
from tests.cluster.daemons import Fleet
from tests.cluster.fencing import OWN_STEPS, assert_as_if_one
from tests.cluster.network import Relay, enter
from tests.cluster.test_election import until
from tests.cluster.zookeeper_servers import TICK_MS, zookeeper
from tests.crash.scene import PATIENCE, ended, url_of
from tests.metastore.databases import kinds

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
_roots = itertools.count(1)
CONNECT_SECONDS = 3
LEAD_SECONDS = 4.0
LEADS = "leads at "
COMMITTED = (steps.WORKER_COMMITTED, *steps.CLEANER_STEPS)
"""At these the compaction is the first's, whatever becomes of it."""
STATES = {
    steps.INITIATOR_SEARCHED: [[]],
    steps.INITIATOR_LISTED: [[]],
    steps.INITIATOR_QUEUED: [[QueueState.INITIATED], [QueueState.WORKING]],  # its own worker may be that quick
    **{step: [[QueueState.WORKING]] for step in steps.WORKER_STEPS},
    **{step: [[QueueState.READY_FOR_CLEANING]] for step in COMMITTED},
    steps.CLEANER_MARKED: [[QueueState.SUCCEEDED]],
    **{step: [[QueueState.WORKING]] for step in steps.RECOVERY_STEPS},
    steps.RECOVERY_FREED: [[QueueState.INITIATED], [QueueState.WORKING]],
}
"""Queue and history at each step."""
WAITING = (steps.WORKER_RAN, steps.WORKER_PUBLISHED, steps.CLEANER_TRASHED)
"""After these the daemon asks the database first of all."""


@pytest.fixture
def fleet(request, tmp_path, zookeeper_1):
    """Daemons on PostgreSQL and Hive 4, coordinated by ZooKeeper; by parameter on another kind of metastore."""
    section = {"hosts": zookeeper_1.hosts, "root": f"/partition-{next(_roots)}"}
    made = Fleet(url_of(getattr(request, "param", "postgres-4"), request, tmp_path), tmp_path, section)
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
                | {
                    "url": url.set(host=island.shore, port=database.port).render_as_string(hide_password=False),
                    "connect_timeout_seconds": CONNECT_SECONDS,
                },
                zookeeper=fleet.settings["zookeeper"] | {"hosts": f"{island.shore}:{zookeeper.port}"},
                **options,
            )

        yield start


def cut_succeed_mend(fleet, island, away, step):
    """
    Cut off the first at a step and let it go on, let the second finish, mend the cable. What the first had committed,
    or queued, stays as it is and isn't done again; what it hadn't is the second's alone.
    """
    first = away("first", stop_at=step)
    fleet.wait(first.stopped, f"stopped at {step}")
    before = len(first.events())
    base, queued = found_at(fleet, step)
    island.cut()
    first.send(signal.SIGCONT)
    second = fleet.daemon("second")
    fleet.wait(fleet.settled, "settled by the second")
    fleet.assert_rows()
    looked = passed(second, steps.INITIATOR_QUEUED)
    fleet.wait(lambda: passed(second, steps.INITIATOR_QUEUED) > looked, "looked at again by the second")
    told = (
        "connection was lost",
        "can't be reached",
        "or can't tell: it lets go",
        "no answer",
        "zookeeper_call.failed",
        "is lost: the database ended",
    )
    fleet.wait(
        lambda: any(word in str(event) for event in first.events()[before:] for word in told),
        "noticed, with the cable still pulled",
    )
    fleet.wait(lambda: fleet.seen("first") is None, "missed")
    island.mend()
    fleet.wait(lambda: fleet.seen("first") is not None, "seen again")
    role = "housekeeper" if step in steps.RECOVERY_STEPS else step.partition(".")[0]
    fleet.wait(
        lambda: any(event.get("role", "").startswith(role) for event in first.events()[before:]),
        "at the end of the cycle that was cut off",
    )
    assert_as_if_one(fleet)
    for running in (first, second):
        running.send(signal.SIGTERM)
        assert ended(running.process) == 0, running.said()[-3000:]
    assert_as_if_one(fleet)
    (done,) = Queue(fleet.metastore).history()
    assert not base or fleet.names() == base
    if queued:
        assert (done.id, done.enqueue_ms) == (queued[0].id, queued[0].enqueue_ms)
        assert step not in COMMITTED or done.txn_id == queued[0].txn_id
        assert step in COMMITTED or done.txn_id is None or done.txn_id != queued[0].txn_id


def found_at(fleet, step):
    """
    The base and the entry that the first leaves behind at a step: as far as it must have come, and no further. Nobody
    else is there.
    """
    queue = Queue(fleet.metastore)
    queued, history = queue.entries(), queue.history()
    assert [entry.state for entry in (*queued, *history)] in STATES[step]
    base = [name for name in fleet.names() if name.startswith("base_")]
    assert bool(base) == (step in COMMITTED or step == steps.WORKER_PUBLISHED)
    return base if step in COMMITTED or fleet.metastore.schema.generation.layout != "hive-4" else [], queued or history


def passed(running, step):
    """How often a daemon passed a step."""
    return sum(event.get("step") == step for event in running.events())


@pytest.mark.parametrize(
    ("fleet", "step"),
    [
        *(pytest.param("postgres-4", step, marks=pytest.mark.postgres) for step in OWN_STEPS),
        *(pytest.param("mariadb-4", step, marks=pytest.mark.mariadb) for step in WAITING),
    ],
    indirect=["fleet"],
)
def test_cut_off_with_its_warehouse(fleet, island, away, step):
    """
    Its session expires, its transaction ends, another one does the work: what it goes on with comes to nothing; with
    the cable back it stands by.
    """
    cut_succeed_mend(fleet, island, away, step)


@pytest.mark.postgres
@pytest.mark.parametrize("fleet", ["postgres-3"], indirect=True)
@pytest.mark.parametrize("step", [steps.WORKER_RAN, steps.WORKER_PUBLISHED, steps.CLEANER_TRASHED])
def test_on_hive_3(fleet, island, away, step):
    """Where the rename is the commit, the look before it asks the database, and finds nobody."""
    cut_succeed_mend(fleet, island, away, step)


@pytest.mark.postgres
@pytest.mark.parametrize("step", steps.RECOVERY_STEPS)
def test_cut_off_while_it_clears_up_after_the_dead(fleet, island, away, step):
    """
    A worker is killed in its work; who clears up after it is cut off, another does it all: what the first goes on with
    takes nothing away that isn't the dead one's.
    """
    dead = fleet.daemon("dead", stop_at=steps.WORKER_RAN)
    fleet.wait(dead.stopped, "at work")
    dead.send(signal.SIGKILL)
    cut_succeed_mend(fleet, island, away, step)


@pytest.mark.parametrize("kind", kinds(["postgres-4", "mariadb-4"]))
def test_no_statement_waits_for_ever(request, kind, island, tmp_path):
    """
    The cable is pulled while a program asks the database again and again: it is told that nobody answers, and not after
    the quarter of an hour TCP would take.
    """
    url = make_url(url_of(kind, request, tmp_path))
    said = tmp_path / "said"
    with Relay(url.port, island.shore) as relay:
        address = url.set(host=island.shore, port=relay.port).render_as_string(hide_password=False)
        asking = forked.start(
            _ask,
            address,
            island.namespace,
            environment=dict(os.environ),
            folder=tmp_path,
            out=said,
            err=tmp_path / "err",
        )
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
    One of three ZooKeeper servers, and a daemon's host with it: it answers for a while, but what it says of leadership
    isn't taken for true. The daemon has let go when another begins, but for a tick, in which servers tell each other of
    sessions.
    """
    places = [(island.host, island.namespace), (island.shore, None), (island.shore, None)]
    with zookeeper(tmp_path / "servers", 3, extra={"syncLimit": "60"}, places=places) as servers:
        assert servers.leader() != 0
        said = tmp_path / "said"
        first = forked.start(
            _lead,
            servers.address(0),
            island.namespace,
            environment=dict(os.environ),
            folder=tmp_path,
            out=said,
            err=tmp_path / "err",
        )

        def led():
            """When the first led."""
            whole = said.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
            return [float(line.removeprefix(LEADS)) for line in whole if line.startswith(LEADS)]

        second = ZooKeeperCoordinator(
            ZooKeeper(hosts=f"{servers.address(1)},{servers.address(2)}", session_timeout_seconds=LEAD_SECONDS), 0.3
        )
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
    coordinator = ZooKeeperCoordinator(
        ZooKeeper(hosts=hosts, session_timeout_seconds=LEAD_SECONDS), 600
    )  # only reads, which such a server answers
    coordinator.join(Member("first", "first", 1, "1"), Role)
    while True:
        if (term := coordinator.lead(Role.CLEANER)) is not None:
            asked = elapsed()  # not when it was answered: we may have been kept waiting since
            with contextlib.suppress(OwnershipLostError):
                term.check()
                print(f"{LEADS}{asked}", flush=True)
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
