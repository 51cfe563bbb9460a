"""Cleaner: what may go goes, what may be read stays, and the sentence says who is in the way."""

import shutil

import pytest
from sqlalchemy import delete, select, update

from compactor.demo.rows import CatalogRows
from compactor.metastore.model import Entity
from compactor.metastore.properties import encode_properties
from compactor.metastore.transactions import TxnState
from compactor.roles import steps
from tests.hive_merge import join_files
from tests.reference.compare import read_table

T = Entity("db", "t")


def hidden(table):
    return [path.name for path in table.location.iterdir() if path.name.startswith(".")]


def visible(table):
    return sorted(path.name for path in table.location.iterdir() if not path.name.startswith("."))


def bases(table):
    return [name for name in visible(table) if name.startswith("base_")]


def compacted(world, **options):
    """A table with four deltas and their base, ready for cleaning."""
    table = world.table(rows=4, insert_only=True, **options)
    world.compact(table)
    return table


def test_what_was_replaced_is_removed(any_world):
    """Only the base is left; the entry succeeded; the steps come in order; what the metastore kept about the writes is forgotten."""
    world = any_world
    table = compacted(world)
    world.passed.clear()
    assert world.clean().startswith("cleaned 1 entries, 4 directories, ")
    assert visible(table) == bases(table)
    assert len(bases(table)) == 1
    assert hidden(table) == []
    assert world.ended() == [("succeeded", None)]
    assert world.passed == list(steps.CLEANER_STEPS)
    assert world.hive.rows(world.database.schema.completed_txn_components, "ctc_writeid") == []
    world.assert_rows()
    assert world.services.metrics.registry.get_sample_value("compactor_cleaned_directories_total", {"kind": "delta"}) == 4


def test_nothing_to_clean_says_so(world):
    """One sentence, always the same."""
    assert world.clean() == "nothing to clean"


def test_a_reader_that_began_before_keeps_its_files(any_world):
    """A transaction that was open at the commit holds everything back, and the sentence names it with user, host and age; its end lets go."""
    world = any_world
    table = world.table(rows=4, insert_only=True)
    reader = world.hive.begin(user="ann", host="edge2", age=7_200_000)
    world.hive.lock("db.t", txn_id=reader)
    world.compact(table)
    snapshot_rows = world.rows(table)
    sentence = world.clean()
    assert f"1 wait: db.t (compaction 1): transaction {reader} of ann@edge2, open for 2 h" in sentence
    assert len(visible(table)) == 5
    assert world.states() == ["ready for cleaning"]
    assert world.services.metrics.registry.get_sample_value("compactor_cleaner_blocked_entries", {"reason": "open-transaction"}) == 1
    assert world.rows(table) == snapshot_rows
    world.hive.commit(reader)
    assert world.clean().startswith("cleaned 1 entries")
    assert world.services.metrics.registry.get_sample_value("compactor_cleaner_blocked_age_seconds") == 0


def test_a_reader_without_a_lock_keeps_its_files(any_world):
    """A query's snapshot is older than its lock: between the two only its transaction tells of it. Hive 3.1 would say that there isn't enough history."""
    world = any_world
    table = world.table(rows=4)
    world.compact(table)
    assert world.clean().startswith("cleaned 1 entries")
    open_one = world.warehouse.begin()
    open_one.insert(table, [(20, "open")])
    world.insert(table, [(21, "committed")])
    reader = world.hive.begin()
    snapshot = world.warehouse.snapshot(table)
    rows = read_table(world.warehouse, table, snapshot)
    open_one.commit()
    world.compact(table)
    later = world.hive.begin()
    assert f"transaction {reader} of" in world.clean()
    assert read_table(world.warehouse, table, snapshot) == rows
    world.hive.commit(reader)
    assert f"transaction {later} of" in world.clean()  # Hive 4: it saw the reader open; 3.1: it was there at first sight
    world.hive.begin()
    world.hive.commit(later)
    assert world.clean().startswith("cleaned 1 entries")


def test_a_reader_that_began_after_holds_nothing_back(any_world):
    """Whoever began after the commit reads the base."""
    world = any_world
    table = compacted(world)
    cleaner = world.cleaner()
    world.services.cleaning.ready_for_cleaning()  # 3.1: who is there at this moment counts
    reader = world.hive.begin(age=0)
    world.hive.lock("db.t", txn_id=reader)
    world.settle_time()
    assert cleaner.run_once().startswith("cleaned 1 entries")
    assert len(visible(table)) == 1


