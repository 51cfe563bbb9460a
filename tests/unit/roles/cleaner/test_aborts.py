"""Cleaner and aborted writes: their directories go, and only then is it forgotten that they were aborted."""

import pytest
from sqlalchemy import update

from compactor.metastore.clean.aborts import Aborts
from compactor.planning.eligibility import RENAME_SECONDS
from compactor.roles import steps
from compactor.roles.cleaner.cleaner import Cleaner
from tests.unit.roles.tables import bases, compacted, visible


def test_aborted_directories_go_with_the_compaction(any_world):
    """
    An aborted write below what a compaction covers: its directory and its row are gone after cleaning; the rows stay as
    they were.
    """
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


def test_the_tables_of_a_cycle_share_a_snapshot(world, monkeypatch):
    """For some seconds, however many are begun; the next cycle takes one of its own."""
    tables = [world.table(rows=1, name=f"t{number}", insert_only=True) for number in range(3)]
    for table in tables:
        world.aborted_insert(table, [(7, "never")])
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    world.settle_time()
    taken, snapshot = [], Aborts.snapshot

    def note(aborts):
        taken.append(snapshot(aborts))
        return taken[-1]

    monkeypatch.setattr(Aborts, "snapshot", note)
    cleaner = Cleaner(world.services, clock=world.clock)
    assert "forgot 3 aborted writes" in cleaner.run_once().sentence
    assert len(taken) == 1
    world.aborted_insert(tables[0], [(8, "never")])
    assert "forgot 1 aborted write" in cleaner.run_once().sentence
    assert len(taken) == 2
    world.assert_rows()


def test_aborted_writes_wait_for_those_who_may_be_listing(any_world):
    """
    Readers see nothing of them; but one that lists while a directory goes may take all for empty. A lock holds them up,
    for ten minutes at most.
    """
    world = any_world
    table = world.table(rows=1, insert_only=True)
    world.aborted_insert(table, [(1, "never")])
    lock = world.hive.lock("db.t")
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    world.settle_time()
    cleaner = Cleaner(world.services, clock=world.clock)
    assert (
        f"1 wait: db.t (aborted writes): lock {lock} (shared read) on db.t by bob@client may be listing; waited for at most another 10 min"
        in cleaner.run_once().sentence
    )
    assert len(visible(table)) == 2
    world.clock.forward(601)
    assert "forgot 1 aborted write" in cleaner.run_once().sentence
    assert len(visible(table)) == 1


def test_aborted_writes_are_put_back_for_those_who_may_be_listing(any_world):
    """
    Whoever took a lock between the look and the deletion may have listed before the move. That is no failure: as soon
    as there is no lock it is tried again.
    """
    world = any_world
    table = world.table(rows=1, insert_only=True)
    world.aborted_insert(table, [(1, "never")])
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    world.settle_time()
    cleaner, locks = Cleaner(world.services, clock=world.clock), []
    world.at_step[steps.CLEANER_TRASHED] = lambda: locks.append(world.hive.lock("db.t"))
    sentence = cleaner.run_once().sentence
    assert "1 wait: db.t (aborted writes): lock " in sentence
    assert sentence.endswith("everything was put back")
    assert len(visible(table)) == 2
    world.hive.unlock(locks.pop())
    world.at_step.clear()
    world.clock.forward(5)
    assert "forgot 1 aborted write" in cleaner.run_once().sentence


def test_aborted_writes_do_not_wait_for_ever_for_those_who_come_and_go(any_world):
    """Somebody takes a lock each time just when something is moved: after ten minutes it is removed all the same."""
    world = any_world
    table = world.table(rows=1, insert_only=True)
    world.aborted_insert(table, [(1, "never")])
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    world.settle_time()
    cleaner, locks = Cleaner(world.services, clock=world.clock), []
    world.at_step[steps.CLEANER_TRASHED] = lambda: locks.append(world.hive.lock("db.t"))
    for _ in range(2):
        assert "may be listing" in cleaner.run_once().sentence
        world.hive.unlock(locks.pop())
        world.clock.forward(301)
    assert "forgot 1 aborted write" in cleaner.run_once().sentence


