"""Reaching a database, and recognising its schema."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys

import pytest
from click.testing import CliRunner
from sqlalchemy import insert, text
from sqlalchemy.exc import OperationalError

from compactor.acid.compaction import LayoutVersion
from compactor.cli.root import cli
from compactor.errors import CompactorError, RefusedError, RetryableError, SettingsError, UnreachableError
from compactor.metastore.db.database import Database
from compactor.metastore.db.dialects import address
from compactor.metastore.db.dialects.base import Failure
from compactor.metastore.db.dialects.postgresql import PostgreSQL
from compactor.metastore.db.dialects.sqlite import SQLite
from compactor.reasons import Reason
from compactor.settings.database import DatabaseSettings
from tests.metastore.connections import message_of
from tests.metastore.databases import require_schema, server_of
from tests.metastore.servers import GUARDED, PASSWORD, USER, postgres_server


def test_the_schema_is_recognised_by_its_tables(database):
    """
    Each metastore is taken for the generation it is; on PostgreSQL 3.1 names are lower case, everywhere else upper case.
    """
    schema = database.schema
    assert schema.generation.layout is (
        LayoutVersion.HIVE_4 if schema.txn_lock_tbl is not None else LayoutVersion.HIVE_3
    )
    lower = schema.generation.layout != "hive-4" and database.dialect.name == "PostgreSQL"
    assert schema.txns.name == ("txns" if lower else "TXNS")
    assert schema.tbls.name == "TBLS"
    assert ("cq_pool_name" in schema.compaction_queue.c) is (schema.generation.layout == "hive-4")


@pytest.mark.postgres
def test_an_empty_database_is_refused(postgres):
    """A database without metastore tables is refused by one line that says what to do."""
    database = Database(postgres.create())
    assert "no Hive metastore tables" in message_of(database.connect, RefusedError)


@pytest.mark.postgres
def test_a_schema_between_generations_is_refused(altered_database, postgres):
    """A schema that lacks a column of its generation is refused, naming the column."""
    postgres.sql(
        str(altered_database).rpartition("/")[2], 'ALTER TABLE "COMPACTION_QUEUE" DROP COLUMN "CQ_COMMIT_TIME"'
    )
    altered_database.close()
    with pytest.raises(RefusedError, match=r"COMPACTION_QUEUE\.CQ_COMMIT_TIME") as caught:
        altered_database.connect()
    assert caught.value.reason is Reason.UNKNOWN_SCHEMA


@pytest.mark.postgres
def test_optional_tables_may_be_missing(altered_database, postgres):
    """An installation that dropped both history tables is a Hive 4 all the same."""
    postgres.sql(str(altered_database).rpartition("/")[2], 'DROP TABLE "MIN_HISTORY_LEVEL", "MIN_HISTORY_WRITE_ID"')
    altered_database.close()
    assert altered_database.schema.min_history_level is None


@pytest.mark.parametrize("product", ["postgresql", "mysql"])
def test_no_server_is_one_line(product):
    """Where nothing listens, the error names the server and not the password, in the words of the driver alone."""
    line = message_of(Database(f"{product}://hive@127.0.0.1:1/x", password="s3cret").connect, UnreachableError)
    assert "127.0.0.1:1/x can't be reached: " in line
    assert "reached: (" not in line
    assert "s3cret" not in line


@pytest.mark.postgres
def test_a_wrong_password_is_one_line_without_it(postgres):
    """A refused password is reported by one line that doesn't hold it; the right one works."""
    url = postgres.url("postgres", GUARDED)
    line = message_of(Database(url, password="wrong-password-1").connect, UnreachableError)
    assert "authentication failed" in line
    assert "wrong-password-1" not in line
    assert "no Hive metastore tables" in message_of(Database(url, password=PASSWORD).connect, RefusedError)


@pytest.mark.postgres
def test_a_password_is_read_for_each_new_connection(altered_database, postgres, tmp_path):
    """
    A password that was replaced in its file is the one that the next connection uses, also of a database that is open;
    an error meanwhile names the file, or that the server refused the login, and passes by itself.
    """
    name, file = str(altered_database).rpartition("/")[2], tmp_path / "password"
    postgres.sql(name, f'GRANT SELECT ON "VERSION" TO {GUARDED}')
    settings = DatabaseSettings(url=postgres.url(name, GUARDED), password_file=file)
    file.write_text("wrong-password-1\n")
    with contextlib.closing(Database(settings.url, password=settings.secret)) as database:
        assert "authentication failed" in message_of(database.connect, UnreachableError)
        file.write_text(f"{PASSWORD}\n")
        assert database.read(database.now_ms) > 0
        for text_of_now, words in (("wrong-password-2\n", "authentication failed"), ("", f"{file} is empty")):
            database.engine.dispose()
            file.write_text(text_of_now)
            line = message_of(lambda: database.read(database.now_ms), UnreachableError)
            assert words in line
            assert "wrong-password" not in line
            file.write_text(f"{PASSWORD}\n")
            assert database.read(database.now_ms) > 0


