"""Worker: what makes no sense is refused with a code and a sentence, and leaves no trace."""

import os
import zoneinfo

import pytest
from sqlalchemy import insert, update

from compactor.acid.types import row_type
from compactor.metastore.model import Entity
from compactor.roles import steps
from compactor.roles.worker.backoff import LONGEST_SECONDS
from tests.metastore.actor import T
from tests.unit.orc.files import acid_file, rows_of


@pytest.mark.parametrize(
    ("entity", "kind", "message"),
    [
        (Entity("db", "parts"), "major", "partition-unspecified: db.parts is partitioned"),
        (Entity("db", "plain"), "major", "not-transactional: db.plain isn't a transactional table"),
        (Entity("db", "single"), "major", "not-enough-to-compact: db.single: not enough to compact"),
    ],
)
def test_what_makes_no_sense_is_refused(world, table, entity, kind, message):
    """With a code and a sentence, before anything was begun; no transaction and no lock stay open."""
    world.table("parts", rows=0, partition_keys=[("p", "int")])
    world.table("plain", rows=0, transactional=False)
    world.table("single", rows=1, insert_only=True)
    world.settle_time()
    world.enqueue(entity, kind)
    assert f"refused: {message}" in world.worker().run_once().sentence
    ((state, stored),) = world.ended()
    assert state == "refused"
    assert (stored or "").startswith(message)
    assert world.services.locks.all() == []
    assert world.services.transactions.open_transactions() == []


@pytest.mark.parametrize(
    ("entity", "message"),
    [
        (Entity("db", "gone"), "table-missing: there is no table db.gone"),
        (Entity("db", "parts", "p=9"), "partition-missing: there is no partition db.parts/p=9"),
    ],
)
def test_what_is_missing_is_looked_for_again_for_five_minutes(world, entity, message):
    """It may be being renamed; a request by hand isn't lost for that."""
    world.table("parts", rows=0, partition_keys=[("p", "int")])
    world.settle_time()
    world.enqueue(entity)
    worker, began, said = world.worker(), world.services.backoff.clock(), []
    while not world.ended():
        said.append(worker.run_once().sentence)
        world.clock.forward(10)
    assert 300 <= world.services.backoff.clock() - began < 360
    assert f"given back: {message}" in said[0]
    assert f"refused: {message}" in said[-1]


def test_what_had_to_wait_before_is_looked_for_as_long(world):
    """However often the entry was given back for a lock: that says nothing of a rename."""
    world.table(rows=4)
    world.settle_time()
    world.enqueue(Entity("db", "t"))
    lock, worker = world.hive.lock("db.t", kind="e"), world.worker()
    for _ in range(6):
        assert "given back: lock-not-acquired" in worker.run_once().sentence
        world.clock.forward(700)
    world.hive.unlock(lock)
    world.hive.change(update(world.database.schema.tbls).values(tbl_name="renamed"))
    world.services.places.forget()
    assert "given back: table-missing" in worker.run_once().sentence
    world.clock.forward(700)
    assert "refused: table-missing" in worker.run_once().sentence


def test_a_rename_under_way_loses_no_request(any_world):
    """
    Hive 4 commits it in the queue first, Hive 3.1 in the catalog: in between, what was asked for isn't in the catalog.
    """
    world, (old, new) = any_world, ("p=1", "p=2")
    table = world.table(rows=0, partition_keys=[("p", "int")])
    for number in range(3):
        world.insert(table, [(number, "x")], ("1",))
    first, second = world.steps_of_a_rename(table, old, new)
    world.settle_time()
    world.enqueue(Entity("db", "t", old))
    (table.location / old).rename(table.location / new)
    first()
    worker = world.worker()
    assert "given back: partition-missing" in worker.run_once().sentence
    second()
    world.clock.forward(10)
    assert f"of db.t/{new}: published base_" in worker.run_once().sentence


def test_a_refusal_names_what_an_open_writer_holds_back(world):
    """The directories are there; the one message that is left tells why they don't count."""
    world.table(rows=0)
    world.warehouse.begin().insert(world.warehouse.tables["db.t"], [(1, "open")])
    for number in range(3):
        world.insert(world.warehouse.tables["db.t"], [(number, "done")])
    assert (
        "not enough to compact: no base, 0 deltas, 0 delete deltas, 0 original files; left out: delta_0000001_0000001_0000 ("
        in world.compact(world.warehouse.tables["db.t"])
    )