@pytest.mark.parametrize("partition", [None, "p=1"])
def test_a_lock_that_was_there_holds_back(any_world, partition):
    """A lock without transaction, on the partition or on the whole table, taken before the entry was ready."""
    world = any_world
    table = world.table(rows=0, insert_only=True, partition_keys=[("p", "int")])
    for number in range(4):
        world.insert(table, [(number, "x")], ("1",))
    lock = world.hive.lock("db.t", partition)
    world.compact(table, partition="p=1")
    assert f"lock {lock} (shared read)" in world.clean()
    world.hive.unlock(lock)
    assert world.clean().startswith("cleaned 1 entries, 4 directories")


def test_retention_keeps_files_for_readers_without_transactions(world):
    """Not before the time is over; the sentence says for how long."""
    table = compacted(world)
    world.configure(cleaner={"retention_seconds": 3600})
    assert "files are kept for another" in world.clean()
    assert len(visible(table)) == 5
    world.configure()
    assert world.clean().startswith("cleaned 1 entries")


def test_the_age_of_what_is_blocked_leaves_out_what_is_meant_to_wait(world):
    """With a reader in the way it is the time since the commit; within the retention alone nobody is in the way: 0."""
    table = world.table(rows=4, insert_only=True)
    reader = world.hive.begin()
    world.compact(table)
    queue = world.database.schema.compaction_queue
    world.hive.change(update(queue).values(cq_commit_time=queue.c.cq_commit_time - 60_000))
    world.configure(cleaner={"retention_seconds": 3600})
    value = world.services.metrics.registry.get_sample_value
    world.clean()
    assert (value("compactor_cleaner_blocked_age_seconds") or 0) >= 60
    world.hive.commit(reader)
    assert "files are kept for another" in world.clean()
    assert value("compactor_cleaner_blocked_entries", {"reason": "retention"}) == 1
    assert value("compactor_cleaner_blocked_age_seconds") == 0


def test_quarantine_keeps_what_was_removed_aside(world):
    """Out of every reader's sight, and still there for a human."""
    table = compacted(world)
    world.configure(cleaner={"quarantine": True})
    world.clean()
    assert len(visible(table)) == 1
    (kept,) = hidden(table)
    assert kept.startswith(".trash-compactor-1-")
    assert kept.endswith("-kept")
    assert len(list((table.location / kept).iterdir())) == 4
    assert world.ended() == [("succeeded", None)]
    world.assert_rows()


def test_no_cleanup_leaves_everything(world):
    """The property is obeyed, and the entry ends refused."""
    table = compacted(world, parameters={"no_cleanup": "true"})
    assert world.clean() == "ended 1 without cleaning"
    assert len(visible(table)) == 5
    assert world.ended()[0] == ("refused", "no-cleanup: no_cleanup is set for db.t: replaced files stay")


def test_a_source_of_replication_keeps_its_files(world):
    """Files would have to go to Hive's change management, which we can't do."""
    world.warehouse.create_database("db", {"repl.source.for": "policy"})
    table = compacted(world)
    assert world.clean() == "ended 1 without cleaning"
    assert len(visible(table)) == 5


def test_a_dropped_table_needs_no_cleaning(any_world):
    """Its entry succeeds, its directory isn't touched, its rows are forgotten."""
    world = any_world
    table = compacted(world)
    CatalogRows(world.database).drop_table(table)
    assert world.clean().startswith("cleaned 1 entries, 0 directories")
    assert len(visible(table)) == 5
    assert world.hive.rows(world.database.schema.completed_txn_components, "ctc_writeid") == []


def test_an_entry_whose_transaction_was_rolled_back_deletes_nothing(world):
    """HIVE-29572: marked ready, never committed: failed, and every file stays."""
    table = world.table(rows=4, insert_only=True)
    txn = world.hive.begin()
    world.hive.abort(txn)
    world.hive.queued("db.t", state="r", txn_id=txn, highest_write_id=4)
    assert world.clean() == "ended 1 without cleaning"
    assert len(visible(table)) == 4
    assert world.ended()[0][0] == "failed"
    assert "compaction-aborted" in (world.ended()[0][1] or "")