@pytest.mark.parametrize("statement", ["SELECT 1 FROM nowhere", "SELECT absent FROM {}"])
def test_tables_that_are_gone_are_a_metastore_that_cannot_be_reached(database, statement):
    """As after an upgrade of Hive's schema: it is no fault of what was asked, and the error says what to do."""
    table = database.engine.dialect.identifier_preparer.format_table(database.schema.txns)
    line = message_of(
        lambda: database.read(lambda connection: connection.exec_driver_sql(statement.format(table))), UnreachableError
    )
    assert "as after an upgrade of Hive's schema: " in line
    assert line.endswith("; restart compactor when the upgrade is done")


@pytest.mark.postgres
def test_a_metastore_in_a_schema_of_its_own(altered_database, postgres):
    """An address that came from a Java driver's with `currentSchema` finds the tables there, and only that one."""
    name = str(altered_database).rpartition("/")[2]
    postgres.sql(name, "ALTER SCHEMA public RENAME TO warehouse")
    rest = postgres.url(name).partition(":")[2]
    assert "no Hive metastore tables" in message_of(Database(f"postgresql:{rest}").connect, RefusedError)
    options, _, dropped = PostgreSQL.from_jdbc_options({"currentSchema": "warehouse"})
    url = address.written(PostgreSQL, f"{USER}@", rest.rpartition("@")[2].partition("/")[0], name, options)
    with Database(url) as database:
        assert not dropped
        assert database.schema.generation.layout == "hive-4"


@pytest.mark.postgres
def test_a_missing_database_is_one_line(postgres):
    """A database name that doesn't exist is reported as such."""
    assert '"nowhere" does not exist' in message_of(Database(postgres.url("nowhere")).connect, UnreachableError)


ENCRYPTED = text("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")


def encrypted(url):
    """Whether the connection that this address leads to is encrypted."""
    with Database(url) as database:
        return database.read(lambda connection: connection.scalar(ENCRYPTED))


@pytest.mark.postgres
@pytest.mark.usefixtures("postgres")
def test_tls_of_postgresql(certificates):
    """
    The address says how the server is known: by the authority and its name, by the authority alone, or not at all;
    without a word the connection is encrypted if the server can. One that can't be known so is refused in one line.
    """
    key = certificates / "postgres.key"  # the server takes none that others may read
    shutil.copy(certificates / "server.key", key)
    key.chmod(0o600)
    if os.geteuid() == 0:
        shutil.chown(key, "postgres")
    files = (f"ssl_cert_file={certificates}/server.pem", f"ssl_key_file={key}")
    with postgres_server("ssl=on", *files) as server:
        url = server.create(require_schema("postgres-4"))
        named = url.replace("127.0.0.1", "localhost")
        for known in (
            named,
            f"{url}?sslmode=require",
            f"{url}?sslmode=verify-ca&sslrootcert={certificates}/ca.pem",
            f"{named}?sslmode=verify-full&sslrootcert={certificates}/ca.pem",
        ):
            assert encrypted(known)
        assert not encrypted(f"{url}?sslmode=disable")
        for unknown, words in (
            (
                f"{url}?sslmode=verify-full&sslrootcert={certificates}/ca.pem",
                'does not match host name "127.0.0.1"',
            ),
            (f"{named}?sslmode=verify-full&sslrootcert={certificates}/other.pem", "certificate verify failed"),
            (f"{named}?sslmode=verify-ca&sslrootcert={certificates}/other.pem", "certificate verify failed"),
            (f"{named}?sslmode=verify-full&sslrootcert={certificates}/nowhere.pem", "nowhere.pem"),
        ):
            assert words in message_of(Database(unknown).connect, UnreachableError)


@pytest.mark.postgres
def test_a_postgresql_without_tls(postgres):
    """It is refused in one line where the address asks for TLS, and served where it doesn't."""
    url = postgres.create(require_schema("postgres-4"))
    assert not encrypted(url)
    line = message_of(Database(f"{url}?sslmode=require").connect, UnreachableError)
    assert "server does not support SSL, but SSL was required" in line


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("db2://x/y", "db2 isn't supported"),
        ("nonsense", "not a database address"),
        ("sqlite://", "SQLite needs a file"),
    ],
)
def test_a_wrong_url_is_a_settings_error(url, words):
    """A URL that can't be meant is a mistake in the settings, not an outage."""
    assert words in message_of(lambda: Database(url).connect(), SettingsError)


