"""
The least SQL rights: the roles' whole life on PostgreSQL as a user who has exactly the script's rights, each of which
is used.
"""

import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.schema import CreateTable
from structlog.testing import capture_logs

from compactor.coordination.sql.table import StateTable
from compactor.daemon.daemon import Daemon
from compactor.daemon.queue_metrics import QueueMetrics
from compactor.errors import CompactorError
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.follow_ups import FollowUp
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.work import Work, WorkTable
from compactor.metastore.db.database import Database
from compactor.metastore.db.own_tables import OWN_TABLES, WORK
from compactor.metastore.db.rights import lacking_tables, missing_rights
from compactor.metastore.txn.transactions import Transactions
from compactor.roles.housekeeper.recovery import Recovery
from compactor.roles.worker.work_record import WorkRecords
from compactor.settings import Settings
from tests.deploy.service import DEPLOY
from tests.metastore.databases import postgres  # noqa: F401 - a fixture
from tests.metastore.entries import working
from tests.metastore.servers import UnavailableError, schema_script
from tests.model.test_roles_life import EVERYTHING, Life
from tests.needs import missing
from tests.unit.roles.world import Inline, World

pytestmark = [pytest.mark.deploy, pytest.mark.postgres, pytest.mark.timeout(280)]
SCRIPT = (DEPLOY / "sql" / "grants-postgresql.sql").read_text()
VERSIONS = ["4.0.0", "3.1.0"]
WRITES = frozenset({"INSERT", "UPDATE", "DELETE"})
OWN = frozenset(table.name for table in OWN_TABLES)
SELDOM = {
    ("COMPLETED_COMPACTIONS", "DELETE"): "the history is purged when it is long",
    ("COMPLETED_COMPACTIONS", "UPDATE"): "what follows a part that is cleaned is asked for",
    ("MIN_HISTORY_LEVEL", "DELETE"): "3.1: of a transaction that is timed out, with Hive's reader list there",
    ("MIN_HISTORY_WRITE_ID", "INSERT"): "4.x, where Hive keeps this list instead of MIN_HISTORY_LEVEL",
    ("TXN_COMPONENTS", "DELETE"): "aborted writes that were cleaned are forgotten",
    ("TXN_COMPONENTS", "INSERT"): "3.1: what it left out of an aborted dynamic-partition write is added",
    ("TXN_TO_WRITE_ID", "DELETE"): "mappings that nobody needs are purged",
    ("HIVE_LOCKS", "UPDATE"): "the heartbeat of a compaction that takes longer than half a time-out",
    ("TXNS", "UPDATE"): "transactions of dead clients are timed out",
    ("AUX_TABLE", "UPDATE"): "the mutex row keeps when the last cycle was",
}
"""Rights that a short life may not come to use, and when they are."""


class Recorder:
    """Which right on which table each statement of a connection pool asked for."""

    def __init__(self, database: Database) -> None:
        self.used: set[tuple[str, str]] = set()
        event.listen(database.engine, "before_cursor_execute", self._note)

    def _note(self, _connection, _cursor, statement, *_):
        text = " ".join(statement.replace('"', "").replace("`", "").split()).upper()
        for verb, pattern in (
            ("INSERT", r"INSERT INTO (\w+)"),
            ("UPDATE", r"^UPDATE (\w+)"),
            ("DELETE", r"DELETE FROM (\w+)"),
        ):
            self.used |= {(name, verb) for name in re.findall(pattern, text)}
        if any(words in text for words in ("FOR UPDATE", "FOR SHARE", "LOCK IN SHARE MODE")) or text.startswith(
            "LOCK TABLE"
        ):
            self.used |= {(name, "UPDATE") for name in re.findall(r"(?:FROM|TABLE) (\w+)", text)}


