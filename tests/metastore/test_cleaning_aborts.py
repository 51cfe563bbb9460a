"""Aborted writes: when they are due for cleaning, and what is forgotten of them afterwards."""

import time

import pytest
from sqlalchemy import delete, event, insert, select, update
from sqlalchemy.exc import IntegrityError

from compactor.acid.compaction import CompactionKind
from compactor.errors import RefusedError, RetryableError
from compactor.metastore.clean.aborts import Aborts
from compactor.metastore.clean.purge import NOTED
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.housekeeping import Duty, Housekeeping
from compactor.metastore.model import Entity
from compactor.metastore.txn.snapshots import REPLICATION, REPLICATION_TIMEOUT_MS
from compactor.metastore.txn.transactions import Transactions
from compactor.planning.forgetting import Ground
from tests.metastore.actor import P, T
from tests.metastore.proofs import LATE_MS, proof


def test_aborts_are_grouped_and_due_by_count_or_age(database, hive):
    """
    Groups with more components than the threshold or older than the age; young few are left alone; a negative age
    switches that ground off.
    """
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
    """
    Directories are judged below the first open writer of the table, whatever partition it named; its write id and later
    ones are left alone. Writers of other tables, of its database or its name, don't count.
    """
    for name in ("db.u", "other.t"):
        hive.touch(hive.begin(), name)
    _, aborted = hive.fail_write("db.t", "p=1")
    opened = hive.begin()
    write_id = hive.touch(opened, "db.t", "p=2")
    hive.fail_write("db.t", "p=1")
    txns, ids = Aborts(database).lists(T)
    assert ids.high_watermark < write_id
    assert ids.aborted == (aborted,)
    assert txns.high_watermark == opened - 1


def test_lists_of_an_earlier_moment_are_those_of_that_moment(database, hive):
    """What was open then is still left alone, however it ended since; what began since doesn't count."""
    _, aborted = hive.fail_write("db.t", "p=1")
    opened = hive.begin()
    write_id = hive.touch(opened, "db.t", "p=2")
    aborts = Aborts(database)
    taken = aborts.snapshot()
    hive.commit(opened)
    hive.fail_write("db.t", "p=1")
    txns, ids = aborts.lists(T, taken)
    assert (ids.high_watermark < write_id, ids.aborted) == (True, (aborted,))
    assert txns.is_aborted(opened + 1) is False
    assert aborts.lists(T)[1].high_watermark > write_id


def test_cleaned_aborts_are_forgotten(database, hive):
    """
    What was proven to be gone is forgotten, whatever partition its rows name, and without a trace in the history; what
    came later isn't.
    """
    hive.create_table()
    hive.fail_write("db.t", "p=ABC")
    swept = proof(database)
    _, last = hive.fail_write("db.t", "p=abc")
    aborts = Aborts(database)
    assert aborts.forget(aborts.groups(0, -1), swept) == (1 if database.schema.generation.layout == "hive-4" else 2)
    assert set(hive.rows(database.schema.txn_components, "tc_writeid")) == {(last,)}
    assert Queue(database).history() == []


def test_what_the_transaction_wrote_elsewhere_stays(database, hive):
    """To other tables, of the swept one's database or its name, with the same write id."""
    hive.create_table()
    txn = hive.begin()
    for name in ("db.t", "db.u", "other.t"):
        hive.touch(txn, name)
    hive.abort(txn)
    assert Aborts(database).forget([], proof(database)) == 1
    left = hive.rows(database.schema.txn_components, "tc_database", "tc_table", "tc_writeid")
    assert left == [("db", "u", 1), ("other", "t", 1)]


def test_cleaned_aborts_among_others_are_forgotten_one_by_one(database, hive):
    """Aborted ids that still have rows inside other directories stay known."""
    hive.create_table()
    ids = [hive.fail_write()[1] for _ in range(3)]
    aborts = Aborts(database)
    assert aborts.forget(aborts.groups(0, -1), proof(database, held=ids[1:])) == 1
    assert hive.rows(database.schema.txn_components, "tc_writeid") == [(ids[1],), (ids[2],)]


