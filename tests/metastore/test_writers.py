"""Who may be writing into a directory that Hive left to the Cleaner: by any name that Hive stores, and by none."""

import pytest

from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.properties import encode_properties
from compactor.metastore.compaction_queue.queue import Queue
from compactor.reasons import Reason
from tests.metastore.actor import T


def writers(database, hive, partition="p=1", *, txn_id=None):
    """Reasons and sentences for a request to remove this partition of `db.t`, or the table itself."""
    properties = encode_properties({"location": "file:/w/db.db/t"})
    number = hive.queued(
        "db.t" + (f"/{partition}" if partition else ""), state="r", txn_id=txn_id, tblproperties=properties
    )
    entry = Queue(database).entry(number)
    return [(blocker.reason, blocker.sentence) for blocker in Cleaning(database).writing(entry.entity, entry.txn_id)]


@pytest.mark.parametrize(
    ("stored", "name"),
    [
        (None, "p=1"),
        ("p=1", "p=1"),
        ("p=abc", "p=ABC"),
        ("t=10%253A00", "t=10%3A00"),
        ("p=1", "p=1/q=2"),
        ("db@t@p=1", "p=1/q=2"),
        ("p=7", None),
    ],
)
def test_a_component_that_may_mean_it_counts(database, hive, stored, name):
    """Folded as by Hive 3.1, escaped twice as by 4.0, a part of the keys, or none; of a whole table any."""
    txn_id = hive.begin()
    hive.touch(txn_id, "db.t", stored)
    ((reason, sentence),) = writers(database, hive, name)
    assert reason is Reason.OPEN_TRANSACTION
    assert sentence.startswith(f"transaction {txn_id} of bob@client")
    hive.commit(txn_id)
    assert writers(database, hive, name) == []


def test_a_write_id_alone_counts(database, hive):
    """
    A dynamic insert has a write id, a reader's lock on the table, and no component before its end; a stream has no lock
    yet for its next transactions.
    """
    dynamic, next_of_stream = hive.begin(), hive.begin()
    hive.allocate(dynamic)
    hive.lock("db.t", txn_id=dynamic)
    hive.allocate(next_of_stream)
    assert [
        f"transaction {txn} " in sentence
        for txn, (_, sentence) in zip((dynamic, next_of_stream), writers(database, hive), strict=True)
    ] == [True, True]


def test_who_names_other_partitions_only_does_not_count(database, hive):
    """
    Otherwise a table that is always written to would keep what was dropped for ever; a lock on more than those
    partitions counts again.
    """
    txn_id = hive.begin()
    hive.touch(txn_id, "db.t", "p=2")
    hive.lock("db.t", "p=2", txn_id=txn_id)
    assert writers(database, hive) == []
    hive.lock("db.t", txn_id=txn_id)
    assert len(writers(database, hive)) == 1


def test_readers_and_compactions_and_itself_do_not_count(database_4, hive_4):
    """A reader's lock, the component of a compaction, writes to other tables, and the request's own transaction."""
    reader, compaction, elsewhere, own = (hive_4.begin() for _ in range(4))
    hive_4.lock("db.t", "p=1", txn_id=reader)
    hive_4.lock("db.t")
    hive_4.touch(compaction, "db.t", "p=1", operation="c", write_id=1)
    hive_4.touch(elsewhere, "db.u", "p=1")
    hive_4.touch(own, "db.t", "p=1")
    assert writers(database_4, hive_4, txn_id=own) == []


@pytest.mark.parametrize("name", ["db.u", "other.t"])
def test_what_is_written_to_another_table_does_not_count(database, hive, name):
    """Of its database, or of its name: by a component, by a write id, by a lock with or without a transaction."""
    touching, numbered, locking = (hive.begin() for _ in range(3))
    hive.touch(touching, name, "p=1")
    hive.allocate(numbered, name)
    for txn_id in (locking, 0):
        hive.lock(name, "p=1", txn_id=txn_id, kind="e")
    assert writers(database, hive) == writers(database, hive, None) == []


def test_the_lock_of_the_one_who_asks_does_not_count(database, hive):
    """Another one of its kind does."""
    own, other = hive.lock(kind="e"), hive.lock(kind="e")
    (sentence,) = Cleaning(database).written_above(T, 0, own_lock=own)
    assert sentence.startswith(f"lock {other} ")


@pytest.mark.parametrize("kind", ["e", "x", "w"])
def test_a_lock_for_writing_counts(database_4, hive_4, kind):
    """With a transaction or without."""
    hive_4.lock("db.t", "p=1", kind=kind)
    hive_4.lock("db.t", "p=2", kind=kind)
    txn_id = hive_4.begin()
    hive_4.lock("db.t", None, txn_id=txn_id, kind=kind)
    assert [reason for reason, _ in writers(database_4, hive_4)] == [Reason.OPEN_TRANSACTION, Reason.HELD_LOCK]


def test_tables_that_somebody_may_be_writing(database, hive):
    """By a write id of an open transaction, or a lock to write; what has ended, and readers, don't count."""
    writing = "exw" if database.schema.generation.layout == "hive-4" else "ew"  # 3.1 knows no exclusive write
    for kind in f"{writing}r":
        hive.lock(f"db.locked_{kind}", kind=kind)
    hive.lock("db.", kind="w")
    hive.allocate(hive.begin(), "db.open")
    hive.fail_write("db.aborted")
    hive.write("db.committed")
    assert {entity.full_name for entity in Cleaning(database).written_tables()} == {
        "db.open",
        *(f"db.locked_{kind}" for kind in writing),
    }
