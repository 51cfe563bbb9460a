"""How entries end when they aren't compacted, and what queue and history show of them."""

from dataclasses import replace

import pytest
from sqlalchemy import update

from compactor.acid.write_ids import ValidTxnList
from compactor.errors import OwnershipLostError
from compactor.metastore.clean.aborts import Aborts
from compactor.metastore.compaction_queue.queue import Queue, asked_to_stop
from compactor.metastore.model import QueueState
from tests.metastore.actor import P, T
from tests.metastore.entries import MAJOR, MINOR, claimed, without_an_answer, working
from tests.metastore.proofs import LATE_MS, proof


def test_a_failure_goes_into_the_history(database):
    """
    A failed entry leaves the queue and is found in the history with its message; what a database can't store is escaped.
    """
    entry = claimed(database)
    Queue(database).mark_failed(entry, "disk\0 full")
    (found,) = Queue(database).history()
    assert Queue(database).entries() == []
    assert (found.id, found.state, found.worker_id, found.kind) == (entry.id, QueueState.FAILED, entry.worker_id, MAJOR)
    assert found.error_message == r"disk\x00 full"
    assert found.end_ms is not None


@pytest.mark.parametrize("end", ["refused", "aborted"])
def test_hive_3_is_told_of_a_failure(database, hive, end):
    """
    Hive 3.1 knows no such state: its row says failed, and ours with its message lies in CC_META_INFO, cut to what that
    holds; nothing of Hive 4's is there.
    """
    queue, entry = Queue(database), claimed(database)
    (queue.mark_refused if end == "refused" else queue.mark_aborted)(entry, "sorted-table: " + "é" * 3000)
    ((found,), ((code, told),)) = (
        queue.history(),
        hive.rows(database.schema.completed_compactions, "cc_state", "cc_meta_info"),
    )
    assert (found.state.value, found.error_message[:15]) == (end, "sorted-table: é")
    hive_4 = database.schema.generation.layout == "hive-4"
    assert (code, told is None) == (QueueState(end).code if hive_4 else "f", hive_4)
    assert hive_4 or len(told) == 2048
    assert queue.history(QueueState(end)) == [found]
    assert queue.history(QueueState.FAILED) == []


@pytest.mark.parametrize("happened", [True, False])
def test_an_end_without_an_answer_is_looked_up(database, monkeypatch, happened):
    """Its row in the history tells whether it happened, not another's; if it didn't, it is done once more."""
    queue = Queue(database)
    first, second = claimed(database), claimed(database, P)
    queue.mark_failed(first, "x")
    without_an_answer(database, monkeypatch, happened=happened)
    queue.mark_failed(second, "x")
    assert sorted(entry.id for entry in queue.history()) == [first.id, second.id]
    assert queue.entries() == []


def test_nothing_to_compact_is_no_failure(database):
    """Hive 3.1 has no state for what was refused, and counts failures: there it succeeded."""
    queue, entry = Queue(database), claimed(database)
    queue.mark_unneeded(entry, "one delta")
    (found,) = queue.history()
    ended = QueueState.REFUSED if database.schema.generation.layout == "hive-4" else QueueState.SUCCEEDED
    assert (found.state, found.error_message) == (ended, "one delta")


def test_who_asked_to_stop_is_told_by_the_entry(database):
    """A job's id in the same column is no such request, nor is none."""
    queue, entry = Queue(database), claimed(database)
    assert asked_to_stop(entry) is None
    queue.set_job_id(entry, "application_1_0001")
    assert asked_to_stop(queue.entry(entry.id)) is None
    for user, said in (("ann", "ann"), ("", "an operator")):
        assert queue.ask_to_stop(entry, user)
        assert asked_to_stop(queue.entry(entry.id)) == said


def test_a_lost_entry_is_not_marked(database, hive):
    """Marking failed what another one has claimed raises and changes nothing."""
    entry = claimed(database)
    hive.change(update(database.schema.compaction_queue).values(cq_worker_id="hms-host-7"))
    with pytest.raises(OwnershipLostError):
        Queue(database).mark_failed(entry, "x")
    assert Queue(database).history() == []
    assert len(Queue(database).entries()) == 1


