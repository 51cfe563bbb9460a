"""
The daemon on what Hive 4.0.1 itself left: its metastore in PostgreSQL, its warehouse. What comes out is compared with
what Hive's own compactor left there.

The requests are those that Hive was given, in the same order; transaction 97 is open meanwhile, as it was then, and
aborted in the end.
"""

from dataclasses import dataclass, field

import pytest

from compactor.acid.names import ORIGINALS_FILE
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.model import Entity, QueueState
from compactor.reasons import Reason
from tests.daemon.lab import (
    OPEN_TXN,
    TABLES,
    UNREADABLE,
    Lab,
    Shared,
    dumped,
    hive_files,
    pass_cycles,
    printed,
    running,
    until,
    without_txn,
)
from tests.fixtures import hive

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

FIRST_TXN = 100
NON_ASCII = "k=ü雪/n=4"
"""Hive's own compactor loses the rows of this partition."""


@dataclass
class Done:
    """What was seen while transaction 97 was open, and the lab after everything is over."""

    kind: str
    lab: Lab
    asked: dict[int, Entity]
    jobs: list[str] = field(default_factory=list)
    waiting: dict = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    blockers: dict = field(default_factory=dict)
    blocked: float | None = None
    files_before: set[str] = field(default_factory=set)
    files_waiting: set[str] = field(default_factory=set)
    rows_waiting: dict = field(default_factory=dict)
    components_waiting: list = field(default_factory=list)
    locks_waiting: list = field(default_factory=list)

    @property
    def snapshot(self):
        return f"after-{self.kind}"


@pytest.fixture(scope="module", params=["major", "minor"])
def done(request, tmp_path_factory, postgres, submitter):
    """A daemon's work on everything in the fixture's warehouse."""
    lab = Lab.restore(postgres, tmp_path_factory.mktemp(request.param))
    seen = Done(request.param, lab, lab.enqueue_everything(request.param), files_before=lab.files())
    spark = Shared(submitter)
    with running(lab.url, spark) as daemon:
        until(lambda: not lab.waiting(), "all done by the workers")
        pass_cycles(daemon, "cleaner")
        _look(seen, daemon)
        lab.hive.abort(OPEN_TXN)
        until(lambda: not lab.queue.entries(), "all cleaned")
    seen.jobs = [job.name for job in spark.jobs]
    yield seen
    lab.close()


def _look(seen, daemon):
    lab = seen.lab
    seen.waiting = {entry.id: entry for entry in lab.queue.entries()}
    seen.refused = set(lab.history())
    seen.blockers = {ready.entry.id: ready.blockers for ready in Cleaning(lab.database).ready_for_cleaning()}
    seen.blocked = daemon.metrics.registry.get_sample_value(
        "compactor_cleaner_blocked_entries", {"reason": Reason.OPEN_TRANSACTION.value}
    )
    seen.files_waiting = lab.files()
    seen.rows_waiting = {table: lab.rows(table) for table in TABLES}
    seen.components_waiting = lab.table_rows("txn_components", "tc_txnid", "tc_operation_type")
    seen.locks_waiting = lab.table_rows("hive_locks", "hl_txnid")


def hive_ended(snapshot):
    """How Hive's own compactions ended, by id: (table, partition, state, highest write id)."""
    rows = hive.metastore(snapshot).rows["COMPLETED_COMPACTIONS"]
    return {
        int(row["CC_ID"]): (row["CC_TABLE"], row["CC_PARTITION"], row["CC_STATE"], row["CC_HIGHEST_WRITE_ID"])
        for row in rows
    }


def test_an_old_open_transaction_holds_back_all_cleaning(done):
    """
    As with Hive: whatever isn't refused is ready for cleaning and stays so, no file goes; each entry says that it is
    transaction 97, and whose that is.
    """
    compacted = {number for number, (_, _, state, _) in hive_ended(done.snapshot).items() if state != "c"}
    assert set(done.waiting) == set(done.blockers) == compacted
    assert {entry.state for entry in done.waiting.values()} == {QueueState.READY_FOR_CLEANING}
    assert done.refused == done.asked.keys() - compacted
    assert done.blocked == len(compacted)
    for blockers in done.blockers.values():
        assert [blocker.reason for blocker in blockers] == [Reason.OPEN_TRANSACTION]
        assert blockers[0].sentence.startswith(f"transaction {OPEN_TXN} of lab@")
    assert done.files_before == hive_files("before")
    assert done.files_before <= done.files_waiting


