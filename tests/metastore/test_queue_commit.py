"""
A compaction's commit: what it covers is stored before, entry and transaction change together, and a lost answer is
looked up.
"""

import threading

import pytest
from sqlalchemy import delete, update

from compactor.errors import OutcomeUnknownError, OwnershipLostError, RetryableError, UnreachableError
from compactor.metastore.compaction_queue.commits import committed
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import Entity, QueueState
from compactor.metastore.txn.transactions import Transactions, TxnState
from tests.metastore.actor import P, run_all
from tests.metastore.entries import claimed, working


def test_what_a_compaction_covers_is_stored_with_its_component(database, hive):
    """
    The write id and run-as user are stored; on 4.x with the transaction and its `c` component, once however often it is
    repeated.
    """
    entry, txn_id = working(database, P)
    Queue(database).set_compactor_state(entry, txn_id, 6, "ann")
    found = Queue(database).entry(entry.id)
    assert (found.highest_write_id, found.run_as, found.txn_id) == (6, "ann", txn_id)
    components = hive.rows(
        database.schema.txn_components,
        "tc_txnid",
        "tc_database",
        "tc_table",
        "tc_partition",
        "tc_operation_type",
        "tc_writeid",
    )
    assert components == ([(txn_id, "db", "t", "p=1", "c", 6)] if database.schema.generation.layout == "hive-4" else [])


def test_a_compaction_registers_what_it_reads_where_others_do(database_4, hive_4):
    """Once anybody registers write ids for the Cleaner, so does a compaction, beside them; otherwise not."""
    history = database_4.schema.min_history_write_id
    entry, txn_id = working(database_4)
    assert hive_4.rows(history, "mh_txnid") == []
    other = hive_4.begin()
    hive_4.register(other, "db.other", 3)
    for _ in range(2):
        Queue(database_4).set_compactor_state(entry, txn_id, 5, None)
    registered = hive_4.rows(history, "mh_txnid", "mh_database", "mh_table", "mh_writeid")
    assert registered == [(txn_id, "db", "t", 6), (other, "db", "other", 3)]


def test_a_job_id_fits_its_column(database):
    """A job id is cut to the 32 characters that Hive gives it."""
    entry = claimed(database)
    Queue(database).set_job_id(entry, "x" * 50)
    assert Queue(database).entry(entry.id).job_id == "x" * 32


def test_a_finished_compaction_is_handed_to_the_cleaner(database, hive):
    """
    Ready for cleaning without worker; on 4.x committed with the highest transaction and the time, its component and
    locks gone, nothing in the completed.
    """
    entry, txn_id = working(database)
    if database.schema.generation.layout == "hive-4":
        hive.lock(txn_id=txn_id)
        later = hive.begin()
    Queue(database).mark_compacted_and_commit(entry, entry.worker_id, txn_id)
    found = Queue(database).entry(entry.id)
    assert (found.state, found.worker_id, found.start_ms, found.highest_write_id) == (
        QueueState.READY_FOR_CLEANING,
        None,
        entry.start_ms,
        5,
    )
    assert hive.rows(database.schema.completed_txn_components, "ctc_txnid") == []
    if database.schema.generation.layout == "hive-4":
        assert found.next_txn_id == later
        assert found.commit_ms is not None
        assert Transactions(database).state(txn_id) is TxnState.COMMITTED
        assert hive.rows(database.schema.txn_components, "tc_txnid") == []
        assert hive.rows(database.schema.hive_locks, "hl_txnid") == []
        assert hive.rows(database.schema.min_history_level, "mhl_txnid") == [(later,)]


def test_an_aborted_transaction_is_not_committed(database_4, hive_4):
    """When housekeeping aborted the transaction meanwhile, neither the queue nor the transaction changes."""
    entry, txn_id = working(database_4)
    hive_4.abort(txn_id)
    with pytest.raises(OwnershipLostError, match="aborted"):
        Queue(database_4).mark_compacted_and_commit(entry, entry.worker_id, txn_id)
    assert Queue(database_4).entry(entry.id).state is QueueState.WORKING
    assert Transactions(database_4).state(txn_id) is TxnState.ABORTED


@pytest.mark.parametrize("loss", ["revoked", "claimed by another", "dropped"])
def test_whoever_lost_the_entry_commits_nothing(database, hive, loss):
    """
    After a revoke, another's claim or a DROP TABLE, marking compacted raises, and on 4.x the transaction stays open for
    its owner to abort.
    """
    entry, txn_id = working(database)
    queue = database.schema.compaction_queue
    match loss:
        case "revoked":
            hive.change(update(queue).values(cq_state="i", cq_worker_id=None, cq_start=None))
        case "claimed by another":
            hive.change(update(queue).values(cq_worker_id="hms-host-7"))
        case "dropped":
            hive.change(delete(queue))
    with pytest.raises(OwnershipLostError):
        Queue(database).mark_compacted_and_commit(entry, entry.worker_id, txn_id)
    if database.schema.generation.layout == "hive-4":
        assert Transactions(database).state(txn_id) is TxnState.OPEN
    assert all(found.state is not QueueState.READY_FOR_CLEANING for found in Queue(database).entries())


