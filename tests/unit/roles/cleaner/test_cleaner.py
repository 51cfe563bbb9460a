"""
Cleaner: what was replaced goes, what can't be explained stays, and whatever breaks halfway is finished or put back.
"""

from contextlib import suppress

import pytest
from sqlalchemy import update

from compactor.errors import OwnershipLostError, UnreachableError
from compactor.planning.eligibility import RENAME_SECONDS
from compactor.roles import steps
from compactor.roles.cleaner.cleaner import Cleaner
from compactor.roles.cleaner.schedule import CYCLE_SECONDS
from compactor.roles.leadership import HeldLeadership
from tests.demo.rows import CatalogRows
from tests.unit.roles.tables import bases, compacted, hidden, visible


def outcomes(world, name):
    return world.services.metrics.registry.get_sample_value("compactor_cleanings_total", {"outcome": name})


def test_what_was_replaced_is_removed(any_world):
    """
    Only the base is left; the entry succeeded; the steps come in order; what the metastore kept about the writes is
    forgotten.
    """
    world = any_world
    table = compacted(world)
    world.passed.clear()
    assert world.clean().startswith("cleaned 1 entry, 4 directories, ")
    assert visible(table) == bases(table)
    assert len(bases(table)) == 1
    assert hidden(table) == []
    assert world.ended() == [("succeeded", None)]
    assert world.passed == list(steps.CLEANER_STEPS)
    assert world.hive.rows(world.database.schema.completed_txn_components, "ctc_writeid") == []
    world.assert_rows()
    assert (
        world.services.metrics.registry.get_sample_value("compactor_cleaned_directories_total", {"kind": "delta"}) == 4
    )


def test_a_backlog_is_cleaned_in_cycles_that_end(world):
    """
    A cycle of hours would look like a thread that is stuck; the next one goes on behind the last entry, so that a store
    that is away holds up nobody for long.
    """
    world.configure(cleaner={"threads": 1})
    for name in ("t", "u", "v"):
        compacted(world, name=name)
    world.settle_time()
    cleaner = Cleaner(world.services, clock=world.clock)

    def slow():
        world.clock.forward(CYCLE_SECONDS)

    def away():
        slow()
        raise UnreachableError("no answer")

    world.at_step[steps.CLEANER_SELECTED] = away
    assert cleaner.run_once().sentence == "2 left for the next cycle; 1 failed: db.t: no answer"
    world.at_step = {steps.CLEANER_MARKED: slow}
    for left in (["t", "v"], ["t"], []):
        assert cleaner.run_once().sentence.startswith("cleaned 1 entry, ")
        assert [entry.entity.table for entry in world.services.queue.entries()] == left


def test_aborted_writes_are_cleaned_in_cycles_that_end(world):
    """As entries are, with as much time of their own."""
    for name in ("t", "u"):
        world.aborted_insert(world.table(name, rows=1), [(9, "x")])
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    world.settle_time()
    cleaner = Cleaner(world.services, clock=world.clock)
    world.at_step[steps.CLEANER_DELETED] = lambda: world.clock.forward(CYCLE_SECONDS)
    assert cleaner.run_once().sentence.endswith("forgot 1 aborted write; 1 left for the next cycle")
    assert cleaner.run_once().sentence.endswith("forgot 1 aborted write")
    assert cleaner.run_once().sentence == "nothing to clean"


def test_nothing_to_clean_says_so(world):
    """One sentence, always the same."""
    assert world.clean() == "nothing to clean"


def test_quarantine_keeps_what_was_removed_aside(world):
    """Out of every reader's sight, and still there for a human."""
    table = compacted(world)
    world.configure(cleaner={"quarantine_hours": 1})
    world.clean()
    assert len(visible(table)) == 1
    (kept,) = hidden(table)
    assert kept.startswith(".trash-compactor-1-")
    assert kept.endswith("-kept")
    assert len(list((table.location / kept).glob("delta_*"))) == 4
    assert world.ended() == [("succeeded", None)]
    world.assert_rows()


def test_no_cleanup_leaves_everything(world):
    """The property is obeyed, and the entry ends refused."""
    table = compacted(world, parameters={"no_cleanup": "true"})
    assert world.clean() == "ended 1 without cleaning"
    assert len(visible(table)) == 5
    assert world.ended()[0] == ("refused", "no-cleanup: no_cleanup is set for db.t: replaced files stay")
    assert [outcomes(world, name) for name in ("refused", "failed")] == [1, 0]


