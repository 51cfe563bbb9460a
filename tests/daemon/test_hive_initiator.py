"""
The Initiator on the metastore that Hive 4.0.1 left: it finds by itself what is due, and then nothing more; rows as Hive
printed them.
"""

import pytest

from compactor.metastore.model import Entity, QueueState
from tests.daemon.lab import (
    OPEN_TXN,
    TABLES,
    UNREADABLE,
    Lab,
    Shared,
    hive_files,
    pass_cycles,
    printed,
    running,
    until,
    without_txn,
)
from tests.fixtures import hive

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

EAGER = {
    "enabled": True,
    "interval_seconds": 0.2,
    "full_scan_seconds": 0.2,
    "thresholds": {"delta_count": 1, "delta_ratio": 0.01, "aborted_age_hours": 0.5},
}


@pytest.fixture
def lab(tmp_path, postgres):
    restored = Lab.restore(postgres, tmp_path)
    yield restored
    restored.close()


def asked(lab):
    """Everything that was ever queued: entity by id."""
    return {entry.id: entry.entity for entry in [*lab.queue.entries(), *lab.queue.history()]}


def settle(lab, daemon):
    """
    Wait until nothing is left to work on, and then for full scans that began after that; returns what had been queued
    before them.
    """
    pass_cycles(daemon, "initiator", 1)
    until(lambda: not lab.waiting(), "all done by the workers")
    before = asked(lab)
    pass_cycles(daemon, "initiator", 3)
    return before


def test_it_queues_what_is_due_and_then_nothing_more(lab, submitter):
    """
    Full scans again and again, with thresholds that everything meets: each table and partition that Hive would compact,
    once; never what Hive would refuse.

    When transaction 97 has been aborted, its table is due too, and everything is cleaned; then nothing is due any more.
    """
    refused = {
        Entity("fx", row["CC_TABLE"], row["CC_PARTITION"])
        for row in hive.metastore("after-major").rows["COMPLETED_COMPACTIONS"]
        if row["CC_STATE"] == "c"
    }
    everything = {
        Entity("fx", table.name, partition) for table in TABLES.values() for partition, _, _ in table.directories
    }
    only_aborted = Entity("fx", "aborted_part", "dt=p3")
    with running(lab.url, Shared(submitter), initiator=EAGER) as daemon:
        first = settle(lab, daemon)
        assert asked(lab) == first
        assert sorted(map(str, first.values())) == sorted(map(str, everything - refused - {only_aborted}))
        assert {entry.state for entry in lab.queue.entries()} == {QueueState.READY_FOR_CLEANING}
        assert not lab.history()
        lab.hive.abort(OPEN_TXN)
        until(lambda: Entity("fx", "open_txn") in asked(lab).values(), "the table of the aborted writer queued")
        until(lambda: not lab.queue.entries(), "all cleaned")
        second = settle(lab, daemon)
        assert asked(lab) == second
        assert set(second.values()) - set(first.values()) == {Entity("fx", "open_txn")}
        until(lambda: not lab.table_rows("txn_components", "tc_txnid"), "all aborted writes forgotten")
    assert {entry.state for entry in lab.history().values()} == {QueueState.SUCCEEDED}
    for table in sorted(set(TABLES) - {UNREADABLE}):
        assert lab.rows(table) == printed(table), table
    left = without_txn(lab.files())
    assert not [name for name in left if name.startswith("fx.db/aborted_part/dt=p3/")]
    untouched = {name for name in left & hive_files("before") if "open_txn" not in name}
    assert untouched <= hive_files("after-major")