def test_workers_leave_nothing_but_their_result(done):
    """
    While cleaning waits: the worker's component and lock are gone, the open writer's are still there; no name of a
    worker in the queue.
    """
    assert done.components_waiting == dumped("before", "txn_components", "tc_txnid", "tc_operation_type")
    assert done.locks_waiting == [[str(OPEN_TXN)]]
    assert not [name for name in done.files_waiting if "/.compactor" in name]
    for entry in done.waiting.values():
        assert entry.worker_id is None
        assert FIRST_TXN <= entry.txn_id <= entry.next_txn_id
        assert entry.commit_ms >= entry.start_ms >= entry.enqueue_ms


@pytest.mark.parametrize("table", sorted(set(TABLES) - {UNREADABLE}))
def test_rows_are_those_that_hive_printed(done, table):
    """Before cleaning and after: the same rows with the same ROW__IDs."""
    assert done.rows_waiting[table] == printed(table)
    assert done.lab.rows(table) == printed(table)


@pytest.mark.hive
@pytest.mark.parametrize("mode", ["vector", "row"])
def test_hive_reads_what_is_left(done, hive_4, mode):
    """Hive 4's own reader sees in the cleaned directories what the reference sees."""
    for name, table in TABLES.items():
        if table.insert_only or name == UNREADABLE:
            continue
        snapshot = done.lab.snapshot(name)
        rows = []
        for _, path, _ in table.directories:
            rows += hive_4.rows(
                done.lab.warehouse / path,
                table.schema,
                snapshot.write_ids,
                snapshot.txns,
                mode=mode,
                buckets=table.buckets,
            )
        values = [(key, row[: len(table.columns)]) for key, row in printed(name)]
        assert sorted(rows, key=repr) == sorted(values, key=repr), name


def test_entries_end_as_hives_own_did(done):
    """
    Succeeded where Hive succeeded, with the same highest write id, refused where Hive refused; the one table that Hive
    fails on succeeds.
    """
    theirs = hive_ended(done.snapshot)
    ours = {
        number: (entry.entity.table, entry.entity.partition, entry.state.code, str(entry.highest_write_id))
        for number, entry in done.lab.history().items()
    }
    assert ours.keys() == theirs.keys()
    for number, (table, partition, state, highest) in theirs.items():
        if state == "c":  # Hive notes how far it had looked; we note why
            assert ours[number][:3] == (table, partition, state)
            assert done.lab.history()[number].error_message.startswith("not-enough-to-compact: ")
        else:
            assert ours[number] == (table, partition, "s", highest)
    assert {table for table, _, state, _ in theirs.values() if state == "f"} == {UNREADABLE}


def test_directories_are_those_that_hive_left(done):
    """
    After cleaning: the same directories, but for the transaction in the name; in full-ACID ones the same files, and the
    list of replaced originals.
    """
    found, theirs = without_txn(done.lab.files()), without_txn(hive_files(done.snapshot))
    ours = {path for path in found if not path.endswith(f"/{ORIGINALS_FILE}")}
    assert found - ours == ({f"fx.db/migrated/base_10000003/{ORIGINALS_FILE}"} if done.kind == "major" else set())

    def comparable(path):
        return UNREADABLE not in path and NON_ASCII not in path

    def directories(paths):
        return {path.rpartition("/")[0] for path in paths if comparable(path)}

    def files(paths):
        return {path for path in paths if comparable(path) and "/mm" not in path}

    assert directories(ours) == directories(theirs)
    assert files(ours) == files(theirs)
    lost = "delta_0000001_0000003/bucket_00000" if done.kind == "minor" else "base_0000003/bucket_00000"
    assert f"fx.db/odd_parts/{NON_ASCII}/{lost}" in ours - theirs


