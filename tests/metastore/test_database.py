"""Reaching a database, recognising its schema, transactions, mutexes, and what failures mean."""

import contextlib
import sqlite3
import subprocess
import sys
import threading

import psycopg
import pytest
from sqlalchemy import insert, select, text, update
from sqlalchemy.exc import DBAPIError

from compactor.acid.compaction import LayoutVersion
from compactor.errors import (
    CompactorError,
    OutcomeUnknownError,
    OwnershipLostError,
    RefusedError,
    RetryableError,
    SettingsError,
    UnreachableError,
)
from compactor.metastore.db import database as database_module
from compactor.metastore.db.database import Database
from compactor.metastore.db.dialects.sqlite import SQLite
from compactor.reasons import Reason
from tests.metastore.servers import GUARDED, PASSWORD


def message_of(action, kind):
    """The message of the expected error: one line."""
    with pytest.raises(kind) as caught:
        action()
    line = str(caught.value)
    assert "\n" not in line
    return line


def kill(postgres, database):
    """Cut every connection of the package to a database, as a failing server or firewall does."""
    name = str(database).rpartition("/")[2]
    postgres.sql(
        "postgres",
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}' AND application_name = 'compactor'",
    )


def test_the_schema_is_recognised_by_its_tables(database):
    """
    Each metastore is taken for the generation it is; on PostgreSQL 3.1 names are lower case, everywhere else quoted
    upper case.
    """
    schema = database.schema
    assert schema.version is (LayoutVersion.HIVE_4 if schema.txn_lock_tbl is not None else LayoutVersion.HIVE_3)
    assert schema.txns.name == ("TXNS" if schema.hive_4 else "txns")
    assert schema.tbls.name == "TBLS"
    assert ("cq_pool_name" in schema.compaction_queue.c) is schema.hive_4


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


def test_no_server_is_one_line(tmp_path):
    """Where nothing listens, the error names the server and not the password."""
    line = message_of(Database("postgresql://hive@127.0.0.1:1/x", password="s3cret").connect, UnreachableError)
    assert "127.0.0.1:1" in line
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
def test_a_missing_database_is_one_line(postgres):
    """A database name that doesn't exist is reported as such."""
    assert '"nowhere" does not exist' in message_of(Database(postgres.url("nowhere")).connect, UnreachableError)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("oracle://x/y", "oracle isn't supported"),
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


def test_an_exception_rolls_back(database):
    """What a transaction did is gone when its block raises."""
    aux = database.schema.aux_table

    def fail(connection):
        connection.execute(insert(aux).values(mt_key1="x", mt_key2=0))
        raise LookupError

    with pytest.raises(LookupError):
        database.write(fail)
    assert database.read(lambda connection: connection.execute(select(aux.c.mt_key1)).all()) == []


def test_writers_take_turns(database):
    """Concurrent read-then-write transactions on one counter lose no update."""
    counter = database.schema.next_lock_id

    def bump(connection):
        value = connection.scalar(select(counter.c.nl_next).with_for_update())
        connection.execute(update(counter).values(nl_next=value + 1))

    def many():
        for _ in range(10):
            database.write(bump)

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert database.read(lambda connection: connection.scalar(select(counter.c.nl_next))) == 41


def test_a_transaction_in_a_transaction_is_an_error_not_a_hang(tmp_path):
    """On SQLite a nested writing transaction would wait for itself; it raises instead."""
    with (
        Database(f"sqlite:///{tmp_path}/x.db", create=True) as database,
        pytest.raises(RuntimeError, match="wait for itself"),
    ):
        database.write(lambda _: database.write(lambda connection: connection))


def test_a_mutex_keeps_others_out(database):
    """While a mutex is held, another one who wants it gives up after the time it was given."""
    with (
        database.mutex("Cleaner"),
        pytest.raises(RetryableError, match="mutex Cleaner is held"),
        database.mutex("Cleaner", wait_seconds=0.1),
    ):
        raise AssertionError
    with database.mutex("Cleaner", wait_seconds=0.1):
        pass


def test_mutexes_of_different_names_do_not_meet(database):
    """The Cleaner's mutex isn't the Initiator's."""
    with database.mutex("Cleaner"), database.mutex("Initiator", wait_seconds=0.1):
        for name in ("Cleaner", "Initiator"):
            with pytest.raises(RetryableError, match=f"mutex {name} is held"), database.mutex(name, wait_seconds=0.1):
                raise AssertionError


def test_a_mutex_keeps_a_value_on_hive_4(database):
    """
    The start of the last completed cycle is stored with the mutex; 3.1 finds rows by the value 0, so there it stays 0.
    There is one row a name.
    """
    with database.mutex("Initiator") as mutex:
        assert mutex.value == 0
        mutex.keep(42)
    with database.mutex("Initiator") as mutex:
        assert mutex.value == (42 if database.schema.hive_4 else 0)
    aux = database.schema.aux_table
    assert database.read(lambda connection: len(connection.execute(select(aux.c.mt_key1)).all())) == 1


