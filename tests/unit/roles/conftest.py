"""A world per test: on an embedded metastore, or on each kind there is."""

import pytest

from compactor.metastore.db.database import Database
from compactor.roles.worker import metastore_retry
from tests.metastore.databases import LIVED_ON, kinds, mariadb, metastore, postgres  # noqa: F401 - fixtures among them
from tests.unit.roles.world import World


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """
    A metastore that doesn't answer a running attempt is given up at once: its two minutes are the subject of
    `test_metastore_retry` alone.
    """
    monkeypatch.setattr(metastore_retry, "AWAY_SECONDS", 0.0)


@pytest.fixture
def later(monkeypatch):
    """Moves the clock of every database forward by so many milliseconds."""
    moved = [0]
    now_ms = Database.now_ms
    monkeypatch.setattr(Database, "now_ms", lambda its, connection: now_ms(its, connection) + moved[0])
    return lambda milliseconds: moved.__setitem__(0, moved[0] + milliseconds)


@pytest.fixture
def world(tmp_path, request):
    """On an embedded metastore."""
    with metastore("sqlite", request, tmp_path) as database:
        yield World(database, tmp_path)


@pytest.fixture(params=kinds(LIVED_ON))
def any_world(tmp_path, request):
    """On each kind of metastore in turn."""
    with metastore(request.param, request, tmp_path) as database:
        yield World(database, tmp_path)


@pytest.fixture(params=kinds(["postgres-3"]))
def world_3(tmp_path, request):
    """On PostgreSQL with Hive 3.1's schema."""
    with metastore(request.param, request, tmp_path) as database:
        yield World(database, tmp_path)


@pytest.fixture
def table(world):
    """Four deltas of an insert-only table: compacted without a decoder."""
    return world.table(rows=4, insert_only=True)
