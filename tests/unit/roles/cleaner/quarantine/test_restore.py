"""A compaction undone from quarantine: readers see the same rows before, between any two renames, and after."""

import pytest

from compactor.acid.names import TRASH_PREFIX
from compactor.errors import OwnershipLostError, RefusedError
from compactor.metastore.model import Entity
from compactor.reasons import Reason
from compactor.roles.cleaner.quarantine.manifest import MANIFEST
from compactor.roles.cleaner.quarantine.restore import Restore


def undoing(world, table, partition=None, passed=None):
    """The restore of a table or partition, and what is in quarantine there; `passed` is told of its steps."""
    ((found, part),) = world.services.catalog.facts_for([Entity(table.database, table.name, partition)]).values()
    work = Restore(
        world.services,
        found,
        part,
        part.location if part else found.location,
        passed=passed or (lambda step: world.at_step.get(step, lambda: None)()),
    )
    return work, work.kept()


def replaced(world, kind="major", *, insert_only=False, partition_keys=(), rows=3, delete=True, **options):
    """A compacted table of which the Cleaner has put everything replaced into quarantine."""
    world.configure(cleaner={"quarantine_hours": 1})
    table = world.table(rows=rows, insert_only=insert_only, partition_keys=partition_keys, **options)
    if delete and not insert_only:
        world.delete(table, 1)
    world.compact(table, kind)
    world.clean()
    return table


def tree(location):
    """Every path below, with its length."""
    return sorted(
        (str(path.relative_to(location)), path.stat().st_size) for path in location.rglob("*") if path.is_file()
    )


def visible(table):
    return sorted(path.name for path in table.location.iterdir() if not path.name.startswith("."))


def refused(world, table, *words, reason=Reason.NOT_RESTORABLE):
    """That it is refused for this reason, and that nothing has changed."""
    before = tree(table.location)
    work, (kept,) = undoing(world, table)
    with pytest.raises(RefusedError) as caught:
        work.run(kept)
    assert caught.value.reason is reason, caught.value
    assert all(word in str(caught.value) for word in words), caught.value
    assert tree(table.location) == before


def test_a_partition_is_as_if_the_compaction_had_not_been(any_world):
    """On each metastore: the deltas are back, the base is in quarantine, no lock or transaction is left."""
    world = any_world
    table = replaced(world)
    before = world.rows(table)
    work, (kept,) = undoing(world, table)
    undo = work.run(kept)
    assert visible(table) == sorted(undo.manifest.read_before)
    assert undo.away.startswith("base_")
    world.assert_rows()
    assert world.rows(table) == before
    (aside,) = undoing(world, table)[1]
    assert aside.manifest.taken_back
    assert world.services.locks.all() == []
    assert world.services.transactions.open_transactions() == []
    assert ": published " in world.compact(table)
    world.assert_rows()


@pytest.mark.parametrize("insert_only", [False, True])
def test_readers_see_the_same_between_any_two_renames(world, insert_only):
    """After each single rename a new reader reads the same rows."""
    table = replaced(world, insert_only=insert_only)
    before, seen = world.rows(table), []
    for step in ("opened", "moved", "taken"):
        world.at_step[step] = lambda: seen.append(world.rows(table))
    work, (kept,) = undoing(world, table)
    undo = work.run(kept)
    assert len(seen) == len(undo.back) + 2
    assert all(rows == before for rows in seen)


@pytest.mark.parametrize("moved", range(5))
def test_a_restore_that_was_killed_is_finished_by_the_next(world, moved):
    """After any number of renames: the rows are the same, and a second run ends as the first would have."""
    table = replaced(world)
    before, count = world.rows(table), iter(range(9))

    def broken():
        if next(count) == moved:
            raise KeyboardInterrupt

    world.at_step = {"opened": broken, "moved": broken}
    work, (kept,) = undoing(world, table)
    with pytest.raises(KeyboardInterrupt):
        work.run(kept)
    world.at_step.clear()
    assert world.rows(table) == before
    undo = work.run(next(one for one in work.kept() if one.name == kept.name))
    assert visible(table) == sorted(undo.manifest.read_before)
    assert world.rows(table) == before