@pytest.mark.postgres
def test_the_mutex_is_the_row_that_hive_locks(shared_database, postgres):
    """Hive takes a mutex by locking its row: while it does, we don't get it."""
    with shared_database.mutex("Initiator"):
        pass
    table = shared_database.engine.dialect.identifier_preparer.format_table(shared_database.schema.aux_table)
    key = '"MT_KEY1"' if shared_database.schema.hive_4 else "mt_key1"
    name = str(shared_database).rpartition("/")[2]
    with psycopg.connect(host="127.0.0.1", port=postgres.port, user="hive", dbname=name) as hive:
        hive.execute(f"SELECT * FROM {table} WHERE {key} = 'Initiator' FOR UPDATE")
        with (
            pytest.raises(RetryableError, match="another process"),
            shared_database.mutex("Initiator", wait_seconds=0.1),
        ):
            raise AssertionError


@pytest.mark.postgres
def test_a_lost_mutex_is_noticed(shared_database, postgres):
    """
    The server ended the transaction that held it: whoever asks is told so, before and at the end, and others may have
    it.
    """
    with (  # noqa: PT012 - the mutex says so again when it is given back
        pytest.raises(OwnershipLostError, match="mutex Initiator is lost"),
        shared_database.mutex("Initiator") as mutex,
    ):
        mutex.check()
        kill(postgres, shared_database)
        with pytest.raises(OwnershipLostError, match="mutex Initiator is lost"):
            mutex.check()
        with shared_database.mutex("Initiator", wait_seconds=0.1) as next_one:
            next_one.check()
        mutex.check()


@pytest.mark.postgres
def test_a_silent_transaction_is_ended_and_a_mutex_says_something_in_time(shared_database):
    """
    What a stopped process had locked is free after idle_transaction_seconds, though its connection lives; a mutex that
    is held by a living one stays.
    """
    url = shared_database.engine.url.render_as_string(hide_password=False)
    with Database(url, idle_transaction_seconds=2) as database:
        counter = database.schema.next_lock_id
        ended = threading.Event()
        with pytest.raises(RetryableError), database.transaction() as silent:  # noqa: PT012
            silent.execute(update(counter).values(nl_next=7))
            with database.mutex("Cleaner") as mutex, shared_database.transaction() as waiting:
                waiting.execute(
                    update(counter).values(nl_next=counter.c.nl_next + 1)
                )  # waits until the server has ended the silent one
                ended.set()
                mutex.check()
            silent.execute(select(counter.c.nl_next))
        assert ended.is_set()
    assert shared_database.read(lambda connection: connection.scalar(select(counter.c.nl_next))) == 2


@pytest.mark.postgres
def test_a_lost_connection_is_retried_when_nothing_happened(shared_database, postgres):
    """A connection killed in mid-transaction means the step is made again, once, and takes effect once."""
    counter = shared_database.schema.next_lock_id
    attempts = []

    def bump(connection):
        attempts.append(1)
        connection.execute(update(counter).values(nl_next=counter.c.nl_next + 1))
        if len(attempts) == 1:
            kill(postgres, shared_database)
        connection.execute(select(counter.c.nl_next))

    shared_database.write(bump)
    assert len(attempts) == 2
    assert shared_database.read(lambda connection: connection.scalar(select(counter.c.nl_next))) == 2


@pytest.mark.postgres
def test_a_connection_lost_at_commit_leaves_the_outcome_unknown(shared_database, postgres):
    """When the commit finds the connection dead, nobody says whether it happened; a repeatable step is repeated."""
    aux = shared_database.schema.aux_table
    attempts = []

    def put(connection):
        attempts.append(1)
        connection.execute(update(aux).where(aux.c.mt_key1 == "x").values(mt_comment="y"))
        if len(attempts) == 1:
            kill(postgres, shared_database)

    with pytest.raises(OutcomeUnknownError, match="while committing"):
        shared_database.write(put)
    attempts.clear()
    shared_database.repeatable(put)
    assert len(attempts) == 2


