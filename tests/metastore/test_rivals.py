"""One compaction of a table or partition at a time: claims, the commit on Hive 4, the rename on Hive 3.1."""

from contextlib import contextmanager

import pytest
from sqlalchemy import event

from compactor.errors import OwnershipLostError, RivalError
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import Entity, QueueState
from compactor.metastore.partition_names import folded_entity
from compactor.metastore.txn.snapshots import COMPACTION, REBALANCE_COMPACTION
from compactor.metastore.txn.transactions import Transactions, TxnState

OURS = f"compactor-there-{'0' * 32}-1"


class _Open:
    """A gate that lets all through."""

    counts = False

    def open(self, working):
        return lambda database, table, pool: True


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("db", "t"), ("DB", "T"), True),
        (("db", "t"), ("db", "u"), False),
        (("db", "t"), ("db", "t", "p=1"), False),
        (("db", "t", "p=AbC"), ("db", "t", "p=abc"), True),
        (("db", "t", "p=10%3A00"), ("db", "t", "p=10%253A00"), True),
        (("db", "t", "p=10:00"), ("db", "t", "p=10%3A00"), True),
        (("db", "t", "p=1"), ("db", "t", "p=2"), False),
    ],
)
def test_names_that_may_mean_one_place(one, other, same):
    """As Hive 3.1 folds them, as Hive 4 escapes them twice, as any client spells them."""
    assert (folded_entity(Entity(*one)) == folded_entity(Entity(*other))) is same


def _claimed(database, hive, txn_id, entity="db.t"):
    hive.queued(entity, state="w", worker_id=OURS, start=1_000, txn_id=txn_id)
    return next(entry for entry in Queue(database).working() if entry.worker_id == OURS)


@pytest.mark.parametrize("name", ["db.t", "DB.t"])
def test_the_first_commit_wins(database_4, hive_4, name):
    """What was committed since the lists were taken wins, whoever asked for it, and in whatever letters."""
    other = hive_4.begin(kind=COMPACTION)
    mine = hive_4.begin(kind=COMPACTION)
    lists = Transactions(database_4).compaction_txns(mine)
    entry, queue = _claimed(database_4, hive_4, mine), Queue(database_4)
    hive_4.queued(name, state="r", type="i", txn_id=other)
    hive_4.commit(other)
    with pytest.raises(RivalError, match="was committed meanwhile"):
        queue.mark_compacted_and_commit(entry, OURS, mine, None, lists)
    assert Transactions(database_4).state(mine) is TxnState.OPEN
    assert queue.entry(entry.id).state is QueueState.WORKING
    later = Transactions(database_4).compaction_txns(mine)
    assert not later.is_valid(mine)


def test_what_the_lists_show_is_no_rival(database_4, hive_4):
    """Its result was among the inputs; nor is another partition's, or an aborted one's."""
    before = hive_4.begin(kind=COMPACTION)
    hive_4.commit(before)
    mine = hive_4.begin(kind=COMPACTION)
    lists = Transactions(database_4).compaction_txns(mine)
    entry, queue = _claimed(database_4, hive_4, mine, "db.t/p=1"), Queue(database_4)
    elsewhere, undone = hive_4.begin(kind=COMPACTION), hive_4.begin(kind=COMPACTION)
    hive_4.queued("db.t/p=1", state="r", txn_id=before)
    hive_4.queued("db.t/p=2", state="r", txn_id=elsewhere)
    hive_4.queued("db.t/p=1", state="r", txn_id=undone)
    hive_4.commit(elsewhere)
    hive_4.abort(undone)
    queue.mark_compacted_and_commit(entry, OURS, mine, None, lists)
    assert queue.entry(entry.id).state is QueueState.READY_FOR_CLEANING


def test_a_worker_whose_claim_was_taken_back_is_found_by_its_transaction(database_4, hive_4):
    """Hive takes claims back by their age alone, and the worker goes on: nothing in the queue tells of it."""
    theirs = hive_4.begin(kind=COMPACTION)
    components = database_4.schema.txn_components
    row = {"tc_txnid": theirs, "tc_database": "db", "tc_table": "t", "tc_operation_type": "c", "tc_writeid": 1}
    hive_4.change(components.insert().values(row))
    mine = hive_4.begin(kind=COMPACTION)
    lists = Transactions(database_4).compaction_txns(mine)
    entry, queue = _claimed(database_4, hive_4, mine), Queue(database_4)
    for ask in (queue.require_none_open, queue.require_first):
        with pytest.raises(RivalError, match=f"db.t: a compaction in {theirs} of the same place is at work"):
            ask(entry, mine, lists)
    with pytest.raises(RivalError, match=f"a compaction in {theirs} of the same place is at work"):
        queue.mark_compacted_and_commit(entry, OURS, mine, None, lists)
    hive_4.abort(theirs)
    queue.require_none_open(entry, mine, lists)
    queue.mark_compacted_and_commit(entry, OURS, mine, None, lists)