@pytest.mark.parametrize("who", ["second run", "cleaner"])
def test_killed_right_after_the_last_rename_it_is_ended_by_the_next(world, monkeypatch, who):
    """The result never comes back, and becomes quarantine."""
    table = replaced(world)
    before = world.rows(table)
    work, (kept,) = undoing(world, table)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("compactor.roles.cleaner.quarantine.restore.settle_undo", killed)
        with pytest.raises(KeyboardInterrupt):
            work.run(kept)
    assert any(name.endswith("-undo") for name in (path.name for path in table.location.iterdir()))
    assert world.rows(table) == before
    if who == "second run":
        work.settle()
        (aside,) = work.kept()
        assert aside.manifest.taken_back
    else:
        world.insert(table, [(77, "x")])
        world.compact(table)
        world.clean()
    assert not any(path.name.endswith("-undo") for path in table.location.iterdir())
    world.assert_rows()


def test_the_result_is_back_at_once_if_what_it_replaced_went(world):
    """A Cleaner of Hive's knows no sign of ours: it may remove what is back while the process is stopped."""
    table = replaced(world)
    before = world.rows(table)
    work, (kept,) = undoing(world, table)
    undo = work.plan(kept)
    sign = f"{TRASH_PREFIX}1-12345678-undo"
    (table.location / sign).mkdir()
    with pytest.raises(RefusedError, match="is back in its place") as caught:
        work._take_away(undo, sign)
    assert caught.value.reason is Reason.INPUT_CHANGED
    assert world.rows(table) == before


def test_a_partition_is_restored_while_others_are_written(any_world):
    """Commits, open writers and aborted writes of other partitions are none of its business."""
    world = any_world
    world.configure(cleaner={"quarantine_hours": 1})
    table = world.table(rows=0, partition_keys=[("p", "string")])
    for number in range(3):
        world.insert(table, [(number, "x")], ["1"])
    world.insert(table, [(9, "y")], ["2"])
    world.compact(table, partition="p=1")
    world.clean()
    world.insert(table, [(10, "y")], ["2"])
    world.aborted_insert(table, [(11, "y")], ["2"])
    world.warehouse.begin().insert(table, [(12, "y")], ["2"])
    before = world.rows(table)
    work, (kept,) = undoing(world, table, "p=1")
    work.run(kept)
    assert world.rows(table) == before
    assert len([path for path in (table.location / "p=1").iterdir() if path.name.startswith("delta")]) == 3


def test_a_stopped_restore_takes_nothing_away_after_a_cleaner_came(world):
    """The Cleaner takes the place away that the last rename needs."""
    table = replaced(world)
    before = world.rows(table)
    work, (kept,) = undoing(world, table)

    def another_cleaner():
        from compactor.roles.cleaner.trash import settle

        storage = world.services.storage(work.location)
        settle(storage, work.location, storage.directories(work.location))

    world.at_step["opened"] = another_cleaner
    with pytest.raises(RefusedError, match="changed during the restore"):
        work.run(kept)
    assert world.rows(table) == before
    assert any(name.startswith("base_") for name in visible(table))


def test_what_was_written_since_refuses(any_world):
    """An insert, committed, open or rolled back."""
    world = any_world
    table = replaced(world)
    open_one = world.warehouse.begin()
    open_one.insert(table, [(50, "x")])
    refused(world, table)
    open_one.abort()
    refused(world, table)
    world.insert(table, [(51, "x")])
    refused(world, table)


def test_an_open_write_id_without_a_directory_refuses(world):
    """Its writer may be about to write."""
    table = replaced(world)
    txn = world.hive.begin()
    world.hive.allocate(txn, "db.t")
    refused(world, table, f"transaction {txn}")


def test_a_lock_refuses(any_world):
    """Any lock on the table: its holder may be reading."""
    table = replaced(any_world)
    any_world.hive.lock("db.t", kind="r")
    refused(any_world, table, "is locked", reason=Reason.LOCK_NOT_ACQUIRED)


def test_a_queued_compaction_refuses(world):
    """It would read what moves."""
    table = replaced(world)
    world.enqueue(Entity("db", "t"))
    refused(world, table, "is initiated", reason=Reason.ALREADY_QUEUED)


