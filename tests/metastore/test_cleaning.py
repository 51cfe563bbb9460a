"""When a finished compaction may be cleaned, under which lists, and what is forgotten afterwards."""

import pytest
from sqlalchemy import delete, insert, update

from compactor.acid.compaction import CompactionKind
from compactor.errors import OwnershipLostError
from compactor.metastore.aborts import Aborts
from compactor.metastore.cleaning import Cleaning
from compactor.metastore.model import QueueState
from compactor.metastore.queue import Queue
from compactor.metastore.snapshots import COMPACTION, READ_ONLY
from compactor.metastore.transactions import Transactions
from compactor.reasons import Reason
from tests.metastore.actor import P, T

NEVER_MS = 10**12


def compacted(database, hive, entity="db.t", *, write_id=1, kind="a", next_txn=None):
    """A compaction that was committed a minute ago, as its worker leaves it; returns its id and transaction."""
    if not database.schema.hive_4:
        return hive.queued(entity, state="r", type=kind, highest_write_id=write_id), None
    txn_id = hive.begin(kind=COMPACTION)
    newest = max(number for (number,) in hive.rows(database.schema.txns, "txn_id"))
    hive.commit(txn_id)
    committed = database.read(database.now_ms) - 60_000
    values = {"state": "r", "type": kind, "highest_write_id": write_id, "txn_id": txn_id, "next_txn_id": next_txn or newest, "commit_time": committed}
    return hive.queued(entity, **values), txn_id


def judged(cleaning, number, **arguments):
    """The one entry with this id."""
    (found,) = (ready for ready in cleaning.ready_for_cleaning(**arguments) if ready.entry.id == number)
    return found


def reasons(cleaning, number, **arguments):
    return [blocker.reason for blocker in judged(cleaning, number, **arguments).blockers]


def test_with_nobody_reading_it_is_cleaned(database, hive):
    """A finished compaction without open transactions and locks is free; its lists see its own output."""
    hive.write()
    number, txn_id = compacted(database, hive)
    cleaning = Cleaning(database)
    ready = judged(cleaning, number)
    assert ready.blockers == ()
    assert cleaning.write_ids(ready).high_watermark == 1
    if database.schema.hive_4:
        assert ready.txns.is_valid(txn_id)


def test_a_reader_from_before_the_commit_holds_it_back(database_4, hive_4):
    """A transaction that was open at the commit may read the old files: named with user, host and age. One that began later doesn't."""
    reader = hive_4.begin(user="carl", kind=READ_ONLY)
    number, _ = compacted(database_4, hive_4)
    cleaning = Cleaning(database_4)
    (blocker,) = judged(cleaning, number).blockers
    assert blocker.reason is Reason.OPEN_TRANSACTION
    assert blocker.sentence.startswith(f"transaction {reader} of carl@client, open for")
    hive_4.commit(reader)
    hive_4.begin()
    assert reasons(cleaning, number) == []


def test_the_newest_transaction_at_the_commit_counts(database_4, hive_4):
    """CQ_NEXT_TXN_ID is the highest id at the commit: if just that one is the smallest open, it may still read the old files."""
    txn_id = hive_4.begin(kind=COMPACTION)
    reader = hive_4.begin()
    hive_4.commit(txn_id)
    number = hive_4.queued(state="r", highest_write_id=1, txn_id=txn_id, next_txn_id=reader, commit_time=1)
    hive_4.change(delete(database_4.schema.min_history_level))
    assert reasons(Cleaning(database_4), number) == [Reason.OPEN_TRANSACTION]


def test_a_young_transaction_row_is_no_proof(database_4, hive_4):
    """While ids around the commit are so young that one of them may be about to appear, cleaning waits."""
    txn_id = hive_4.begin(age=0, kind=COMPACTION)
    hive_4.commit(txn_id)
    number = hive_4.queued(state="r", highest_write_id=1, txn_id=txn_id, next_txn_id=txn_id, commit_time=1)
    (blocker,) = judged(Cleaning(database_4), number).blockers
    assert "about to open" in blocker.sentence


def test_a_reader_who_saw_the_compaction_open_caps_what_is_visible(database_4, hive_4):
    """By MIN_HISTORY_LEVEL an open transaction saw the compaction open: its output counts for nothing, and the entry waits, whatever CQ_NEXT_TXN_ID says."""
    number, txn_id = compacted(database_4, hive_4)
    reader = hive_4.begin()
    history = database_4.schema.min_history_level
    hive_4.change(update(history).where(history.c.mhl_txnid == reader).values(mhl_min_open_txnid=txn_id))
    ready = judged(Cleaning(database_4), number)
    assert not ready.txns.is_valid(txn_id)
    (blocker,) = ready.blockers
    assert blocker.sentence.endswith(f"when it began, transaction {txn_id} was still open")


