"""
Databases of metastores for tests: embedded SQLite, and servers with Hive's own schemas 4.0.0 and 3.1.0, and with 4.3.0.

Fixtures here are imported by the conftest, or the test module, whose tests ask for them; each such place has a server
of its own.
"""

import contextlib
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from compactor.metastore.db.database import Database
from tests.hive.java import UnavailableError as NoJavaError
from tests.hive.party import Party
from tests.metastore.actor import Hive
from tests.metastore.embedded import create_hive_3
from tests.metastore.mysql_server import mysql_server
from tests.metastore.real import RealHive
from tests.metastore.servers import UnavailableError, postgres_server, schema_statements
from tests.needs import missing

EVERY = ("sqlite", "sqlite-3", "postgres-4", "postgres-3", "mariadb-4.3", "mariadb-3")
HIVE_4 = ("sqlite", "postgres-4", "mariadb-4.3")
LIVED_ON = ("sqlite", "postgres-4", "postgres-3", "mariadb-4")
"""Those on which the roles live their lives."""
EMBEDDED = ("sqlite", "sqlite-3")
"""Without a server, so quick; with the tables of Hive 4 and of Hive 3.1."""
SHARED = ("postgres-4.3", "postgres-3", "mariadb-4", "mariadb-3")
SERVERS_3 = ("postgres-3", "mariadb-3")
SCHEMAS = {"4": "4.0.0", "4.3": "4.3.0", "3": "3.1.0"}
"""Hive's schema, by the end of the kind of metastore."""
SCRIPTS = {"postgres": "postgres", "mariadb": "mysql", "mysql5": "mysql"}
"""Hive's word for a product, by the beginning of the kind of metastore."""
MARKS = {
    "postgres": [pytest.mark.postgres],
    "mariadb": [pytest.mark.mariadb],
    "mysql5": [pytest.mark.mariadb],
    "galera": [pytest.mark.mariadb],
}


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
def mariadb():
    """A MariaDB server; tests that need it are skipped, with the reason, where there is none."""
    yield from _lent("mariadb")


@pytest.fixture(scope="session")
def mysql5():
    """A MySQL 5.7 server, likewise."""
    yield from _lent("mysql5")


def _lent(product):
    try:
        server = mysql_server(product)
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
    for one in running.values():  # they end side by side
        one.let_go()
    for one in running.values():
        one.close()


@contextlib.contextmanager
def metastore(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty metastore of that kind; the tests that need it are skipped where there is none."""
    if kind in EMBEDDED:
        (tmp_path / "metastore.db").write_bytes(_empty(kind))
        with Database(f"sqlite:///{tmp_path}/metastore.db") as database:
            yield database
        return
    version = require_schema(kind)
    server = server_for(request, kind)
    url = server.borrow(version)
    with Database(url) as database:
        yield database
    server.give_back(version, url)


@cache
def _empty(kind: str) -> bytes:
    """The file of an embedded metastore that holds nothing."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "metastore.db"
        if kind == "sqlite-3":
            create_hive_3(path)
        with Database(f"sqlite:///{path}", create=True) as database:
            database.read(database.now_ms)
        return path.read_bytes()


def require_schema(kind: str) -> str:
    """The version of the schema of that kind; the test is skipped where Hive's script can't be had."""
    product, _, generation = kind.partition("-")
    version = SCHEMAS[generation]
    try:
        schema_statements(version, SCRIPTS[product])
    except UnavailableError as error:
        missing(str(error))
    return version


def kinds(names: Iterable[str]) -> list[object]:
    """Parameters of a fixture or a test: kinds of metastore, with the marks of what they need."""
    return [on(name) for name in names]


def on(kind: str, *values: object) -> object:
    """A test's parameters: a kind of metastore, with the marks of what it needs, and others."""
    return pytest.param(kind, *values, marks=MARKS.get(kind.partition("-")[0], ()))


def server_for(request: pytest.FixtureRequest, kind: str):
    """The server of a kind of metastore."""
    return request.getfixturevalue(kind.partition("-")[0])


def server_of(request: pytest.FixtureRequest, database: Database):
    """The server that a shared database lives on."""
    servers = (request.getfixturevalue(name) for name in SCRIPTS if name in request.node.name)
    return next(server for server in servers if server.port == database.engine.url.port)


def client(database: Database, parties) -> Hive:
    """A Hive client on a database: Hive's own TxnHandler, but on SQLite, which no Hive can use."""
    return Hive(database) if database.embedded else real_client(database, parties)


def real_client(database: Database, parties) -> RealHive:
    """Hive's own TxnHandler on a database: 4.0.1's or 3.1.3's."""
    return RealHive(
        database,
        parties(
            "4.0.0" if database.schema.generation.layout == "hive-4" else "3.1.0", database._url.render_as_string()
        ),
    )