class Least(World):
    """A world whose roles come as another user than those who write the tables; everybody's housekeeping is theirs."""

    def __init__(self, admin: Database, theirs: Database, folder) -> None:
        self._theirs = theirs
        super().__init__(admin, folder)

    def new_services(self, **sections):
        admin, self.database = self.database, self._theirs
        try:
            return super().new_services(**sections)
        finally:
            self.database = admin

    def configure(self, **sections) -> None:
        super().configure(**({"housekeeper": {"enabled": "always"}} | sections))


def live_with(admin_url: str, least_url: str, tmp_path: Path) -> Recorder:
    """What a user wrote during random lives of tables under every role, the watch and the table of members."""
    with ExitStack() as stack:
        admin, theirs = stack.enter_context(Database(admin_url)), stack.enter_context(Database(least_url))
        recorder = Recorder(theirs)
        world = Least(admin, theirs, tmp_path)
        life = Life(world, EVERYTHING, partitioned=True)
        life.live()
        life.end()
        QueueMetrics(world.services).run_once()
        Recovery(world.services).give_back_claims_of_the_dead()
        state = StateTable(theirs)
        state.make()
        state.put("members/test", {"a": 1})
        state.put("members/test", {"a": 2})
        assert state.read("members/test") is not None
        state.remove_silent("members", 0)
    return recorder


def granted(url: str, role: str) -> set[tuple[str, str]]:
    with psycopg.connect(url) as connection:
        query = "SELECT upper(table_name), privilege_type FROM information_schema.role_table_grants WHERE grantee = %s"
        return set(connection.execute(query, [role]).fetchall())


@pytest.fixture(params=VERSIONS)
def metastore(request, postgres):  # noqa: F811 - pytest's way
    """(the owner's address, the role, the role's address) of a new metastore on which the script was run twice."""
    try:
        schema_script(request.param)
    except UnavailableError as error:
        missing(str(error))
    url = postgres.create(request.param)
    name = url.rpartition("/")[2]
    role = f"least_{name}"
    postgres.sql("postgres", f"CREATE ROLE {role} LOGIN")
    for _ in range(2):
        postgres.load(name, f"\\set role {role}\n{SCRIPT}")
    yield url, role, postgres.url(name, role)
    postgres.sql("postgres", f"DROP DATABASE {name} WITH (FORCE)")
    postgres.sql("postgres", f"DROP ROLE {role}")


def test_a_whole_life_with_these_rights_and_none_to_spare(metastore, tmp_path):
    """
    Random lives of tables under Initiator, Worker, Cleaner, Housekeeper, recovery, watch and the table of members;
    every right to write was used, or is used seldom.
    """
    url, role, least = metastore
    recorder = live_with(url, least, tmp_path)
    rights = granted(url, role)
    tables = {name for name, _ in rights}
    used = {(name, right) for name, right in recorder.used if name in tables}  # the rest are words of SQL
    spare = {(name, right) for name, right in rights if right in WRITES and name not in OWN} - used - SELDOM.keys()
    assert spare == set()
    assert used <= rights


def keeps_work_as_soon_as_it_may(least_url: str, again: Callable[[], None]) -> None:
    """
    Without the table and the right to make it one line says so, commands show nothing, and `doctor` names the table;
    once the owner has run the script again, the same process keeps what comes.
    """
    with Database(least_url) as database, capture_logs() as logged:
        work = WorkTable(database)
        records = WorkRecords(work)
        for number in range(3):
            records.keep(1, number, Work())
        assert work.find([1]) == {}
        assert work.forget_gone() == 0
        assert lacking_tables(database) == [WORK.name]
        again()
        records.keep(1, 7, Work(share=0.5))
        assert work.find([1])[1].work == Work(share=0.5)
        assert lacking_tables(database) == missing_rights(database) == []
    told = [line for line in logged if line["event"] == "work_record.not_kept"]
    assert [line["log_level"] for line in told] == ["warning"]
    assert "denied" in told[0]["error"]