def test_nothing_is_committed_without_a_transaction_on_hive_4(database_4):
    """There a compaction is what its transaction is."""
    entry, _ = working(database_4)
    with pytest.raises(OwnershipLostError):
        Queue(database_4).mark_compacted_and_commit(entry, entry.worker_id, None)
    assert Queue(database_4).entry(entry.id).state is QueueState.WORKING


def test_a_commit_for_another_transaction_than_the_entrys_is_refused(database_4):
    """
    An entry that was claimed again by the same worker belongs to its new transaction; the old attempt's commit fails.
    """
    entry, old = working(database_4)
    new = Transactions(database_4).open_compaction("ann", "edge")
    Queue(database_4).set_compactor_state(entry, new, 5, "ann")
    with pytest.raises(OwnershipLostError):
        Queue(database_4).mark_compacted_and_commit(entry, entry.worker_id, old)
    Queue(database_4).mark_compacted_and_commit(entry, entry.worker_id, new)


@pytest.mark.parametrize("rival", ["revoke", "abort"])
def test_commit_against_revoke_or_abort_has_one_winner(shared_database_4, rival):
    """
    Committing while somebody revokes the claim, or aborts the transaction: either all of the commit happened or nothing
    of it.
    """
    for number in range(8):
        one_race(shared_database_4, Entity("db", "t", f"p={number}"), rival)


def one_race(database, entity, rival):
    entry, txn_id = working(database, entity)
    queue, transactions = Queue(database), Transactions(database)
    start = threading.Barrier(2)
    outcome = {}

    def commit():
        start.wait()
        try:
            queue.mark_compacted_and_commit(entry, entry.worker_id, txn_id)
            outcome["committed"] = True
        except OwnershipLostError:
            outcome["committed"] = False

    def spoil():
        start.wait()
        if rival == "abort":
            outcome["spoiled"] = transactions.abort(txn_id, "rival") is TxnState.ABORTED
            return
        try:
            queue.give_back(entry)
            outcome["spoiled"] = True
        except OwnershipLostError:
            outcome["spoiled"] = False

    run_all([commit, spoil])
    assert outcome["committed"] is not outcome["spoiled"]
    assert (queue.entry(entry.id).state is QueueState.READY_FOR_CLEANING) is outcome["committed"]
    assert (transactions.state(txn_id) is TxnState.COMMITTED) is outcome["committed"]


def test_a_commit_whose_answer_was_lost_is_looked_up(shared_database, monkeypatch):
    """
    When the connection dies as the commit's answer is due, the tables say whether it happened: here it did, once; and
    nothing is raised.
    """
    entry, txn_id = working(shared_database)
    lose_the_answer(shared_database, monkeypatch, before=False)
    Queue(shared_database).mark_compacted_and_commit(entry, entry.worker_id, txn_id)
    assert Queue(shared_database).entry(entry.id).state is QueueState.READY_FOR_CLEANING


def test_a_commit_that_never_arrived_is_made_again(shared_database, monkeypatch):
    """As before, but the commit was lost on its way: it is sent again."""
    entry, txn_id = working(shared_database)
    lose_the_answer(shared_database, monkeypatch, before=True)
    Queue(shared_database).mark_compacted_and_commit(entry, entry.worker_id, txn_id)
    assert Queue(shared_database).entry(entry.id).state is QueueState.READY_FOR_CLEANING


@pytest.mark.parametrize("end", ["mark_refused", "mark_failed"])
def test_a_commit_is_known_by_what_it_wrote_however_the_entry_ended(database_4, monkeypatch, end):
    """
    No answer came; until the tables are read again the Cleaner has refused or failed the entry, and the transaction is
    forgotten: committed all the same.
    """
    entry, txn_id = working(database_4)
    queue, write, txns = Queue(database_4), database_4.write, database_4.schema.txns

    def unanswered(change, *given, **named):
        monkeypatch.undo()
        write(change, *given, **named)
        getattr(queue, end)(queue.entry(entry.id), "no_cleanup")
        write(lambda connection: connection.execute(txns.delete().where(txns.c.txn_id == txn_id)))
        raise OutcomeUnknownError("no answer")

    monkeypatch.setattr(database_4, "write", unanswered)
    queue.mark_compacted_and_commit(entry, entry.worker_id, txn_id)
    assert committed(queue.entry(entry.id), txn_id)


def test_what_hive_failed_was_not_committed(database_4, hive_4):
    """
    Where no commit wrote its number Hive's markFailed writes 0 into the history: that of an attempt that was rolled
    back, and is forgotten, is no proof of a commit.
    """
    entry, txn_id = working(database_4)
    Transactions(database_4).abort(txn_id, "test")
    if database_4.embedded:
        Queue(database_4).mark_failed(entry, "by Hive")
        history = database_4.schema.completed_compactions
        hive_4.change(history.update().values(cc_next_txn_id=0, cc_commit_time=0))
    else:
        info = {"id": entry.id, "dbname": "db", "tableName": "t", "type": "MAJOR", "errorMessage": "by Hive"}
        hive_4.party.call("markFailed", info)
    assert not committed(Queue(database_4).entry(entry.id), txn_id)


