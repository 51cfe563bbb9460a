"""A queued entry ends the waits of other connections when it is committed, and not before."""

import threading

import pytest

from compactor.errors import RetryableError, UnreachableError
from compactor.metastore.compaction_queue.announcements import Announcements
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.requests import Request, Requests
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity
from tests.metastore.connections import kill
from tests.metastore.entries import MAJOR

pytestmark = pytest.mark.postgres
ENTITY = Entity("db", "t")


@pytest.fixture
def two(postgres):
    """Two processes' connections to one metastore; the first waits already."""
    url = postgres.create("4.0.0")
    with Database(url) as first, Database(url) as second:
        waiting = Announcements(first)
        assert not waiting.wait(0.01)
        yield waiting, first, second, postgres
        waiting.close()


def test_an_entry_ends_the_wait(two):
    """Of another process; once."""
    waiting, _, other, _ = two
    thread = threading.Timer(0.3, lambda: Queue(other).enqueue(ENTITY, MAJOR))
    thread.start()
    assert waiting.wait(30)
    thread.join()
    assert not waiting.wait(0.01)


def test_an_entry_that_came_between_two_waits_is_not_missed(two):
    """The connection keeps it."""
    waiting, _, other, _ = two
    Queue(other).enqueue(ENTITY, MAJOR)
    assert waiting.wait(30)


def test_nothing_is_announced_that_was_not_queued(two):
    """Neither a transaction that was rolled back nor a request that another entry stands in for."""
    waiting, _, other, _ = two

    def fail(connection):
        Requests(other).insert(connection, [Request(ENTITY, MAJOR)])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        other.write(fail)
    assert not waiting.wait(0.2)
    Queue(other).enqueue(ENTITY, MAJOR)
    assert waiting.wait(30)
    assert not Queue(other).enqueue(ENTITY, MAJOR).accepted
    assert not waiting.wait(0.2)


def test_a_lost_connection_is_told_and_made_again(two):
    """As any other connection's end; entries that were queued meanwhile are the poll's."""
    waiting, first, other, postgres = two
    kill(postgres, first)
    with pytest.raises((RetryableError, UnreachableError)):
        waiting.wait(30)
    assert not waiting.wait(0.01)
    Queue(other).enqueue(ENTITY, MAJOR)
    assert waiting.wait(30)


def test_the_connection_does_not_come_back_to_others(two):
    """A connection that listens must not serve other statements later: announcements would pile up on it."""
    waiting, first, other, _ = two
    waiting.close()
    Queue(other).enqueue(ENTITY, MAJOR)
    with first.outside_transactions() as connection:
        assert not first.dialect.await_announcement(connection, 0.2)