def test_what_became_visible_later_is_not_counted(database_4, hive_4):
    """A compaction of the same table that was committed after this one isn't visible in this one's lists: a reader in between needs this one's output."""
    number, own = compacted(database_4, hive_4)
    later, second = compacted(database_4, hive_4)
    ready = judged(Cleaning(database_4), number)
    assert ready.txns.is_valid(own)
    assert not ready.txns.is_valid(second)
    assert reasons(Cleaning(database_4), later) == [Reason.EARLIER_ENTRY]


def test_two_entries_of_one_partition_go_in_order(database, hive):
    """The smaller write id is cleaned first, whatever the ids; another partition's entry isn't affected."""
    second, _ = compacted(database, hive, "db.t/p=1", write_id=9)
    first, _ = compacted(database, hive, "db.t/p=1", write_id=4)
    other, _ = compacted(database, hive, "db.t/p=2", write_id=20)
    cleaning = Cleaning(database)
    assert reasons(cleaning, first) == []
    assert reasons(cleaning, second) == [Reason.EARLIER_ENTRY]
    assert reasons(cleaning, other) == []


def test_an_entry_whose_transaction_is_open_waits(database_4, hive_4):
    """Hive makes an entry ready before its transaction commits; until then it isn't."""
    txn_id = hive_4.begin(kind=COMPACTION)
    number = hive_4.queued(state="r", highest_write_id=1, txn_id=txn_id)
    assert Reason.NOT_YET_COMMITTED in reasons(Cleaning(database_4), number)


@pytest.mark.parametrize("vanished", [False, True])
def test_an_entry_whose_transaction_was_rolled_back_is_to_be_failed(database_4, hive_4, vanished):
    """Its transaction aborted, or gone without ever setting CQ_NEXT_TXN_ID: nothing may be deleted for it, and it must not block others for ever."""
    txn_id = hive_4.begin(kind=COMPACTION)
    hive_4.abort(txn_id)
    if vanished:
        hive_4.change(delete(database_4.schema.txns).where(database_4.schema.txns.c.txn_id == txn_id))
    number = hive_4.queued(state="r", highest_write_id=1, txn_id=txn_id)
    ready = judged(Cleaning(database_4), number)
    assert ready.failed
    Queue(database_4).mark_failed(ready.entry, "its transaction was rolled back")
    assert Cleaning(database_4).ready_for_cleaning() == []


def test_a_rebalance_is_taken_as_committed(database_4, hive_4):
    """Its commit never sets CQ_NEXT_TXN_ID: whoever was open when it was first seen done must end."""
    reader = hive_4.begin()
    txn_id = hive_4.begin(kind=6)
    number = hive_4.queued(state="r", type="r", highest_write_id=1, txn_id=txn_id)
    cleaning = Cleaning(database_4)
    assert Reason.NOT_YET_COMMITTED in reasons(cleaning, number)
    hive_4.commit(txn_id)
    assert reasons(cleaning, number) == [Reason.OPEN_TRANSACTION]
    hive_4.commit(reader)
    assert reasons(cleaning, number) == []


def test_an_entry_of_an_older_hive_waits_for_all_who_are_there(database_4, hive_4):
    """Without any transaction noted, transactions and locks that are there at first sight must end."""
    number = hive_4.queued(state="r", highest_write_id=1)
    reader = hive_4.begin()
    cleaning = Cleaning(database_4)
    assert reasons(cleaning, number) == [Reason.OPEN_TRANSACTION]
    hive_4.commit(reader)
    hive_4.begin()
    assert reasons(cleaning, number) == []


def test_retention_keeps_files_after_the_commit(database, hive):
    """For readers without transaction files stay for a while after the commit; on 3.1, which notes no time, after the entry was first seen."""
    number, _ = compacted(database, hive)
    cleaning = Cleaning(database)
    assert reasons(cleaning, number, retention_ms=NEVER_MS) == [Reason.RETENTION]
    assert reasons(cleaning, number) == []


def test_a_failed_cleaning_is_put_off(database_4, hive_4):
    """After an error the entry rests until so long after its commit, with the message in the queue."""
    number, _ = compacted(database_4, hive_4)
    cleaning = Cleaning(database_4)
    entry = judged(cleaning, number).entry
    cleaning.mark_cleaner_start(entry)
    cleaning.retry_later(entry, NEVER_MS, "disk\0 gone")
    assert reasons(cleaning, number) == [Reason.RETENTION]
    found = Queue(database_4).entry(number)
    assert (found.error_message, found.retry_retention_ms, found.cleaner_start_ms) == ("disk gone", NEVER_MS, -1)


