"""
A metastore's database whose primary dies, is demoted or cut off: no commit is lost or made twice, and the daemon goes
on by itself.
"""

import contextlib
import signal
import threading
import time

import pytest
from sqlalchemy import insert, select, update

from compactor.errors import CompactorError, OutcomeUnknownError, OwnershipLostError, RetryableError, UnreachableError
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.model import QueueState
from compactor.metastore.txn.transactions import Transactions, TxnState
from compactor.roles import steps
from tests.cluster.daemons import PATIENT_TIMES, Fleet
from tests.cluster.fencing import assert_as_if_one
from tests.cluster.pairs import PAIRS
from tests.crash.scene import PATIENCE, ended
from tests.metastore.databases import on, require_schema
from tests.metastore.entries import working
from tests.metastore.servers import UnavailableError
from tests.needs import missing

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


class PatientFleet(Fleet):
    """Daemons whose transactions outlive a failover."""

    times = PATIENT_TIMES


@contextlib.contextmanager
def started(kind):
    require_schema("postgres-4" if kind == "postgres" else "mariadb-4")
    try:
        pair = PAIRS[kind]().__enter__()
    except UnavailableError as error:
        missing(str(error))
    try:
        yield pair
    finally:
        pair.__exit__(None, None, None)


@pytest.fixture
def pair(request):
    """Two servers of a product, new for each test."""
    with started(request.param) as made:
        yield made


@pytest.fixture
def database(pair):
    with Database(pair.create("4.0.0"), connect_timeout_seconds=3) as made:
        yield made


@pytest.mark.parametrize(
    ("pair", "step"),
    [
        on("postgres", steps.WORKER_PUBLISHED),
        on("postgres", steps.CLEANER_TRASHED),
        on("mariadb", steps.WORKER_PUBLISHED),
        on("mariadb", steps.CLEANER_TRASHED),
        on("galera", steps.WORKER_PUBLISHED),
    ],
    indirect=["pair"],
)
def test_a_daemon_outlives_the_primary(pair, tmp_path, step):
    """
    The primary dies while the daemon is at a step: the daemon goes on at the other server, with the same entry in the
    same transaction; nothing has failed.
    """
    fleet = PatientFleet(pair.create("4.0.0"), tmp_path, None)
    try:
        running = fleet.daemon("first", stop_at=step)
        fleet.wait(running.stopped, f"stopped at {step}")
        (queued,) = Queue(fleet.metastore).entries()
        pair.die()
        running.send(signal.SIGCONT)
        fleet.wait(fleet.settled, "settled at the other server")
        assert_as_if_one(fleet)
        (done,) = Queue(fleet.metastore).history()
        assert (done.id, done.enqueue_ms, done.txn_id) == (queued.id, queued.enqueue_ms, queued.txn_id)
        running.send(signal.SIGTERM)
        assert ended(running.process) == 0, running.said()[-3000:]
    finally:
        fleet.end()


@pytest.mark.parametrize("pair", [on("postgres"), on("mariadb"), on("galera")], indirect=True)
def test_a_commit_whose_answer_is_lost_with_the_primary(pair, database, monkeypatch):
    """The other server has it: it is found there, and not made again."""
    entry, txn_id = working(database)
    commit, found = database.engine.dialect.do_commit, []

    def die_when_it_has_arrived():
        found.append(arrived(pair, entry.id, QueueState.READY_FOR_CLEANING))
        pair.die()

    failover = threading.Thread(target=die_when_it_has_arrived)

    def unanswered(connection):
        monkeypatch.undo()
        pair.front.mute()
        failover.start()
        return commit(connection)

    monkeypatch.setattr(database.engine.dialect, "do_commit", unanswered)
    patiently(lambda: Queue(database).mark_compacted_and_commit(entry, entry.worker_id, txn_id))
    failover.join()
    assert [Queue(database).entry(entry.id)] == found
    assert Transactions(database).state(txn_id) is TxnState.COMMITTED


@pytest.mark.parametrize("pair", [on("postgres"), on("mariadb")], indirect=True)
def test_a_commit_that_the_primary_never_got(pair, database, monkeypatch):
    """The primary dies just before: the commit is made at the other server."""
    entry, txn_id = working(database)
    commit = database.engine.dialect.do_commit

    def too_late(connection):
        monkeypatch.undo()
        pair.die()
        return commit(connection)

    monkeypatch.setattr(database.engine.dialect, "do_commit", too_late)
    patiently(lambda: Queue(database).mark_compacted_and_commit(entry, entry.worker_id, txn_id))
    assert Queue(database).entry(entry.id).state is QueueState.READY_FOR_CLEANING
    assert Transactions(database).state(txn_id) is TxnState.COMMITTED