def test_a_missing_sqlite_file_is_not_created(tmp_path):
    """A path that doesn't exist is an error, not an empty metastore, unless one is asked for."""
    path = tmp_path / "absent.db"
    assert "no such file" in message_of(Database(f"sqlite:///{path}").connect, UnreachableError)
    assert not path.exists()


def test_a_file_that_is_no_database_is_one_line(tmp_path):
    """A file with other content is reported, and left as it is."""
    path = tmp_path / "text.db"
    path.write_text("this is not a database, however long it may be" * 100)
    assert "not a database" in message_of(Database(f"sqlite:///{path}").connect, UnreachableError)
    assert path.read_text().startswith("this is not")


def test_a_file_that_may_only_be_read_is_unreachable():
    """SQLite says so of a user who may read the file and not write beside it: exit 5, as for one who may do neither."""
    error = OperationalError("SELECT 1", None, sqlite3.OperationalError("attempt to write a readonly database"))
    assert SQLite().classify(error) is Failure.UNREACHABLE


def test_sqlite_serves_one_process(tmp_path):
    """While one process has the file, another one gets one line naming the first; reading alone is allowed."""
    path = tmp_path / "one.db"
    program = "from compactor.metastore.db.database import Database\nimport sys\ntry: Database(sys.argv[1], read_only=len(sys.argv) > 2).connect()\nexcept Exception as e: print(e)"
    with Database(f"sqlite:///{path}", create=True), Database(f"sqlite:///{path}"):
        other = subprocess.run(
            [sys.executable, "-c", program, f"sqlite:///{path}"], capture_output=True, text=True, check=True
        )
        reader = subprocess.run(
            [sys.executable, "-c", program, f"sqlite:///{path}", "read"], capture_output=True, text=True, check=True
        )
    after = subprocess.run(
        [sys.executable, "-c", program, f"sqlite:///{path}"], capture_output=True, text=True, check=True
    )
    assert "is in use by another process (process " in other.stdout
    assert "stop that one first, or use PostgreSQL for several" in other.stdout
    assert (reader.stdout, after.stdout) == ("", "")


def test_read_only_means_it(database, tmp_path):
    """A database opened for reading refuses to write."""
    url = str(database.engine.url.render_as_string(hide_password=False))
    with Database(url, read_only=True) as reader:
        aux = reader.schema.aux_table
        with pytest.raises(CompactorError):
            reader.write(lambda connection: connection.execute(insert(aux).values(mt_key1="x", mt_key2=0)).rowcount)


def _doctor(url, folder):
    config = folder / "compactor.yaml"
    config.write_text(f"database: {{url: '{url}'}}\nhttp: {{enabled: false}}\n", encoding="utf-8")
    result = CliRunner().invoke(cli, ["--config", str(config), "-o", "tsv", "doctor", "--no-spark"])
    return [line.split("\t")[:3] for line in result.stdout.splitlines()], result.exit_code


def test_doctor_connects_as_the_daemon_does(shared_database, request, tmp_path):
    """A user with all rights lacks none; a server or a database that takes no writes fails, as the daemon would."""
    server, url = server_of(request, shared_database), shared_database.engine.url
    found, code = _doctor(url.render_as_string(), tmp_path)
    assert ([line for line in found if line[1] == "failed"], code) == ([], 0)
    at, read_only = {
        "PostgreSQL": ("postgres", f"ALTER DATABASE {url.database} SET default_transaction_read_only = "),
        "MySQL": ("mysql", "SET GLOBAL read_only = "),
    }[shared_database.dialect.name]
    server.sql(at, f"{read_only} on")
    try:
        found, code = _doctor(url.render_as_string(), tmp_path)
    finally:
        server.sql(at, f"{read_only} off")
    (database,) = [line for line in found if line[:2] == ["database", "failed"]]
    assert ("read-only" in database[2], code) == (True, 1)


def test_a_file_that_somebody_holds_is_one_line(tmp_path, monkeypatch):
    """
    Another program is in an SQLite file that isn't in WAL mode yet: that it can't be turned to it is said in one line,
    as every other error is.
    """
    path = tmp_path / "held.db"
    with Database(f"sqlite:///{path}", create=True):
        pass
    monkeypatch.setattr(SQLite, "options", lambda *_: {"connect_args": {"timeout": 0, "check_same_thread": False}})
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute("BEGIN IMMEDIATE")
        assert "database is locked" in message_of(Database(f"sqlite:///{path}").connect, RetryableError)


def test_the_clock_is_the_databases(database):
    """The clock is in milliseconds and doesn't go back."""
    first = database.read(database.now_ms)
    assert 1_600_000_000_000 < first <= database.read(database.now_ms) < 5_000_000_000_000
