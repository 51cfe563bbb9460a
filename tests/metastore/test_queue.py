"""The life of a queue entry: asked for, claimed, worked on, ended, given back."""

import threading

import pytest
from sqlalchemy import delete, insert, update

from compactor.acid.compaction import CompactionKind
from compactor.errors import OutcomeUnknownError, OwnershipLostError, UsageError
from compactor.metastore.model import Entity, QueueState
from compactor.metastore.properties import decode_properties, encode_properties
from compactor.metastore.queue import Queue, committed
from compactor.metastore.requests import Request
from compactor.metastore.transactions import Transactions, TxnState
from tests.metastore.actor import P, T, run_all

MAJOR, MINOR = CompactionKind.MAJOR, CompactionKind.MINOR


def claimed(database, entity=T, kind=MAJOR, worker="compactor-edge-1"):
    """An entry that a worker has."""
    queue = Queue(database)
    queue.enqueue(entity, kind)
    return queue.claim(worker, "1")


def working(database, entity=T, worker="compactor-edge-1", write_id=5):
    """An entry whose worker has stored what it covers; returns it with its transaction (None on 3.1)."""
    entry = claimed(database, entity, worker=worker)
    txn_id = Transactions(database).open_compaction("ann", "edge") if database.schema.hive_4 else None
    Queue(database).set_compactor_state(entry, txn_id, write_id, "ann")
    return entry, txn_id


def test_a_request_is_stored_as_hive_stores_it(database, hive):
    """State i, type a, names in lower case, properties in Hive's form; who asked and when on Hive 4; nothing else."""
    answer = Queue(database).enqueue(Entity("DB", "T", "p=A b"), MAJOR, properties={"a": "bc"}, pool="x", initiator_id="edge-manual", initiator_version="1")
    assert answer.accepted
    queue = database.schema.compaction_queue
    shared = ("cq_id", "cq_database", "cq_table", "cq_partition", "cq_state", "cq_type", "cq_tblproperties", "cq_worker_id", "cq_highest_write_id")
    assert hive.rows(queue, *shared) == [(answer.id, "db", "t", "p=A b", "i", "a", "1:1:a2:bc", None, None)]
    if database.schema.hive_4:
        ((enqueued, *rest),) = hive.rows(queue, "cq_enqueue_time", "cq_pool_name", "cq_initiator_id", "cq_initiator_version", "cq_retry_retention", "cq_txn_id")
        assert rest == ["x", "edge-manual", "1", 0, None]
        assert abs(enqueued - database.read(database.now_ms)) < 60_000


@pytest.mark.parametrize("properties", [{}, {"a": ""}, {"ключ": "雪😀", "b:1": "3:x"}, {"location": "file:/w/x", "ifPurge": "true"}])
def test_properties_come_back(database, properties):
    """Properties read back equal those asked for, whatever their characters: lengths count UTF-16 units as Java's do."""
    Queue(database).enqueue(T, MAJOR, properties=properties)
    assert Queue(database).entries()[0].properties == properties


def test_property_lengths_are_javas():
    """A character outside the basic plane counts as two; null values have length -1."""
    assert encode_properties({"😀": "x"}) == "1:2:😀1:x"
    assert decode_properties("2:1:a-1:1:b0:") == {"a": "", "b": ""}


@pytest.mark.parametrize("broken", ["x", "1:", "1:5:ab", "2:1:a1:b"])
def test_broken_properties_do_not_stop_the_queue(database, hive, broken):
    """A row with properties that can't be read is an entry without properties."""
    hive.queued(tblproperties=broken)
    assert Queue(database).entries()[0].properties == {}


def test_properties_that_do_not_fit_are_refused(database):
    """Properties longer than their column are an error, not cut: cut ones would mean something else."""
    with pytest.raises(UsageError, match="2048"):
        Queue(database).enqueue(T, MAJOR, properties={"a": "x" * 2048})