def test_a_delta_and_its_delete_delta_are_never_taken_away(world):
    """Between the two renames a reader would miss rows, or see deleted ones."""
    world.configure(cleaner={"quarantine_hours": 1})
    table = world.table(rows=3)
    world.compact(table)
    world.clean()
    for path in table.location.glob(f"{TRASH_PREFIX}*"):
        import shutil

        shutil.rmtree(path)
    world.insert(table, [(7, "x")])
    world.delete(table, 7)
    world.insert(table, [(8, "x")])
    world.delete(table, 8)
    world.compact(table, "minor")
    world.clean()
    assert any(name.startswith("delete_delta") for name in visible(table))
    refused(world, table, "no file system takes both away in one step")


def test_a_minor_of_inserts_is_undone(any_world):
    """Its result is one directory."""
    world = any_world
    table = replaced(world, "minor", delete=False)
    before = world.rows(table)
    work, (kept,) = undoing(world, table)
    undo = work.run(kept)
    assert undo.away.startswith("delta_")
    assert len(visible(table)) == 3
    assert world.rows(table) == before


def test_on_3_1_an_insert_only_table_is_never_restored(world_3):
    """Whether a part of what was replaced had gone before isn't known."""
    refused(world_3, replaced(world_3, insert_only=True), "may be incomplete")


def test_aborted_rows_stay_away(any_world):
    """What was rolled back stays in quarantine; what was replaced goes back. The metastore has forgotten the abort."""
    world = any_world
    world.configure(cleaner={"quarantine_hours": 1})
    table = world.table(rows=2)
    world.aborted_insert(table, [(66, "lost")])
    world.insert(table, [(3, "x")])
    world.compact(table)
    world.clean()
    before = world.rows(table)
    work, (kept,) = undoing(world, table)
    work.run(kept)
    assert world.rows(table) == before
    assert len(visible(table)) == 3
    left = next(one for one in work.kept() if one.name == kept.name)
    assert (table.location / left.name / "delta_0000003_0000003_0000").is_dir()


def test_a_directory_with_aborted_rows_among_others_is_never_restored(world):
    """A batch of a stream of which one transaction was rolled back."""
    world.configure(cleaner={"quarantine_hours": 1})
    table = world.table(rows=1)
    batch = world.warehouse.stream(table, [[(10, "a")], [(11, "b")]])
    batch.finish(0, commit=True)
    batch.finish(1, commit=False)
    batch.close()
    world.insert(table, [(3, "x")])
    world.compact(table)
    world.clean()
    refused(world, table, "was rolled back")


@pytest.mark.parametrize("change", ["shorter", "gone", "no manifest"])
def test_what_is_not_as_it_was_is_not_restored(world, change):
    """Files and their lengths are compared with the manifest."""
    table = replaced(world)
    (kept,) = table.location.glob(f"{TRASH_PREFIX}*")
    file = next(kept.glob("delta_*/bucket*"))
    if change == "gone":
        file.unlink()
    elif change == "shorter":
        file.write_bytes(b"x")
    else:
        (kept / MANIFEST).write_text("{}")
    refused(world, table)


def test_a_part_that_went_before_is_found_by_its_rows(world):
    """Another Cleaner had removed a delta before: without it rows would be missing."""
    import shutil

    world.configure(cleaner={"quarantine_hours": 1})
    table = world.table(rows=4)
    world.compact(table)
    shutil.rmtree(table.location / "delta_0000002_0000002_0000")
    world.clean()
    refused(world, table, "holds other rows")


def test_a_lost_lock_stops_a_restore_before_anything_is_taken_away(any_world):
    """It timed out while the process was stopped."""
    world = any_world
    table = replaced(world)
    before = world.rows(table)
    work, (kept,) = undoing(world, table)
    schema = world.database.schema

    def timed_out():
        world.hive.change(schema.hive_locks.delete())
        if world.services.layout == "hive-4":
            world.hive.change(schema.txns.update().where(schema.txns.c.txn_state == "o").values(txn_state="a"))

    world.at_step["moved"] = timed_out
    with pytest.raises(OwnershipLostError):
        work.run(kept)
    assert any(name.startswith("base_") for name in visible(table))
    assert world.rows(table) == before
