"""Under which lists a finished compaction is cleaned, and what is forgotten afterwards."""

import pytest
from sqlalchemy import column, insert, table, update

from compactor.errors import OwnershipLostError
from compactor.metastore.clean.aborts import Aborts
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import QueueState
from tests.metastore.actor import P, T
from tests.metastore.entries import without_an_answer
from tests.metastore.proofs import proof
from tests.metastore.ready import compacted, judged


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
    """
    Succeeded in the history; completed components up to the write id are gone, later ones and other partitions' stay.
    """
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


def test_what_is_not_ready_any_more_is_not_cleaned(database, hive):
    """An entry that is back in the queue, or with a worker: it stays, and nothing of what it covered is forgotten."""
    _, covered = hive.write()
    hive.fail_write()
    number, _ = compacted(database, hive, write_id=covered + 1)
    entry = Queue(database).entry(number)
    queue, schema = database.schema.compaction_queue, database.schema
    for state in (QueueState.INITIATED, QueueState.WORKING):
        hive.change(update(queue).values(cq_state=state.code))
        with pytest.raises(OwnershipLostError, match="isn't ready for cleaning any more"):
            Cleaning(database).mark_cleaned(entry)
        assert Queue(database).entry(number).state is state
    assert hive.rows(schema.completed_txn_components, "ctc_writeid") == [(covered,)]
    assert hive.rows(schema.txn_components, "tc_writeid") == [(covered + 1,)]


def test_cleaned_forgets_what_is_proven_and_nothing_else(database, hive):
    """
    Components of aborted transactions of which the sweep found nothing go; those of open ones, later ones, and ids that
    still have rows stay.
    """
    hive.create_table()
    _, first = hive.fail_write()
    _, held = hive.fail_write()
    _, covered = hive.write()
    number, _ = compacted(database, hive, write_id=covered)
    swept = proof(database, held=[held])
    hive.touch(hive.begin())
    _, beyond = hive.fail_write()
    Cleaning(database).mark_cleaned(Queue(database).entry(number), swept)
    left = {write_id for (write_id,) in hive.rows(database.schema.txn_components, "tc_writeid")}
    assert first not in left
    assert {held, beyond} < left
    assert hive.rows(database.schema.completed_txn_components, "ctc_writeid") == []


def test_without_proof_no_aborted_write_is_forgotten(database, hive):
    """The directory was missing, say: the entry is done, and what was aborted stays known."""
    hive.create_table()
    hive.fail_write()
    number, _ = compacted(database, hive, write_id=99)
    Cleaning(database).mark_cleaned(Queue(database).entry(number))
    assert len(hive.rows(database.schema.txn_components, "tc_writeid")) == 1


def test_a_whole_table_entry_leaves_commits_of_partitions_alone(database, hive):
    """
    An entry without partition on a partitioned table forgets only commits that name no partition: Hive's own statement
    would hit all of them.
    """
    hive.write("db.t", "p=1")
    number, _ = compacted(database, hive, "db.t", write_id=99)
    Cleaning(database).mark_cleaned(Queue(database).entry(number))
    assert hive.rows(database.schema.completed_txn_components, "ctc_partition") == [("p=1",)]


def test_an_entry_without_write_id_forgets_nothing(database, hive):
    """Nothing was covered, so nothing may be forgotten."""
    hive.write()
    hive.fail_write()
    number = hive.queued(state="r")
    Cleaning(database).mark_cleaned(Queue(database).entry(number))
    assert len(hive.rows(database.schema.completed_txn_components, "ctc_writeid")) == 1
    assert len(hive.rows(database.schema.txn_components, "tc_writeid")) == 1


def test_commits_of_a_dropped_table_are_forgotten_whole(database, hive):
    """Whatever their write ids; what was aborted there isn't proven to be gone by the table's absence."""
    hive.write()
    hive.fail_write()
    number = hive.queued(state="r")
    Cleaning(database).mark_cleaned(Queue(database).entry(number), gone=True)
    assert hive.rows(database.schema.completed_txn_components, "ctc_writeid") == []
    assert len(hive.rows(database.schema.txn_components, "tc_writeid")) == 1


def read_by_a_view(database, hive, tbl_id):
    """A materialized view in the catalog that reads a table."""
    names = ("MV_CREATION_METADATA_ID", "CAT_NAME", "DB_NAME", "TBL_NAME", "MATERIALIZATION_TIME")
    if not database.embedded:
        hive.change(insert(table("MV_CREATION_METADATA", *map(column, names))).values((1, "hive", "db", "view", 0)))
    hive.change(insert(database.schema.mv_tables_used).values(mv_creation_metadata_id=1, tbl_id=tbl_id))