def test_nothing_is_forgotten_whose_tasks_may_write(database, hive):
    """
    Nothing was found of two aborted writes, and one transaction was heartbeated less than a day ago: it stays known,
    whenever it began, counts as aborted after every purge, and as one write, however many partitions it names. A day
    after its heartbeat the next sweep forgets it.
    """
    hive.create_table()
    hive.fail_write()
    young = hive.begin(age=13 * 3_600_000, silent=60_000)
    write_id = hive.touch(young)
    hive.touch(young, "db.t", "p=1", write_id=write_id)
    hive.touch(young, "db.t", "p=2", write_id=write_id)
    hive.abort(young, silent=LATE_MS - 60_000)
    hive.write()
    aborts, housekeeping = Aborts(database), Housekeeping(database)
    aborts.note_unnamed()
    assert aborts.forget(aborts.groups(0, -1), proof(database)) == 1
    for duty in (Duty.EMPTY_TRANSACTIONS, Duty.WRITE_ID_MAPPINGS):
        housekeeping.run(duty)
    assert Transactions(database).valid_write_ids("db.t", Transactions(database).valid_txns()).aborted == (write_id,)
    assert {(row.txn_id, verdict.ground) for row, verdict in aborts.may_write(T, LATE_MS)} == {
        (young, Ground.MAY_WRITE)
    }
    assert aborts.count_may_write(LATE_MS) == 1
    hive.fall_silent(young, LATE_MS)
    assert (aborts.may_write(T, LATE_MS), aborts.count_may_write(LATE_MS)) == ([], 0)
    assert aborts.forget(aborts.groups(0, -1), proof(database)) == 3


def test_a_write_id_that_hive_gave_anew(shared_database_4, shared_hive_4):
    """
    An UPDATE waited for its lock and was compiled anew: its rows have another write id than its component tells. Rolled
    back, it stays known while rows of that other id are there, and is forgotten when none is.
    """
    hive, database = shared_hive_4, shared_database_4
    hive.create_table()
    txn = hive.begin()
    hive.touch(txn, operation="u")
    write_id = hive.reallocate(txn)
    hive.abort(txn)
    aborts = Aborts(database)
    assert aborts.lists(T)[1].aborted == (write_id,)
    held = proof(database, held=[write_id])
    assert aborts.forget(aborts.groups(0, -1), held) == 0
    groups = aborts.groups(0, -1)
    assert aborts.retry_later(groups, "its rows lie among committed ones", [write_id]) > 0
    assert aborts.forget(groups, proof(database)) == 1
    assert aborts.groups(0, -1) == []


def test_replication_counts_from_its_own_time_out(database, hive):
    """
    Replication never heartbeats, and Hive lets its transactions be for eleven days: one that was opened two days ago
    and rolled back just now stays known; twelve days after its beginning it is forgotten.
    """
    hive.create_table()
    txn = hive.begin(kind=REPLICATION)
    hive.touch(txn)
    hive.abort(txn)
    aborts = Aborts(database)
    assert aborts.forget([], proof(database)) == 0
    hive.fall_silent(txn, REPLICATION_TIMEOUT_MS + LATE_MS)
    assert aborts.forget([], proof(database)) == 1


def test_a_swept_table_that_waits_for_time_is_left_alone(database, hive):
    """
    What stays known only because its tasks may still write is no ground for another sweep until that is over, but more
    than the threshold of further aborted writes is. Another Cleaner looks once more.
    """
    hive.create_table()
    young = [hive.fail_write(silent=0)[0] for _ in range(2)]
    old, _ = hive.fail_write()
    aborts = Aborts(database)
    swept = proof(database)
    assert aborts.forget(aborts.groups(0, -1), swept) == 1
    count, until_ms = aborts.remember(swept)
    assert (count, 0 < until_ms - swept.search.listed_ms <= LATE_MS) == (2, True)
    assert aborts.groups(0, 0) == []
    assert [group.count for group in Aborts(database).groups(0, 0)] == [2]
    hive.fail_write(silent=0)
    assert [group.count for group in aborts.groups(0, -1)] == [3]
    assert aborts.groups(1, 0) == []
    for number in (*young, old):
        hive.fall_silent(number)
    swept = proof(database)
    assert aborts.forget(aborts.groups(0, -1), swept) == 2
    assert aborts.remember(swept)[0] == 1


