"""Mutexes of roles: one holder at a time, across processes and beside Hive, and its loss is noticed."""

import threading

import pytest
from sqlalchemy import NullPool, create_engine, select, update

from compactor.errors import OwnershipLostError, RetryableError
from compactor.metastore.db.database import Database
from tests.metastore.connections import kill


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
        assert mutex.value == (42 if database.schema.generation.layout == "hive-4" or database.embedded else 0)
    aux = database.schema.aux_table
    assert database.read(lambda connection: len(connection.execute(select(aux.c.mt_key1)).all())) == 1


def test_the_mutex_is_the_row_that_hive_locks(shared_database):
    """Hive takes a mutex by locking its row: while it does, we don't get it."""
    with shared_database.mutex("Initiator"):
        pass
    aux = shared_database.schema.aux_table
    row = select(aux).where(aux.c.mt_key1 == "Initiator").with_for_update()
    with create_engine(shared_database.engine.url, poolclass=NullPool).connect() as hive:
        hive.execute(row).all()
        with (
            pytest.raises(RetryableError, match="another process"),
            shared_database.mutex("Initiator", wait_seconds=0.1),
        ):
            raise AssertionError


def test_a_lost_mutex_is_noticed(shared_database, server):
    """
    The server ended the transaction that held it: whoever asks is told so, before and at the end, and others may have
    it.
    """
    with (  # noqa: PT012 - the mutex says so again when it is given back
        pytest.raises(OwnershipLostError, match="mutex Initiator is lost"),
        shared_database.mutex("Initiator") as mutex,
    ):
        mutex.check()
        kill(server, shared_database)
        with pytest.raises(OwnershipLostError, match="mutex Initiator is lost"):
            mutex.check()
        with shared_database.mutex("Initiator", wait_seconds=0.1) as next_one:
            next_one.check()
        mutex.check()


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
