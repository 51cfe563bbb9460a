"""
A database that is away for a while costs no work: a real server is stopped and started in the middle of an attempt, at
each of its steps.
"""

import threading

import pytest
from structlog.testing import capture_logs

from compactor.errors import RetryableError, UnreachableError
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity
from compactor.roles import steps
from compactor.roles.worker import metastore_retry
from compactor.roles.worker.cancellation import Cancellation, DrainedError
from compactor.roles.worker.metastore_retry import patiently
from tests.metastore.databases import on, require_schema
from tests.metastore.mysql_server import mysql_server
from tests.metastore.servers import UnavailableError, postgres_server
from tests.needs import missing
from tests.unit.roles.world import World

LOGGED = "metastore.call_failed"


@pytest.fixture(autouse=True)
def patient(impatient, monkeypatch):
    """As delivered, but asking more often."""
    monkeypatch.setattr(metastore_retry, "AWAY_SECONDS", 600.0)
    monkeypatch.setattr(metastore_retry, "PAUSE_SECONDS", 0.05)


@pytest.fixture(scope="module")
def own_postgres():
    """A server that the tests may stop."""
    yield from _own(postgres_server())


@pytest.fixture(scope="module")
def own_mariadb():
    """Another."""
    yield from _own(mysql_server("mariadb"))


def _own(server):
    try:
        started = server.__enter__()
    except UnavailableError as error:
        missing(str(error))
    yield started
    server.__exit__(None, None, None)


@pytest.fixture
def own_server(request, kind):
    return request.getfixturevalue(f"own_{kind.partition('-')[0]}")


@pytest.fixture
def own_world(own_server, kind, tmp_path):
    """A world on that server."""
    with Database(own_server.create(require_schema(kind))) as database:
        yield World(database, tmp_path)


class Restart:
    """The server goes away now, and comes back when it was missed, or when nothing more is asked of it."""

    def __init__(self, server):
        self.server = server
        self.over = threading.Event()
        self._thread = None

    def __call__(self):
        self.server.go_away()
        self._thread = threading.Thread(target=self._come_back)
        self._thread.start()

    def missed(self, logger, method, event):
        if event["event"] == LOGGED:
            self.over.set()
        return event

    def _come_back(self):
        self.over.wait(60)
        self.server.come_back()

    def wait(self):
        self.over.set()
        self._thread.join()


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        *(on("postgres-4", step) for step in steps.WORKER_STEPS),
        *(on("postgres-3", step) for step in steps.WORKER_STEPS if step != steps.WORKER_TXN_OPENED),
        *(on("mariadb-4", step) for step in (steps.WORKER_CLAIMED, steps.WORKER_LOCKED, steps.WORKER_PUBLISHED)),
    ],
)
def test_a_restarted_database_costs_no_work(own_server, own_world, step):
    """
    Wherever it happens: the attempt goes on, is the only one, and is committed; nothing of it is left; readers see the
    same rows.
    """
    world = own_world
    table = world.table(rows=4)
    world.settle_time()
    assert world.enqueue(Entity(table.database, table.name)).accepted
    restart = Restart(own_server)
    world.at_step[step] = restart
    with capture_logs(processors=[restart.missed]):
        said = world.worker().run_once().sentence
    restart.wait()
    assert ": published " in said, said
    assert world.passed.count(steps.WORKER_STAGED) == 1
    assert world.states() == ["ready for cleaning"]
    assert world.services.transactions.open_transactions() == []
    assert world.services.locks.all() == []
    world.assert_rows()


def test_what_stays_away_is_given_up(monkeypatch):
    """After two minutes, with the last error."""
    monkeypatch.setattr(metastore_retry, "AWAY_SECONDS", 0.2)
    asked = []

    def away():
        asked.append(1)
        raise UnreachableError(f"no metastore, {len(asked)}")

    with pytest.raises(UnreachableError, match="no metastore, ") as caught:
        patiently(away, Cancellation())
    assert str(caught.value) == f"no metastore, {len(asked)}"


def test_a_store_is_not_the_metastores_matter():
    """What needs one that is away makes room for others at once."""

    def away():
        raise UnreachableError("away", store="hdfs://nn:8020")

    with pytest.raises(UnreachableError, match="away"):
        patiently(away, Cancellation())


def test_who_waits_can_be_stopped():
    """A daemon that drains doesn't wait for the database."""
    cancellation = Cancellation()

    def away():
        cancellation.cancel(DrainedError("the daemon stops"))
        raise RetryableError("no metastore")

    with pytest.raises(DrainedError):
        patiently(away, cancellation)