def test_rows_that_hive_wrote_twice_bring_no_table_back(database, hive):
    """A swept table that waits for time isn't swept in every cycle, however often a row of it stands there."""
    hive.create_table()
    hive.fail_write(silent=0)
    components = database.schema.txn_components
    twice = insert(components).from_select(list(components.c.keys()), select(components))
    for _ in range(2):
        hive.change(twice)
    aborts = Aborts(database)
    swept = proof(database)
    assert [group.count for group in aborts.groups(0, 0)] == [4]
    assert aborts.forget(aborts.groups(0, 0), swept) == 0
    assert aborts.remember(swept)[0] == 1
    assert aborts.groups(1, 0) == []


def test_a_sweep_counts_what_is_left_of_its_table_alone(database, hive):
    """What is aborted elsewhere, in the table's database or under its name, or still open, may be more later."""
    hive.create_table()
    for name in ("db.t", "db.u", "other.t"):
        hive.fail_write(name, silent=0)
    opened = hive.begin()
    hive.touch(opened)
    aborts = Aborts(database)
    assert aborts.remember(proof(database))[0] == 1
    hive.abort(opened, silent=0)
    assert [group.count for group in aborts.groups(0, 0) if group.entity == T] == [2]


def test_a_swept_table_is_looked_at_again_when_the_time_is_over(database, hive):
    """Half a second before the tasks of an aborted write are over it waits, and after that it is due."""
    hive.create_table()
    txn, _ = hive.fail_write(silent=LATE_MS - 500)
    aborts = Aborts(database)
    swept = proof(database)
    assert aborts.forget(aborts.groups(0, -1), swept) == 0
    assert aborts.remember(swept)[0] == 1
    deadline = time.monotonic() + 20
    while not (due := aborts.groups(0, -1)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [group.count for group in due] == [1]
    assert aborts.forget(due, proof(database)) == 1
    assert aborts.remember(proof(database)) is None
    assert hive.rows(database.schema.txns, "txn_state", where=database.schema.txns.c.txn_id == txn) == [("a",)]


def test_a_proof_is_of_one_table(database, hive):
    """A table that was created anew under the name is another, and has aborted writes of its own."""
    tbl_id = hive.create_table()
    hive.fail_write()
    aborts = Aborts(database)
    assert aborts.forget([], proof(database, tbl_id=tbl_id + 1)) == 0
    hive.drop_table(tbl_id)
    assert aborts.forget([], proof(database, tbl_id=tbl_id)) == 0
    assert len(hive.rows(database.schema.txn_components, "tc_writeid")) == 1


@pytest.mark.parametrize("name", ["db.t", "db.u", "other.t"])
def test_writes_that_a_rename_brings_meanwhile(database, hive, name):
    """
    A component without a write id of the table goes, unless its transaction has one when the component is deleted: all
    of that is undone, for a rename brought others that may be the very ones. A write id of another table is none.
    """
    hive.create_table()
    txn, write_id = hive.fail_write()
    schema, table = database.schema, Entity(*name.split("."))
    mappings = schema.txn_to_write_id
    hive.change(delete(mappings))
    swept = proof(database)
    brought = {"t2w_database": table.database, "t2w_table": table.table, "t2w_txnid": txn, "t2w_writeid": write_id}

    def rename(connection, _cursor, statement, *_):
        if statement.upper().startswith("DELETE") and "TXN_COMPONENTS" in statement.upper() and brought:
            connection.execute(insert(mappings).values(dict(brought)))
            brought.clear()

    event.listen(database.engine, "before_cursor_execute", rename)
    try:
        if table == T:
            with pytest.raises(RefusedError, match="got another table's writes"):
                Aborts(database).forget([], swept)
        else:
            assert Aborts(database).forget([], swept) == 1
    finally:
        event.remove(database.engine, "before_cursor_execute", rename)
    left = hive.rows(schema.txn_components, "tc_txnid", "tc_database", "tc_table")
    assert ((txn, "db", "t") in left) is (table == T)


def test_a_table_that_becomes_another_one_meanwhile(database, hive):
    """
    It was the one that was swept when its rows were read, and isn't any more when they are deleted: all of it is
    undone.
    """
    hive.create_table()
    hive.fail_write()
    swept = proof(database)

    def re_create(connection, _cursor, statement, *_):
        if statement.upper().startswith("DELETE") and "TXN_COMPONENTS" in statement.upper():
            connection.execute(update(database.schema.tbls).values(tbl_name="renamed"))

    event.listen(database.engine, "before_cursor_execute", re_create)
    try:
        with pytest.raises(RefusedError, match="re-created"):
            Aborts(database).forget([], swept)
    finally:
        event.remove(database.engine, "before_cursor_execute", re_create)
    assert len(hive.rows(database.schema.txn_components, "tc_writeid")) == 1


def test_one_partition_proves_nothing_about_a_write(database_4, hive_4):
    """
    Hive names the partitions of a write wrongly, or not all of them: the look at one tells only of compactions of that
    one.
    """
    hive_4.create_table()
    hive_4.fail_write("db.t", "p=1")
    for partition in ("p=1", "p=2"):
        txn = hive_4.begin(kind=3)
        hive_4.touch(txn, "db.t", partition, operation="c", write_id=1)
        hive_4.abort(txn)
    Aborts(database_4).forget([], proof(database_4, partition="p=1"))
    assert set(hive_4.rows(database_4.schema.txn_components, "tc_partition", "tc_operation_type")) >= {
        ("p=1", "i"),
        ("p=2", "c"),
    }
    assert ("p=1", "c") not in hive_4.rows(database_4.schema.txn_components, "tc_partition", "tc_operation_type")


@pytest.mark.parametrize("partitioned", [True, False])
def test_what_hive_left_out_is_added(database, hive, partitioned):
    """
    An aborted transaction with a write id and no component isn't empty, and is found as a group, until it is swept.

    A dynamic-partition write of Hive 3.1 (HIVE-21052), and an INSERT of any release into a table from which it reads.
    """
    hive.create_table(keys=(("p", "string"),) if partitioned else ())
    txn = hive.begin(age=90_000_000)
    write_id = hive.allocate(txn)
    hive.abort(txn)
    hive.begin()
    aborts = Aborts(database)

    def is_kept():
        Housekeeping(database).purge_empty_transactions()
        return (txn,) in hive.rows(database.schema.txns, "txn_id")

    assert is_kept()
    assert aborts.note_unnamed() == 1
    assert aborts.note_unnamed() == 0
    assert hive.rows(database.schema.txn_components, "tc_txnid", "tc_partition", "tc_writeid") == [
        (txn, None, write_id)
    ]
    assert is_kept()
    assert aborts.forget(aborts.groups(0, -1), proof(database)) == 1
    assert aborts.note_unnamed() == 0
    assert not is_kept()


def test_a_note_leaves_what_hive_says_of_an_abort(database_4, hive_4):
    """Hive 4 says in the same place why a transaction was aborted, as far as there is room."""
    txns = database_4.schema.txns
    said = {hive_4.fail_write()[0]: reason for reason in ("", "rollback", "r" * 128)}
    for txn, reason in said.items():
        hive_4.change(update(txns).where(txns.c.txn_id == txn).values(txn_meta_info=reason))
    assert Aborts(database_4).note_unnamed() == len(said)
    assert Aborts(database_4).note_unnamed() == 0
    for txn, told in hive_4.rows(txns, "txn_id", "txn_meta_info", where=txns.c.txn_id.in_(said)):
        assert told == said[txn][: 128 - len(NOTED)] + NOTED
    assert len(hive_4.rows(database_4.schema.txn_components, "tc_txnid")) == len(said)


def test_what_hive_3_left_out_survives_its_own_purge(database_3, hive_3):
    """
    Hive 3.1's Initiator deletes aborted transactions without components each cycle: one that it has chosen before ours
    were added stays all the same.
    """
    txn = hive_3.begin()
    hive_3.allocate(txn)
    hive_3.abort(txn)
    Aborts(database_3).note_unnamed()
    with pytest.raises(IntegrityError):  # its delete, by the ids it had chosen
        hive_3.change(delete(database_3.schema.txns).where(database_3.schema.txns.c.txn_id == txn))
    assert txn in Transactions(database_3).valid_txns().aborted


def test_a_group_that_failed_is_put_off_longer_each_time(database, hive):
    """
    Five minutes, then ten; meanwhile it isn't listed. On 4.x in Hive's own row, which ordinary entries don't mind;
    success removes it.
    """
    hive.create_table()
    hive.fail_write()
    aborts = Aborts(database)
    (group,) = aborts.groups(0, -1)
    assert aborts.retry_later([group], "disk gone") == 300_000
    assert aborts.groups(0, -1) == []
    if database.schema.generation.layout != "hive-4":
        return
    assert Cleaning(database).ready_for_cleaning() == []
    assert Queue(database).enqueue(T, CompactionKind.MAJOR).accepted
    queue = database.schema.compaction_queue
    assert hive.rows(queue, "cq_state", "cq_retry_retention", "cq_error_message", where=queue.c.cq_type == "c") == [
        ("r", 300_000, "disk gone")
    ]
    hive.change(update(queue).where(queue.c.cq_type == "c").values(cq_commit_time=1))
    (again,) = aborts.groups(0, -1)
    assert aborts.retry_later([again], "still") == 600_000
    assert len(hive.rows(queue, "cq_id", where=queue.c.cq_type == "c")) == 1
    aborts.forget([again], proof(database))
    assert hive.rows(queue, "cq_id", where=queue.c.cq_type == "c") == []


def test_what_was_forgotten_meanwhile_is_not_put_off(database, hive):
    """No later sweep would find it again; nor is a group put off without one of the given write ids."""
    hive.create_table()
    hive.fail_write("db.t", "p=1")
    _, write_id = hive.fail_write("db.t", "p=2")
    aborts = Aborts(database)
    groups = aborts.groups(0, -1)
    assert aborts.retry_later(groups, "x", [write_id + 1]) == 0
    assert aborts.groups(0, -1) == groups
    assert aborts.retry_later(groups, "x", [write_id]) == 300_000
    assert [group.entity for group in aborts.groups(0, -1)] == [P]
    hive.change(delete(database.schema.txn_components))
    assert aborts.retry_later(groups[:1], "x") == 0


def test_what_comes_back_while_it_is_forgotten_is_kept(database, hive):
    """A rename brought the vanished name write ids while the rows were deleted: all of that is undone."""
    hive.fail_write()
    schema, aborts = database.schema, Aborts(database)
    components, counters = schema.txn_components, schema.next_write_id
    groups, rows = aborts.groups(0, -1), hive.rows(components, "tc_txnid", "tc_table")
    hive.change(delete(counters))
    hive.change(delete(schema.txn_to_write_id))

    def rename(connection, _cursor, statement, *_):
        if statement.upper().startswith("DELETE") and "TXN_COMPONENTS" in statement.upper():
            connection.execute(delete(counters))
            connection.execute(insert(counters).values(nwi_database="db", nwi_table="t", nwi_next=9))

    event.listen(database.engine, "before_cursor_execute", rename)
    try:
        with pytest.raises(RetryableError, match="came"):
            aborts.forget_vanished(groups, T)
    finally:
        event.remove(database.engine, "before_cursor_execute", rename)
    assert hive.rows(components, "tc_txnid", "tc_table") == rows
    assert aborts.forget_vanished(groups, Entity("db", "other")) == 0


def test_a_pause_is_a_day_at_most(database_4, hive_4):
    """Whatever the last one was."""
    hive_4.create_table()
    hive_4.fail_write()
    aborts, queue = Aborts(database_4), database_4.schema.compaction_queue
    aborts.retry_later(aborts.groups(0, -1), "disk gone")
    for last in (13, 24, 100):
        hive_4.change(update(queue).values(cq_commit_time=1, cq_retry_retention=last * 3_600_000))
        assert aborts.retry_later(aborts.groups(0, -1), "still") == 24 * 3_600_000


def test_forgetting_a_group_ends_its_own_pause_alone(database, hive):
    """Those of other tables stay, of its database and of its name; what is aborted in it later waits for nothing."""
    hive.create_table()
    aborts = Aborts(database)
    for name in ("db.t", "db.u", "other.t"):
        hive.fail_write(name, "p=1")
    aborts.note_unnamed()
    groups = aborts.groups(0, -1)
    for table in {group.entity.whole_table() for group in groups}:
        aborts.retry_later([group for group in groups if group.entity.whole_table() == table], "disk gone")
    assert aborts.groups(0, -1) == []
    assert aborts.forget([group for group in groups if group.entity.whole_table() == T], proof(database)) > 0
    assert aborts.groups(0, -1) == []
    hive.fail_write("db.t", "p=1")
    (again,) = aborts.groups(0, -1)
    assert (again.entity, again.retry_retention_ms) == (P, 0)


def test_a_swept_table_of_which_nothing_waits_is_as_before(database, hive):
    """All of it was forgotten earlier than was expected: what is aborted then is due by the ordinary rule."""
    hive.create_table()
    txn, _ = hive.fail_write(silent=0)
    aborts = Aborts(database)
    assert aborts.remember(proof(database))[0] == 1
    hive.fall_silent(txn)
    assert aborts.forget([], proof(database)) == 1
    assert aborts.remember(proof(database)) is None
    hive.fail_write(silent=0)
    assert [group.count for group in aborts.groups(0, -1)] == [1]


def test_what_put_off_a_group_ends_with_it(database_4, hive_4):
    """
    Whoever forgets the writes of a group that waits: a sweep for another group of the table, a compaction's cleaning or
    Hive's. Its row would be ready for cleaning for good.
    """
    hive_4.create_table()
    hive_4.fail_write("db.t")
    aborts = Aborts(database_4)
    aborts.retry_later(aborts.groups(0, -1), "disk gone")
    hive_4.fail_write("db.t", "p=1")
    (due,) = aborts.groups(0, -1)
    assert due.entity == P
    assert aborts.forget([due], proof(database_4)) == 2
    aborts.end_retries()
    assert Queue(database_4).entries() == []
    hive_4.fail_write("db.t", "p=1")
    hive_4.fail_write("db.t", "p=2")
    aborts.retry_later(aborts.groups(0, -1), "disk gone")
    components = database_4.schema.txn_components
    database_4.write(
        lambda connection: connection.execute(delete(components).where(components.c.tc_partition == "p=1"))
    )
    hive_4.touch(hive_4.begin(), "db.t", "p=1")  # an open writer is no aborted write
    aborts.end_retries()
    assert [str(entry.entity) for entry in Queue(database_4).entries()] == ["db.t/p=2"]


def test_a_group_that_was_cleaned_begins_with_the_first_pause_again(database_4, hive_4):
    """Also where a writer that is still open has a component there."""
    hive_4.create_table()
    hive_4.fail_write("db.t", "p=1")
    aborts, queue = Aborts(database_4), database_4.schema.compaction_queue
    for _ in range(3):
        aborts.retry_later(aborts.groups(0, -1), "disk gone")
        hive_4.change(update(queue).values(cq_commit_time=1))
    due, swept = aborts.groups(0, -1), proof(database_4)
    hive_4.touch(hive_4.begin(), "db.t", "p=1")
    assert aborts.forget(due, swept) == 1
    assert Queue(database_4).entries() == []


def test_all_groups_of_a_table_are_put_off_in_a_few_statements(database_4, hive_4):
    """Each for twice as long as its own last time; those of another table aren't."""
    hive_4.create_table()
    hive_4.fail_write("db.u")
    txn, write_id = hive_4.fail_write("db.t", "p=0")
    aborts, queue, components = Aborts(database_4), database_4.schema.compaction_queue, database_4.schema.txn_components
    like = {"tc_txnid": txn, "tc_database": "db", "tc_table": "t", "tc_operation_type": "i", "tc_writeid": write_id}
    hive_4.change(insert(components).values([{**like, "tc_partition": f"p={number}"} for number in range(1, 1500)]))
    first = [group for group in aborts.groups(0, -1) if group.entity.whole_table() == T]
    aborts.retry_later(first[:700], "disk gone")
    hive_4.change(update(queue).values(cq_commit_time=1))
    again = [group for group in aborts.groups(0, -1) if group.entity.whole_table() == T]
    statements = []
    event.listen(
        database_4.engine, "before_cursor_execute", listener := lambda *arguments: statements.append(arguments[2])
    )
    assert aborts.retry_later(again, "still") == 300_000
    event.remove(database_4.engine, "before_cursor_execute", listener)
    assert len(statements) < 15
    pauses = [pause for (pause,) in hive_4.rows(queue, "cq_retry_retention")]
    assert (pauses.count(300_000), pauses.count(600_000)) == (800, 700)
    assert len(set(hive_4.rows(queue, "cq_id"))) == 1500
    assert [str(group.entity) for group in aborts.groups(0, -1)] == ["db.u"]
    statements.clear()
    event.listen(database_4.engine, "before_cursor_execute", listener)
    aborts.forget(again, proof(database_4))
    event.remove(database_4.engine, "before_cursor_execute", listener)
    assert len([statement for statement in statements if statement.upper().startswith('DELETE FROM "COMPACTION_Q')]) < 5
    assert hive_4.rows(queue, "cq_id") == []


def test_a_table_is_given_with_all_its_groups(database, hive):
    """
    So many tables at a time, those with the oldest first: what is left out of one would be swept and put off once more.
    """
    for number, table in enumerate(("db.t", "db.u", "db.t", "db.v", "db.t")):
        hive.fail_write(table, f"p={number}", age=1_000_000 - number)
    assert [str(group.entity) for group in Aborts(database).groups(0, -1, limit=2)] == [
        "db.t/p=0",
        "db.t/p=2",
        "db.t/p=4",
        "db.u/p=1",
    ]


def test_a_vanished_table_is_forgotten_with_its_write_ids(database, hive):
    """
    Of a table that isn't in the catalog nothing is forgotten while a later one of that name would go on with its write
    ids: they are counted, or remembered. Those of other tables don't matter, nor do writers that are still open there.
    """
    for name in ("db.t", "db.u", "other.t"):
        hive.fail_write(name)
    opened = hive.begin()
    hive.touch(opened)
    aborts, schema, groups = Aborts(database), database.schema, Aborts(database).groups(0, -1)

    def lose(table, prefix, name):
        of_table = table.c[f"{prefix}_database"] == "db", table.c[f"{prefix}_table"] == name
        hive.change(delete(table).where(*of_table))

    assert aborts.forget_vanished(groups, T) == 0
    lose(schema.txn_to_write_id, "t2w", "t")
    lose(schema.next_write_id, "nwi", "u")
    assert aborts.forget_vanished(groups, T) == aborts.forget_vanished(groups, Entity("db", "u")) == 0
    lose(schema.next_write_id, "nwi", "t")
    assert aborts.forget_vanished(groups, T) == 1
    assert [group.entity.full_name for group in aborts.groups(0, -1)] == ["db.u", "other.t"]
    components = schema.txn_components
    assert (opened, "t") in hive.rows(components, "tc_txnid", "tc_table")


@pytest.mark.parametrize(
    ("agent", "ours"), [(f"compactor-there-{'0' * 32}-1", True), ("hive-worker-7", False), (None, False)]
)
def test_an_aborted_write_tells_whether_a_worker_of_ours_opened_it(database, hive, agent, ours):
    """By the agent of its transaction: what ours left unpublished is known by name."""
    txn, _ = hive.fail_write(silent=0)
    txns = database.schema.txns
    hive.change(update(txns).where(txns.c.txn_id == txn).values(txn_agent_info=agent))
    ((row, _),) = Aborts(database).may_write(T, LATE_MS)
    assert row.is_ours is ours


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


def test_a_component_without_a_write_id_is_forgotten_by_that_of_its_transaction(database, hive):
    """Where Hive noted none, what the transaction has of the table counts; that of another transaction stays."""
    hive.create_table()
    (_, _), (held_txn, held) = hive.fail_write(), hive.fail_write()
    components = database.schema.txn_components
    hive.change(update(components).values(tc_writeid=None))
    assert Aborts(database).forget([], proof(database, held=[held])) == 1
    assert hive.rows(components, "tc_txnid") == [(held_txn,)]


def test_totals_tell_how_many_groups_are_crowded(database, hive):
    """Those with at least so many rows whose tasks are over; all rows count."""
    for partition, silent in (("p=1", 2 * LATE_MS), ("p=1", 2 * LATE_MS), ("p=2", 2 * LATE_MS), ("p=3", 0)):
        hive.fail_write("db.t", partition, silent=silent)
    for silent in (2 * LATE_MS, 0):
        hive.touch(hive.begin(silent=silent), "db.t", "p=2")  # of open writers none does
    aborts = Aborts(database)
    assert [aborts.totals(crowd, LATE_MS).crowded for crowd in (1, 2, 3)] == [2, 1, 0]
    assert aborts.totals(1, LATE_MS).count == 4
    assert aborts.count_may_write(LATE_MS) == 1


def test_totals_tell_when_the_first_may_be_forgotten(database, hive):
    """By the last sign of life of the one that has been silent for longest; open writers, and none, tell nothing."""
    aborts, txns = Aborts(database), database.schema.txns
    hive.touch(hive.begin(silent=5 * LATE_MS))
    assert aborts.totals(1, LATE_MS).oldest_ms is None
    oldest, *_ = (hive.fail_write("db.t", f"p={days}", silent=days * LATE_MS)[0] for days in (3, 0, 1))
    ((beat,),) = hive.rows(txns, "txn_last_heartbeat", where=txns.c.txn_id == oldest)
    assert aborts.totals(1, LATE_MS).oldest_ms == beat + LATE_MS
