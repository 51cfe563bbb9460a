"""A restore among others: whatever comes between, readers read the same rows, and nothing is lost."""

import json
import shutil
import zlib

import pytest

from compactor.acid.names import TRASH_PREFIX
from compactor.errors import CompactorError, MutexHeldError, OutcomeUnknownError, RefusedError, UnreachableError
from compactor.metastore.model import Entity
from compactor.reasons import Reason
from compactor.roles.cleaner.quarantine import restore as module
from compactor.roles.cleaner.quarantine.manifest import MANIFEST
from compactor.roles.services import Services
from tests.unit.roles.cleaner.quarantine.test_expiry import HOUR_MS
from tests.unit.roles.cleaner.quarantine.test_restore import refused, replaced, tree, undoing, visible
from tests.unit.roles.troubled import Troubled


def while_rows_are_compared(monkeypatch, happens):
    """Between the first plan and the lock."""
    compare = module.require_same_rows

    def compared(*arguments, **named):
        compare(*arguments, **named)
        monkeypatch.setattr(module, "require_same_rows", compare)
        happens()

    monkeypatch.setattr(module, "require_same_rows", compared)


def parted(world):
    """Two partitions, compacted alike and cleaned."""
    world.configure(cleaner={"quarantine_hours": 1})
    table = world.table(rows=0, partition_keys=[("p", "string")])
    for number in range(3):
        world.insert(table, [(number, "x")], ["1"])
        world.insert(table, [(number, "x")], ["2"])
    for value in "12":
        world.compact(table, partition=f"p={value}")
    world.clean()
    return table


def test_quarantine_that_was_moved_by_hand_is_not_restored(world):
    """Into another partition of the same table: the manifest says whose it is."""
    table = parted(world)
    (other,) = (table.location / "p=2").glob(f"{TRASH_PREFIX}*")
    shutil.rmtree(other)
    (kept,) = (table.location / "p=1").glob(f"{TRASH_PREFIX}*")
    kept.rename(table.location / "p=2" / kept.name)
    before = tree(table.location)
    work, (moved,) = undoing(world, table, "p=2")
    with pytest.raises(RefusedError, match=r"is of db\.t/p=1") as caught:
        work.run(moved)
    assert caught.value.reason is Reason.NOT_RESTORABLE
    assert tree(table.location) == before


def test_a_partition_that_was_renamed_is_restored_under_its_new_name(any_world):
    """Hive moves its directory with all that is in it; its id stays."""
    world = any_world
    table = parted(world)
    before = sorted(row for row in world.rows(table))
    (table.location / "p=1").rename(table.location / "p=3")
    for step in world.steps_of_a_rename(table, "p=1", "p=3"):
        step()
    work, (kept,) = undoing(world, table, "p=3")
    assert len(work.run(kept).back) == 3
    (table.location / "p=3").rename(table.location / "p=1")
    assert sorted(row for row in world.rows(table)) == before


@pytest.mark.parametrize("when", ["before", "while rows are compared"])
def test_a_table_that_was_made_anew_is_another(world, monkeypatch, when):
    """By its id: the name and the place say nothing."""
    table = replaced(world)
    ((tbl_id,),) = world.hive.rows(world.database.schema.tbls, "tbl_id")

    def made_anew():
        world.hive.create_table("db.other", location=f"file:{world.folder}/warehouse/other")
        world.hive.drop_table(tbl_id)
        world.hive.create_table("db.t", columns=table.columns, location=f"file:{table.location}")

    if when == "before":
        made_anew()
        refused(world, table, "an earlier table or partition of this name")
    else:
        while_rows_are_compared(monkeypatch, made_anew)
        refused(world, table, "was dropped, re-created or moved", reason=Reason.INPUT_CHANGED)
    assert world.services.locks.all() == []


def edit(manifest, change):
    """A manifest that was edited by hand, by a person who knows the checksum."""
    found = json.loads(manifest.read_bytes())
    version, _ = found.pop("version"), found.pop("crc32")
    change(found)
    crc32 = zlib.crc32(json.dumps(found).encode())
    manifest.write_text(json.dumps({"version": version, "crc32": crc32, **found}), encoding="utf-8")


@pytest.mark.parametrize("name", ["../u/delta_0000001_0000001_0000", "/etc", "..", "", ".", MANIFEST, "a/b"])
def test_names_that_lead_elsewhere_are_refused(world, name):
    """What isn't directly in the quarantine isn't there."""
    table = replaced(world)
    manifest = next(table.location.glob(f"{TRASH_PREFIX}*")) / MANIFEST

    def renamed(found):
        found["directories"][0]["name"] = name
        found["directories"][0]["files"] = []

    edit(manifest, renamed)
    refused(world, table)


def test_of_two_restores_at_once_one_waits(any_world, monkeypatch):
    """By Hive's mutex of the Cleaner."""
    world = any_world
    table = replaced(world)
    before, met = world.rows(table), []
    monkeypatch.setattr(module, "_MUTEX_SECONDS", 0.1)
    second, (kept,) = undoing(world, table, passed=lambda _: None)

    def another():
        with pytest.raises((MutexHeldError, RefusedError)) as caught:
            second.run(kept)
        met.append(caught.type)
        assert world.rows(table) == before

    world.at_step = {"opened": another, "moved": another}
    work, (kept,) = undoing(world, table)
    work.run(kept)
    assert len(met) == 5
    assert world.rows(table) == before