def test_a_refusal_leaves_no_aborted_transaction(world):
    """
    Nothing was marked under it: like Hive's worker, ours commits it, and SHOW TRANSACTIONS and the metrics of aborted
    ones stay clean.
    """
    world.table(rows=1, insert_only=True)
    world.settle_time()
    world.enqueue(T)
    opened = []
    world.at_step[steps.WORKER_TXN_OPENED] = lambda: opened.extend(
        txn.txn_id for txn in world.services.transactions.open_transactions()
    )
    assert "refused: not-enough-to-compact" in world.worker().run_once().sentence
    assert [world.services.transactions.state(txn_id).value for txn_id in opened] == ["committed"]


def test_two_time_zones_are_refused_on_hive_3_before_anything_runs(world_3):
    """
    Nothing was staged, no job was started, and the Worker says refused; so does the history, though Hive 3.1 has
    neither a state nor a column for that.
    """
    world, row = world_3, [("id", "int"), ("t", "timestamp")]
    table = world.table(rows=0, columns=row)
    for number in range(2):
        world.insert(table, [(number, (0, 0))])
    (bucket,) = table.location.glob("delta_0000001_*/bucket_00000")
    bucket.write_bytes(
        acid_file(rows_of(bucket.read_bytes()), row_type(row), timezone=zoneinfo.ZoneInfo("Asia/Kolkata"))
    )
    assert "refused: unsupported-format: db.t: bucket 0 has timestamps in time zone Asia/Kolkata" in world.compact(
        table
    )
    ((state, message),) = world.ended()
    assert (state, message[:20]) == ("refused", "unsupported-format: ")
    assert world.submitter.jobs == []
    assert steps.WORKER_STAGED not in world.passed


def test_a_sorted_table_is_refused(world, table):
    """Compaction would break the order that the table promises."""
    schema = world.database.schema
    sd_id = world.hive.rows(schema.tbls, "sd_id")[0][0]
    world.hive.change(insert(schema.sort_cols).values(sd_id=sd_id, column_name="id", order=1, integer_idx=0))
    assert "refused: sorted-table" in world.compact(table)


def test_nothing_to_compact_counts_against_no_table(any_world):
    """
    However often it was asked for by hand: the Initiator queues the table when it is due. Hive 3.1 has no state for it
    but succeeded.
    """
    world = any_world
    table = world.table(rows=1)
    for _ in range(3):
        assert "refused: not-enough-to-compact" in world.compact(table)
    assert {state for state, _ in world.ended()} == {"refused" if world.services.layout == "hive-4" else "succeeded"}
    assert world.states() == []
    for number in range(12):
        world.insert(table, [(100 + number, "x")])
    world.settle_time()
    assert "queued 1 of 1" in world.initiator().run_once().sentence


def test_an_entry_that_would_end_at_no_write_id_is_refused(any_world):
    """
    The table's first writer is still at work. Hive 3.1's own Cleaner takes an entry whose CQ_HIGHEST_WRITE_ID is 0 for
    one without an end.
    """
    world = any_world
    table = world.table(rows=0)
    world.hive.touch(world.hive.begin())
    assert "refused: not-enough-to-compact" in world.compact(table, "minor")
    assert world.states() == []


def test_an_exclusive_lock_is_waited_for(any_world):
    """
    However often: no lock, no compaction; the sentence names the lock, no transaction stays open, nothing is counted as
    failed; without the lock it is compacted.
    """
    world = any_world
    table = world.table(rows=3)
    world.settle_time()
    lock = world.hive.lock("db.t", kind="e")
    for _ in range(5):
        assert f": given back: lock-not-acquired: db.t is locked: lock {lock} (exclusive)" in (
            world.worker().run_once().sentence if world.states() else world.compact(table)
        )
        assert world.states() == ["initiated"]
        assert world.services.transactions.open_transactions() == []
        world.clock.forward(LONGEST_SECONDS * 2)
    assert world.ended() == []
    world.hive.unlock(lock)
    assert "published" in world.worker().run_once().sentence
    world.assert_rows()


def test_a_name_that_is_no_text_ends_its_entry(any_world):
    """A file whose name isn't UTF-8: the refusal names it by its bytes, and no claim stays; Python carries such bytes as characters that no database takes."""
    world = any_world
    table = world.table("t", rows=3)
    (table.location / os.fsdecode(b"caf\xe9.csv")).write_text("x")
    assert r"caf\xe9.csv" in world.compact(table)
    assert world.hive.rows(world.database.schema.compaction_queue, "cq_id") == []
    assert r"caf\xe9.csv" in str(world.services.queue.history()[0].error_message)
