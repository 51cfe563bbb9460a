"""Metastore databases for tests: embedded SQLite, and PostgreSQL with Hive's own schemas 4.0.0 and 3.1.0."""

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
_VERSIONS = {"postgres-4": "4.0.0", "postgres-3": "3.1.0"}


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


def _database(kind, request, tmp_path):
    if kind == "sqlite":
        with Database(f"sqlite:///{tmp_path}/metastore.db", create=True) as database:
            yield database
        return
    version = _VERSIONS[kind]
    try:
        schema_script(version)
    except UnavailableError as error:
        missing(str(error))
    server = request.getfixturevalue("postgres")
    url = server.borrow(version)
    with Database(url) as database:
        yield database
    server.give_back(version, url)


def _parameters(kinds):
    return [pytest.param(kind, marks=[pytest.mark.postgres] if kind != "sqlite" else []) for kind in kinds]


@pytest.fixture(params=_parameters(EVERY))
def database(request, tmp_path):
    """Each kind of metastore in turn."""
    yield from _database(request.param, request, tmp_path)


@pytest.fixture(params=_parameters(HIVE_4))
def database_4(request, tmp_path):
    """Each kind of metastore of Hive 4."""
    yield from _database(request.param, request, tmp_path)


@pytest.fixture(params=_parameters(["postgres-3"]))
def database_3(request, tmp_path):
    """A metastore of Hive 3.1."""
    yield from _database(request.param, request, tmp_path)


@pytest.fixture(params=_parameters(["postgres-4", "postgres-3"]))
def shared_database(request, tmp_path):
    """A metastore that others use at the same time: what is claimed about concurrency is tested on these."""
    yield from _database(request.param, request, tmp_path)


@pytest.fixture(params=_parameters(["postgres-4"]))
def shared_database_4(request, tmp_path):
    """As `shared_database`, of Hive 4."""
    yield from _database(request.param, request, tmp_path)


@pytest.fixture
def altered_database(postgres):
    """A metastore of Hive 4 on PostgreSQL whose tables the test may change."""
    try:
        schema_script(_VERSIONS["postgres-4"])
    except UnavailableError as error:
        missing(str(error))
    with Database(postgres.create(_VERSIONS["postgres-4"])) as database:
        yield database


@pytest.fixture
def hive(database, parties):
    """A Hive client on the `database` of the test: Hive's own TxnHandler, but on SQLite, which no Hive can use."""
    return _client(database, parties)


@pytest.fixture
def hive_4(database_4, parties):
    return _client(database_4, parties)


@pytest.fixture
def hive_3(database_3, parties):
    return _client(database_3, parties)


@pytest.fixture
def shared_hive(shared_database, parties):
    return _client(shared_database, parties)


@pytest.fixture
def shared_hive_4(shared_database_4, parties):
    return _client(shared_database_4, parties)


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


@pytest.fixture
def real_hive(shared_database, parties):
    """Hive's own TxnHandler, 4.0.1's and 3.1.3's, beside ours on `shared_database`."""
    return _real(shared_database, parties)


@pytest.fixture
def real_hive_4(shared_database_4, parties):
    """Hive 4.0.1's on `shared_database_4`."""
    return _real(shared_database_4, parties)


@pytest.fixture
def real_hive_3(database_3, parties):
    """Hive 3.1.3's on `database_3`."""
    return _real(database_3, parties)


def _client(database, parties):
    return Hive(database) if database.embedded else _real(database, parties)


def _real(database, parties):
    return RealHive(database, parties("4.0.0" if database.schema.hive_4 else "3.1.0", database._url.render_as_string()))