@pytest.mark.parametrize("partition", ["p=1", None])
def test_a_lock_from_the_beginning_holds_it_back_on_hive_3(database_3, hive_3, partition):
    """On 3.1 whoever held a lock on the partition, or on its table as a whole, when the entry was first seen must let go; later ones don't matter."""
    number, _ = compacted(database_3, hive_3, "db.t/p=1")
    held = hive_3.lock("db.t", partition)
    hive_3.lock("db.t", "p=2")
    cleaning = Cleaning(database_3)
    (blocker,) = judged(cleaning, number).blockers
    assert blocker.reason is Reason.HELD_LOCK
    assert f"lock {held} (shared read)" in blocker.sentence
    hive_3.lock("db.t", "p=1")
    hive_3.unlock(held)
    assert reasons(cleaning, number) == []


def test_a_transaction_from_the_beginning_holds_it_back_on_hive_3(database_3, hive_3):
    """On 3.1 a query has its snapshot before any lock tells of it: whoever was open when the entry was first seen must end; there may always be later ones."""
    number, _ = compacted(database_3, hive_3)
    reader = hive_3.begin(user="ann")
    cleaning = Cleaning(database_3)
    (blocker,) = judged(cleaning, number).blockers
    assert blocker.reason is Reason.OPEN_TRANSACTION
    assert f"transaction {reader} of ann" in blocker.sentence
    later = hive_3.begin()
    hive_3.commit(reader)
    assert reasons(cleaning, number) == []
    assert reasons(Cleaning(database_3), number) == [Reason.OPEN_TRANSACTION]
    hive_3.abort(later)
    assert reasons(Cleaning(database_3), number) == []


def test_a_restart_forgets_and_waits_again(database_3, hive_3):
    """Another Cleaner knows nothing of the first's memory: it waits for whoever is there when it looks, which is only slower."""
    number, _ = compacted(database_3, hive_3)
    cleaning = Cleaning(database_3)
    assert reasons(cleaning, number) == []
    hive_3.lock("db.t")
    assert reasons(cleaning, number) == []
    assert reasons(Cleaning(database_3), number) == [Reason.HELD_LOCK]


def test_a_lock_without_transaction_counts_on_hive_4_too(database_4, hive_4):
    """A lock that belongs to no transaction was there: the transaction rule doesn't see it, so it must end as well."""
    number, _ = compacted(database_4, hive_4)
    held = hive_4.lock("db.t")
    cleaning = Cleaning(database_4)
    assert reasons(cleaning, number) == [Reason.HELD_LOCK]
    hive_4.unlock(held)
    assert reasons(cleaning, number) == []


def test_who_registered_other_tables_does_not_hold_this_one_back(database_4, hive_4):
    """Where clients register what they read (MIN_HISTORY_WRITE_ID), a long reader of another table doesn't matter; one that registered this one, or nothing, does."""
    elsewhere, here, unknown = (hive_4.begin() for _ in range(3))
    hive_4.register(elsewhere, "db.other", 99)
    hive_4.register(here, "db.t", 99)
    number, txn_id = compacted(database_4, hive_4)
    cleaning = Cleaning(database_4)
    assert len(judged(cleaning, number).blockers) == 2
    hive_4.commit(unknown)
    assert [f"transaction {here} " in blocker.sentence for blocker in judged(cleaning, number).blockers] == [True]
    hive_4.commit(here)
    ready = judged(cleaning, number)
    assert ready.blockers == ()
    assert ready.txns.is_valid(txn_id)
    assert elsewhere in ready.txns.open


def test_who_holds_a_lock_here_counts_whatever_it_registered(database_4, hive_4):
    """A transaction that registered another table only, but holds a lock on this one, holds it back."""
    reader = hive_4.begin()
    hive_4.register(reader, "db.other", 99)
    hive_4.lock("db.t", "p=1", txn_id=reader)
    number, _ = compacted(database_4, hive_4, "db.t/p=1")
    assert Reason.OPEN_TRANSACTION in reasons(Cleaning(database_4), number)


def test_lists_end_at_what_the_entry_covered(database_4, hive_4):
    """Write ids above the entry's aren't the Cleaner's to judge, aborted or not; aborted ones below are."""
    hive_4.write()
    _, aborted = hive_4.fail_write()
    _, covered = hive_4.write()
    _, beyond = hive_4.fail_write()
    number, _ = compacted(database_4, hive_4, write_id=covered)
    cleaning = Cleaning(database_4)
    ids = cleaning.write_ids(judged(cleaning, number))
    assert (ids.high_watermark, ids.aborted) == (covered, (aborted,))
    assert not ids.is_aborted(beyond)


