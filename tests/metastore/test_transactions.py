"""Opening, seeing, ending transactions."""

import itertools
import threading

import pytest
from sqlalchemy import delete, func

from compactor.acid.compaction import CompactionKind
from compactor.errors import OwnershipLostError
from compactor.metastore.db.database import Database
from compactor.metastore.txn.allocated_ids import SETTLED_MS
from compactor.metastore.txn.snapshots import COMPACTION, READ_ONLY, Hive4Snapshots, snapshots_for
from compactor.metastore.txn.transactions import Transactions, TxnState
from tests.metastore.actor import Hive, run_all


def test_a_compaction_transaction_is_open_typed_and_seen_by_others(database_4, hive_4):
    """
    An opened COMPACTION transaction has Hive's type, our name, a history row, and is in every snapshot's open list.
    """
    transactions = Transactions(database_4)
    older = hive_4.begin()
    txn_id = transactions.open_compaction("ann", "edge")
    txns = database_4.schema.txns
    assert hive_4.rows(txns, "txn_state", "txn_type", "txn_user", "txn_host", where=txns.c.txn_id == txn_id) == [
        ("o", COMPACTION, "ann", "edge")
    ]
    history = database_4.schema.min_history_level
    assert hive_4.rows(history, "mhl_min_open_txnid", where=history.c.mhl_txnid == txn_id) == [(older,)]
    assert transactions.valid_txns().open == (older, txn_id)


def test_a_rebalance_has_its_own_type(database_4, hive_4):
    """A rebalance compaction's transaction is of type 6, whose commit Hive treats otherwise."""
    txn_id = Transactions(database_4).open_compaction("ann", "edge", CompactionKind.REBALANCE)
    assert hive_4.rows(database_4.schema.txns, "txn_type", where=database_4.schema.txns.c.txn_id == txn_id) == [(6,)]


def test_hive_3_compacts_without_transaction(database_3):
    """On a 3.1 metastore no transaction is opened for a compaction."""
    assert Transactions(database_3).open_compaction("ann", "edge") is None
    assert Transactions(database_3).open_transactions() == []


def test_a_snapshot_sorts_transactions_by_their_state(database, hive):
    """Committed ones are valid, open and aborted ones aren't, nothing above the high watermark is."""
    committed, opened, aborted = hive.begin(), hive.begin(), hive.begin()
    hive.commit(committed)
    hive.abort(aborted)
    seen = Transactions(database).valid_txns()
    assert (seen.high_watermark, seen.open, seen.aborted) == (aborted, (opened,), (aborted,))
    assert seen.is_valid(committed)
    assert not seen.is_valid(aborted + 1)


def test_a_transaction_sees_itself_and_what_was_finished_below_it(database_4, hive_4):
    """The list of transaction C ends at C, counts C as valid and knows nothing of later ones."""
    opened, own = hive_4.begin(), hive_4.begin()
    hive_4.abort(hive_4.begin())
    seen = Transactions(database_4).valid_txns(own)
    assert (seen.high_watermark, seen.open, seen.aborted) == (own, (opened,), ())
    assert seen.is_valid(own)


def test_a_compaction_does_not_read_its_own_output(database_4, hive_4):
    """The list that a compaction reads under is its transaction's, without the transaction itself."""
    own = hive_4.begin()
    seen = Transactions(database_4).compaction_txns(own)
    assert seen.high_watermark == own
    assert not seen.is_valid(own)


def test_a_young_gap_counts_as_open_and_an_old_one_as_committed(database_4, hive_4):
    """
    An id without row below a row younger than two seconds may be about to be committed: it is open. Below an older row
    it is a hole.
    """
    old_hole, _ = hive_4.begin(age=60_000), hive_4.begin(age=50_000)
    young_hole, newest = hive_4.begin(age=0), hive_4.begin(age=0)
    for hole in (old_hole, young_hole):
        hive_4.commit(hole)
        hive_4.change(delete(database_4.schema.txns).where(database_4.schema.txns.c.txn_id == hole))
    seen = database_4.read(snapshots_for(database_4).take).as_seen_by(None)
    assert young_hole in seen.open
    assert newest in seen.open
    assert seen.is_valid(old_hole)