@pytest.mark.parametrize("pair", [on("mariadb")], indirect=True)
def test_a_demoted_primary(pair, database):
    """
    It refuses writes, and commits, and keeps our connections: a commit is undone, a mutex is lost, and nothing new is
    begun there; what is asked again is asked at the new primary.
    """
    entry, txn_id = working(database)
    queue, counter = Queue(database), database.schema.next_lock_id
    before = database.read(lambda connection: connection.scalar(select(counter.c.nl_next)))
    with database.mutex("Cleaner") as mutex:
        mutex.check()
        with pytest.raises(UnreachableError, match="read-only"):
            demoted_before_the_commit(pair, database, update(counter).values(nl_next=counter.c.nl_next + 1))
        with pytest.raises(OwnershipLostError, match="takes no writes any more"):
            mutex.check()
    with pytest.raises(UnreachableError, match="read-only"):
        queue.mark_compacted_and_commit(entry, entry.worker_id, txn_id)
    with pytest.raises(UnreachableError, match="read-only"):
        database.read(database.now_ms)
    with Database(pair.at(pair.first), read_only=True) as looking:
        assert Queue(looking).entry(entry.id).state is QueueState.WORKING
    pair.take_over()
    queue.mark_compacted_and_commit(entry, entry.worker_id, txn_id)
    with Database(pair.at(pair.second), read_only=True) as second:
        assert Queue(second).entry(entry.id).state is QueueState.READY_FOR_CLEANING
    assert database.read(lambda connection: connection.scalar(select(counter.c.nl_next))) == before


@pytest.mark.parametrize("pair", [on("postgres")], indirect=True)
def test_a_standby_is_no_place_to_write(pair, database):
    """Who writes isn't let in by a standby, whose tables may be old; who only reads is."""
    entry, _ = working(database)
    assert arrived(pair, entry.id, QueueState.WORKING)
    with pytest.raises(UnreachableError, match="read-only"):
        Database(pair.at(pair.second)).connect()


@pytest.mark.parametrize("pair", [on("galera")], indirect=True)
def test_the_nodes_of_a_galera_cluster(pair, database):
    """
    What a node refuses at the commit is made again, once; what another node has committed is seen at once; a node that
    is cut off is away, and a commit that it was about is of unknown outcome.
    """
    aux = database.schema.aux_table
    database.write(lambda connection: connection.execute(insert(aux).values(mt_key1="x", mt_key2=0)))
    add = update(aux).where(aux.c.mt_key1 == "x").values(mt_key2=aux.c.mt_key2 + 1)

    def value(at):
        return at.read(lambda connection: connection.scalar(select(aux.c.mt_key2).where(aux.c.mt_key1 == "x")))

    with Database(pair.at(pair.second)) as second:
        refused, expected = 0, 0
        for _ in range(5):
            database.write(lambda connection: connection.execute(add))
            assert value(second) == expected + 1
            refused += conflicts(database, second, add)
            expected += 3
            assert value(database) == value(second) == expected
        assert refused
        with pair.cut_off():
            with pytest.raises(OutcomeUnknownError, match="while committing"):
                database.write(lambda connection: connection.execute(add))
            with pytest.raises(UnreachableError, match="WSREP has not yet prepared node"):
                value(database)
        pair.together()
        assert value(database) == value(second) in {expected, expected + 1}
        with database.mutex("Cleaner") as mutex:
            mutex.check()
            with pair.cut_off():
                until(lambda: pair.status(pair.first, "wsrep_ready") == "OFF")
                with pytest.raises(OwnershipLostError):
                    mutex.check()
            pair.together()


def demoted_before_the_commit(pair, database, change):
    with database.transaction() as connection:
        connection.execute(change)
        pair.demote()


def conflicts(first, second, change):
    """Make a change at two nodes at the same time; returns how often one of them was refused."""
    counts = {first: 0, second: 0}
    both = threading.Barrier(2, timeout=60)

    def at(database):
        def once(connection):
            connection.execute(change)
            counts[database] += 1
            if counts[database] == 1:
                both.wait()

        database.write(once)

    threads = [threading.Thread(target=at, args=(database,)) for database in counts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts.values()) - 2


def patiently(action):
    """Repeat what may be repeated, as a worker does, until another server answers."""

    def done():
        with contextlib.suppress(UnreachableError, RetryableError, OutcomeUnknownError):
            action()
            return True

    until(done)


def arrived(pair, number, state):
    """The entry, once it has that state at the second server, which may be behind with all it has."""

    def found():
        with contextlib.suppress(CompactorError), Database(pair.at(pair.second), read_only=True) as second:
            return next((one for one in Queue(second).entries() if (one.id, one.state) == (number, state)), None)

    return until(found)


def until(done):
    deadline = time.monotonic() + PATIENCE
    while not (found := done()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found
