"""
The least SQL rights on MySQL and MariaDB: the roles' whole life as a user who has exactly the script's rights, each of
which is used.
"""

import re

import pymysql
import pytest
from structlog.testing import capture_logs

from compactor.daemon.daemon import Daemon
from compactor.errors import CompactorError
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.db.own_tables import OWN_TABLES, OwnTable
from compactor.metastore.db.rights import missing_rights
from compactor.metastore.txn.transactions import Transactions
from compactor.settings import Settings
from tests.deploy.service import DEPLOY
from tests.deploy.test_grants import OWN, SELDOM, WRITES, keeps_work_as_soon_as_it_may, live_with
from tests.metastore.databases import kinds, mariadb, mysql5, require_schema, server_for  # noqa: F401 - fixtures
from tests.unit.roles.world import Inline

pytestmark = [pytest.mark.deploy, pytest.mark.mariadb, pytest.mark.timeout(280)]
SCRIPT = DEPLOY / "sql" / "grants-mysql.sql"
SELDOM_HERE = SELDOM | {("TXN_LOCK_TBL", "UPDATE"): "MySQL 8 wants it for a lock on a row that is read"}


def grant(server, name: str, user: str) -> None:
    """As the script's head says."""
    account = f"SET @account = '''{user}''@''127.0.0.1'''"
    statements = server.output(name, SCRIPT.read_text(encoding="utf-8"), f"--init-command={account}")
    server.load(name, statements)


def granted(server, name: str, user: str) -> set[tuple[str, str]]:
    with server.connection("information_schema") as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT UPPER(TABLE_NAME), PRIVILEGE_TYPE FROM TABLE_PRIVILEGES WHERE TABLE_SCHEMA = %s AND GRANTEE = %s",
            [name, f"'{user}'@'127.0.0.1'"],
        )
        return set(cursor.fetchall())


@pytest.fixture(params=kinds(["mariadb-4", "mariadb-3", "mysql5-4"]))
def metastore(request):
    """(the server, the database, the user) of a new metastore on which the script was run twice."""
    version, server = require_schema(request.param), server_for(request, request.param)
    name = server.create(version).rpartition("/")[2]
    user = f"least_{name}"
    server.sql("mysql", f"CREATE USER '{user}'@'127.0.0.1'")
    for _ in range(2):
        grant(server, name, user)
    yield server, name, user
    server.sql("mysql", f"DROP DATABASE {name}; DROP USER '{user}'@'127.0.0.1'")


def test_a_whole_life_with_these_rights_and_none_to_spare(metastore, tmp_path):
    """
    Random lives of tables under Initiator, Worker, Cleaner, Housekeeper, recovery, watch and the table of members;
    every right to write was used, or is used seldom.
    """
    server, name, user = metastore
    recorder = live_with(server.url(name), server.url(name, user), tmp_path)
    rights = granted(server, name, user)
    tables = {one for one, _ in rights}
    used = {(one, right) for one, right in recorder.used if one in tables}  # the rest are words of SQL
    write_rights = {(one, right) for one, right in rights if right in WRITES and one not in OWN}
    assert write_rights - used - SELDOM_HERE.keys() == set()
    assert used <= rights


def test_the_table_of_work_is_made_later(metastore):
    """As on PostgreSQL; the server doesn't tell a user without rights on a table whether it is there."""
    server, name, user = metastore
    server.sql(name, "DROP TABLE COMPACTOR_WORK")
    server.sql(name, f"REVOKE ALL ON COMPACTOR_WORK FROM '{user}'@'127.0.0.1'")
    keeps_work_as_soon_as_it_may(server.url(name, user), lambda: grant(server, name, user))


def test_the_catalog_is_read_only(metastore):
    """
    Tables, partitions and columns can't be changed by the daemon's user, whoever takes it over; nor can it make tables.
    """
    server, name, user = metastore
    rights = granted(server, name, user)
    assert {
        right for one, right in rights if one in {"TBLS", "DBS", "SDS", "PARTITIONS", "TABLE_PARAMS", "COLUMNS_V2"}
    } == {"SELECT"}
    with (
        pymysql.connect(host="127.0.0.1", port=server.port, user=user, database=name) as connection,
        connection.cursor() as cursor,
    ):
        for statement in ("DELETE FROM TBLS", "CREATE TABLE X (A int)"):
            with pytest.raises(pymysql.OperationalError, match="command denied"):
                cursor.execute(statement)