@pytest.mark.postgres
def test_a_deadlock_is_retried(shared_database):
    """Of two transactions that wait for each other one is rolled back by the server, and made again."""
    aux = shared_database.schema.aux_table
    for name in ("x", "y"):
        shared_database.write(
            lambda connection, name=name: connection.execute(insert(aux).values(mt_key1=name, mt_key2=0)).rowcount
        )
    both = threading.Barrier(2, timeout=30)
    results = []

    def crossing(first, second):
        calls = []

        def change(connection):
            connection.execute(update(aux).where(aux.c.mt_key1 == first).values(mt_comment=first))
            if not calls:
                calls.append(1)
                both.wait()
            connection.execute(update(aux).where(aux.c.mt_key1 == second).values(mt_comment=first))

        shared_database.write(change)
        results.append(first)

    threads = [threading.Thread(target=crossing, args=pair) for pair in (("x", "y"), ("y", "x"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["x", "y"]


@pytest.mark.postgres
def test_other_errors_are_one_line(shared_database):
    """An error of the database that nobody foresaw comes as one line."""
    line = message_of(
        lambda: shared_database.read(lambda connection: connection.execute(text("SELECT nothing FROM nowhere"))),
        CompactorError,
    )
    assert 'relation "nowhere" does not exist' in line


@pytest.mark.parametrize("connections", [3, 7])
def test_when_none_is_free_it_is_unreachable(database, monkeypatch, connections):
    """
    All connections of the process are in use: whoever looks, writes or wants a mutex hears so in one line, after a
    while; and all of them can be had.
    """
    monkeypatch.setattr(database_module, "WAIT_SECONDS", 0.2)
    with Database(database.engine.url.render_as_string(hide_password=False), connections=connections).connect() as few:
        with contextlib.ExitStack() as stack:
            for _ in range(connections):
                stack.enter_context(few.reading())
            for ask in (few.read, few.write, few.repeatable):
                line = message_of(lambda ask=ask: ask(few.now_ms), UnreachableError)
                assert f"all {connections} connections of this process were in use for 0.2 s" in line
                assert "database.connections" in line
            with pytest.raises(UnreachableError, match=r"database\.connections"), few.mutex("Cleaner"):
                raise AssertionError
        with few.mutex("Cleaner"):
            assert few.read(few.now_ms)


@pytest.mark.postgres
def test_who_waits_for_a_locked_table_keeps_nobody_from_a_connection(shared_database, monkeypatch):
    """
    A table is locked for longer than one waits for a connection, by VACUUM FULL for instance: with one for each, those
    who wait for it get their answer at last.
    """
    monkeypatch.setattr(database_module, "WAIT_SECONDS", 0.2)
    many = 12
    url = shared_database.engine.url.render_as_string(hide_password=False)
    queue = shared_database.schema.compaction_queue
    table = shared_database.engine.dialect.identifier_preparer.format_table(queue)
    answers = []

    def waiting(connection):
        return connection.scalar(
            text(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
        )

    with Database(url, connections=many + 1) as database:
        threads = [
            threading.Thread(
                target=lambda: answers.append(database.read(lambda connection: connection.execute(select(queue)).all()))
            )
            for _ in range(many)
        ]
        with shared_database.transaction() as vacuum:
            vacuum.execute(text(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"))
            for thread in threads:
                thread.start()
            while database.read(waiting) < many:
                assert all(thread.is_alive() for thread in threads)
        for thread in threads:
            thread.join()
    assert answers == [[]] * many


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("53100", UnreachableError),
        ("53200", UnreachableError),
        ("53300", UnreachableError),
        ("58030", UnreachableError),
        ("25006", UnreachableError),
        ("57014", RetryableError),
        ("22012", CompactorError),
    ],
)
def test_what_the_server_lacks_is_nobodys_fault(shared_database_4, state, kind):
    """
    Without room, memory or connections, or as a standby, the server is away for what was asked, and a cancelled
    statement may be repeated; a division by zero isn't.
    """

    def fail():
        with shared_database_4.transaction() as connection:
            connection.execute(text(f"DO $$ BEGIN RAISE EXCEPTION 'as told' USING ERRCODE = '{state}'; END $$"))

    with pytest.raises(CompactorError, match="as told") as caught:
        fail()
    assert type(caught.value) is kind


def test_a_full_disk_is_nobodys_fault(tmp_path):
    """The embedded database can't grow: it is away for what was asked."""
    with Database(f"sqlite:///{tmp_path}/x.db", create=True) as database:
        aux = database.schema.aux_table

        def fill(connection):
            connection.execute(text("PRAGMA max_page_count = 1"))  # no less than there are
            connection.execute(
                insert(aux),
                [{"mt_key1": f"x{number}", "mt_key2": 0, "mt_comment": "y" * 250} for number in range(1000)],
            )

        assert "can't do it now: database or disk is full" in message_of(lambda: database.write(fill), UnreachableError)
        assert database.read(lambda connection: connection.execute(select(aux.c.mt_key1)).all()) == []


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


@pytest.mark.postgres
def test_who_goes_on_after_a_loss_is_told_the_same(shared_database, postgres):
    """
    The connection is lost, and whoever used it overlooks that: the next step, and the commit, say that it was lost and
    that nothing happened.
    """
    aux = shared_database.schema.aux_table

    def lose(connection):
        connection.execute(insert(aux).values(mt_key1="x", mt_key2=0))
        kill(postgres, shared_database)
        with contextlib.suppress(DBAPIError):
            connection.execute(select(aux.c.mt_key1))

    def lose_and_look():
        with shared_database.transaction() as connection:
            lose(connection)
            connection.execute(select(aux.c.mt_key1))

    def lose_and_commit():
        with shared_database.transaction() as connection:
            lose(connection)

    for action in (lose_and_look, lose_and_commit):
        assert "the connection was lost" in message_of(action, RetryableError)
    assert shared_database.read(lambda connection: connection.execute(select(aux.c.mt_key1)).all()) == []


def test_the_clock_is_the_databases(database):
    """The clock is in milliseconds and doesn't go back."""
    first = database.read(database.now_ms)
    assert 1_600_000_000_000 < first <= database.read(database.now_ms) < 5_000_000_000_000