def test_each_result_carries_the_transaction_of_its_entry(done):
    """`_v` is CC_TXN_ID; a compaction that had only to call the Cleaner wrote nothing, as with Hive."""
    entries = {entry.entity: entry for entry in done.lab.history().values()}
    idle = {
        Entity("fx", row["CC_TABLE"], row["CC_PARTITION"])
        for row in hive.metastore(done.snapshot).rows["COMPLETED_COMPACTIONS"]
    }
    for table in TABLES.values():
        for partition, path, _ in table.directories:
            entity = Entity("fx", table.name, partition)
            names = {
                name.removeprefix(f"{path}/").partition("/")[0]
                for name in done.lab.files()
                if name.startswith(f"{path}/")
            }
            txns = {int(name.partition("_v")[2]) for name in names if "_v" in name}
            assert txns in ({entries[entity].txn_id}, set()), path
            assert bool(txns) == (entries[entity].job_id is not None), path
            idle.discard(entity)
    assert not idle


def test_jobs_are_named_after_what_they_compact(done):
    """`<host>-compactor-<db>.<table>.<partition>`, for each compaction that wrote something."""
    expected = {
        ".".join(["here-compactor-fx", *filter(None, (entry.entity.table, entry.entity.partition))])
        for entry in _with_job(done)
    }
    assert set(done.jobs) == expected


def _with_job(done):
    return [entry for entry in done.lab.history().values() if entry.job_id]


def test_transaction_tables_are_left_as_hive_leaves_them(done):
    """
    Components of committed and of aborted writes, mappings, write sets, locks, history levels: the same rows, the table
    aside that Hive fails on.
    """
    for name, columns in (
        (
            "completed_txn_components",
            ("ctc_txnid", "ctc_database", "ctc_table", "ctc_partition", "ctc_writeid", "ctc_update_delete"),
        ),
        ("txn_to_write_id", ("t2w_txnid", "t2w_database", "t2w_table", "t2w_writeid")),
        ("next_write_id", ("nwi_database", "nwi_table", "nwi_next")),
        ("write_set", ("ws_database", "ws_table", "ws_partition", "ws_txnid", "ws_commit_id", "ws_operation_type")),
        ("hive_locks", ("hl_lock_ext_id",)),
        ("min_history_level", ("mhl_txnid",)),
    ):
        theirs = [
            row
            for row in dumped(done.snapshot, name, *columns)
            if name != "completed_txn_components" or UNREADABLE not in row
        ]
        assert done.lab.table_rows(name, *columns) == theirs, name


def test_aborted_writes_are_forgotten_once_their_files_are_gone(done):
    """
    The components of aborted writes go with their directories. Two stay: that of transaction 97, whose table was
    refused, and that of the partitioned table, for the cleaning of single partitions doesn't prove that no other holds
    rows of the write (HIVE-21052): that takes a sweep of the table, not yet due.
    """
    left = done.lab.table_rows("txn_components", "tc_txnid", "tc_table", "tc_operation_type", "tc_writeid")
    assert {tuple(row) for row in left} == {("91", "aborted_part", "i", "3"), (str(OPEN_TXN), "open_txn", "i", "2")}
    theirs = dumped(done.snapshot, "txn_components", "tc_txnid", "tc_table", "tc_operation_type", "tc_writeid")
    hives = [row for row in theirs if row not in left and row[1] != UNREADABLE]
    assert hives == (
        [["92", "mm_aborted", "i", "2"]] if done.kind == "minor" else []
    )  # Hive keeps it, though its directory is gone there too


def test_transactions_end_as_hives_own_did(done):
    """
    Those from before as in Hive's table; ours of type 3: committed, with a result or because there was nothing to take
    back; aborted where work failed. A statement that was repeated leaves a number out: sequences don't roll back.
    """
    rows = done.lab.table_rows("txns", "txn_id", "txn_state", "txn_type")
    theirs = [
        row for row in dumped(done.snapshot, "txns", "txn_id", "txn_state", "txn_type") if int(row[0]) < FIRST_TXN
    ]
    assert [row for row in rows if int(row[0]) < FIRST_TXN] == theirs
    ours = {int(number): (state, kind) for number, state, kind in rows if int(number) >= FIRST_TXN}
    failed = {entry.txn_id for entry in done.lab.history().values() if entry.state is QueueState.FAILED}
    assert ours == {number: ("a" if number in failed else "c", "3") for number in ours}
    assert len(ours) == len(done.asked)