def test_a_missing_right_is_said_in_one_line(metastore):
    """Without the right the daemon stops with the table's name, and does nothing else."""
    server, name, user = metastore
    with Database(server.url(name, user)) as database:
        server.sql(name, f"REVOKE UPDATE ON COMPACTION_QUEUE FROM '{user}'@'127.0.0.1'")
        Queue(database).entries()
        database.close()
        with pytest.raises(CompactorError, match=r"UPDATE command denied to user .*COMPACTION_QUEUE") as caught:
            database.write(
                lambda connection: connection.execute(database.schema.compaction_queue.update().values(cq_state="i"))
            )
    assert "\n" not in str(caught.value)


def test_what_is_checked_at_the_start_is_what_the_script_gives(metastore):
    """
    The daemon misses nothing after the script, and what was taken away since; what it asks for is what is granted, no
    more and no less.
    """
    server, name, user = metastore
    with Database(server.url(name, user)) as database:
        assert missing_rights(database) == []
        names = {one.upper() for one in database.schema.metadata.tables}
        given = {(right, one) for one, right in granted(server, name, user) if one in names}
        for right, one in given - {("SELECT", one) for one in names}:
            server.sql(name, f"REVOKE {right} ON {one} FROM '{user}'@'127.0.0.1'")
        database.engine.dispose()
        written = {f"{right} on {one}" for right, one in given if right != "SELECT"}
        assert set(missing_rights(database)) == written
        for one in names:
            server.sql(name, f"REVOKE SELECT ON {one} FROM '{user}'@'127.0.0.1'")
        database.engine.dispose()
        assert set(missing_rights(database)) == written | {f"SELECT on {one}" for one in names}


def test_the_daemon_says_at_its_start_which_right_a_new_release_needs(metastore):
    """One line that says what to run; it goes on with what it may do, and nothing was written to find out."""
    server, name, user = metastore
    server.sql(name, f"REVOKE INSERT ON TXN_COMPONENTS FROM '{user}'@'127.0.0.1'")
    settings = Settings(
        database={"url": server.url(name, user)},
        host="here",
        user="compactor",
        http={"enabled": False},
        worker={"threads": 0},
    )
    daemon = Daemon(settings, submitter=Inline(), configure_log=False)
    with capture_logs() as said:
        daemon.start()
        assert daemon.stop()
    (line,) = [line for line in said if line["event"] == "grants.missing"]
    assert line["missing"] == ["INSERT on TXN_COMPONENTS"]
    assert "run deploy/sql/grants-mysql.sql again" in line["remedy"]


def test_a_transaction_gets_its_number(metastore):
    """The counter of the column needs no right of its own."""
    server, name, user = metastore
    with Database(server.url(name, user)) as database:
        if database.schema.generation.layout == "hive-4":
            transactions = Transactions(database)
            assert transactions.end_empty(transactions.open_compaction("compactor", "here"))


def test_a_database_that_is_not_the_metastores(metastore):
    """Nothing is made in it; the script says so, and where Hive's tables are."""
    server, _, user = metastore
    elsewhere = server.create().rpartition("/")[2]
    with pytest.raises(
        RuntimeError, match=f"no table TXNS of Hive in database {elsewhere}: nothing was granted. One is"
    ):
        grant(server, elsewhere, user)
    with server.connection(elsewhere) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW TABLES")
        assert cursor.fetchall() == ()


@pytest.mark.parametrize("table", OWN_TABLES, ids=lambda table: table.name)
def test_a_table_of_our_own_is_the_one_that_the_daemon_would_make(metastore, table):
    """Names, types, key and collation."""
    server, name, _ = metastore

    def made():
        with server.connection(name) as connection, connection.cursor() as cursor:
            cursor.execute(f"SHOW CREATE TABLE {table.name}")
            return re.sub(r"\s+", " ", cursor.fetchone()[1])

    theirs = made()
    server.sql(name, f"DROP TABLE {table.name}")
    with Database(server.url(name)) as database:
        OwnTable(database, table).make()
    assert made() == theirs