def test_the_table_of_work_is_made_later(metastore, postgres):  # noqa: F811 - pytest's way
    """A daemon that was upgraded before its owner ran the script again."""
    url, role, least = metastore
    name = url.rpartition("/")[2]
    postgres.load(name, 'DROP TABLE "COMPACTOR_WORK"; REVOKE CREATE ON SCHEMA public FROM PUBLIC;')
    keeps_work_as_soon_as_it_may(least, lambda: postgres.load(name, f"\\set role {role}\n{SCRIPT}"))


def test_what_follows_a_part_that_is_cleaned(metastore):
    """With these rights it is queued, and the note of it taken out of the history."""
    with Database(metastore[2]) as database:
        queue, (entry, txn_id) = Queue(database), working(database)
        queue.mark_compacted_and_commit(entry, entry.worker_id, txn_id, FollowUp.WHEN_CLEANED)
        Cleaning(database).mark_cleaned(queue.entry(entry.id))
        answer, settled = queue.follow_ups.ask(entry.id)
        assert (answer.accepted, settled) == (True, True)
        assert queue.follow_ups.noted(history=True) == []


def test_the_catalog_is_read_only(metastore):
    """
    Tables, partitions and columns can't be changed by the daemon's user, whoever takes it over; nor can it make tables.
    """
    url, role, least = metastore
    rights = granted(url, role)
    assert {
        right for name, right in rights if name in {"TBLS", "DBS", "SDS", "PARTITIONS", "TABLE_PARAMS", "COLUMNS_V2"}
    } == {"SELECT"}
    with psycopg.connect(least) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute('DELETE FROM "TBLS"')


def test_a_missing_right_is_said_in_one_line(metastore, postgres):  # noqa: F811 - pytest's way
    """Without the right the daemon stops with the table's name, and does nothing else."""
    url, role, least = metastore
    name = next(name for name in ('"COMPACTION_QUEUE"', "compaction_queue") if _exists(url, name))
    postgres.sql(url.rpartition("/")[2], f"REVOKE SELECT ON {name} FROM {role}")
    with (
        Database(least) as database,
        pytest.raises(CompactorError, match=r"(?i)permission denied for table compaction_queue") as caught,
    ):
        Queue(database).entries()
    assert "\n" not in str(caught.value)


def test_what_is_checked_at_the_start_is_what_the_script_gives(metastore):
    """
    The daemon misses nothing after the script, and everything else before it; what it asks for is what is granted, no
    more and no less.
    """
    url, role, least = metastore
    with Database(least) as database:
        assert missing_rights(database) == []
        names = {name.upper() for name in database.schema.metadata.tables} | OWN
    given = {f"{right} on {name}" for name, right in granted(url, role) if name in names}
    with psycopg.connect(url) as connection:
        connection.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {role}")
        connection.execute(f'GRANT SELECT ON "VERSION" TO {role}')  # or its schema can't be told
    with Database(least) as database:
        assert {*missing_rights(database), "SELECT on VERSION"} == given


def test_the_daemon_says_at_its_start_which_right_a_new_release_needs(metastore, postgres):  # noqa: F811 - pytest's way
    """One line that says what to run; it goes on with what it may do, and nothing was written to find out."""
    url, role, least = metastore
    missed = next(name for name in ('"TXN_COMPONENTS"', "txn_components") if _exists(url, name))
    postgres.sql(url.rpartition("/")[2], f"REVOKE INSERT ON {missed} FROM {role}")
    settings = Settings(
        database={"url": least}, host="here", user="compactor", http={"enabled": False}, worker={"threads": 0}
    )
    daemon = Daemon(settings, submitter=Inline(), configure_log=False)
    with capture_logs() as said:
        daemon.start()
        assert daemon.stop()
    (line,) = [line for line in said if line["event"] == "grants.missing"]
    assert line["missing"] == ["INSERT on TXN_COMPONENTS"]
    assert "run deploy/sql/grants-postgresql.sql again" in line["remedy"]


def _exists(url: str, name: str) -> bool:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT to_regclass(%s) IS NOT NULL", [name]).fetchone() == (True,)