def test_the_message_of_a_failed_entry_is_the_one_that_made_it_fail(world):
    """It is also young and not the first of its table: what is stored is that its transaction was rolled back."""
    world.table(rows=4, insert_only=True)
    world.hive.queued("db.t", state="r", highest_write_id=2)
    txn = world.hive.begin()
    world.hive.abort(txn)
    world.hive.queued("db.t", state="r", txn_id=txn, highest_write_id=4)
    world.configure(cleaner={"retention_seconds": 3600})
    world.clean()
    assert world.ended() == [("failed", f"compaction-aborted: its own transaction {txn} was rolled back")]


def test_a_base_that_is_not_visible_to_all_replaces_nothing(world):
    """An uncommitted compaction's base stands there: the deltas stay."""
    table = world.table(rows=4, insert_only=True)
    txn = world.services.transactions.open_compaction("u", "h")
    base = table.location / f"base_0000004_v{txn:07d}"
    base.mkdir()
    (base / "000000_0").write_bytes(b"x")
    world.hive.queued("db.t", state="r", txn_id=txn, highest_write_id=4)
    assert f"its own transaction {txn} isn't committed yet" in world.clean()
    assert len(visible(table)) == 5


def test_two_entries_of_one_partition_are_cleaned_in_order(any_world):
    """The earlier one first, each up to what it covers; in two cycles."""
    world = any_world
    table = compacted(world)
    for number in (5, 6):
        world.insert(table, [(number, "x")])
    world.compact(table)
    assert world.states() == ["ready for cleaning"] * 2
    first = world.clean()
    assert first.startswith("cleaned 1 entries, 4 directories")
    assert "compaction 1 of the same table is cleaned first" in first
    assert world.clean().startswith("cleaned 1 entries, 3 directories")
    assert [name[:12] for name in visible(table)] == ["base_0000006"]
    world.assert_rows()


def test_what_cannot_be_explained_is_not_deleted(world):
    """A directory in the way of understanding: nothing is removed, the entry is tried again later and given up at last."""
    table = compacted(world)
    (table.location / "delta_what").mkdir()
    world.configure(cleaner={"retry_attempts": 1, "retry_seconds": 0.001})
    assert "1 failed: db.t: directory 'delta_what' starts like an ACID directory" in world.clean()
    assert len(visible(table)) == 6
    assert world.states() == ["ready for cleaning"]
    assert (world.services.queue.entries()[0].error_message or "").startswith("cleaning failed: ")
    world.hive.change(update(world.database.schema.compaction_queue).values(cq_retry_retention=0))
    cleaner = world.cleaner()
    for _ in range(3):
        world.hive.change(update(world.database.schema.compaction_queue).values(cq_retry_retention=0))
        cleaner.run_once()
    state, message = world.ended()[0]
    assert state == "failed"
    assert "given up after 2 attempts" in (message or "")
    assert len(visible(table)) == 6


def test_strangers_in_the_directory_are_left(world):
    """Names that no rule explains stay where they are while the rest is cleaned."""
    table = compacted(world)
    for name in (".hive-staging_x", "_tmp.x"):
        (table.location / name).mkdir()
        (table.location / name / "f").write_bytes(b"x")
    world.clean()
    assert {".hive-staging_x", "_tmp.x"} <= {path.name for path in table.location.iterdir()}
    assert len(bases(table)) == 1


def test_a_change_during_the_removal_puts_everything_back(world):
    """The table is dropped and created again while its files are in the trash: they come back, the entry stays."""
    table = compacted(world)
    before = visible(table)

    def recreate() -> None:
        world.table("other", rows=0)
        CatalogRows(world.database).drop_table(table)
        CatalogRows(world.database).add_table(table)

    world.at_step[steps.CLEANER_TRASHED] = recreate
    assert "was dropped, re-created or moved while it was cleaned; everything was put back" in world.clean()
    assert visible(table) == before
    assert hidden(table) == []
    assert world.states() == ["ready for cleaning"]