@pytest.mark.parametrize(("believed", "found"), [("i", "r"), ("r", "i"), ("i", "w")])
def test_an_entry_that_nobody_has_is_not_marked_in_another_state(database, hive, believed, found):
    """
    Initiated and ready for cleaning look alike but for their state: what went on meanwhile isn't ended, nor stopped.
    """
    number = hive.queued(state=believed, start=1, highest_write_id=1)
    queue = Queue(database)
    entry = queue.entry(number)
    hive.change(update(database.schema.compaction_queue).values(cq_state=found))
    there = queue.entry(number)
    for end in (queue.mark_failed, queue.mark_refused, queue.mark_aborted):
        with pytest.raises(OwnershipLostError):
            end(entry, "x")
    assert not queue.ask_to_stop(entry, "ann")
    assert queue.entry(number) == there


def test_what_did_not_initiate_is_noted(database):
    """A note that something wasn't queued is a history row with an id of its own."""
    number = Queue(database).record_did_not_initiate(P, "failed too often")
    (found,) = Queue(database).history()
    assert (found.id, found.state, found.entity) == (number, QueueState.DID_NOT_INITIATE, P)


def test_only_what_nobody_began_is_cancelled(database):
    """Cancelling takes an initiated entry out, and leaves a claimed one."""
    queue = Queue(database)
    waiting = queue.enqueue(T, MAJOR).id
    assert queue.cancel(waiting, "not needed")
    assert (queue.history()[0].state, queue.history()[0].error_message) == (QueueState.ABORTED, "not needed")
    entry = claimed(database, P)
    assert not queue.cancel(entry.id, "too late")


def test_an_attempt_is_forgotten_only_when_its_tasks_are_over(database_4, hive_4):
    """
    The component of an aborted compaction can be deleted once its transaction was silent for long; that of an open one
    stays, and so does one whose job may still publish; other components of the table stay too.
    """
    entry, txn_id = working(database_4)
    hive_4.create_table()
    hive_4.fail_write()
    txns = ValidTxnList(txn_id, (), (txn_id,))
    whole = proof(database_4, entry.entity)
    swept = replace(whole, search=replace(whole.search, txns=txns, gone=frozenset()))
    aborts = Aborts(database_4)
    assert aborts.forget([], swept) == 0
    hive_4.abort(txn_id, silent=LATE_MS - 60_000)
    assert aborts.forget([], swept) == 0
    hive_4.fall_silent(txn_id)
    assert aborts.forget([], swept) == 1
    assert hive_4.rows(database_4.schema.txn_components, "tc_operation_type") == [("i",)]


def test_entries_can_be_chosen(database, hive):
    """Entries by state and by entity; a partition's entries aren't its table's."""
    first, second = hive.queued("db.t"), hive.queued("db.t/p=1", state="w")
    queue = Queue(database)
    assert [entry.id for entry in queue.entries()] == [first, second]
    assert [entry.id for entry in queue.entries(QueueState.WORKING)] == [second]
    assert [entry.id for entry in queue.entries(entity=T)] == [first]
    third = hive.queued("db.u", type="i")
    assert [entry.id for entry in queue.waiting(MAJOR)] == [first]
    assert [entry.id for entry in queue.waiting(MINOR)] == [third]
    assert [queue.count(), queue.count(QueueState.WORKING), queue.count(QueueState.FAILED)] == [3, 1, 0]
    assert queue.count(QueueState.WORKING, QueueState.INITIATED) == 3


def test_the_history_is_newest_first(database, hive):
    """History by descending id, limited, by state."""
    ids = [hive.finished("db.t", state=state) for state in "sfs"]
    queue = Queue(database)
    assert [entry.id for entry in queue.history(limit=2)] == [ids[2], ids[1]]
    assert [entry.id for entry in queue.history(QueueState.FAILED)] == [ids[1]]


@pytest.mark.postgres
def test_extra_columns_of_a_later_hive_are_no_obstacle(altered_database, postgres):
    """Rows are read and moved by column names, so a column that we don't know stays at its default."""
    postgres.sql(str(altered_database).rpartition("/")[2], 'ALTER TABLE "COMPACTION_QUEUE" ADD COLUMN "CQ_NEW" text')
    entry = claimed(altered_database)
    Queue(altered_database).mark_failed(entry, "x")
    assert Queue(altered_database).history()[0].id == entry.id


def test_a_row_of_the_history_that_nobody_can_read_is_left_out(database, hive):
    """A history row in a state of a later Hive doesn't stop the listing."""
    hive.finished(state="?")
    good = hive.finished()
    assert [entry.id for entry in Queue(database).history()] == [good]
