"""Transactions on a database: rolled back, repeated or of unknown outcome; connections that are lost, locked or in use."""

import contextlib
import threading

import pytest
from sqlalchemy import insert, select, text, update
from sqlalchemy.exc import DBAPIError

from compactor.errors import CompactorError, OutcomeUnknownError, RetryableError, UnreachableError
from compactor.metastore.db import database as database_module
from compactor.metastore.db.database import Database
from tests.metastore.connections import kill, message_of


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


def test_a_lost_connection_is_retried_when_nothing_happened(shared_database, server):
    """A connection killed in mid-transaction means the step is made again, once, and takes effect once."""
    counter = shared_database.schema.next_lock_id
    attempts = []

    def bump(connection):
        attempts.append(1)
        connection.execute(update(counter).values(nl_next=counter.c.nl_next + 1))
        if len(attempts) == 1:
            kill(server, shared_database)
        connection.execute(select(counter.c.nl_next))

    shared_database.write(bump)
    assert len(attempts) == 2
    assert shared_database.read(lambda connection: connection.scalar(select(counter.c.nl_next))) == 2


def test_a_connection_lost_at_commit_leaves_the_outcome_unknown(shared_database, server):
    """When the commit finds the connection dead, nobody says whether it happened; a repeatable step is repeated."""
    aux = shared_database.schema.aux_table
    attempts = []

    def put(connection):
        attempts.append(1)
        connection.execute(update(aux).where(aux.c.mt_key1 == "x").values(mt_comment="y"))
        if len(attempts) == 1:
            kill(server, shared_database)

    with pytest.raises(OutcomeUnknownError, match="while committing"):
        shared_database.write(put)
    attempts.clear()
    shared_database.repeatable(put)
    assert len(attempts) == 2


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


def test_other_errors_are_one_line(shared_database):
    """An error of the database that nobody foresaw comes as one line."""
    line = message_of(
        lambda: shared_database.read(lambda connection: connection.execute(text("SELECT nothing FROM nowhere"))),
        CompactorError,
    )
    assert "nowhere" in line


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


def test_who_waits_for_a_locked_table_keeps_nobody_from_a_connection(postgres_database, monkeypatch):
    """
    A table is locked for longer than one waits for a connection, by VACUUM FULL for instance: with one for each, those
    who wait for it get their answer at last.
    """
    monkeypatch.setattr(database_module, "WAIT_SECONDS", 0.2)
    many = 12
    url = postgres_database.engine.url.render_as_string(hide_password=False)
    queue = postgres_database.schema.compaction_queue
    table = postgres_database.engine.dialect.identifier_preparer.format_table(queue)
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
        with postgres_database.transaction() as vacuum:
            vacuum.execute(text(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"))
            for thread in threads:
                thread.start()
            while database.read(waiting) < many:
                assert all(thread.is_alive() for thread in threads)
        for thread in threads:
            thread.join()
    assert answers == [[]] * many


_LACKING = {
    "postgres": {
        UnreachableError: ("53100", "53200", "53300", "58030", "25006"),
        RetryableError: ("57014",),
        CompactorError: ("22012",),
    },
    "mariadb": {
        UnreachableError: (1021, 1037, 1040, 1114, 1290, 1836, 1047),
        RetryableError: (1205, 1213, 1317, 1020),
        CompactorError: (1365,),
    },
}
"""Errors of a server, by what they are to us."""


def raising(product, code):
    """The statement on which the server fails as told."""
    if product == "postgres":
        return f"DO $$ BEGIN RAISE EXCEPTION 'as told' USING ERRCODE = '{code}'; END $$"
    return f"SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = 'as told'"


@pytest.mark.parametrize("kind", [UnreachableError, RetryableError, CompactorError])
def test_what_the_server_lacks_is_nobodys_fault(shared_database_4, request, kind):
    """
    Without room, memory or connections, or as a standby, the server is away for what was asked, and a cancelled
    statement may be repeated; a division by zero isn't.
    """
    product = next(product for product in _LACKING if product in request.node.name)

    def fail(code):
        with shared_database_4.transaction() as connection:
            connection.execute(text(raising(product, code)))

    for code in _LACKING[product][kind]:
        with pytest.raises(CompactorError, match="as told") as caught:
            fail(code)
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


def test_who_goes_on_after_a_loss_is_told_the_same(shared_database, server):
    """
    The connection is lost, and whoever used it overlooks that: the next step, and the commit, say that it was lost and
    that nothing happened.
    """
    aux = shared_database.schema.aux_table

    def lose(connection):
        connection.execute(insert(aux).values(mt_key1="x", mt_key2=0))
        kill(server, shared_database)
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


@pytest.mark.postgres
def test_a_changed_column_type_is_taken_over(altered_database, postgres):
    """A statement that was prepared before an upgrade of the schema goes on, on every connection."""
    aux = altered_database.schema.aux_table

    def read():
        return altered_database.read(lambda connection: connection.execute(select(aux)).all())

    def glance():
        return altered_database.glance(lambda connection: connection.execute(select(aux)).all())

    for look in (read, glance):
        before = [look() for _ in range(12)][-1]
        kind = "varchar(200)" if look is read else "varchar(300)"
        postgres.sql(str(altered_database).rpartition("/")[2], f'ALTER TABLE "AUX_TABLE" ALTER "MT_KEY1" TYPE {kind}')
        assert look() == before


def test_statements_stay_prepared(postgres_database):
    """Reading makes no connection forget what it has prepared: the server would parse and plan each statement again."""
    counter = postgres_database.schema.next_lock_id
    query = select(counter.c.nl_next)
    for _ in range(12):
        postgres_database.read(lambda connection: connection.scalar(query))
        postgres_database.glance(lambda connection: connection.scalar(query))
    prepared = "SELECT count(*) FROM pg_prepared_statements WHERE statement ILIKE '%next_lock_id%'"
    assert postgres_database.glance(lambda connection: connection.scalar(text(prepared))) == 1


def test_a_glance_leaves_no_transaction_open(postgres_database):
    """Each statement of a glance is a transaction of its own, and what comes next on the connection is one of several."""

    def two(connection):
        return [connection.scalar(text("SELECT current_timestamp")) for _ in range(2)]

    first, second = postgres_database.glance(two)
    assert first < second
    first, second = postgres_database.read(two)
    assert first == second


@pytest.mark.parametrize("look", ["read", "glance"])
def test_a_connection_that_died_lately_is_replaced(shared_database, server, look):
    """A connection is used again without a question to the server; when it is dead, the statement is repeated."""
    query = text("SELECT 1")
    for _ in range(3):
        assert getattr(shared_database, look)(lambda connection: connection.scalar(query)) == 1
        kill(server, shared_database)