@pytest.mark.parametrize("state", ["i", "w"])
def test_what_is_underway_is_not_queued_again(database, hive, state):
    """An entry initiated or working, of whatever kind, stands in the way of another for the same partition, and of no other partition."""
    standing = hive.queued("db.t/p=1", state=state, type="i")
    queue = Queue(database)
    answer = queue.enqueue(P, MAJOR)
    assert (answer.id, answer.accepted, answer.state.code) == (standing, False, state)
    assert queue.enqueue(T, MAJOR).accepted
    assert queue.enqueue(Entity("db", "t", "p=2"), MAJOR).accepted


def test_what_is_ready_for_cleaning_at_the_same_write_id_is_not_queued_again_on_hive_4(database, hive):
    """Ready for cleaning at what a compaction would cover now: nothing to do on 4.x; 3.1 doesn't look. After another write it is accepted."""
    _, write_id = hive.write()
    hive.queued(state="r", highest_write_id=write_id)
    queue = Queue(database)
    assert queue.enqueue(T, MAJOR).accepted is not database.schema.hive_4
    hive.write()
    if database.schema.hive_4:
        assert queue.enqueue(T, MAJOR).accepted


def test_many_requests_at_once_get_an_answer_each(database, hive):
    """In one call: new ones are queued with ids in their order, the second of two alike points to the first, standing ones to what stands."""
    standing = hive.queued("db.t/p=1")
    others = [Entity("db", "t", f"p={number}") for number in range(10, 2010)]
    answers = Queue(database).enqueue_all([Request(T, MAJOR), Request(P, MINOR), Request(T, MINOR), *(Request(other, MINOR) for other in others)])
    assert [answer.accepted for answer in answers[:3]] == [True, False, False]
    assert (answers[1].id, answers[2].id) == (standing, answers[0].id)
    assert [answer.id for answer in answers[3:]] == list(range(answers[0].id + 1, answers[0].id + 2001))
    assert len(Queue(database).entries()) == 2002


def test_ids_are_hives_counter(database, hive):
    """The next id of Hive's own counter is taken and bumped; a refusal burns none."""
    first = hive.queued("db.x")
    queue = Queue(database)
    assert queue.enqueue(T, MAJOR).id == first + 1
    assert not queue.enqueue(T, MAJOR).accepted
    assert hive.queued("db.y") == first + 2


@pytest.mark.postgres
def test_two_who_ask_at_once_queue_one(shared_database):
    """Of many threads asking for the same at the same moment one is accepted."""
    start = threading.Barrier(6)
    answers = []

    def ask():
        start.wait()
        answers.append(Queue(shared_database).enqueue(T, MAJOR))

    run_all([ask] * 6)
    assert sum(answer.accepted for answer in answers) == 1
    assert len({answer.id for answer in answers}) == 1


def test_the_oldest_is_claimed_first(database):
    """A claim takes the smallest id, notes worker and time, and leaves nothing for a second."""
    queue = Queue(database)
    first = queue.enqueue(T, MAJOR).id
    queue.enqueue(P, MINOR)
    entry = queue.claim("compactor-edge-1", "1.0")
    assert (entry.id, entry.entity, entry.kind, entry.state, entry.worker_id) == (first, T, MAJOR, QueueState.WORKING, "compactor-edge-1")
    assert entry.start_ms is not None
    assert queue.claim("compactor-edge-2", "1.0").entity == P
    assert queue.claim("compactor-edge-2", "1.0") is None


def test_unknown_kinds_are_left_alone(database, hive):
    """A row of a type or state of a later Hive is neither claimed nor an error."""
    hive.queued(type="*")
    hive.queued("db.x", state="?")
    queue = Queue(database)
    assert queue.claim("compactor-edge-1", "1") is None
    assert queue.entries() == []