def test_one_snapshot_has_one_clock(tmp_path):
    """
    Time goes on while a snapshot's rows are fetched. A transaction that settles meanwhile isn't old where rows are
    chosen and young where they are judged: all below it would be a gap.
    """
    database = Database(
        f"sqlite:///{tmp_path}/metastore.db", create=True
    )  # a server's clock stands still within a transaction
    hive = Hive(database)
    hive.fail_write(age=80_000)
    for _ in range(3):
        hive.write(age=70_000)
    settling, _ = hive.write(age=0)
    hive.write(age=0)
    txns = database.schema.txns
    hive.change(
        delete(txns).where(txns.c.txn_id == 0)
    )  # as a purge does: the first row to be fetched is then one that isn't committed
    [(started,)] = hive.rows(txns, "txn_started", where=txns.c.txn_id == settling)
    ticks = itertools.count(started + SETTLED_MS - 5, 10)
    snapshots = Hive4Snapshots(database)
    snapshots._now = func.ticking()
    with database, database.reading() as connection:
        # asked once for each place in the statement, and there when it is first needed, as julianday('now') is
        connection.connection.driver_connection.create_function("ticking", 0, lambda: next(ticks), deterministic=True)
        seen = snapshots.take(connection)
    assert seen.open == ()


def test_nothing_above_a_young_gap_is_settled(database_4, hive_4):
    """The bound below which all is finished doesn't pass rows that are younger than two seconds."""
    settled = hive_4.begin(age=60_000)
    hive_4.commit(settled)
    for _ in range(3):
        hive_4.commit(hive_4.begin(age=100))
    assert Transactions(database_4).min_open() == settled + 1


def test_readers_hold_files_but_are_in_no_list(database_4, hive_4):
    """A READ_ONLY transaction isn't listed as open for others, yet it is the smallest open one."""
    hive_4.commit(hive_4.begin())
    reader = hive_4.begin(kind=READ_ONLY)
    writer = hive_4.begin()
    snapshot = Transactions(database_4).snapshot()
    assert snapshot.as_seen_by(None).open == (writer,)
    assert snapshot.min_open == reader


def test_write_ids_follow_their_transactions(database, hive):
    """
    Open and aborted transactions' write ids are exceptions; the high watermark is the highest allocated below the
    snapshot.
    """
    _, first = hive.write()
    _, aborted = hive.fail_write()
    opened = hive.touch(hive.begin())
    _, last = hive.write()
    transactions = Transactions(database)
    ids = transactions.valid_write_ids("db.t", transactions.valid_txns())
    assert (ids.high_watermark, ids.open, ids.aborted, ids.min_open) == (last, (opened,), (aborted,), opened)
    assert ids.is_valid(first)


def test_a_compactor_stops_below_the_first_open_write_id(database, hive):
    """With write id 3 open, a compaction covers 1 and 2 and knows that 2 is aborted."""
    hive.write()
    _, aborted = hive.fail_write()
    opened = hive.touch(hive.begin())
    hive.write()
    transactions = Transactions(database)
    ids = transactions.compactor_write_ids("db.t", transactions.valid_txns())
    assert (ids.high_watermark, ids.aborted, ids.min_open) == (opened - 1, (aborted,), opened)


def test_write_ids_end_with_the_snapshots_own(database, hive):
    """
    What only transactions above a list's high watermark allocated is above the high watermark, as in Hive's own lists;
    not open below it.
    """
    _, write_id = hive.write()
    transactions = Transactions(database)
    before = transactions.valid_txns()
    hive.write()
    ids = transactions.valid_write_ids("db.t", before)
    assert (ids.high_watermark, ids.open, ids.aborted) == (write_id, (), ())


def test_a_write_id_of_a_later_transaction_is_open(database_4, hive_4):
    """An id allocated by a transaction above the snapshot's high watermark, below an id of an earlier one, is open."""
    early, late = hive_4.begin(), hive_4.begin()
    of_late, of_early = hive_4.touch(late), hive_4.touch(early)
    hive_4.commit(late)
    hive_4.commit(early)
    transactions = Transactions(database_4)
    ids = transactions.valid_write_ids("db.t", transactions.valid_txns(early))
    assert (ids.high_watermark, ids.open) == (of_early, (of_late,))


def test_write_ids_whose_mapping_was_forgotten_are_committed(database, hive):
    """Without mappings the high watermark comes from the counter, and every id up to it is committed."""
    hive.write()
    hive.write()
    hive.change(delete(database.schema.txn_to_write_id))
    transactions = Transactions(database)
    ids = transactions.valid_write_ids("db.t", transactions.valid_txns())
    assert (ids.high_watermark, ids.open, ids.aborted) == (2, (), ())


def test_a_table_without_writes_has_high_watermark_0(database):
    """A table that no transaction ever wrote to gives an empty list, whatever the case of its name."""
    transactions = Transactions(database)
    assert transactions.valid_write_ids("DB.Never", transactions.valid_txns()).high_watermark == 0


def test_many_tables_at_once_equal_one_by_one(database, hive):
    """Lists of many tables in two databases are those that each table gets alone."""
    names = [f"{database_name}.t{number}" for database_name in ("x", "y") for number in range(5)]
    for name in names:
        hive.write(name)
        hive.fail_write(name)
    transactions = Transactions(database)
    txns = transactions.valid_txns()
    together = transactions.valid_write_ids_of(names, txns)
    assert together == {name: transactions.valid_write_ids(name, txns) for name in names}