def test_of_two_restores_the_later_finds_it_done(world, monkeypatch):
    """It had looked before the first began."""
    table = replaced(world)
    before = world.rows(table)
    first, (kept,) = undoing(world, table)
    second, _ = undoing(world, table)
    while_rows_are_compared(monkeypatch, lambda: first.run(kept))
    with pytest.raises(RefusedError) as caught:
        second.run(kept)
    assert caught.value.reason is Reason.NOT_RESTORABLE
    assert world.rows(table) == before
    assert len(visible(table)) == 4
    assert world.services.locks.all() == []


@pytest.mark.parametrize("step", ["opened", "moved"])
def test_a_compaction_waits_for_a_restore(any_world, step):
    """It gets no lock; afterwards it compacts what was restored."""
    world = any_world
    table = replaced(world)
    before, said = world.rows(table), []

    def compact():
        world.at_step.clear()
        assert world.enqueue(Entity("db", "t")).accepted
        said.append(world.worker().run_once().sentence)

    work, (kept,) = undoing(world, table)
    world.at_step[step] = compact
    if step == "opened":
        with pytest.raises(RefusedError, match="is initiated"):
            work.run(kept)
    else:
        work.run(kept)
    assert world.rows(table) == before
    assert "published" not in said[0]
    world.assert_rows()


def test_a_compaction_that_came_between_refuses(world, monkeypatch):
    """It was published, and cleaned, while rows were compared."""
    table = replaced(world)

    def compacted():
        world.insert(table, [(50, "x")])
        world.compact(table)
        world.clean()

    while_rows_are_compared(monkeypatch, compacted)
    work, (kept,) = undoing(world, table)
    with pytest.raises(RefusedError) as caught:
        work.run(kept)
    assert caught.value.reason is Reason.NOT_RESTORABLE
    world.assert_rows()


def test_quarantine_whose_time_is_over_stays_for_a_restore(world, later):
    """A Cleaner that comes meanwhile has no turn."""
    table = replaced(world)
    before, sentences = world.rows(table), []
    later(5 * HOUR_MS)

    def cleaner():
        world.at_step.clear()
        try:
            sentences.append(world.cleaner().run_once().sentence)
        except MutexHeldError as error:
            sentences.append(str(error))

    work, (kept,) = undoing(world, table)
    world.at_step["moved"] = cleaner
    work.run(kept)
    assert sentences
    assert world.rows(table) == before
    assert len(visible(table)) == 4


def test_quarantine_that_went_meanwhile_refuses(world, monkeypatch, later):
    """Its time was over, and a Cleaner came before the lock was taken."""
    table = replaced(world)
    before = world.rows(table)

    def over():
        later(5 * HOUR_MS)
        world.clean()

    while_rows_are_compared(monkeypatch, over)
    work, (kept,) = undoing(world, table)
    with pytest.raises(RefusedError, match="isn't there any more"):
        work.run(kept)
    assert world.rows(table) == before
    assert world.services.locks.all() == []


def test_what_another_cleaner_takes_away_meanwhile_refuses(world):
    """Hive's own knows no sign of ours, and takes for replaced what is back: the result stays where it is."""
    table = replaced(world)
    before, moved = world.rows(table), iter(range(9))

    def taken():
        if next(moved) == 3:
            shutil.rmtree(next(table.location.glob("delta_0000002*")))

    work, (kept,) = undoing(world, table)
    world.at_step["moved"] = taken
    with pytest.raises(RefusedError, match="changed just now") as caught:
        work.run(kept)
    assert caught.value.reason is Reason.INPUT_CHANGED
    assert world.rows(table) == before
    assert any(name.startswith("base_") for name in visible(table))


READ_ONLY = RefusedError(Reason.PERMISSION_DENIED, "the file system is read-only")
TROUBLES = {
    "no space": (RefusedError(Reason.DISK_FULL, "no space is left"), False, False),
    "read-only from then on": (READ_ONLY, True, False),
    "away from then on": (UnreachableError("the store doesn't answer"), True, False),
    "no answer, not done": (OutcomeUnknownError("no answer"), False, False),
    "no answer, done": (OutcomeUnknownError("no answer"), False, True),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_where_a_change_fails_nothing_is_lost(world, monkeypatch, trouble):
    """
    Each change in turn: readers read the same rows, the error is the one that happened, no lock is left, and a second
    run ends as the first would have.
    """
    error, on, done = TROUBLES[trouble]
    world.configure(cleaner={"quarantine_hours": 1})
    whole = Services.storage
    for at in range(99):
        table = replaced(world, name=f"t{at}", rows=2)
        before, counted = world.rows(table), iter(range(999))
        work, (kept,) = undoing(world, table)
        with monkeypatch.context() as patched:
            patched.setattr(
                Services,
                "storage",
                lambda its, location, at=at, counted=counted: Troubled(
                    whole(its, location), counted, at, error, on=on, done=done
                ),
            )
            caught = []
            try:
                work.run(kept)
            except CompactorError as raised:
                caught.append(raised)
        assert caught in ([], [error])
        assert world.services.locks.all() == []
        assert world.rows(table) == before
        if next(counted) <= at:
            break
        for _ in work.settle():
            break
        else:
            if any(name.startswith("base_") for name in visible(table)):
                work.run(next(one for one in work.kept() if one.name == kept.name))
        assert len(visible(table)) == 3
        assert world.rows(table) == before
    assert at >= 7
