"""Which server answers: what a replica, a proxy or a pooler shows may be old, and files are removed by it."""

import contextlib

import pytest
from sqlalchemy import select, text

from compactor.errors import SettingsError, UnreachableError
from compactor.metastore.db.database import Database
from compactor.metastore.db.serving import require_one, shortcomings
from tests.metastore.databases import kinds, metastore, require_schema, server_of
from tests.metastore.mysql_server import MySQLServer


@pytest.fixture(params=kinds(["postgres-4", "mariadb-4", "mysql5-4", "sqlite"]))
def served_database(request, tmp_path):
    with metastore(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture(params=kinds(["mariadb-4", "mysql5-4"]))
def mysql_database(request, tmp_path):
    with metastore(request.param, request, tmp_path) as found:
        yield found


def sentences(database):
    return [one.sentence for one in shortcomings(database)]


def test_a_server_as_delivered_lacks_nothing(served_database):
    """Nothing is said where one server answers every look, with the columns of Hive's script."""
    assert shortcomings(served_database) == []


def test_looks_that_another_server_answers(mysql_database, postgres, monkeypatch):
    """A proxy that leads looks outside transactions to a replica is found, and both servers are named."""
    with Database(postgres.create(require_schema("postgres-4"))) as replica:
        looks = (replica, mysql_database)

        def split(look, *_):
            there = looks[0].dialect.server_seen
            return looks[0].glance(lambda connection: there(connection, looks[0].schema.dbs))

        monkeypatch.setattr(mysql_database, "glance", split)
        (found,) = shortcomings(mysql_database)
    assert found.grave
    assert str(mysql_database.engine.url.port) in found.sentence
    assert str(postgres.port) in found.sentence


@pytest.mark.parametrize("numbers", [(1, 1, 1), (1, 2, 2), (1, 2, 1)])
def test_a_session_that_changes(mysql_database, monkeypatch, numbers):
    """A pooler that gives a connection another session, or two connections the same, is found."""
    given = iter(numbers)
    monkeypatch.setattr(type(mysql_database.dialect), "session_seen", lambda *_: next(given))
    found = shortcomings(mysql_database)
    assert any("pooler" in one.sentence for one in found) == (numbers != (1, 2, 1))
    with pytest.raises(SettingsError, match="session pooling") if found else contextlib.nullcontext():
        given = iter(numbers)
        require_one(mysql_database)


def test_a_replica_that_takes_writes_and_logs_statements():
    """A server that gets its rows from another is named, and a binary log under which every write would fail."""
    version = require_schema("mariadb-4")
    server = MySQLServer("mariadb", "--log-bin=bin", "--binlog-format=STATEMENT", "--server-id=7")
    try:
        server.start()
        with Database(server.create(version)) as database:
            assert ["STATEMENT" in sentence for sentence in sentences(database)] == [True]
            server.sql("mysql", "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_USER = 'nobody'")
            first, second = shortcomings(database)
            assert ("STATEMENT" in first.sentence, first.grave) == (True, True)
            assert "replica" in second.sentence
    finally:
        server.stop()


def test_a_demoted_primary_is_asked_as_soon_as_another_connection_is_made(mysql_database, request):
    """
    A connection that was used a moment ago is asked whether its server takes writes when a newer one exists, which may
    lead to the next primary: what the old one shows is refused.
    """
    server, look = server_of(request, mysql_database), select(text("1"))
    with mysql_database.reading() as kept:
        kept.execute(look)
        with mysql_database.reading() as newer:
            newer.execute(look)
            server.sql("mysql", "SET GLOBAL read_only = ON")
            kept.execute(look)
    try:
        with pytest.raises(UnreachableError, match="read-only"):
            mysql_database.glance(lambda connection: connection.execute(look).all())
    finally:
        server.sql("mysql", "SET GLOBAL read_only = OFF")
    assert mysql_database.glance(lambda connection: connection.scalar(look)) == 1
