"""Ids without a row: which of them may still turn up, and which were forgotten or never used."""

import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import psycopg
import pytest
from sqlalchemy import delete, func, select, text, update

from compactor.errors import CompactorError
from compactor.metastore.housekeeping import Housekeeping
from compactor.metastore.txn.allocated_ids import OPENING_MS, SETTLED_MS, HandedOut
from compactor.metastore.txn.snapshots import snapshots_for
from compactor.metastore.txn.transactions import Transactions
from tests.metastore.connections import kill

PAUSE = SETTLED_MS / 1000


def take(database):
    return database.read(snapshots_for(database).take)


@pytest.fixture
def busy(database_4, hive_4):
    """Finished transactions, one each quarter of a second; the newest began just now."""
    finished = [hive_4.write()[0] for _ in range(14)]

    def pass_by():
        txns = database_4.schema.txns
        hive_4.change(
            update(txns)
            .where(txns.c.txn_id > 0)
            .values(txn_started=database_4.now - 250 * (finished[-1] - txns.c.txn_id))
        )

    pass_by()
    return finished, pass_by


@pytest.fixture
def purged(database_4, hive_4, busy):
    """
    The same just after Hive forgot what it forgets: what is committed below a committed one that is a second old. All
    are finished.
    """
    finished, pass_by = busy
    pass_by()
    txns = database_4.schema.txns
    newest = database_4.read(
        lambda connection: connection.scalar(
            select(func.max(txns.c.txn_id)).where(txns.c.txn_started < database_4.now - OPENING_MS)
        )
    )
    assert hive_4.change(delete(txns).where(txns.c.txn_state == "c", txns.c.txn_id < newest)) > 5
    return finished


def test_what_hive_just_forgot_is_committed(database_4, purged):
    """
    What Hive forgot isn't open for the second in which the row above it is not yet two seconds old: a table would be
    refused as all held back, one time in ten.
    """
    assert take(database_4).gaps > 0  # who looks for the first time, and once, can't know
    seen = Transactions(database_4).valid_txns()
    assert [txn_id for txn_id in purged if not seen.is_valid(txn_id)] == []


def test_who_looked_lately_knows_at_once(database_4, busy, request, monkeypatch):
    """
    A daemon that saw the ids two seconds ago needs no second look, and its bound for what is finished doesn't fall back
    to nothing.
    """
    finished, _ = busy
    transactions = Transactions(database_4)
    before = transactions.min_open()
    transactions.keep_up()
    later = time.monotonic() + PAUSE
    clock = SimpleNamespace(
        monotonic=lambda: later, sleep=pytest.fail
    )  # for these two modules alone: threads of others sleep
    monkeypatch.setattr("compactor.metastore.txn.snapshots.time", clock)
    monkeypatch.setattr("compactor.metastore.txn.transactions.time", clock)
    request.getfixturevalue("purged")
    seen = transactions.valid_txns()
    assert [txn_id for txn_id in finished if not seen.is_valid(txn_id)] == []
    assert transactions.min_open() >= before > 1


def test_a_gap_above_what_was_seen_stays_open(database_4, hive_4, busy):
    """Ids handed out since the look are those that may be about to open."""
    known = HandedOut()
    known.note(busy[0][-1], 0, 0)
    database_4.handed_out = known
    hole, above = hive_4.begin(age=0), hive_4.begin(age=0)
    hive_4.commit(hole)
    hive_4.change(delete(database_4.schema.txns).where(database_4.schema.txns.c.txn_id == hole))
    assert take(database_4).open == (hole, above)


def test_another_server_makes_forget(shared_database_4, server_4):
    """After a lost connection a server may answer that never handed out what its predecessor did."""
    known = shared_database_4.handed_out
    known.note(100, 0, 0)
    assert known.settled(PAUSE) == 100
    with pytest.raises(CompactorError), shared_database_4.transaction() as connection:  # noqa: PT012
        kill(server_4, shared_database_4)
        connection.execute(text("SELECT 1"))
    assert known.settled(PAUSE) == 0


def test_an_id_is_settled_two_seconds_after_it_was_seen():
    """Whoever opens has one second; a later look vouches later, and of looks close to each other the first counts."""
    known = HandedOut()
    assert known.age(0) is None
    known.note(5, 9.9, 10.0)
    known.note(6, 10.0, 10.1)
    known.note(9, 10.4, 10.5)
    assert [known.settled(at) for at in (10.0, 11.9, 12.0, 12.4, 12.5, 99.0)] == [0, 0, 5, 5, 9, 9]
    assert known.age(20.0) == pytest.approx(9.5)


def test_ids_that_went_back_make_forget():
    """A restored database hands ids out again. A look that merely began before another had ended doesn't say that."""
    known = HandedOut()
    known.note(50, 0.0, 0.1)
    known.note(60, 1.0, 1.1)
    known.note(55, 1.0, 1.4)
    assert known.settled(3.1) == 60
    known.note(55, 4.0, 4.1)
    assert known.settled(9.0) == 0
    known.note(56, 10.0, 10.1)
    assert known.settled(12.1) == 56


def test_no_row_vouches_for_one_that_waited_less(postgres_database_4, postgres_hive_4):
    """
    Two openers waited for the lock table; the one that took the higher id commits first, and its row is as old as its
    wait. Nobody compacts, or forgets, as if the other one were committed: who wants to know waits until it has its row.
    """
    database, hive = postgres_database_4, postgres_hive_4
    hive.write()
    url = str(database.engine.url.set(drivername="postgresql").render_as_string(hide_password=False))
    now = "round(extract(epoch from current_timestamp) * 1000)"
    values = f"VALUES ('o', {now}, {now}, 'u', 'h', 0)"
    opening = f'INSERT INTO "TXNS" ("TXN_STATE", "TXN_STARTED", "TXN_LAST_HEARTBEAT", "TXN_USER", "TXN_HOST", "TXN_TYPE") {values} RETURNING "TXN_ID"'
    with psycopg.connect(url) as commits, psycopg.connect(url) as slow, psycopg.connect(url) as quick:
        commits.execute('LOCK TABLE "TXN_LOCK_TBL" IN EXCLUSIVE MODE')
        for opener in (slow, quick):
            opener.execute("SELECT 1")  # its clock stands still from here on
        time.sleep(PAUSE + 0.5)
        commits.commit()
        hidden = slow.execute('LOCK TABLE "TXN_LOCK_TBL" IN SHARE MODE') and slow.execute(opening).fetchone()[0]
        seen = quick.execute('LOCK TABLE "TXN_LOCK_TBL" IN SHARE MODE') and quick.execute(opening).fetchone()[0]
        quick.commit()
        assert take(database).as_seen_by(None).is_valid(hidden)  # what a look by the age of rows would say
        with ThreadPoolExecutor() as pool:
            snapshot = pool.submit(Transactions(database).valid_txns)
            finished = pool.submit(Housekeeping(database)._finished)
            time.sleep(0.5)
            assert not snapshot.done()
            slow.commit()
        assert seen > hidden
        assert set(snapshot.result().open) == {hidden, seen}
        assert finished.result() <= hidden