@pytest.mark.parametrize("opened", ["before the lists were taken", "after that"])
@pytest.mark.parametrize("kind", [COMPACTION, REBALANCE_COMPACTION])
def test_a_compaction_without_an_entry_is_found_by_its_lock(database_4, hive_4, kind, opened):
    """Of the place alone, and for as long as it is open; a query's lock there, and our own, hinder nothing."""
    mine, reader = hive_4.begin(kind=COMPACTION), hive_4.begin()
    if opened == "after that":
        lists = Transactions(database_4).compaction_txns(mine)
    theirs, elsewhere = (hive_4.begin(kind=kind) for _ in range(2))
    if opened != "after that":
        lists = Transactions(database_4).compaction_txns(mine)
    entry, queue = _claimed(database_4, hive_4, mine), Queue(database_4)
    for txn_id in (mine, reader):
        hive_4.lock(txn_id=txn_id)
        hive_4.touch(txn_id)
    hive_4.touch(mine, operation="c", write_id=1)
    for name in ("db.u", "other.t", "db."):
        hive_4.lock(name, txn_id=elsewhere)
    queue.require_none_open(entry, mine, lists)
    hive_4.lock(txn_id=theirs)
    with pytest.raises(RivalError, match=f"a compaction in {theirs} of the same place is at work"):
        queue.require_none_open(entry, mine, lists)
    hive_4.abort(theirs)
    queue.require_none_open(entry, mine, lists)


def _waiting_is_claimed(hive, table, waiting):
    hive.change(table.update().where(table.c.cq_id == waiting).values(cq_state="w", cq_worker_id="hs2-33"))
    return "is at work, by hs2-33"


def _queued_and_claimed(hive, _table, _waiting):
    hive.queued("DB.t", state="w", worker_id="hs2-33", start=1_000)
    return "is at work, by hs2-33"


def _queued_and_committed(hive, _table, _waiting):
    theirs = hive.begin(kind=COMPACTION)
    hive.queued("DB.t", state="r", txn_id=theirs)
    hive.commit(theirs)
    return "was committed meanwhile"


def _renamed_and_claimed(hive, table, waiting):
    hive.change(table.update().values(cq_table="renamed"))
    return _waiting_is_claimed(hive, table, waiting)


MEANWHILE = [_waiting_is_claimed, _queued_and_claimed, _queued_and_committed, _renamed_and_claimed]


@pytest.mark.parametrize("happens", MEANWHILE)
def test_the_commit_sees_what_came_after_the_queue_was_read(database_4, hive_4, happens):
    """It reads the rows of the place by their ids, whatever they are called now, and those that came since."""
    mine = hive_4.begin(kind=COMPACTION)
    lists = Transactions(database_4).compaction_txns(mine)
    entry, queue = _claimed(database_4, hive_4, mine), Queue(database_4)
    waiting = hive_4.queued("DB.t")
    near = queue.require_first(entry, mine, lists)
    why = happens(hive_4, database_4.schema.compaction_queue, waiting)
    with pytest.raises(RivalError, match=why):
        queue.mark_compacted_and_commit(entry, OURS, mine, None, lists, near=near)


def test_no_queue_is_read_as_a_whole_while_no_transaction_can_be_opened(database_4, hive_4):
    """The commit holds TXN_LOCK_TBL, and the queue has no index but that on its ids."""
    mine = hive_4.begin(kind=COMPACTION)
    lists = Transactions(database_4).compaction_txns(mine)
    entry, queue = _claimed(database_4, hive_4, mine), Queue(database_4)
    near = queue.require_first(entry, mine, lists)
    with _statements(database_4) as ran:
        queue.mark_compacted_and_commit(entry, OURS, mine, None, lists, near=near)
    wheres = [statement.upper().partition("WHERE")[2] for statement in ran if "COMPACTION_QUEUE" in statement.upper()]
    assert len(wheres) >= 3
    assert all("CQ_ID" in where for where in wheres)