@pytest.mark.parametrize("step", [steps.CLEANER_SELECTED, steps.CLEANER_LISTED, steps.CLEANER_TRASHED, steps.CLEANER_COMPARED, steps.CLEANER_DELETED])
def test_a_cleaner_that_breaks_at_any_step_is_followed_by_one_that_finishes(any_world, step):
    """Whatever it left, the next cycle converges to the same end."""
    world = any_world
    table = compacted(world)

    def broken() -> None:
        raise KeyboardInterrupt

    world.at_step[step] = broken
    with pytest.raises(KeyboardInterrupt):
        world.clean()
    world.at_step.clear()
    world.assert_rows()
    world.clean()
    assert len(visible(table)) == 1
    assert hidden(table) == []
    assert world.ended() == [("succeeded", None)]
    world.assert_rows()


def test_staging_of_an_attempt_that_is_over_goes_first(world):
    """A directory of an entry that nobody works on is no longer a source for anybody's rename; one that is being worked on stays."""
    table = compacted(world)
    busy = world.hive.queued("db.t", state="w", worker_id="x", start=1)
    for name in (".compactor-1-abc", ".compactor-99-abc", f".compactor-{busy}-abc"):
        (table.location / name / "out").mkdir(parents=True)
    world.clean()
    assert hidden(table) == [f".compactor-{busy}-abc"]


# Aborted writes


def test_aborted_directories_go_with_the_compaction(any_world):
    """An aborted write below what a compaction covers: its directory and its row are gone after cleaning; the rows stay as they were."""
    world = any_world
    table = world.table(rows=2, insert_only=True)
    world.aborted_insert(table, [(9, "never")])
    for number in (3, 4):
        world.insert(table, [(number, "x")])
    world.compact(table)
    world.clean()
    assert visible(table) == bases(table)
    assert world.hive.rows(world.database.schema.txn_components, "tc_writeid") == []
    world.assert_rows()


def test_an_aborted_write_below_a_minor_is_not_taken_for_committed(any_world):
    """Its directory lies beside the minor's range: it is removed before anybody forgets that it was aborted."""
    world = any_world
    table = world.table(rows=0)
    world.aborted_insert(table, [(9, "never")])
    for number in range(4):
        world.insert(table, [(number, "x")])
    world.compact(table, "minor")
    world.clean()
    assert not [name for name in visible(table) if name.startswith("delta_0000001_0000001")]
    world.housekeeper().run_once()
    world.settle_time()
    world.assert_rows()


def test_many_aborted_writes_are_cleaned_without_a_compaction(any_world):
    """More than the threshold: their directories and their rows go; an open reader holds nothing up."""
    world = any_world
    table = world.table(rows=1, insert_only=True)
    world.hive.begin()
    for number in range(3):
        world.aborted_insert(table, [(number, "never")])
    world.configure(initiator={"thresholds": {"aborted_count": 2}})
    sentence = world.clean()
    assert "3 directories" in sentence
    assert "forgot 3 aborted writes" in sentence
    assert len(visible(table)) == 1
    world.assert_rows()


def test_few_and_young_aborted_writes_wait(world):
    """Below both thresholds nothing is done about them."""
    table = world.table(rows=1, insert_only=True)
    world.aborted_insert(table, [(1, "never")])
    assert world.clean() == "nothing to clean"
    assert len(visible(table)) == 2


def test_aborted_writes_among_committed_ones_stay_known(any_world):
    """A streaming delta with one aborted transaction: the directory stays, and so does the row that says which is aborted; it isn't tried every cycle."""
    world = any_world
    table = world.table(rows=0)
    batch = world.warehouse.stream(table, [[(1, "a")], [(2, "b")], [(3, "c")]])
    for index, commit in enumerate((True, False, True)):
        batch.finish(index, commit=commit)
    batch.close()
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    world.clean()
    assert len(visible(table)) == 1
    assert len(world.hive.rows(world.database.schema.txn_components, "tc_writeid")) == 1
    world.settle_time()
    world.assert_rows()
    assert world.services.aborts.groups(0, -1) == []


def stream_then_minor(world):
    """Two inserts, a stream whose second transaction was rolled back, and a minor compaction over all: ids 1 to 4, of which 4 is aborted."""
    table = world.table(rows=2)
    batch = world.warehouse.stream(table, [[(10, "a")], [(11, "ABORTED")]])
    batch.finish(0, commit=True)
    batch.finish(1, commit=False)
    batch.close()
    inputs = [path / "bucket_00000" for path in sorted(table.location.iterdir())]
    inputs = [path if path.exists() else path.with_name("bucket_00000_0") for path in inputs]
    kept = [path.read_bytes() for path in inputs]
    world.compact(table, "minor")
    (result,) = table.location.glob("delta_0000001_0000004_v*")
    copies = [world.folder / f"input{number}" for number in range(len(kept))]
    for path, data in zip(copies, kept, strict=True):
        path.write_bytes(data)
    return table, result, copies