def test_a_table_of_which_one_partition_was_put_back_is_gone_on_with(world):
    """Nothing else of it is begun in that cycle, and nothing forgotten; the next one sweeps what is left."""
    table = world.table(rows=0, partition_keys=[("p", "int")], insert_only=True)
    for number in range(3):
        world.aborted_insert(table, [(number, "never")], (str(number),))
    world.configure(cleaner={"threads": 1}, initiator={"thresholds": {"aborted_count": 0}})
    world.settle_time()
    cleaner, passed, locks = Cleaner(world.services, clock=world.clock), [], []

    def come_second():
        passed.append(sorted(path.parent.name for path in table.location.glob("p=*/delta_*")))
        if len(passed) == 2:
            locks.append(world.hive.lock("db.t"))

    world.at_step[steps.CLEANER_TRASHED] = come_second
    assert "1 wait: db.t (aborted writes): lock " in cleaner.run_once().sentence
    assert passed == [["p=1", "p=2"], ["p=2"]]
    assert sorted(path.parent.name for path in table.location.glob("p=*/delta_*")) == ["p=1", "p=2"]
    world.hive.unlock(locks.pop())
    assert "forgot 3 aborted writes" in cleaner.run_once().sentence
    assert not list(table.location.glob("p=*/delta_*"))


def test_a_lock_on_the_database_holds_no_aborted_writes_up(any_world):
    """A CREATE TABLE AS has one until its end, and others on the tables that it reads."""
    world = any_world
    table = world.table(rows=1, insert_only=True)
    world.aborted_insert(table, [(1, "never")])
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    world.hive.lock("db.")
    assert "forgot 1 aborted write" in world.clean()


def test_what_was_aborted_while_another_was_the_cleaner_waits_anew(world):
    """That something was due before, and for how long, tells nothing of those who may be listing now."""
    table = world.table(rows=1, insert_only=True)
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    lock = world.hive.lock("db.t")
    world.aborted_insert(table, [(1, "never")])
    world.settle_time()
    cleaner = Cleaner(world.services, clock=world.clock)
    assert "may be listing" in cleaner.run_once().sentence
    cleaner.no_turn()
    world.hive.unlock(lock)
    assert "forgot 1 aborted write" in world.clean()
    world.clock.forward(3600)
    world.aborted_insert(table, [(2, "never")])
    world.settle_time()
    world.hive.lock("db.t")
    assert "may be listing; waited for at most another 10 min" in cleaner.run_once().sentence


def test_few_and_young_aborted_writes_wait(world):
    """Below both thresholds nothing is done about them."""
    table = world.table(rows=1, insert_only=True)
    world.aborted_insert(table, [(1, "never")])
    assert world.clean() == "nothing to clean"
    assert len(visible(table)) == 2


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
    assert "1 directory" in world.clean()
    assert [path.name for path in (table.location / "p=1").iterdir()] == ["delta_0000001_0000001_0000"]
    assert world.hive.rows(components, "tc_writeid") == []


def test_leftovers_of_an_aborted_compaction_go(world):
    """
    A published result whose transaction was rolled back, and the row that marked it, are removed like an aborted
    write's.
    """
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


@pytest.mark.parametrize("keys", [None, [("p", "int")]])
def test_a_file_system_that_is_not_mounted_is_no_empty_table(any_world, keys):
    """
    Not even the directory above is there: nothing is known about what lies in it, so nothing is marked cleaned or
    forgotten; later it is.
    """
    world = any_world
    table = world.table(rows=0, insert_only=True, partition_keys=keys or [])
    partition = ("1",) if keys else None
    world.insert(table, [(1, "x")], partition)
    world.aborted_insert(table, [(2, "never")], partition)
    world.hive.queued("db.t/p=1" if keys else "db.t", state="r", highest_write_id=2)
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    world.unmount()
    components = world.database.schema.txn_components
    world.clean()
    assert world.states()[0] == "ready for cleaning"
    assert set(world.hive.rows(components, "tc_writeid")) == {(2,)}
    world.mount()
    world.services.aborts._put_off.clear()  # five minutes later, on Hive 3.1
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
    """
    An open writer keeps its result from being judged, so it stays; the row that marks it must stay too, or half a base
    would count as committed.
    """
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
    """
    Cleaning an entry doesn't judge what later compactions left, and so must not forget that one of them was rolled
    back.
    """
    table = compacted(world)
    txn, base = aborted_compaction(world, table, 4)
    age = world.database.schema.txns
    world.hive.change(age.update().where(age.c.txn_id == txn).values(txn_started=world.services.now_ms()))
    assert world.clean().startswith("cleaned 1 entry, 4 directories")
    assert base.exists()
    assert world.hive.rows(world.database.schema.txn_components, "tc_txnid") == [(txn,)]