def test_who_works_is_read_once_however_many_entries_are_passed_over(database, hive):
    """Not for each entry that a claim looks at: the queue is long."""
    queue = Queue(database)
    hive.queued("db.t", state="w", worker_id="hs2-33", start=1_000)
    passed = [hive.queued("DB.t") for _ in range(20)]
    last = hive.queued("db.u")
    with _statements(database) as ran:
        assert queue.claim(OURS, "1", among={*passed, last}).id == last
    assert sum("CQ_STATE" in each.upper().partition("WHERE")[2] and "CQ_ID" not in each.upper() for each in ran) == 1
    with _statements(database) as ran:
        assert queue.claim(OURS, "1") is None
    assert len(ran) < 10


@contextmanager
def _statements(database):
    """The statements that run meanwhile."""
    ran = []

    def note(_connection, _cursor, statement, *_):
        ran.append(statement)

    event.listen(database.engine, "before_cursor_execute", note)
    try:
        yield ran
    finally:
        event.remove(database.engine, "before_cursor_execute", note)


@pytest.mark.parametrize("name", ["db.t/p=AbC", "DB.t/p=abc"])
def test_no_second_entry_of_a_place_is_claimed(database, hive, name):
    """One of the two would be compacted in vain; others are claimed meanwhile, and this one once the first has ended."""
    queue = Queue(database)
    first = hive.queued("db.t/p=AbC", state="w", worker_id="hs2-33", start=1_000)
    second, other = hive.queued(name), hive.queued("db.t/p=2")
    assert queue.claim(OURS, "1").id == other
    assert queue.claim(OURS, "1") is None
    queue.mark_failed(queue.entry(first), "it ended")
    assert queue.claim(OURS, "1").id == second


def test_a_second_entry_of_a_place_holds_up_no_other(database, hive):
    """Nor does it where a gate is asked, and only some entries are wanted: the next one is claimed."""
    queue = Queue(database)
    hive.queued("db.t", state="w", worker_id="hs2-33", start=1_000)
    second, other = hive.queued("DB.t"), hive.queued("db.u")
    assert queue.claim(OURS, "1", among={second, other}, gate=_Open()).id == other
    assert queue.claim(OURS, "1", among={second, other}, gate=_Open()) is None


def test_a_claim_of_hives_worker_goes_back_with_its_transaction(database_4, hive_4):
    """Both or neither: a worker that has marked its entry compacted commits next, and keeps both."""
    queue, transactions = Queue(database_4), Transactions(database_4)
    working, marked = hive_4.begin(kind=COMPACTION), hive_4.begin(kind=COMPACTION)
    hive_4.queued("db.t", state="w", worker_id="hs2-33", start=1_000, txn_id=working)
    hive_4.queued("db.u", state="w", worker_id="hs2-34", start=1_000, txn_id=marked)
    one, two = queue.working()
    table = database_4.schema.compaction_queue
    hive_4.change(table.update().where(table.c.cq_id == two.id).values(cq_state="r", cq_worker_id=None))
    queue.take_back(one, "too long")
    with pytest.raises(OwnershipLostError):
        queue.take_back(two, "too long")
    assert [transactions.state(txn) for txn in (working, marked)] == [TxnState.ABORTED, TxnState.OPEN]
    assert queue.entry(one.id).state is QueueState.INITIATED


def test_a_worker_of_hives_on_another_entry_comes_first(database_3, hive_3):
    """It renames without a look; one of ours looks for what lies across its own result."""
    queue = Queue(database_3)
    entry = _claimed(database_3, hive_3, None)
    hive_3.queued("db.u", state="w", worker_id="hms-1", start=1_000)
    hive_3.queued("db.t", state="w", worker_id=f"compactor-here-{'1' * 32}-1", start=1_000)
    queue.require_turn(entry, None)
    hive_3.queued("Db.T", state="w", worker_id="hms-1", start=1_000)
    with pytest.raises(RivalError, match="is at work, by hms-1"):
        queue.require_turn(entry, None)


def test_an_entry_that_reaches_as_high_is_cleaned_first(database_3, hive_3):
    """Hive 3.1's Cleaner takes each result up to that id for the entry's own."""
    queue = Queue(database_3)
    entry = _claimed(database_3, hive_3, None)
    hive_3.queued("db.t", state="r", highest_write_id=4)
    queue.require_turn(entry, 5)
    hive_3.queued("Db.T", state="r", highest_write_id=5)
    queue.require_turn(entry, 6)
    queue.require_turn(entry, None)
    with pytest.raises(RivalError, match="isn't cleaned yet, and ends at write id 5"):
        queue.require_turn(entry, 5)