def insert_and_forget(world, table):
    """A while later: another insert, and whatever may be forgotten is."""
    world.insert(table, [(12, "later")])
    world.settle_time()
    for _ in range(2):
        world.housekeeper().run_once()


@pytest.mark.parametrize("by", ["entry", "group"])
def test_aborted_rows_that_a_merge_compaction_kept_stay_aborted(world, by):
    """Hive's merge compaction leaves them in its result: the id stays known until a major compaction has taken them out, whichever cleaning comes by."""
    table, result, inputs = stream_then_minor(world)
    for path in result.iterdir():
        path.unlink()
    assert join_files(inputs, result / "bucket_00000")
    world.assert_rows()
    if by == "group":
        world.configure(initiator={"thresholds": {"aborted_count": 0}})
    world.clean()
    assert visible(table) == [result.name]
    insert_and_forget(world, table)
    world.assert_rows()
    world.compact(table)
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    world.hive.change(delete(world.database.schema.compaction_queue).where(world.database.schema.compaction_queue.c.cq_type == "c"))
    world.clean()
    insert_and_forget(world, table)
    world.assert_rows()
    assert world.hive.rows(world.database.schema.txn_components, "tc_writeid") == []


def test_aborted_rows_that_a_compaction_left_out_are_forgotten(world):
    """The keys in its result prove it, so the id needn't be kept until the next major compaction."""
    table, result, _ = stream_then_minor(world)
    world.clean()
    assert visible(table) == [result.name]
    assert world.hive.rows(world.database.schema.txn_components, "tc_writeid") == []
    insert_and_forget(world, table)
    world.assert_rows()


def test_ids_stay_known_where_a_result_cannot_be_read(world):
    """A damaged result proves nothing."""
    _, result, _ = stream_then_minor(world)
    (result / "bucket_00000").write_bytes(b"ORC, but not really")
    world.clean()
    assert len(world.hive.rows(world.database.schema.txn_components, "tc_writeid")) == 1


def test_an_aborted_insert_into_a_partition_that_never_was(any_world):
    """It left a directory and a row, but no partition: both go."""
    world = any_world
    table = world.table(rows=0, partition_keys=[("p", "int")], insert_only=True)
    world.insert(table, [(1, "x")], ("1",))
    world.aborted_insert(table, [(2, "never")], ("3",))
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    world.clean()
    assert list((table.location / "p=3").iterdir()) == []
    assert world.hive.rows(world.database.schema.txn_components, "tc_writeid") == []


def test_an_aborted_dynamic_insert_is_looked_for_in_every_partition(world):
    """Its row names no partition (Hive 4): the directories are found by their write id, and only then the row goes."""
    table = world.table(rows=0, partition_keys=[("p", "int")], insert_only=True)
    world.insert(table, [(1, "x")], ("1",))
    world.aborted_insert(table, [(2, "never")], ("1",))
    components = world.database.schema.txn_components
    world.hive.change(update(components).values(tc_partition=None))
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    assert "1 directories" in world.clean()
    assert [path.name for path in (table.location / "p=1").iterdir()] == ["delta_0000001_0000001_0000"]
    assert world.hive.rows(components, "tc_writeid") == []


def test_leftovers_of_an_aborted_compaction_go(world):
    """A published result whose transaction was rolled back, and the row that marked it, are removed like an aborted write's."""
    table = world.table(rows=2, insert_only=True)
    txn = world.hive.begin(kind=3, age=50_000_000)
    world.hive.touch(txn, "db.t", operation="c", write_id=2)
    world.hive.abort(txn)
    base = table.location / f"base_0000002_v{txn:07d}"
    base.mkdir()
    (base / "000000_0").write_bytes(b"x")
    world.clean()
    assert not base.exists()
    assert world.hive.rows(world.database.schema.txn_components, "tc_txnid") == []
    world.assert_rows()


