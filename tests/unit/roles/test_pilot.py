"""A pilot on one database (`control.only`): each role leaves the tables of the other one as they are, rows and files."""

import shutil
from pathlib import Path

import pytest

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.metastore.compaction_queue.properties import encode_properties
from compactor.metastore.housekeeping import Duty
from compactor.metastore.model import Entity
from compactor.roles import steps
from compactor.roles.cleaner.cleaner import RENAME_SECONDS, Cleaner
from compactor.roles.pauses import Pauses
from compactor.roles.worker.worker import IDLE
from tests.demo.rows import CatalogRows

ONLY = {"control": {"only": ["Shop.*"]}}
DATABASES = ("shop", "hr")
HOUR_MS = 3_600_000
STORED = {
    "compaction_queue": "cq",
    "completed_compactions": "cc",
    "txn_components": "tc",
    "completed_txn_components": "ctc",
}


def rows_of(world, database):
    """All that the metastore holds about compactions and writes of a database's tables, by Hive's table."""
    found = {}
    for name, prefix in STORED.items():
        table = getattr(world.database.schema, name)
        found[name] = sorted(
            map(repr, world.hive.rows(table, *table.c.keys(), where=table.c[f"{prefix}_database"] == database))
        )
    return found


def files_of(world, database):
    """All that lies in the directories of a database's tables, with its size."""
    (folder,) = {Path(table.location).parent for table in world.warehouse.tables.values() if table.database == database}
    return sorted((str(path), path.stat().st_size if path.is_file() else None) for path in folder.rglob("*"))


def left_to_do(world, database):
    """The entries of a database's tables, but for what aborted writes of a table that is gone wait for."""
    return [
        str(entry)
        for entry in world.services.queue.entries()
        if entry.entity.database == database and entry.kind is not CompactionKind.ABORT_CLEANUP
    ]


def gone(world, database, name):
    """The directory of a table that isn't in the catalog any more."""
    table = world.table(name, rows=2, database=database, insert_only=True)
    CatalogRows(world.database).drop_table(table)
    del world.warehouse.tables[table.full_name]
    return table.location


def for_initiator_and_workers(world, database):
    """A table that is due, an entry that waits, and of Hive's workers a claim that is over and, on 4, a rebalance."""
    world.table("due", rows=11, database=database)
    for name in ("waiting", "late", "shuffled"):
        world.table(name, rows=3, database=database, insert_only=True)
    world.enqueue(Entity(database, "waiting"))
    begun = world.services.now_ms() - 25 * HOUR_MS
    world.hive.queued(f"{database}.late", state="w", worker_id="metastore1-17", start=begun)
    if world.services.layout is LayoutVersion.HIVE_4:
        world.hive.queued(f"{database}.shuffled", type="r", enqueue_time=begun)


def for_the_cleaner(world, database):
    """
    What a compaction replaced, aborted writes (of a table that is gone, too), an entry of a table that is gone; on Hive 4
    also a dropped table's directory, an entry whose transaction was rolled back, and one that stands for aborted writes
    of which nothing is left.
    """
    assert "published" in world.compact(world.table("replaced", rows=3, database=database, insert_only=True))
    aborted = world.table("aborted", rows=1, database=database, insert_only=True)
    world.aborted_insert(aborted, [(9, "x")])
    world.hive.fail_write(f"{database}.vanished")
    shutil.rmtree(gone(world, database, "vanished"))
    world.hive.queued(f"{database}.vanished", state="r", highest_write_id=2, next_txn_id=1, commit_time=1)
    if world.services.layout is not LayoutVersion.HIVE_4:
        return
    now, txn = world.services.now_ms(), world.hive.begin()
    world.hive.commit(txn)
    ready = {"state": "r", "commit_time": now}
    location = f"file:{gone(world, database, 'dropped')}"
    properties = encode_properties({"location": location, "ifPurge": "true"})
    world.hive.queued(
        f"{database}.dropped", **ready, txn_id=txn, next_txn_id=txn, highest_write_id=9, tblproperties=properties
    )
    world.table("rolled", rows=3, database=database, insert_only=True)
    lost = world.hive.begin()
    world.hive.abort(lost)
    world.hive.queued(f"{database}.rolled", **ready, txn_id=lost, highest_write_id=3)
    world.hive.queued(f"{database}.rolled", state="r", type="c", retry_retention=1, error_message="disk gone")


class Roles:
    """All roles of one daemon, with what they remember of earlier cycles."""

    def __init__(self, world):
        self.world = world
        self.initiator, self.worker, self.keeper = world.initiator(), world.worker(), world.housekeeper()
        self.cleaner = Cleaner(world.services, clock=world.clock)
        self.pauses = Pauses(world.services, [self.worker.hold], lambda: None)

    def work(self):
        """Until nothing is left to do; longer than a dropped table is waited for."""
        for _ in range(3):
            self.world.settle_time()
            self.initiator.run_once()
            self.keeper.run_once()
            self.pauses.run_once()
            while self.worker.run_once() != IDLE:
                pass
            self.world.settle_time()
            self.cleaner.run_once()
            self.world.clock.forward(RENAME_SECONDS + 1)


