"""
House kept on the metastore that Hive 4.0.1 left: hundreds of rows go, and no reader sees another row; the silent
transaction goes when its time is over.
"""

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.metastore.model import Entity, QueueState
from tests.daemon.lab import OPEN_TXN, TABLES, UNREADABLE, Lab, Shared, pass_cycles, printed, running, until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

ASKED = [
    Entity("fx", "aborted"),
    Entity("fx", "mm_aborted"),
    Entity("fx", "migrated"),
    Entity("fx", "part_acid", "dt=2024-01-01"),
]
ALWAYS = {"enabled": "always", "interval_seconds": 0.2}


@pytest.fixture
def lab(tmp_path, postgres):
    restored = Lab.restore(postgres, tmp_path)
    yield restored
    restored.close()


def assert_rows(lab):
    for table in sorted(set(TABLES) - {UNREADABLE}):
        assert lab.rows(table) == printed(table), table


def state_of(lab, txn):
    return next((state for number, state in lab.table_rows("txns", "txn_id", "txn_state") if int(number) == txn), None)


def test_a_purge_changes_no_row_and_a_time_out_frees_the_cleaner(lab, submitter):
    """
    Transaction 97 has been silent for an hour. With a longer time-out it stays open, though everything else that is
    over is purged around it; with a shorter one it is aborted, and what it held back is cleaned without anybody's help.
    """
    for entity in ASKED:
        assert lab.queue.enqueue(entity, CompactionKind.MAJOR).accepted
    with running(lab.url, Shared(submitter), housekeeper=ALWAYS, txn={"timeout_seconds": 7200}) as daemon:
        until(lambda: not lab.waiting(), "all done by the workers")
        pass_cycles(daemon, "housekeeper")
        pass_cycles(daemon, "cleaner")
        assert state_of(lab, OPEN_TXN) == "o"
        assert {entry.state for entry in lab.queue.entries()} == {QueueState.READY_FOR_CLEANING}
    left = {int(number) for (number,) in lab.table_rows("txns", "txn_id")}
    assert left & set(range(OPEN_TXN)) == {89, 90, 91, 92}, "those that aborted writes still need"
    assert_rows(lab)
    with running(lab.url, Shared(submitter), housekeeper=ALWAYS, txn={"timeout_seconds": 600}) as daemon:
        until(lambda: not lab.queue.entries(), "all cleaned")
        pass_cycles(daemon, "housekeeper")
    assert state_of(lab, OPEN_TXN) == "a"
    assert {(entry.entity, entry.state) for entry in lab.history().values()} == {
        (entity, QueueState.SUCCEEDED) for entity in ASKED
    }
    assert not lab.table_rows("hive_locks", "hl_lock_ext_id")
    assert_rows(lab)