def lose_the_answer(database, monkeypatch, *, before):
    """Kill the connection around the next COMMIT: before it arrives, or after it was carried out."""
    dialect = database.engine.dialect
    commit = dialect.do_commit
    done = []

    def losing(connection):
        if done:
            return commit(connection)
        done.append(1)
        if before:
            connection.driver_connection.close()
            return commit(connection)
        commit(connection)
        connection.driver_connection.close()
        return connection.commit()

    monkeypatch.setattr(dialect, "do_commit", losing)


def test_a_commit_that_is_under_way_still_is_known_when_it_arrives(shared_database, monkeypatch):
    """
    The connection was lost, and the server goes on with the commit after the tables were read: it isn't taken for
    another's.
    """
    entry, txn_id = working(shared_database)
    queue, write = Queue(shared_database), shared_database.write
    sent = []

    def unanswered(change, *given, **named):
        sent.append(change)
        if len(sent) == 1:
            raise OutcomeUnknownError("no answer")
        write(sent[0], *given, **named)
        return write(change, *given, **named)

    monkeypatch.setattr(shared_database, "write", unanswered)
    queue.mark_compacted_and_commit(entry, entry.worker_id, txn_id)
    assert len(sent) == 2
    assert queue.entry(entry.id).state is QueueState.READY_FOR_CLEANING


@pytest.mark.parametrize("answers", [(True,), (False, None), (False, True), (False, False)])
def test_a_commit_without_an_answer_is_sent_once_more_at_most(database, monkeypatch, answers):
    """The tables tell whether it happened, which is asked after each that has no answer: it did, or it didn't."""
    entry, txn_id = working(database)
    queue, write, left = Queue(database), database.write, list(answers)

    def unanswered(change, *given, **named):
        happens = left.pop(0)
        if happens is not False:
            write(change, *given, **named)
        if happens is not None:
            raise OutcomeUnknownError("no answer")

    monkeypatch.setattr(database, "write", unanswered)
    if answers == (False, False):
        with pytest.raises(OutcomeUnknownError):
            queue.mark_compacted_and_commit(entry, entry.worker_id, txn_id)
    else:
        queue.mark_compacted_and_commit(entry, entry.worker_id, txn_id)
    assert left == []
    assert (queue.entry(entry.id).state is QueueState.READY_FOR_CLEANING) is (answers[-1] is not False)


@pytest.mark.parametrize("loss", ["revoked", "claimed by another", "gone", "failed"])
def test_a_commit_without_an_answer_may_have_lost_its_entry_on_hive_3(database_3, hive_3, monkeypatch, loss):
    """Then it isn't sent again."""
    entry, txn_id = working(database_3)
    queue, table = Queue(database_3), database_3.schema.compaction_queue

    def unanswered(*_, **__):
        monkeypatch.undo()
        match loss:
            case "revoked":
                hive_3.change(update(table).values(cq_state="i"))
            case "claimed by another":
                hive_3.change(update(table).values(cq_worker_id="hms-host-7"))
            case "gone":
                hive_3.change(delete(table))
            case "failed":
                queue.mark_failed(entry, "by an operator")
        raise OutcomeUnknownError("no answer")

    monkeypatch.setattr(database_3, "write", unanswered)
    with pytest.raises(OwnershipLostError):
        queue.mark_compacted_and_commit(entry, entry.worker_id, txn_id)


@pytest.mark.parametrize("error", [UnreachableError, RetryableError])
def test_a_lost_answer_that_cannot_be_looked_up_stays_unknown(database, monkeypatch, error):
    """Nobody is told that nothing happened when the tables can't be read after that."""
    entry, txn_id = working(database)

    def unanswered(*_, **__):
        raise OutcomeUnknownError("no answer")

    def away(*_, **__):
        raise error("away")

    monkeypatch.setattr(database, "write", unanswered)
    monkeypatch.setattr(database, "read", away)
    with pytest.raises(OutcomeUnknownError):
        Queue(database).mark_compacted_and_commit(entry, entry.worker_id, txn_id)


def test_a_withdrawn_attempt_takes_back_its_own_component_alone(database_4, hive_4):
    """Those of writes and of other attempts stay, and so does that of an attempt that has ended: files may be left."""
    (_, mine), (_, ended) = working(database_4), working(database_4, P)
    components = database_4.schema.txn_components
    write = {"tc_txnid": mine, "tc_database": "db", "tc_table": "t", "tc_operation_type": "i", "tc_writeid": 1}
    hive_4.change(components.insert().values(write))
    hive_4.abort(ended)
    for txn_id in (mine, ended):
        Queue(database_4).withdraw_attempt(txn_id)
    assert hive_4.rows(components, "tc_txnid", "tc_operation_type") == [(mine, "i"), (ended, "c")]