def test_a_heartbeat_is_stored_while_open(database, hive):
    """A heartbeat moves TXN_LAST_HEARTBEAT to the database's clock."""
    txn_id = hive.begin(age=100_000)
    before = hive.rows(database.schema.txns, "txn_last_heartbeat", where=database.schema.txns.c.txn_id == txn_id)
    Transactions(database).heartbeat(txn_id)
    assert hive.rows(database.schema.txns, "txn_last_heartbeat", where=database.schema.txns.c.txn_id == txn_id) > before


def test_a_heartbeat_of_an_ended_transaction_says_so(database, hive):
    """Heartbeating what was aborted meanwhile raises OwnershipLostError."""
    txn_id = hive.begin()
    hive.abort(txn_id)
    with pytest.raises(OwnershipLostError, match="aborted"):
        Transactions(database).heartbeat(txn_id)


def test_an_abort_keeps_components_and_drops_locks(database, hive):
    """
    After an abort locks and history rows are gone; components and the write id's mapping stay: they mark the files as
    aborted.
    """
    txn_id = hive.begin()
    hive.touch(txn_id)
    hive.lock(txn_id=txn_id)
    transactions = Transactions(database)
    assert transactions.abort(txn_id, "test") is TxnState.ABORTED
    schema = database.schema
    assert hive.rows(schema.hive_locks, "hl_txnid") == []
    assert hive.rows(schema.min_history_level, "mhl_txnid") == []
    assert hive.rows(schema.txn_components, "tc_txnid") == [(txn_id,)]
    assert hive.rows(schema.txn_to_write_id, "t2w_txnid") == [(txn_id,)]


def test_an_abort_that_comes_too_late_changes_nothing(database, hive):
    """Aborting a committed transaction reports what it is and leaves it."""
    txn_id = hive.begin()
    hive.commit(txn_id)
    expected = TxnState.COMMITTED if database.schema.generation.layout == "hive-4" else TxnState.ABSENT
    assert Transactions(database).abort(txn_id, "late") is expected
    assert Transactions(database).valid_txns().is_valid(txn_id)


def test_open_transactions_name_their_owner(database, hive):
    """Whoever holds things back is told with user, host and age."""
    hive.begin(user="carl", host="gateway", age=3 * 86_400_000)
    (found,) = Transactions(database).open_transactions()
    assert str(found) == f"transaction {found.txn_id} of carl@gateway, open for 3 d"


def test_what_was_committed_never_becomes_open(shared_database_4):
    """
    While many open and end transactions at once, no id that one snapshot counted as committed is open or aborted in a
    later one: gaps are told apart.
    """
    ended = threading.Event()
    snapshots = []

    def watch():
        transactions = Transactions(shared_database_4)
        while not ended.is_set():
            snapshots.append(transactions.snapshot())

    def work():
        transactions = Transactions(shared_database_4)
        for _ in range(15):
            transactions.abort(transactions.open_compaction("ann", "edge"), "done")

    watcher = threading.Thread(target=watch)
    watcher.start()
    run_all([work] * 4)
    ended.set()
    watcher.join()
    committed = set()
    for snapshot in snapshots:
        unfinished = set(snapshot.open) | set(snapshot.aborted)
        assert not committed & unfinished
        committed |= set(range(1, snapshot.high_watermark + 1)) - unfinished
    assert len(snapshots) > 1


def test_a_transaction_without_components_ends_as_committed(database_4, hive_4):
    """
    Nothing was marked under it, so there is nothing to roll back: it holds nobody up, its locks and history rows are
    gone, and it isn't shown as aborted.
    """
    transactions = Transactions(database_4)
    txn_id = transactions.open_compaction("ann", "edge")
    hive_4.lock("db.t", txn_id=txn_id)
    assert transactions.end_empty(txn_id)
    assert transactions.state(txn_id) is TxnState.COMMITTED
    assert hive_4.rows(database_4.schema.hive_locks, "hl_txnid") == []
    assert hive_4.rows(database_4.schema.min_history_level, "mhl_txnid") == []
    assert not transactions.end_empty(txn_id)


def test_a_transaction_with_components_does_not_end_as_committed(database_4, hive_4):
    """What it marked would count as written; nor does one that was aborted meanwhile come back."""
    transactions = Transactions(database_4)
    marked, aborted = transactions.open_compaction("ann", "edge"), transactions.open_compaction("ann", "edge")
    hive_4.touch(marked, operation="c", write_id=1)
    transactions.abort(aborted, "timed out")
    assert not transactions.end_empty(marked)
    assert not transactions.end_empty(aborted)
    assert [transactions.state(txn_id) for txn_id in (marked, aborted)] == [TxnState.OPEN, TxnState.ABORTED]