def test_a_table_that_became_a_source_of_replication_keeps_its_files(world):
    """
    Files would have to go to Hive's change management, and there is no root of one: what was compacted before ends
    refused, and nothing is compacted again.
    """
    table = compacted(world)
    _replicate(world)
    assert world.clean() == "ended 1 without cleaning"
    assert len(visible(table)) == 5
    assert world.ended()[0][1] == (
        "replication-source: db is a source of replication, and replaced files can't be handed to Hive's change"
        " management: hdfs.change_management_root isn't set"
    )


def test_a_source_of_replication_without_root_is_never_queued(world):
    """
    The Initiator says why, cycle after cycle, and a Worker that gets an entry from Hive refuses it before any work.
    """
    world.configure(initiator={"thresholds": {"delta_count": 3}})
    table = world.table(rows=4, insert_only=True)
    _replicate(world)
    for _ in range(3):
        world.settle_time()
        assert (
            world.initiator()
            .run_once()
            .sentence.startswith(("queued 0 of 1 candidates", "full scan: queued 0 of 1 candidates"))
        )
    assert world.states() == world.ended() == []
    world.compact(table)
    ((state, message),) = world.ended()
    assert state == "refused"
    assert message.startswith("replication-source: db is a source of replication, and replaced files can't be handed")
    assert len(visible(table)) == 4


def _replicate(world):
    schema = world.database.schema
    ((number,),) = world.hive.rows(schema.dbs, "db_id", where=schema.dbs.c.name == "db")
    world.hive.change(
        schema.database_params.insert().values(db_id=number, param_key="repl.source.for", param_value="policy")
    )


def test_a_dropped_table_needs_no_cleaning(any_world):
    """Once it can't be a rename any more: its entry succeeds, its directory isn't touched, its rows are forgotten."""
    world = any_world
    table = compacted(world)
    CatalogRows(world.database).drop_table(table)
    world.settle_time()
    cleaner = Cleaner(world.services, clock=world.clock)
    assert (
        cleaner.run_once().sentence
        == "1 wait: db.t (compaction 1): isn't in the catalog; taken for dropped in 5 min, unless it is being renamed"
    )
    world.clock.forward(RENAME_SECONDS)
    assert cleaner.run_once().sentence.startswith("cleaned 1 entry, 0 directories")
    assert len(visible(table)) == 5
    assert world.hive.rows(world.database.schema.completed_txn_components, "ctc_writeid") == []


def moved_by_a_rename(world, new):
    """A compacted partition whose directory a rename has moved: a Cleaner, and the steps that are left of the rename."""
    table = world.table(rows=0, partition_keys=[("p", "int")])
    for number in range(4):
        world.insert(table, [(number, "x")], ("1",))
    world.compact(table, partition="p=1")
    left = world.steps_of_a_rename(table, "p=1", new)
    world.settle_time()
    (table.location / "p=1").rename(table.location / new)
    return Cleaner(world.services, clock=world.clock), left


def test_a_partition_that_is_being_renamed_is_cleaned_under_its_new_name(any_world):
    """
    Hive 4 commits the rename in the queue first, Hive 3.1 in the catalog: in between the entry's partition isn't in the
    catalog, but wasn't dropped.
    """
    world, new = any_world, "p=2"
    cleaner, (first, second) = moved_by_a_rename(world, new)
    first()
    assert "isn't in the catalog" in cleaner.run_once().sentence
    second()
    assert cleaner.run_once().sentence.startswith("cleaned 1 entry, 4 directories")
    assert [entry.entity.partition for entry in world.services.queue.history()] == [new]


def test_an_entry_that_was_renamed_a_moment_ago_is_not_ended_as_dropped(any_world):
    """Between the look at the catalog and the end of the entry."""
    world, (old, new) = any_world, ("p=1", "p=2")
    table = world.table(rows=0, partition_keys=[("p", "int")])
    for number in range(4):
        world.insert(table, [(number, "x")], ("1",))
    world.compact(table, partition=old)
    (entry,) = world.services.queue.entries()
    world.rename_in_the_queue(old, new)
    with pytest.raises(OwnershipLostError):
        world.services.cleaning.mark_cleaned(entry, gone=True)
    assert world.states() == ["ready for cleaning"]
    assert world.hive.rows(world.database.schema.completed_txn_components, "ctc_writeid") != []