def test_an_aborted_insert_into_a_dropped_partition_stays_known(any_world):
    """
    The partition was compacted and dropped; then an insert into it failed and left a directory: the old entry's end
    doesn't make that one's rows committed.
    """
    world = any_world
    table = world.table(rows=0, partition_keys=[("p", "int")], insert_only=True)
    world.aborted_insert(table, [(2, "never")], ("3",))
    world.hive.queued("db.t/p=3", state="r", highest_write_id=1)
    world.settle_time()
    cleaner = Cleaner(world.services, clock=world.clock)
    assert "isn't in the catalog" in cleaner.run_once().sentence
    world.clock.forward(RENAME_SECONDS)
    assert cleaner.run_once().sentence.startswith("cleaned 1 entry")
    assert len(list((table.location / "p=3").iterdir())) == 1
    assert set(world.hive.rows(world.database.schema.txn_components, "tc_writeid")) == {(1,)}


@pytest.mark.parametrize("method", ["aborts", "table"])
def test_an_aborted_write_to_a_table_created_meanwhile_stays_known(any_world, monkeypatch, method):
    """
    The table was gone when it was looked for; after a long pause there is one of that name, with an aborted write of
    its own.
    """
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
    """
    Write ids begin again with a new table: what was known when the directories were judged is forgotten, and nothing
    that came later.
    """
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


@pytest.mark.parametrize("by", ["entry", "group"])
def test_an_aborted_writer_that_still_writes_stays_known(any_world, by):
    """
    It was only asleep: its directory is there again right after it was removed, and as long as that is so its rows must
    count as aborted.
    """
    world = any_world
    table = world.table(rows=3, insert_only=True)
    world.aborted_insert(table, [(9, "never")])
    aborted = table.location / visible(table)[-1]
    if by == "entry":
        world.compact(table)
    else:
        world.configure(initiator={"thresholds": {"aborted_count": 0}})

    def woken() -> None:
        aborted.mkdir()
        (aborted / "000000_0").write_bytes(b"never")

    world.at_step[steps.CLEANER_DELETED] = woken
    world.clean()
    assert aborted.exists()
    assert world.hive.rows(world.database.schema.txn_components, "tc_writeid") == [(4,)]


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


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("together", ["1 2 3", "12 3", "123"])
def test_nothing_waits_for_what_was_forgotten(world, together, late):
    """
    Rows of aborted writes among committed ones in three partitions, compacted one after the other: at the end no entry
    is left that nobody would come to, and none for what only stays known because its tasks may write.
    """
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    world.late_writers = late
    table = world.table(rows=0, partition_keys=[("p", "int")])
    for partition in "123":
        world.insert(table, [(1, "x"), (2, "x")], (partition,))
        batch = world.warehouse.stream(table, [[(number, "x")] for number in range(3, 7)], (partition,))
        for index in range(4):
            batch.finish(index, commit=index % 2 == 0)
    world.clean()
    assert [entry.kind.value for entry in world.services.queue.entries()] == ["abort-cleanup"] * 3
    for partitions in together.split():
        for partition in partitions:
            world.compact(table, partition=f"p={partition}")
        world.clean()
    assert bool(world.hive.rows(world.database.schema.txn_components, "tc_writeid")) is late
    assert world.services.queue.entries() == []
    world.assert_rows()


def test_what_was_aborted_is_not_forgotten_while_its_tasks_run(any_world):
    """
    An INSERT began 13 hours ago and was rolled back a minute ago; a compaction is cleaned, the aborted directory goes,
    and then its tasks write again. No purge made its rows count as committed. A day later its second directory goes,
    too, and it is forgotten.
    """
    world = any_world
    table = world.table(rows=2, insert_only=True)
    world.late_writers = True
    before = visible(table)
    world.hive.fall_silent(world.aborted_insert(table, [(9, "never")]), 60_000)
    (name,) = set(visible(table)).difference(before)
    written = {path.name: path.read_bytes() for path in (table.location / name).iterdir()}
    for number in (3, 4):
        world.insert(table, [(number, "x")])
    world.compact(table, "minor" if world.services.layout == "hive-4" else "major")
    settings = {"initiator": {"thresholds": {"aborted_count": 0}}, "cleaner": {"listing_wait_seconds": 0}}
    world.configure(**settings)
    sentences = [world.clean() for _ in range(2)]
    assert not any("forgot" in sentence for sentence in sentences), sentences
    assert name not in visible(table)
    world.housekeeper().run_once()
    world.assert_rows()
    (table.location / name).mkdir()
    for file, content in written.items():
        (table.location / name / file).write_bytes(content)
    world.assert_rows()
    world.outlive()
    world.services = world.new_services()
    world.configure(**settings)
    assert "forgot 1 aborted write" in world.clean()
    assert name not in visible(table)
    world.assert_rows()