@pytest.fixture
def in_a_schema(metastore, postgres):  # noqa: F811 - pytest's way
    """
    (the owner's address, the role, the role's address): Hive's tables are in a schema `hms` that no search_path names,
    and nothing is granted.
    """
    url, role, least = metastore
    name = url.rpartition("/")[2]
    postgres.load(
        name,
        f'DROP TABLE "COMPACTOR_STATE", "COMPACTOR_WORK"; DROP OWNED BY {role}; ALTER SCHEMA public RENAME TO hms; CREATE SCHEMA public;',
    )
    assert granted(url, role) == set()
    return url, role, least


def test_hives_tables_in_a_schema_of_their_own(in_a_schema, postgres):  # noqa: F811 - pytest's way
    """
    The script says that it finds none and where they are, and leaves no table behind; with the schema's name it grants,
    and the daemon finds them as docs/metastore.md says.
    """
    url, role, least = in_a_schema
    name = url.rpartition("/")[2]
    with pytest.raises(
        RuntimeError,
        match=r"(?s)no table TXNS of Hive's in database \w+, schema public: nothing was granted.*One is in schema hms: give that by -v schema=",
    ):
        postgres.load(name, f"\\set role {role}\n{SCRIPT}")
    with pytest.raises(RuntimeError, match=r"no table TXNS .* schema \(none\)"):
        postgres.load(name, f"\\set role {role}\n\\set schema nowhere\n{SCRIPT}")
    assert granted(url, role) == set()
    assert not _exists(url, 'public."COMPACTOR_STATE"')
    assert not _exists(url, 'public."COMPACTOR_WORK"')
    for _ in range(2):
        postgres.load(name, f"\\set role {role}\n\\set schema hms\n{SCRIPT}")
    assert granted(url, role) > {("TXNS", "SELECT"), ("COMPACTION_QUEUE", "INSERT"), ("COMPACTOR_STATE", "UPDATE")}
    assert _exists(url, 'hms."COMPACTOR_STATE"')
    with pytest.raises(CompactorError, match="holds no Hive metastore tables"), Database(least) as database:
        database.connect()
    with Database(f"{least}?options=-csearch_path%3Dhms") as database:
        _works(database)
    postgres.sql("postgres", f"ALTER ROLE {role} IN DATABASE {name} SET search_path = hms")
    with Database(least) as database:
        _works(database)


def _works(database: Database) -> None:
    """The queue is there, a row of ours can be stored and, where compactions have transactions, one gets its number."""
    assert Queue(database).entries() == []
    state = StateTable(database)
    state.make()
    state.put("members/test", {"a": 1})
    assert WorkTable(database).put(1, 1, Work())
    if database.schema.generation.layout == "hive-4":
        transactions = Transactions(database)
        assert transactions.end_empty(transactions.open_compaction("compactor", "here"))


def test_a_database_that_is_not_the_metastores(postgres):  # noqa: F811 - pytest's way
    """Nothing is made in it."""
    with pytest.raises(
        RuntimeError,
        match=r"(?s)no table TXNS of Hive's in database postgres.*Connect to the database of the metastore",
    ):
        postgres.load("postgres", f"\\set role whoever\n{SCRIPT}")
    assert not _exists(postgres.url("postgres"), 'public."COMPACTOR_STATE"')


@pytest.mark.parametrize("table", OWN_TABLES, ids=lambda table: table.name)
def test_a_table_of_our_own_is_the_one_that_the_daemon_would_make(table):
    """Names, types and key."""
    made = re.search(rf'CREATE TABLE IF NOT EXISTS "{table.name}" \((.*?)\);', SCRIPT, re.DOTALL)
    assert made is not None
    ours = {column.name: (str(column.type).lower(), column.nullable) for column in table.columns}
    theirs = {
        name: (kind.lower(), "NOT NULL" not in rest and "PRIMARY KEY" not in rest)
        for name, kind, rest in re.findall(r'"(\w+)" (\w+(?:\(\d+\))?)([^,\n]*)', made[1])
    }
    assert theirs == ours
    assert "PRIMARY KEY" in str(CreateTable(table))
