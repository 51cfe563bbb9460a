"""Cleaner: what may still be read, or was never committed, stays; and the sentence says who is in the way."""

import pytest
from sqlalchemy import update
from structlog.testing import capture_logs

from tests.reference.compare import read_table
from tests.unit.roles.tables import bases, compacted, visible


def test_a_reader_that_began_before_keeps_its_files(any_world):
    """
    A transaction that was open at the commit holds everything back, and the sentence names it with user, host and age;
    its end lets go.
    """
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
    assert (
        world.services.metrics.registry.get_sample_value(
            "compactor_cleaner_blocked_entries", {"reason": "open-transaction"}
        )
        == 1
    )
    assert world.rows(table) == snapshot_rows
    world.hive.commit(reader)
    assert world.clean().startswith("cleaned 1 entry")
    assert world.services.metrics.registry.get_sample_value("compactor_cleaner_blocked_age_seconds") == 0


def test_a_reader_without_a_lock_keeps_its_files(any_world):
    """
    A query's snapshot is older than its lock: between the two only its transaction tells of it. Hive 3.1 would say that
    there isn't enough history.
    """
    world = any_world
    table = world.table(rows=4)
    world.compact(table)
    assert world.clean().startswith("cleaned 1 entry")
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
    assert (
        f"transaction {later} of" in world.clean()
    )  # Hive 4: it saw the reader open; 3.1: it was there at first sight
    world.hive.begin()
    world.hive.commit(later)
    assert world.clean().startswith("cleaned 1 entry")


def test_a_reader_that_began_after_holds_nothing_back(any_world):
    """Whoever began after the commit reads the base."""
    world = any_world
    table, cleaner, _ = _with_a_later_reader(world)
    world.configure(cleaner={"listing_wait_seconds": 0})
    assert cleaner.run_once().sentence.startswith("cleaned 1 entry")
    assert len(visible(table)) == 1


def _with_a_later_reader(world):
    """A compaction that was seen ready, and then a reader: the table, the Cleaner, the reader's transaction."""
    table = compacted(world)
    cleaner = world.cleaner()
    world.services.cleaning.ready_for_cleaning()  # 3.1: who is there at this moment counts
    reader = world.hive.begin(age=0)
    world.hive.lock("db.t", txn_id=reader)
    world.settle_time()
    return table, cleaner, reader


def test_a_reader_that_may_be_listing_is_waited_for(any_world):
    """
    It reads nothing of what is removed; but Hive 4.0 takes a partition for empty when a directory goes while it lists.
    The sentence says for how long at most.
    """
    world = any_world
    table, cleaner, reader = _with_a_later_reader(world)
    sentence = cleaner.run_once().sentence
    assert f"of transaction {reader} by bob@client may be listing; waited for at most another 9 min" in sentence
    assert len(visible(table)) == 5
    assert (
        world.services.metrics.registry.get_sample_value(
            "compactor_cleaner_blocked_entries", {"reason": "may-be-listed"}
        )
        == 1
    )
    assert world.services.metrics.registry.get_sample_value("compactor_cleaner_blocked_age_seconds") == 0
    world.hive.commit(reader)
    assert cleaner.run_once().sentence.startswith("cleaned 1 entry")


def test_those_who_may_be_listing_are_not_waited_for_for_ever(any_world, monkeypatch):
    """A table on which somebody always has a lock is cleaned ten minutes after nothing else was in the way."""
    world = any_world
    _, cleaner, _ = _with_a_later_reader(world)
    cleaner.run_once()
    now_ms = world.database.now_ms
    monkeypatch.setattr(world.database, "now_ms", lambda connection: now_ms(connection) + 601_000)
    assert cleaner.run_once().sentence.startswith("cleaned 1 entry")


def test_what_holds_an_entry_is_logged_once(world):
    """Not again because the transaction is older by then, but when another one holds it."""
    table = world.table(rows=4)
    first, second = (world.hive.begin(user=user) for user in ("ann", "bob"))
    world.compact(table)
    cleaner, told = world.cleaner(), []
    for _ in range(2):
        for _ in range(2):
            with capture_logs() as lines:
                cleaner.run_once()
            told += [line["why"].partition(",")[0] for line in lines if line["event"] == "cleaning.blocked"]
            world.settle_time()
        world.hive.commit(first)
    assert told == [f"transaction {first} of ann@client", f"transaction {second} of bob@client"]