def test_aborted_writes_among_replaced_ones_stay_known_while_they_may_be_read(any_world):
    """The streaming delta is replaced but not removed: a reader from before may ask only now which of its ids are aborted."""
    world = any_world
    table = world.table(rows=1)
    batch = world.warehouse.stream(table, [[(1, "a")], [(2, "b")], [(3, "c")]])
    for index, commit in enumerate((True, False, True)):
        batch.finish(index, commit=commit)
    batch.close()
    reader = world.hive.begin()
    world.hive.lock("db.t", txn_id=reader)
    world.compact(table)
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    components = world.database.schema.txn_components
    world.clean()
    assert len(visible(table)) > 1
    assert len(world.hive.rows(components, "tc_writeid")) == 1
    world.hive.commit(reader)
    world.clean()
    assert len(visible(table)) == 1
    assert world.hive.rows(components, "tc_writeid") == []


@pytest.mark.parametrize("keys", [None, [("p", "int")]])
def test_a_file_system_that_is_not_mounted_is_no_empty_table(any_world, keys):
    """Not even the directory above is there: nothing is known about what lies in it, so nothing is marked cleaned or forgotten; later it is."""
    world = any_world
    table = world.table(rows=0, insert_only=True, partition_keys=keys or [])
    partition = ("1",) if keys else None
    world.insert(table, [(1, "x")], partition)
    world.aborted_insert(table, [(2, "never")], partition)
    world.hive.queued("db.t/p=1" if keys else "db.t", state="r", highest_write_id=2)
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    above = world.folder / "warehouse"
    above.rename(world.folder / "elsewhere")
    above.mkdir()
    components = world.database.schema.txn_components
    world.clean()
    assert world.states()[0] == "ready for cleaning"
    assert world.hive.rows(components, "tc_writeid") == [(2,)]
    above.rmdir()
    (world.folder / "elsewhere").rename(above)
    world.clean()
    assert world.ended() == [("succeeded", None)]
    assert world.hive.rows(components, "tc_writeid") == []


def aborted_compaction(world, table, covered):
    """What a compaction left in part whose transaction was rolled back; returns the transaction and the directory."""
    txn = world.hive.begin(kind=3, age=50_000_000)
    world.hive.touch(txn, "db.t", operation="c", write_id=covered)
    world.hive.abort(txn)
    base = table.location / f"base_{covered:07d}_v{txn:07d}"
    base.mkdir()
    (base / "000000_0").write_bytes(b"x")
    return txn, base


def test_an_aborted_compaction_that_began_after_an_open_writer_stays_known(world):
    """An open writer keeps its result from being judged, so it stays; the row that marks it must stay too, or half a base would count as committed."""
    table = world.table(rows=2, insert_only=True)
    writer = world.hive.begin(age=60_000_000)
    world.hive.touch(writer, "db.t")
    txn, base = aborted_compaction(world, table, 2)
    components = world.database.schema.txn_components
    world.clean()
    assert base.exists()
    assert (txn,) in world.hive.rows(components, "tc_txnid")
    world.hive.commit(writer)
    world.clean()
    assert not base.exists()
    assert world.hive.rows(components, "tc_txnid") == []


def test_an_aborted_compaction_after_the_commit_stays_known_when_an_earlier_one_is_cleaned(world):
    """Cleaning an entry doesn't judge what later compactions left, and so must not forget that one of them was rolled back."""
    table = compacted(world)
    txn, base = aborted_compaction(world, table, 4)
    age = world.database.schema.txns
    world.hive.change(age.update().where(age.c.txn_id == txn).values(txn_started=world.services.now_ms()))
    assert world.clean().startswith("cleaned 1 entries, 4 directories")
    assert base.exists()
    assert world.hive.rows(world.database.schema.txn_components, "tc_txnid") == [(txn,)]


def test_an_aborted_insert_into_a_dropped_partition_stays_known(any_world):
    """The partition was compacted and dropped; then an insert into it failed and left a directory: the old entry's end doesn't make that one's rows committed."""
    world = any_world
    table = world.table(rows=0, partition_keys=[("p", "int")], insert_only=True)
    world.aborted_insert(table, [(2, "never")], ("3",))
    world.hive.queued("db.t/p=3", state="r", highest_write_id=1)
    assert world.clean().startswith("cleaned 1 entries")
    assert len(list((table.location / "p=3").iterdir())) == 1
    assert len(world.hive.rows(world.database.schema.txn_components, "tc_writeid")) == 1