@pytest.fixture
def two(any_world, later, monkeypatch):
    """Two databases alike, in both of which each role has something to do; Hive's duties aren't the subject."""
    world = any_world
    monkeypatch.setattr(world.services.housekeeping, "who_does_it", dict)
    for database in DATABASES:
        hours = {"compactor.cleaner.quarantine_hours": "1"}
        world.compact(world.table("kept", rows=3, database=database, insert_only=True, parameters=hours))
    world.clean()
    for prepare in (for_the_cleaner, for_initiator_and_workers):
        for database in DATABASES:
            prepare(world, database)
    world.settle_time()
    later(3 * HOUR_MS)
    return world


def test_what_is_outside_stays_as_it_is(two):
    """Not a row and not a file of it changes, however long all roles work; within, nothing is left to do."""
    world = two
    before = rows_of(world, "hr"), files_of(world, "hr")
    assert all(before[0].values())
    world.configure(**ONLY, initiator={"thresholds": {"aborted_count": 0}})
    Roles(world).work()
    assert (rows_of(world, "hr"), files_of(world, "hr")) == before
    assert left_to_do(world, "shop") == []
    world.assert_rows()


def test_a_reload_includes_the_others(two):
    """The same roles then do there all that they did within: a new list takes effect in their next cycles."""
    world = two
    aborts = {"initiator": {"thresholds": {"aborted_count": 0}}}
    world.configure(**ONLY, **aborts)
    roles = Roles(world)
    roles.work()
    world.configure(**aborts)
    roles.work()
    assert left_to_do(world, "hr") == []
    for name in STORED:
        assert len(rows_of(world, "hr")[name]) == len(rows_of(world, "shop")[name]), name
    assert len(files_of(world, "hr")) == len(files_of(world, "shop"))
    world.assert_rows()


def test_a_worker_is_idle_where_only_others_wait(world):
    """What is left to Hive's own compactor is nothing to wait for: the worker says what it says of an empty queue."""
    world.table("t", rows=3, database="hr", insert_only=True)
    world.settle_time()
    world.configure(**ONLY)
    world.enqueue(Entity("hr", "t"))
    assert world.worker().run_once() == IDLE
    assert world.states() == ["initiated"]


def test_a_table_that_leaves_the_list_while_it_is_compacted_is_finished(world):
    """As under a pause; then the Cleaner leaves it alone, and its next entry isn't claimed."""
    table = world.table("t", rows=3, database="hr", insert_only=True)
    world.settle_time()
    world.enqueue(Entity("hr", "t"))
    world.at_step[steps.WORKER_PLANNED] = lambda: world.configure(**ONLY)
    assert "of hr.t: published" in world.worker().run_once().sentence
    world.clean()
    assert world.states() == ["ready for cleaning"]
    assert len(list(table.location.glob("delta_*"))) == 3


def test_an_entry_that_leaves_the_list_with_its_claim_is_given_back(world):
    """Between the claim and the work: nothing was listed or opened."""
    world.table("t", rows=3, database="hr", insert_only=True)
    world.settle_time()
    world.enqueue(Entity("hr", "t"))
    world.at_step[steps.WORKER_CLAIMED] = lambda: world.configure(**ONLY)
    assert (
        "given back: not-included: control.only leaves it out, and names shop.*" in world.worker().run_once().sentence
    )
    assert world.passed == [steps.WORKER_CLAIMED]


def test_hives_initiator_misses_nothing_that_ours_passed_over(world):
    """
    Hive 4's Initiator looks at what was committed since the start of the last cycle that AUX_TABLE names. While tables are
    left alone that start isn't stored; with all of them it is.
    """
    world.table("t", rows=3, database="hr")
    world.settle_time()
    initiator = world.initiator()
    world.configure(**ONLY)
    for _ in range(2):
        initiator.run_once()
    assert world.services.initiating.last_cycle_ms() is None
    world.configure()
    initiator.run_once()
    assert world.services.initiating.last_cycle_ms() is not None


def test_hives_initiator_misses_nothing_that_is_left_out_while_ours_looks(world):
    """What was picked before a reload, and isn't queued for it."""
    world.table("t", rows=11, database="hr")
    world.settle_time()
    world.at_step[steps.INITIATOR_LISTED] = lambda: world.configure(**ONLY)
    assert world.initiator().run_once().sentence.startswith("full scan: queued 0 of 1 candidates")
    assert world.services.initiating.last_cycle_ms() is None


def test_a_reload_while_the_initiator_begins(world, monkeypatch):
    """What the list before it left out is judged in the next cycle, not only at the next full scan."""
    world.table("t", rows=11, database="hr")
    world.settle_time()
    world.configure(**ONLY)
    initiator, judge = world.initiator(), world.services.control.judge

    def reloaded(**how):
        found = judge(**how)
        monkeypatch.undo()
        world.configure()
        return found

    monkeypatch.setattr(world.services.control, "judge", reloaded)
    assert "queued 0 of 1 candidates" in initiator.run_once().sentence
    assert "queued 1 of 1 candidates" in initiator.run_once().sentence


def test_duties_of_hive_are_those_of_the_whole_metastore(world):
    """Time-outs and purges know transactions, not tables: `housekeeper.enabled` alone says who does them."""
    world.configure(**ONLY, housekeeper={"enabled": "always"})
    txn = world.hive.begin(age=10_000_000)
    world.hive.touch(txn, "hr.t")
    assert f"{Duty.TIME_OUTS.value} 1" in world.housekeeper().run_once().sentence