def test_the_wait_for_listings_begins_when_nothing_else_is_in_the_way(any_world, monkeypatch):
    """However long another reader held the entry up: whoever lists when that one ends is waited for."""
    world = any_world
    table = world.table(rows=4, insert_only=True)
    before = world.hive.begin(age=0)
    world.compact(table)
    cleaner = world.cleaner()
    assert f"transaction {before}" in cleaner.run_once().sentence
    now_ms = world.database.now_ms
    monkeypatch.setattr(world.database, "now_ms", lambda connection: now_ms(connection) + 3_600_000)
    world.hive.commit(before)
    later = world.hive.lock("db.t")
    assert f"lock {later} (shared read) on db.t by bob@client may be listing" in cleaner.run_once().sentence


def test_the_waits_for_listings_do_not_add_up(any_world, monkeypatch):
    """
    Where somebody always has a lock, and something is compacted more often than every ten minutes, there would be more
    and more entries for ever.
    """
    world = any_world
    table = compacted(world)
    for number in (7, 8):
        world.insert(table, [(number, "later")])
    world.compact(table)
    cleaner = world.cleaner()
    world.services.cleaning.ready_for_cleaning()
    world.settle_time()
    world.hive.lock("db.t")
    assert cleaner.run_once().sentence.startswith("2 wait: ")
    now_ms = world.database.now_ms
    monkeypatch.setattr(world.database, "now_ms", lambda connection: now_ms(connection) + 601_000)
    assert cleaner.run_once().sentence.startswith("cleaned 1 entry")
    assert cleaner.run_once().sentence.startswith("cleaned 1 entry")


def test_a_lock_on_the_database_is_no_reader_of_its_tables(any_world):
    """A CREATE TABLE AS has one until its end, and others on the tables that it reads."""
    world = any_world
    compacted(world)
    world.services.cleaning.ready_for_cleaning()
    world.settle_time()
    world.hive.lock("db.")
    assert world.cleaner().run_once().sentence.startswith("cleaned 1 entry")


def test_a_reader_that_comes_while_files_are_moved_finds_them_again(any_world):
    """
    Whoever took a lock between the look and the deletion may have listed before the move: everything is put back, and
    tried again. Nothing has failed.
    """
    world = any_world
    table = compacted(world)
    cleaner = world.cleaner()
    world.settle_time()
    world.at_step["cleaner.trashed"] = lambda: world.hive.lock("db.t", txn_id=0)
    sentence = cleaner.run_once().sentence
    assert sentence.startswith("1 wait: db.t (compaction 1): lock ")
    assert sentence.endswith(" was taken while it was cleaned; everything was put back")
    assert len(visible(table)) == 5
    assert world.states() == ["ready for cleaning"]


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
    assert world.clean().startswith("cleaned 1 entry, 4 directories")


def test_retention_keeps_files_for_readers_without_transactions(world):
    """Not before the time is over; the sentence says for how long."""
    table = compacted(world)
    world.configure(cleaner={"retention_seconds": 3600})
    assert "files are kept for another" in world.clean()
    assert len(visible(table)) == 5
    world.configure()
    assert world.clean().startswith("cleaned 1 entry")


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


def test_what_a_reader_does_not_see_replaces_nothing_for_it(world):
    """
    A minor, a reader, a major of the same write ids: when the minor's entry is cleaned the reader needs the minor's
    result, which the major has replaced for others.
    """
    table = world.table(rows=3)
    world.delete(table, 0)
    world.compact(table, "minor")
    world.settle_time()
    reader = world.hive.begin()
    world.hive.queued("db.t", type="a")  # as an older client queues it: ours refuses before the first is cleaned
    world.worker().run_once()
    world.settle_time()
    assert len(bases(table)) == 1
    (needed,) = table.location.glob("delta_0000001_0000004_v*")
    world.clean()
    assert needed.exists()
    assert not (table.location / "delta_0000001_0000001_0000").exists()
    world.hive.commit(reader)
    world.clean()
    world.clean()
    assert visible(table) == bases(table)
    world.assert_rows()