@pytest.mark.parametrize("method", ["aborts", "table"])
def test_an_aborted_write_to_a_table_created_meanwhile_stays_known(any_world, monkeypatch, method):
    """The table was gone when it was looked for; after a long pause there is one of that name, with an aborted write of its own."""
    world = any_world
    world.hive.fail_write(age=50_000_000)
    if method == "table":
        world.hive.queued("db.t", state="r", highest_write_id=9)
        world.configure(initiator={"thresholds": {"aborted_age_hours": -1}})
    catalog = world.services.catalog
    gone = {"find_table": lambda *_: None, "facts_for": lambda *_: {}}
    for name, answer in gone.items():
        monkeypatch.setattr(catalog, name, answer)
    world.hive.create_table("db.t")
    world.clean()
    assert len(world.hive.rows(world.database.schema.txn_components, "tc_writeid")) == 1


def test_an_aborted_write_to_a_table_re_created_during_the_cleaning_stays_known(any_world):
    """Write ids begin again with a new table: what was known when the directories were judged is forgotten, and nothing that came later."""
    world = any_world
    world.table(rows=4, insert_only=True)
    world.hive.fail_write(age=50_000_000)
    schema = world.database.schema

    def re_created() -> None:
        world.at_step.clear()
        for rows in (schema.txn_components, schema.txn_to_write_id, schema.next_write_id):
            world.hive.change(rows.delete())
        world.hive.fail_write()

    world.at_step[steps.CLEANER_LISTED] = re_created
    world.clean()
    assert world.hive.rows(schema.txn_components, "tc_writeid") == [(1,)]


def test_a_failed_abort_cleaning_is_put_off(world):
    """Five minutes at first; the metastore carries the row that says so."""
    table = world.table(rows=1, insert_only=True)
    world.aborted_insert(table, [(1, "never")])
    (table.location / "delta_what").mkdir()
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    assert "1 failed: db.t" in world.clean()
    assert world.clean() == "nothing to clean"
    (row,) = world.hive.rows(world.database.schema.compaction_queue, "cq_type", "cq_retry_retention")
    assert row == ("c", 300_000)


# Dropped ones


def soft_deleted(world, table, partition=None):
    """Hive's entry for something that was dropped and left to the Cleaner."""
    location = table.location / partition if partition else table.location
    txn = world.hive.begin()
    world.hive.commit(txn)
    properties = encode_properties({"location": f"file:{location}", "ifPurge": "true"})
    number = world.hive.queued(
        "db.t" + (f"/{partition}" if partition else ""), state="r", highest_write_id=9, txn_id=txn, next_txn_id=txn, tblproperties=properties
    )
    world.hive.change(update(world.database.schema.compaction_queue).values(cq_commit_time=world.services.now_ms()))
    return number


def test_a_dropped_table_that_hive_left_is_removed(world):
    """The whole directory goes, in two steps as everything."""
    table = world.table(rows=2, insert_only=True)
    (table.location / "_tmp.x").mkdir()
    (table.location / "_tmp.x" / "f").write_bytes(b"x")
    CatalogRows(world.database).drop_table(table)
    soft_deleted(world, table)
    assert world.clean().startswith("cleaned 1 entries, 1 directories")
    assert not table.location.exists()
    assert world.names(table.location.parent) == []
    assert world.ended() == [("succeeded", None)]


def test_a_dropped_partition_that_hive_left_is_removed(world):
    """The table and its other partitions stay."""
    table = world.table(rows=0, insert_only=True, partition_keys=[("p", "int")])
    for value in ("1", "2"):
        world.insert(table, [(1, "x")], (value,))
    schema = world.database.schema
    gone = select(schema.partitions.c.part_id).where(schema.partitions.c.part_name == "p=1")
    world.hive.change(schema.partition_params.delete().where(schema.partition_params.c.part_id.in_(gone)))
    world.hive.change(schema.partition_key_vals.delete().where(schema.partition_key_vals.c.part_id.in_(gone)))
    world.hive.change(schema.partitions.delete().where(schema.partitions.c.part_name == "p=1"))
    soft_deleted(world, table, "p=1")
    world.clean()
    assert world.names(table.location) == ["p=2"]