def test_the_newest_update_of_a_table_with_a_view_stays_on_3_1(database_3, hive_3):
    """
    A rebuild of a materialized view asks Hive 3.1's COMPLETED_TXN_COMPONENTS alone whether rows went (HIVE-24840): of
    each partition the newest update that was covered stays, and of tables without a view none.
    """
    for name in ("db.t", "db.other"):
        tbl_id = hive_3.create_table(name, keys=(("p", "int"),))
        if name == "db.t":
            read_by_a_view(database_3, hive_3, tbl_id)
        for operation in ("i", "d", "u", "i"):
            _, covered = hive_3.write(name, "p=1", operation=operation)
        _, other = hive_3.write(name, "p=2", operation="d")
        _, later = hive_3.write(name, "p=1", operation="d")
        number, _ = compacted(database_3, hive_3, f"{name}/p=1", write_id=covered)
        cleaning = Cleaning(database_3)
        cleaning.mark_cleaned(judged(cleaning, number).entry)
    components = database_3.schema.completed_txn_components
    left = hive_3.rows(components, "ctc_table", "ctc_partition", "ctc_writeid", "ctc_update_delete")
    stays = [("t", "p=1", covered - 1, "Y"), ("t", "p=1", later, "Y"), ("t", "p=2", other, "Y")]
    assert sorted(left) == [("other", "p=1", later, "Y"), ("other", "p=2", other, "Y"), *stays]


def test_cleaned_twice_is_noticed(database, hive):
    """Whoever comes second gets an error and changes nothing."""
    number, _ = compacted(database, hive)
    entry = Queue(database).entry(number)
    Cleaning(database).mark_cleaned(entry)
    with pytest.raises(OwnershipLostError):
        Cleaning(database).mark_cleaned(entry)
    assert len(Queue(database).history()) == 1


@pytest.mark.parametrize("happened", [True, False])
def test_an_end_without_an_answer_is_looked_up(database, hive, monkeypatch, happened):
    """Its row in the history tells whether it happened, not another's; if it didn't, it is done once more."""
    entries = [Queue(database).entry(compacted(database, hive, name)[0]) for name in ("db.t", "db.u")]
    cleaning = Cleaning(database)
    cleaning.mark_cleaned(entries[0])
    without_an_answer(database, monkeypatch, happened=happened)
    cleaning.mark_cleaned(entries[1])
    assert sorted(entry.id for entry in Queue(database).history()) == [entry.id for entry in entries]
    assert Queue(database).entries() == []


def test_soft_deletes_name_their_location(database_4, hive_4):
    """An entry of a dropped table carries where its files lie, though the catalog has no such table."""
    txn_id = hive_4.begin(kind=5)
    hive_4.commit(txn_id)
    properties = "2:8:location11:file:/w/old7:ifPurge4:true"
    number = hive_4.queued(
        state="r", highest_write_id=3, txn_id=txn_id, next_txn_id=txn_id, commit_time=1, tblproperties=properties
    )
    ready = judged(Cleaning(database_4), number)
    assert ready.blockers == ()
    assert ready.entry.location == "file:/w/old"


@pytest.mark.parametrize("entity", ["db.t", "db.t/p=1"])
def test_what_is_in_the_catalog_again_keeps_its_commits(database, hive, entity):
    """A table or partition of the name appeared after the Cleaner had looked: its commits make it a candidate."""
    number, _ = compacted(database, hive, entity)
    tbl_id = hive.create_table("db.t", keys=(("p", "string"),) if "/" in entity else ())
    if "/" in entity:
        hive.add_partitions(tbl_id, ["p=1"])
    hive.write("db.t", "p=1" if "/" in entity else None)
    before = hive.rows(database.schema.completed_txn_components, "ctc_txnid")
    with pytest.raises(OwnershipLostError, match="is in the catalog again"):
        Cleaning(database).mark_cleaned(Queue(database).entry(number), gone=True)
    assert hive.rows(database.schema.completed_txn_components, "ctc_txnid") == before
    assert Queue(database).entry(number).state is QueueState.READY_FOR_CLEANING