def test_pools_are_kept_apart(database_4, hive_4):
    """A worker of a pool takes its pool's entries only; one without takes those without a pool, and what waited half a day for its own."""
    queue = Queue(database_4)
    plain = queue.enqueue(T, MAJOR).id
    pooled = queue.enqueue(P, MAJOR, pool="night").id
    assert queue.claim("compactor-edge-1", "1", "night").id == pooled
    assert queue.claim("compactor-edge-1", "1", "night") is None
    stale = hive_4.queued("db.x", pool_name="gone", enqueue_time=database_4.read(database_4.now_ms) - 13 * 3_600_000)
    fresh = hive_4.queued("db.y", pool_name="gone", enqueue_time=database_4.read(database_4.now_ms))
    assert [queue.claim("compactor-edge-1", "1").id for _ in range(2)] == [plain, stale]
    assert queue.claim("compactor-edge-1", "1") is None
    assert queue.entry(fresh).state is QueueState.INITIATED


@pytest.mark.postgres
def test_no_entry_is_claimed_twice(shared_database):
    """Six workers claiming at once share a queue of thirty without overlap."""
    Queue(shared_database).enqueue_all([Request(Entity("db", "t", f"p={number}"), MAJOR) for number in range(30)])
    start = threading.Barrier(6)
    taken = []

    def work(worker):
        queue = Queue(shared_database)
        start.wait()
        while (entry := queue.claim(worker, "1")) is not None:
            taken.append(entry.id)

    run_all([lambda worker=f"compactor-edge-{number}": work(worker) for number in range(6)])
    assert len(taken) == len(set(taken)) == 30


def test_what_a_compaction_covers_is_stored_with_its_component(database, hive):
    """The write id and run-as user are stored; on 4.x with the transaction and its `c` component, once however often it is repeated."""
    entry, txn_id = working(database, P)
    Queue(database).set_compactor_state(entry, txn_id, 6, "ann")
    found = Queue(database).entry(entry.id)
    assert (found.highest_write_id, found.run_as, found.txn_id) == (6, "ann", txn_id)
    components = hive.rows(database.schema.txn_components, "tc_txnid", "tc_database", "tc_table", "tc_partition", "tc_operation_type", "tc_writeid")
    assert components == ([(txn_id, "db", "t", "p=1", "c", 6)] if database.schema.hive_4 else [])


def test_a_compaction_registers_what_it_reads_where_others_do(database_4, hive_4):
    """Once anybody registers write ids for the Cleaner, so does a compaction; otherwise not."""
    history = database_4.schema.min_history_write_id
    entry, txn_id = working(database_4)
    assert hive_4.rows(history, "mh_txnid") == []
    hive_4.register(hive_4.begin(), "db.other", 3)
    Queue(database_4).set_compactor_state(entry, txn_id, 5, None)
    assert (txn_id, "db", "t", 6) in hive_4.rows(history, "mh_txnid", "mh_database", "mh_table", "mh_writeid")


def test_a_job_id_fits_its_column(database):
    """A job id is cut to the 32 characters that Hive gives it."""
    entry = claimed(database)
    Queue(database).set_job_id(entry, "x" * 50)
    assert Queue(database).entry(entry.id).job_id == "x" * 32


def test_a_finished_compaction_is_handed_to_the_cleaner(database, hive):
    """Ready for cleaning without worker; on 4.x committed with the highest transaction and the time, its component and locks gone, nothing in the completed."""
    entry, txn_id = working(database)
    if database.schema.hive_4:
        hive.lock(txn_id=txn_id)
        later = hive.begin()
    Queue(database).mark_compacted_and_commit(entry, entry.worker_id, txn_id)
    found = Queue(database).entry(entry.id)
    assert (found.state, found.worker_id, found.start_ms, found.highest_write_id) == (QueueState.READY_FOR_CLEANING, None, entry.start_ms, 5)
    assert hive.rows(database.schema.completed_txn_components, "ctc_txnid") == []
    if database.schema.hive_4:
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
    """After a revoke, another's claim or a DROP TABLE, marking compacted raises, and on 4.x the transaction stays open for its owner to abort."""
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
    if database.schema.hive_4:
        assert Transactions(database).state(txn_id) is TxnState.OPEN
    assert all(found.state is not QueueState.READY_FOR_CLEANING for found in Queue(database).entries())


