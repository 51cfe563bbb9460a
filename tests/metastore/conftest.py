"""Metastores for the tests of this package, and Hive clients on them."""

# ruff: noqa: F811 - fixtures ask for imported ones by name

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from compactor.metastore.db.database import Database
from tests.metastore.databases import (  # noqa: F401 - fixtures among them
    EVERY,
    HIVE_4,
    SERVERS_3,
    SHARED,
    client,
    kinds,
    mariadb,
    metastore,
    mysql5,
    parties,
    postgres,
    real_client,
    require_schema,
    server_of,
)
from tests.metastore.guarded import refuse_subqueries
from tests.needs import missing

refuse_subqueries()


@pytest.fixture(params=kinds(EVERY))
def database(request, tmp_path):
    """Each kind of metastore in turn."""
    with metastore(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture(params=kinds(HIVE_4))
def database_4(request, tmp_path):
    """Each kind of metastore of Hive 4."""
    with metastore(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture(params=kinds(("sqlite-3", *SERVERS_3)))
def database_3(request, tmp_path):
    """A metastore of Hive 3.1."""
    with metastore(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture(params=kinds(SHARED))
def shared_database(request, tmp_path):
    """A metastore that others use at the same time: what is claimed about concurrency is tested on these."""
    with metastore(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture(params=kinds(["postgres-4", "mariadb-4"]))
def shared_database_4(request, tmp_path):
    """As `shared_database`, of Hive 4."""
    with metastore(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture(params=kinds(["postgres-4", "postgres-3"]))
def postgres_database(request, tmp_path):
    """A metastore on PostgreSQL: for what only this product has."""
    with metastore(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture(params=kinds(["postgres-4"]))
def postgres_database_4(request, tmp_path):
    """As `postgres_database`, of Hive 4."""
    with metastore(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture
def postgres_hive_4(postgres_database_4, parties):
    return client(postgres_database_4, parties)


@pytest.fixture
def server(request, shared_database):
    """The server of `shared_database`."""
    return server_of(request, shared_database)


@pytest.fixture
def server_4(request, shared_database_4):
    """The server of `shared_database_4`."""
    return server_of(request, shared_database_4)


@pytest.fixture
def altered_database(postgres):
    """A metastore of Hive 4 on PostgreSQL whose tables the test may change."""
    with Database(postgres.create(require_schema("postgres-4"))) as database:
        yield database


@pytest.fixture
def hive(database, parties):
    """A Hive client on the `database` of the test: Hive's own TxnHandler, but on SQLite, which no Hive can use."""
    return client(database, parties)


@pytest.fixture
def hive_4(database_4, parties):
    return client(database_4, parties)


@pytest.fixture
def hive_3(database_3, parties):
    return client(database_3, parties)


@pytest.fixture
def shared_hive(shared_database, parties):
    return client(shared_database, parties)


@pytest.fixture
def shared_hive_4(shared_database_4, parties):
    return client(shared_database_4, parties)


@pytest.fixture
def real_hive(shared_database, parties):
    """Hive's own TxnHandler, 4.0.1's and 3.1.3's, beside ours on `shared_database`."""
    return real_client(shared_database, parties)


@pytest.fixture
def real_hive_4(shared_database_4, parties):
    """Hive 4.0.1's on `shared_database_4`."""
    return real_client(shared_database_4, parties)


@pytest.fixture
def real_hive_3(database_3, parties):
    """Hive 3.1.3's on `database_3`."""
    return real_client(database_3, parties)


@pytest.fixture(scope="session")
def certificates():
    """An authority of our own with a certificate for the name localhost, and another authority."""
    if shutil.which("openssl") is None:
        missing("openssl isn't installed")
    with tempfile.TemporaryDirectory(
        prefix="compactor-certificates-"
    ) as name:  # pytest's are shut to servers' accounts
        yield _certified(Path(name))


def _certified(folder):
    folder.chmod(0o755)
    names = folder / "names"
    names.write_text("subjectAltName=DNS:localhost\n")
    for command in (
        "req -x509 -newkey rsa:2048 -nodes -keyout other.key -out other.pem -days 2 -subj /CN=other",
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority",
        "req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost",
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem",
    ):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)
    for file in folder.iterdir():
        file.chmod(0o644)
    return folder
