"""Aborted writes: when they are due for cleaning, and what is forgotten of them afterwards."""

from sqlalchemy import insert, update

from compactor.acid.compaction import CompactionKind
from compactor.metastore.aborts import Aborts
from compactor.metastore.cleaning import Cleaning
from compactor.metastore.queue import Queue
from compactor.metastore.transactions import Transactions
from tests.metastore.actor import P, T


def test_aborts_are_grouped_and_due_by_count_or_age(database, hive):
    """Groups with more components than the threshold or older than the age; young few are left alone; a negative age switches that ground off."""
    for _ in range(3):
        hive.fail_write("db.t", "p=1", age=1000)
    hive.fail_write("db.t", "p=2", age=90_000_000)
    hive.fail_write("db.u", age=1000)
    aborts = Aborts(database)
    found = {group.entity: group for group in aborts.groups(2, 43_200_000)}
    assert {str(entity) for entity in found} == {"db.t/p=1", "db.t/p=2"}
    assert found[P].count == 3
    assert {str(group.entity) for group in aborts.groups(2, -1)} == {"db.t/p=1"}


def test_aborts_are_judged_below_open_writers(database, hive):
    """Directories are judged below the first open writer of the partition; its write id and later ones are left alone."""
    _, aborted = hive.fail_write()
    opened = hive.begin()
    write_id = hive.touch(opened)
    hive.fail_write()
    aborts = Aborts(database)
    (group,) = aborts.groups(0, -1)
    assert group.min_open_writer == opened
    txns, ids = aborts.lists(group)
    assert ids.high_watermark < write_id
    assert ids.aborted == (aborted,)
    assert txns.high_watermark == opened - 1


def test_cleaned_aborts_are_forgotten(database, hive):
    """Components up to the write id are forgotten, without a trace in the history."""
    hive.fail_write()
    _, last = hive.fail_write()
    aborts = Aborts(database)
    (group,) = aborts.groups(0, -1)
    assert aborts.mark_cleaned(group, last - 1) == 1
    assert hive.rows(database.schema.txn_components, "tc_writeid") == [(last,)]
    assert Queue(database).history() == []


def test_cleaned_aborts_among_others_are_forgotten_one_by_one(database, hive):
    """With aborted ids inside other directories only the removed ones are forgotten."""
    ids = [hive.fail_write()[1] for _ in range(3)]
    aborts = Aborts(database)
    (group,) = aborts.groups(0, -1)
    assert aborts.mark_cleaned(group, ids[2], [ids[0]], uncompacted=True) == 1
    assert hive.rows(database.schema.txn_components, "tc_writeid") == [(ids[1],), (ids[2],)]


def test_a_group_that_failed_is_put_off_longer_each_time(database, hive):
    """Five minutes, then ten; meanwhile it isn't listed. On 4.x in Hive's own row, which ordinary entries don't mind; success removes it."""
    hive.fail_write()
    aborts = Aborts(database)
    (group,) = aborts.groups(0, -1)
    assert aborts.retry_later(group, "disk gone") == 300_000
    assert aborts.groups(0, -1) == []
    if not database.schema.hive_4:
        return
    assert Cleaning(database).ready_for_cleaning() == []
    assert Queue(database).enqueue(T, CompactionKind.MAJOR).accepted
    queue = database.schema.compaction_queue
    assert hive.rows(queue, "cq_state", "cq_retry_retention", "cq_error_message", where=queue.c.cq_type == "c") == [("r", 300_000, "disk gone")]
    hive.change(update(queue).where(queue.c.cq_type == "c").values(cq_commit_time=1))
    (again,) = aborts.groups(0, -1)
    assert aborts.retry_later(again, "still") == 600_000
    assert len(hive.rows(queue, "cq_id", where=queue.c.cq_type == "c")) == 1
    aborts.mark_cleaned(again, 1)
    assert hive.rows(queue, "cq_id", where=queue.c.cq_type == "c") == []


def test_leaked_components_of_a_vanished_table_can_be_forgotten(database, hive):
    """For a table that is gone every component of aborted transactions goes."""
    hive.fail_write()
    aborts = Aborts(database)
    (group,) = aborts.groups(0, -1)
    assert aborts.mark_gone(group) == 1
    assert aborts.groups(0, -1) == []


def test_an_aborted_compaction_is_an_aborted_write(database_4, hive_4):
    """What a dead compaction may have left is found by its component."""
    queue = Queue(database_4)
    queue.enqueue(T, CompactionKind.MAJOR)
    entry = queue.claim("compactor-edge-1", "1")
    transactions = Transactions(database_4)
    txn_id = transactions.open_compaction("ann", "edge")
    queue.set_compactor_state(entry, txn_id, 3, None)
    transactions.abort(txn_id, "gone")
    assert [group.entity for group in Aborts(database_4).groups(0, -1)] == [T]
    hive_4.change(insert(database_4.schema.aux_table).values(mt_key1="x", mt_key2=0))