def test_a_commit_for_another_transaction_than_the_entrys_is_refused(database_4):
    """An entry that was claimed again by the same worker belongs to its new transaction; the old attempt's commit fails."""
    entry, old = working(database_4)
    new = Transactions(database_4).open_compaction("ann", "edge")
    Queue(database_4).set_compactor_state(entry, new, 5, "ann")
    with pytest.raises(OwnershipLostError):
        Queue(database_4).mark_compacted_and_commit(entry, entry.worker_id, old)
    Queue(database_4).mark_compacted_and_commit(entry, entry.worker_id, new)


@pytest.mark.postgres
@pytest.mark.parametrize("rival", ["revoke", "abort"])
def test_commit_against_revoke_or_abort_has_one_winner(shared_database_4, rival):
    """Committing while somebody revokes the claim, or aborts the transaction: either all of the commit happened or nothing of it."""
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


@pytest.mark.postgres
def test_a_commit_whose_answer_was_lost_is_looked_up(shared_database, monkeypatch):
    """When the connection dies as the commit's answer is due, the tables say whether it happened: here it did, once; and nothing is raised."""
    entry, txn_id = working(shared_database)
    lose_the_answer(shared_database, monkeypatch, before=False)
    Queue(shared_database).mark_compacted_and_commit(entry, entry.worker_id, txn_id)
    assert Queue(shared_database).entry(entry.id).state is QueueState.READY_FOR_CLEANING


@pytest.mark.postgres
def test_a_commit_that_never_arrived_is_made_again(shared_database, monkeypatch):
    """As before, but the commit was lost on its way: it is sent again."""
    entry, txn_id = working(shared_database)
    lose_the_answer(shared_database, monkeypatch, before=True)
    Queue(shared_database).mark_compacted_and_commit(entry, entry.worker_id, txn_id)
    assert Queue(shared_database).entry(entry.id).state is QueueState.READY_FOR_CLEANING


@pytest.mark.parametrize("end", ["mark_refused", "mark_failed"])
def test_a_commit_is_known_by_what_it_wrote_however_the_entry_ended(database_4, monkeypatch, end):
    """No answer came; until the tables are read again the Cleaner has refused or failed the entry, and the transaction is forgotten: committed all the same."""
    entry, txn_id = working(database_4)
    queue, write, txns = Queue(database_4), database_4.write, database_4.schema.txns

    def unanswered(change):
        monkeypatch.undo()
        write(change)
        getattr(queue, end)(queue.entry(entry.id), "no_cleanup")
        write(lambda connection: connection.execute(txns.delete().where(txns.c.txn_id == txn_id)))
        raise OutcomeUnknownError("no answer")

    monkeypatch.setattr(database_4, "write", unanswered)
    queue.mark_compacted_and_commit(entry, entry.worker_id, txn_id)
    assert committed(queue.entry(entry.id), txn_id)


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


def test_a_failure_goes_into_the_history(database):
    """A failed entry leaves the queue and is found in the history with its message, cut of what a database can't store."""
    entry = claimed(database)
    Queue(database).mark_failed(entry, "disk\0 full")
    (found,) = Queue(database).history()
    assert Queue(database).entries() == []
    assert (found.id, found.state, found.worker_id, found.kind) == (entry.id, QueueState.FAILED, entry.worker_id, MAJOR)
    assert found.error_message == ("disk full" if database.schema.hive_4 else None)
    assert found.end_ms is not None