def test_a_partition_is_gone_though_others_are_there(database, hive):
    """Another one of its table, and one of its name in another table."""
    for name, partition in (("db.t", "p=2"), ("db.u", "p=1")):
        hive.add_partitions(hive.create_table(name, keys=(("p", "string"),)), [partition])
    hive.write("db.t", "p=1")
    number, _ = compacted(database, hive, "db.t/p=1")
    Cleaning(database).mark_cleaned(Queue(database).entry(number), gone=True)
    assert Queue(database).entry(number).state is QueueState.SUCCEEDED
    assert hive.rows(database.schema.completed_txn_components, "ctc_writeid") == []


def test_a_table_is_gone_though_others_are_there(database, hive):
    """Another one of its database, and one of its name in another database."""
    for name in ("db.u", "other.t"):
        hive.create_table(name)
    number, _ = compacted(database, hive)
    Cleaning(database).mark_cleaned(Queue(database).entry(number), gone=True)
    assert Queue(database).entry(number).state is QueueState.SUCCEEDED


@pytest.mark.parametrize("column", ["cq_database", "cq_table", "cq_partition"])
def test_an_entry_that_was_renamed_meanwhile_forgets_nothing(database, hive, column):
    """Another table or partition may have the old name by now, with commits of its own."""
    _, covered = hive.write("db.t", "p=1")
    number, _ = compacted(database, hive, "db.t/p=1", write_id=covered)
    entry = Queue(database).entry(number)
    hive.change(update(database.schema.compaction_queue).values({column: "renamed"}))
    with pytest.raises(OwnershipLostError):
        Cleaning(database).mark_cleaned(entry)
    assert hive.rows(database.schema.completed_txn_components, "ctc_writeid") == [(covered,)]
    assert Queue(database).entry(number).state is QueueState.READY_FOR_CLEANING


def test_a_cleaning_is_noted_while_its_entry_is_ready(database_4, hive_4):
    """That it began, and that it must be tried again; in no other entry's row, and not when another has the entry."""
    (number, _), (other, _) = compacted(database_4, hive_4), compacted(database_4, hive_4, "db.u")
    queue, cleaning, table = Queue(database_4), Cleaning(database_4), database_4.schema.compaction_queue
    entry, untouched = queue.entry(number), queue.entry(other)
    cleaning.mark_cleaner_start(entry)
    assert abs(queue.entry(number).cleaner_start_ms - database_4.read(database_4.now_ms)) < 60_000
    cleaning.clear_cleaner_start(entry)
    assert queue.entry(number).cleaner_start_ms == -1
    hive_4.change(update(table).where(table.c.cq_id == number).values(cq_state="i"))
    there = queue.entry(number)
    cleaning.mark_cleaner_start(entry)
    cleaning.retry_later(entry, 1, "disk gone")
    assert (queue.entry(number), queue.entry(other)) == (there, untouched)


def test_the_entry_of_a_dropped_table_named_in_capitals_ends(database, hive):
    """A client of the metastore's API named it so."""
    number, _ = compacted(database, hive, "DB.t")
    Cleaning(database).mark_cleaned(Queue(database).entry(number), gone=True)
    assert Queue(database).entry(number).state is QueueState.SUCCEEDED


def test_what_put_off_the_aborts_ends_with_a_proof(database_4, hive_4):
    """A cleaning that looked for aborted writes supersedes it; one that didn't leaves it, and the aborts stay put off."""
    hive_4.create_table()
    hive_4.fail_write()
    aborts, queue = Aborts(database_4), database_4.schema.compaction_queue
    aborts.retry_later(aborts.groups(0, -1), "disk gone")
    for swept, left in ((None, 1), (proof(database_4), 0)):
        number, _ = compacted(database_4, hive_4)
        Cleaning(database_4).mark_cleaned(Queue(database_4).entry(number), swept)
        assert len(hive_4.rows(queue, "cq_id", where=queue.c.cq_type == "c")) == left


def test_what_was_committed_above_a_write_id_is_told(database, hive):
    """Of a partition its own and what names none; of a table all of it."""
    _, first = hive.write("db.t", "p=1")
    _, elsewhere = hive.write("db.t", "p=2")
    _, here = hive.write("db.t", "p=1")
    for name in ("db.u", "other.t"):
        for _ in range(3):
            hive.write(name, "p=1")
    cleaning = Cleaning(database)
    assert cleaning.written_above(P, first) == [f"write id {here} was committed since"]
    assert cleaning.written_above(T, first) == [
        f"write id {number} was committed since" for number in (elsewhere, here)
    ]