def test_cleaned_is_history_and_forgets_what_was_covered(database, hive):
    """Succeeded in the history; completed components up to the write id are gone, later ones and other partitions' stay."""
    hive.write("db.t", "p=1")
    _, covered = hive.write("db.t", "p=2")
    _, later = hive.write("db.t", "p=1")
    number, _ = compacted(database, hive, "db.t/p=1", write_id=covered)
    cleaning = Cleaning(database)
    cleaning.mark_cleaned(judged(cleaning, number).entry)
    completed = hive.rows(database.schema.completed_txn_components, "ctc_partition", "ctc_writeid")
    assert completed == [("p=1", later), ("p=2", covered)]
    (found,) = Queue(database).history()
    assert (found.id, found.state, found.highest_write_id) == (number, QueueState.SUCCEEDED, covered)
    assert Queue(database).entries() == []


def test_cleaned_forgets_aborted_components_below_and_no_open_ones(database, hive):
    """Components of aborted transactions up to the write id go; those of open ones, later ones and other partitions' stay."""
    _, first = hive.fail_write("db.t", "p=1")
    hive.fail_write("db.t", "p=2")
    opened = hive.begin()
    hive.touch(opened, "db.t", "p=1")
    _, covered = hive.write("db.t", "p=1")
    _, beyond = hive.fail_write("db.t", "p=1")
    number = hive.queued("db.t/p=1", state="r", highest_write_id=covered)
    entry = next(entry for entry in Queue(database).entries() if entry.id == number)
    Cleaning(database).mark_cleaned(entry)
    left = hive.rows(database.schema.txn_components, "tc_partition", "tc_writeid")
    assert ("p=1", first) not in left
    assert len(left) == 3
    assert ("p=1", beyond) in left


def test_aborts_that_lie_among_others_stay_remembered(database, hive):
    """With aborted ids inside directories that hold others, only those whose directories were removed are forgotten."""
    ids = [hive.fail_write()[1] for _ in range(3)]
    _, covered = hive.write()
    number, _ = compacted(database, hive, write_id=covered)
    Cleaning(database).mark_cleaned(Queue(database).entry(number), [ids[1]], uncompacted_aborts=True)
    assert hive.rows(database.schema.txn_components, "tc_writeid") == [(ids[0],), (ids[2],)]


def test_a_whole_table_entry_leaves_partitions_alone(database, hive):
    """An entry without partition on a partitioned table forgets only what names no partition: Hive's own statement would hit all of them."""
    hive.write("db.t", "p=1")
    hive.fail_write("db.t", "p=1")
    hive.fail_write("db.t", None)
    number, _ = compacted(database, hive, "db.t", write_id=99)
    Cleaning(database).mark_cleaned(Queue(database).entry(number))
    assert hive.rows(database.schema.completed_txn_components, "ctc_partition") == [("p=1",)]
    assert hive.rows(database.schema.txn_components, "tc_partition") == [("p=1",)]


def test_an_entry_without_write_id_forgets_nothing(database, hive):
    """Nothing was covered, so nothing may be forgotten."""
    hive.write()
    hive.fail_write()
    number = hive.queued(state="r")
    Cleaning(database).mark_cleaned(Queue(database).entry(number))
    assert len(hive.rows(database.schema.completed_txn_components, "ctc_writeid")) == 1
    assert len(hive.rows(database.schema.txn_components, "tc_writeid")) == 1


def test_a_dropped_table_is_forgotten_whole(database, hive):
    """For a table that is gone, all components go, whatever the write id."""
    hive.write()
    hive.fail_write()
    number = hive.queued(state="r")
    Cleaning(database).mark_cleaned(Queue(database).entry(number), gone=True)
    assert hive.rows(database.schema.completed_txn_components, "ctc_writeid") == []
    assert hive.rows(database.schema.txn_components, "tc_writeid") == []


def test_cleaned_twice_is_noticed(database, hive):
    """Whoever comes second gets an error and changes nothing."""
    number, _ = compacted(database, hive)
    entry = Queue(database).entry(number)
    Cleaning(database).mark_cleaned(entry)
    with pytest.raises(OwnershipLostError):
        Cleaning(database).mark_cleaned(entry)
    assert len(Queue(database).history()) == 1


def test_soft_deletes_name_their_location(database_4, hive_4):
    """An entry of a dropped table carries where its files lie, though the catalog has no such table."""
    txn_id = hive_4.begin(kind=5)
    hive_4.commit(txn_id)
    properties = "2:8:location11:file:/w/old7:ifPurge4:true"
    number = hive_4.queued(state="r", highest_write_id=3, txn_id=txn_id, next_txn_id=txn_id, commit_time=1, tblproperties=properties)
    ready = judged(Cleaning(database_4), number)
    assert ready.blockers == ()
    assert ready.entry.location == "file:/w/old"


# Aborted writes


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