def test_a_refusal_is_refused_on_hive_4_and_failed_on_3(database):
    """Hive 3.1 knows no state for refused."""
    Queue(database).mark_refused(claimed(database), "sorted-table: it is sorted")
    expected = QueueState.REFUSED if database.schema.hive_4 else QueueState.FAILED
    assert [found.state for found in Queue(database).history()] == [expected]


def test_a_lost_entry_is_not_marked(database, hive):
    """Marking failed what another one has claimed raises and changes nothing."""
    entry = claimed(database)
    hive.change(update(database.schema.compaction_queue).values(cq_worker_id="hms-host-7"))
    with pytest.raises(OwnershipLostError):
        Queue(database).mark_failed(entry, "x")
    assert Queue(database).history() == []
    assert len(Queue(database).entries()) == 1


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
    assert queue.history()[0].state is (QueueState.ABORTED if database.schema.hive_4 else QueueState.FAILED)
    entry = claimed(database, P)
    assert not queue.cancel(entry.id, "too late")


def test_a_claim_given_back_is_anybodys(database):
    """Given back, an entry is initiated without worker and start, and is claimed again; giving back twice is fine, giving back another's claim isn't."""
    entry = claimed(database)
    queue = Queue(database)
    queue.give_back(entry)
    queue.give_back(entry)
    again = queue.claim("compactor-edge-2", "1")
    assert again.id == entry.id
    with pytest.raises(OwnershipLostError):
        queue.give_back(entry)


def test_timed_out_claims_are_revoked(database, hive):
    """Claims older than the time-out are given back, once what they left is cleared; others stay."""
    now = database.read(database.now_ms)
    old = hive.queued("db.a", state="w", worker_id="hms-1", start=now - 90_000_000)
    kept = hive.queued("db.b", state="w", worker_id="hms-2", start=now - 90_000_000)
    young = hive.queued("db.c", state="w", worker_id="hms-3", start=now)
    queue = Queue(database)
    revoked = queue.revoke_timed_out(86_400_000, lambda entry: entry.id != kept)
    assert [entry.id for entry in revoked] == [old]
    assert {entry.id for entry in queue.working()} == {kept, young}


def test_claims_of_dead_workers_are_revoked(database, hive):
    """Claims of the given workers are given back, and no others': ids are compared whole."""
    dead = hive.queued("db.a", state="w", worker_id="compactor-edge-1", start=1)
    hive.queued("db.b", state="w", worker_id="compactor-edge-10", start=1)
    assert [entry.id for entry in Queue(database).revoke_workers(["compactor-edge-1"])] == [dead]


def test_an_attempt_is_forgotten_only_when_aborted(database_4, hive_4):
    """The component of an aborted compaction can be deleted, that of an open one stays; other components of the table stay too."""
    entry, txn_id = working(database_4)
    hive_4.fail_write()
    queue = Queue(database_4)
    assert not queue.forget_attempt(entry.entity, txn_id)
    hive_4.abort(txn_id)
    assert queue.forget_attempt(entry.entity, txn_id)
    assert hive_4.rows(database_4.schema.txn_components, "tc_operation_type") == [("i",)]


def test_entries_can_be_chosen(database, hive):
    """Entries by state and by entity; a partition's entries aren't its table's."""
    first, second = hive.queued("db.t"), hive.queued("db.t/p=1", state="w")
    queue = Queue(database)
    assert [entry.id for entry in queue.entries()] == [first, second]
    assert [entry.id for entry in queue.entries(QueueState.WORKING)] == [second]
    assert [entry.id for entry in queue.entries(entity=T)] == [first]


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


def test_inserting_beside_hive_keeps_its_ids_apart(database, hive):
    """A row inserted by Hive between two of ours gets an id of its own."""
    queue = Queue(database)
    ids = [queue.enqueue(Entity("db", "a"), MAJOR).id, hive.queued("db.b"), queue.enqueue(Entity("db", "c"), MAJOR).id]
    assert ids == sorted(set(ids))
    hive.change(insert(database.schema.aux_table).values(mt_key1="other", mt_key2=0))
