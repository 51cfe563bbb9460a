"""
Databases of metastores for tests: embedded SQLite, and PostgreSQL with Hive's own schemas 4.0.0 and 3.1.0.

Fixtures here are imported by the conftest, or the test module, whose tests ask for them; each such place has a server
of its own.
"""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from compactor.metastore.db.database import Database
from tests.hive.java import UnavailableError as NoJavaError
from tests.hive.party import Party
from tests.metastore.actor import Hive
from tests.metastore.real import RealHive
from tests.metastore.servers import UnavailableError, postgres_server, schema_script
from tests.needs import missing

EVERY = ("sqlite", "postgres-4", "postgres-3")
HIVE_4 = ("sqlite", "postgres-4")
SCHEMAS = {"postgres-4": "4.0.0", "postgres-3": "3.1.0"}
"""Hive's schema, by the kind of metastore."""


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server; tests that need it are skipped, with the reason, where there is none."""
    try:
        server = postgres_server()
        started = server.__enter__()
    except UnavailableError as error:
        missing(str(error))
    yield started
    server.__exit__(None, None, None)


@pytest.fixture(scope="session")
def parties():
    """
    Hive's TxnHandler on a database, by the schema's version and URL; databases are lent again and again, and so are the
    JVMs over them.
    """
    running = {}

    def party(version, url):
        if url not in running:
            try:
                running[url] = Party(version, url)
            except NoJavaError as error:
                missing(str(error))
        return running[url]

    yield party
    for one in running.values():
        one.close()


@contextlib.contextmanager
def metastore(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty metastore of that kind; the tests that need it are skipped where there is none."""
    if kind == "sqlite":
        with Database(f"sqlite:///{tmp_path}/metastore.db", create=True) as database:
            yield database
        return
    version = require_schema(kind)
    server = request.getfixturevalue("postgres")
    url = server.borrow(version)
    with Database(url) as database:
        yield database
    server.give_back(version, url)


def require_schema(kind: str) -> str:
    """The version of the schema of that kind; the test is skipped where Hive's script can't be had."""
    try:
        schema_script(SCHEMAS[kind])
    except UnavailableError as error:
        missing(str(error))
    return SCHEMAS[kind]


def kinds(names: Iterable[str]) -> list[object]:
    """Parameters of a fixture or a test: kinds of metastore, with the marks of what they need."""
    return [pytest.param(name, marks=[pytest.mark.postgres] if name != "sqlite" else []) for name in names]


def client(database: Database, parties) -> Hive:
    """A Hive client on a database: Hive's own TxnHandler, but on SQLite, which no Hive can use."""
    return Hive(database) if database.embedded else real_client(database, parties)


def real_client(database: Database, parties) -> RealHive:
    """Hive's own TxnHandler on a database: 4.0.1's or 3.1.3's."""
    return RealHive(database, parties("4.0.0" if database.schema.hive_4 else "3.1.0", database._url.render_as_string()))