def test_two_entries_of_one_partition_are_cleaned_in_order(any_world):
    """The earlier one first, each up to what it covers; in two cycles."""
    world = any_world
    table = compacted(world)
    for number in (5, 6):
        world.insert(table, [(number, "x")])
    world.compact(table)
    assert world.states() == ["ready for cleaning"] * 2
    first = world.clean()
    assert first.startswith("cleaned 1 entry, 4 directories")
    assert "compaction 1 of the same table is cleaned first" in first
    assert world.clean().startswith("cleaned 1 entry, 3 directories")
    assert [name[:12] for name in visible(table)] == ["base_0000006"]
    world.assert_rows()


def test_what_cannot_be_explained_is_not_deleted(world):
    """
    A directory in the way of understanding: nothing is removed, the entry is tried again later and given up at last.
    """
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
    assert [outcomes(world, name) for name in ("failed", "given-up", "cleaned")] == [3, 1, 0]
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


def test_a_compaction_that_begins_meanwhile_changes_nothing_on_hive_3(world_3):
    """What goes was decided by what lay there when readers were observed: a result that comes later replaces nothing."""
    world = world_3
    table = compacted(world)
    world.at_step[steps.CLEANER_TRASHED] = lambda: world.hive.queued("db.t", state="w")
    assert world.clean().startswith("cleaned 1 entry, 4 directories")
    assert len(visible(table)) == 1
    assert hidden(table) == []


@pytest.mark.parametrize("moment", ["moved", "in the catalog"])
def test_what_is_observed_in_the_middle_of_a_rename_is_observed_anew(world_3, moment):
    """Hive 3.1 moves the directory, then changes the catalog, then the queue: in between nothing is where it was."""
    world, new = world_3, "p=2"
    cleaner, left = moved_by_a_rename(world, new)
    if moment == "in the catalog":
        left.pop(0)()
    world.services.cleaning.ready_for_cleaning()
    for step in left:
        step()
    assert cleaner.run_once().sentence.startswith("cleaned 1 entry, 4 directories")
    assert [entry.entity.partition for entry in world.services.queue.history()] == [new]


def test_an_entry_that_is_not_ready_any_more_puts_everything_back(world):
    """Somebody took it back while its files are in the trash: they come back."""
    table = compacted(world)
    before = visible(table)
    queue = world.database.schema.compaction_queue
    world.at_step[steps.CLEANER_TRASHED] = lambda: world.hive.change(update(queue).values(cq_state="w"))
    world.clean()
    assert visible(table) == before
    assert hidden(table) == []
    assert world.states() == ["working"]


@pytest.mark.parametrize("step", [steps.CLEANER_SELECTED, steps.CLEANER_TRASHED])
def test_who_is_not_the_cleaner_any_more_deletes_nothing(world, monkeypatch, step):
    """Another daemon leads by now: what was moved away comes back, and the entry is left to that one."""
    table = compacted(world)
    before = visible(table)

    def check(self) -> None:
        raise OwnershipLostError("another daemon leads")

    world.at_step[step] = lambda: monkeypatch.setattr(HeldLeadership, "check", check)
    with suppress(OwnershipLostError):
        world.clean()
    assert visible(table) == before
    assert hidden(table) == []
    assert world.states() == ["ready for cleaning"]
    assert steps.CLEANER_DELETED not in world.passed


@pytest.mark.parametrize(
    "step",
    [
        steps.CLEANER_SELECTED,
        steps.CLEANER_LISTED,
        steps.CLEANER_TRASHED,
        steps.CLEANER_COMPARED,
        steps.CLEANER_DELETED,
    ],
)
def test_a_cleaner_that_breaks_at_any_step_is_followed_by_one_that_finishes(any_world, step):
    """Whatever it left, the next cycle converges to the same end."""
    world = any_world
    table = compacted(world)
    world.clean_until_it_breaks(step)
    world.assert_rows()
    world.clean()
    assert len(visible(table)) == 1
    assert hidden(table) == []
    assert world.ended() == [("succeeded", None)]
    world.assert_rows()


def test_staging_of_an_attempt_that_is_over_goes_first(world):
    """
    A directory of an entry that nobody works on is no longer a source for anybody's rename; one that is being worked on
    stays.
    """
    table = compacted(world)
    busy = world.hive.queued("db.t", state="w", worker_id="x", start=1)
    for name in (".compactor-1-abc", ".compactor-99-abc", f".compactor-{busy}-abc"):
        (table.location / name / "out").mkdir(parents=True)
    world.clean()
    assert hidden(table) == [f".compactor-{busy}-abc"]