def test_a_directory_that_is_used_again_is_not_removed(world):
    """The name was given to another table whose directory lies there: nothing is touched, and the reason is stored."""
    table = world.table(rows=2, insert_only=True)
    CatalogRows(world.database).drop_table(table)
    soft_deleted(world, table)
    world.hive.create_table("db.other", location=f"file:{table.location}/below")
    assert "but the catalog has file:" in world.clean()
    assert len(visible(table)) == 2
    assert world.states() == ["ready for cleaning"]


@pytest.mark.parametrize("step", [steps.CLEANER_TRASHED, steps.CLEANER_COMPARED])
def test_a_dropped_table_is_removed_after_a_crash(world, step):
    """What was cut off is found again beside it."""
    table = world.table(rows=2, insert_only=True)
    CatalogRows(world.database).drop_table(table)
    soft_deleted(world, table)

    def broken() -> None:
        raise KeyboardInterrupt

    world.at_step[step] = broken
    with pytest.raises(KeyboardInterrupt):
        world.clean()
    world.at_step.clear()
    world.clean()
    assert world.names(table.location.parent) == []
    assert world.ended() == [("succeeded", None)]


def unmounted(world):
    """The warehouse's file system isn't mounted: an empty mount point."""
    warehouse = world.folder / "warehouse"
    warehouse.rename(world.folder / "elsewhere")
    warehouse.mkdir()


def mounted(world):
    warehouse = world.folder / "warehouse"
    shutil.rmtree(warehouse)
    (world.folder / "elsewhere").rename(warehouse)


def drop_database(world, name):
    schema = world.database.schema
    numbers = select(schema.dbs.c.db_id).where(schema.dbs.c.name == name)
    world.hive.change(schema.database_params.delete().where(schema.database_params.c.db_id.in_(numbers)))
    world.hive.change(schema.dbs.delete().where(schema.dbs.c.name == name))


@pytest.mark.parametrize("what", ["table", "database"])
@pytest.mark.parametrize("beside", [True, False])
def test_a_dropped_table_on_a_file_system_that_is_not_mounted_waits(world, what, beside):
    """Its directory can't be seen, nor the one above, nor anything that the catalog has near it: the entry waits, says so, and removes it afterwards."""
    table = world.table(rows=2, insert_only=True)
    if beside:
        world.table("u", rows=1, database="other")
    CatalogRows(world.database).drop_table(table)
    if what == "database":
        drop_database(world, "db")
    soft_deleted(world, table)
    unmounted(world)
    for _ in range(2):
        assert "is the file system mounted?" in world.clean()
        assert world.states() == ["ready for cleaning"]
    mounted(world)
    assert world.clean().startswith("cleaned 1 entries, 1 directories")
    assert not table.location.exists()


@pytest.mark.parametrize("near", ["beside", "around"])
def test_a_database_that_was_dropped_with_its_tables_needs_no_waiting(world, near):
    """DROP DATABASE CASCADE took the directory above as well: another database's is seen where it lay, so the file system is there."""
    table = world.table(rows=2, insert_only=True)
    world.table("u", rows=1, database="other")
    CatalogRows(world.database).drop_table(table)
    drop_database(world, "db")
    soft_deleted(world, table)
    shutil.rmtree(table.location.parent)
    if near == "around":
        dbs = world.database.schema.dbs
        world.hive.change(update(dbs).where(dbs.c.name == "other").values(db_location_uri=f"file:{world.folder}/warehouse"))
        if "db_managed_location_uri" in dbs.c:
            world.hive.change(update(dbs).where(dbs.c.name == "other").values(db_managed_location_uri=None))
    assert world.clean().startswith("cleaned 1 entries, 0 directories")


def test_a_dropped_partition_whose_parents_were_removed_needs_no_waiting(world):
    """Hive removes directories between a table and its partitions when they are empty: the table's own tells that the file system is there."""
    table = world.table(rows=0, insert_only=True, partition_keys=[("p", "int"), ("q", "int")])
    soft_deleted(world, table, "p=1/q=1")
    assert world.clean().startswith("cleaned 1 entries, 0 directories")


def test_a_re_created_table_is_not_robbed(world):
    """The entry names the directory that the new table uses: it is cleaned like any other, only what is replaced goes."""
    table = world.table(rows=2, insert_only=True)
    soft_deleted(world, table)
    world.clean()
    assert len(visible(table)) == 2
    assert world.services.transactions.state(1) is not TxnState.OPEN
