"""Hive's own TxnHandlers, as the second party of tests: they do what the actor plays, and what only they do."""

import re

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.acid.write_ids import ValidTxnList, ValidWriteIdList
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import Entity
from compactor.metastore.txn.snapshots import snapshots_for
from tests.demo.rows import CatalogRows, MetastoreLedger
from tests.demo.warehouse import Warehouse
from tests.hive.party import HiveError

pytestmark = pytest.mark.hive


def test_a_write_is_seen_when_it_is_committed(real_hive):
    """Open, allocate, lock, commit, abort: the lists a reader is given say so, and ours say the same."""
    real_hive.write()
    gone, standing = real_hive.fail_write()[0], real_hive.begin()
    real_hive.touch(standing)
    txns, (write_ids,) = real_hive.snapshot("db.t")
    assert ValidTxnList.parse(txns) == ValidTxnList(3, (standing,), (gone,))
    assert ValidWriteIdList.parse(write_ids) == ValidWriteIdList("db.t", 3, (3,), (2,))
    database = real_hive.database
    seen = database.read(snapshots_for(database).take)
    assert seen.as_seen_by(None) == ValidTxnList.parse(txns)
    assert database.read(
        lambda connection: snapshots_for(database).write_ids(connection, ["db.t"], seen.as_seen_by(None))
    )["db.t"] == ValidWriteIdList.parse(write_ids)


def test_names_of_static_partitions_stand_as_hive_stores_them(real_hive):
    """3.1 folds a static partition's name to lower case; dynamic ones stand as they are. 4.0.1 folds the key alone."""
    static, dynamic = real_hive.begin(), real_hive.begin()
    real_hive.touch(static, partition="P=ABC")
    real_hive.touch_dynamic(dynamic, partitions=["p=DEF"])
    found = dict(real_hive.rows(real_hive.schema.txn_components, "tc_txnid", "tc_partition"))
    assert found == {static: "p=ABC" if real_hive.party.hive_4 else "p=abc", dynamic: "p=DEF"}


def test_what_hive_throws_comes_back(real_hive):
    """By the exception's class and message."""
    with pytest.raises(HiveError, match=r"NoSuchTxnException: .*17"):
        real_hive.abort(17)


def test_calls_in_two_sessions_are_under_way_at_once(real_hive):
    """A call that stands before a statement lets the other client's pass."""
    pending = real_hive.party.begin(
        "openTxns", {"num_txns": 1, "user": "ann", "hostname": "client"}, session="other", gated=True
    )
    statements = [pending.at()]
    mine = real_hive.begin()
    real_hive.commit(mine)
    while not pending.ended():
        pending.go()
        statements.append(pending.at())
    assert pending.result()["txn_ids"] == [mine + 1]
    assert any("insert into" in str(statement).lower() for statement in statements)


def test_hives_threads_keep_house(real_hive):
    """Every purge runs, and forgets an aborted transaction without components."""
    real_hive.abort(real_hive.begin())
    real_hive.write()
    real_hive.keep_house()
    assert all(state != "a" for _, state in real_hive.rows(real_hive.schema.txns, "txn_id", "txn_state"))


def test_hives_queue_is_served_by_hive(real_hive):
    """A request, a worker's claim, the end of its work."""
    real_hive.write()
    real_hive.party.call("compact", {"dbname": "db", "tablename": "t", "type": "MAJOR"})
    entry = real_hive.claim()
    assert (entry["dbname"], entry["tableName"], entry["type"]) == ("db", "t", "MAJOR")
    real_hive.party.call("markCompacted", entry)
    assert real_hive.rows(real_hive.schema.compaction_queue, "cq_state") == [("r",)]


def test_hive_forgets_a_dropped_table(real_hive):
    """`cleanupRecords` leaves no component and no write id of it."""
    real_hive.write()
    real_hive.write("db.u")
    real_hive.forget_table("db.t")
    assert real_hive.rows(real_hive.schema.completed_txn_components, "ctc_table") == [("u",)]
    assert real_hive.rows(real_hive.schema.txn_to_write_id, "t2w_table") == [("u",)]


def test_what_hives_own_initiator_queued_is_told_by_its_host(real_hive, tmp_path):
    """Hive 4 notes host and thread, from which `compactor doctor` tells the host; Hive 3.1 notes nothing."""
    database = real_hive.database
    warehouse = Warehouse(tmp_path, MetastoreLedger(database), CatalogRows(database))
    table = warehouse.create_table("db", "t", [("id", "int")])
    for number in range(12):
        with warehouse.begin() as txn:
            txn.insert(table, [(number,)])
    queue = Queue(database)
    queue.enqueue(Entity("db", "another"), CompactionKind.MAJOR)  # the mutex's row is there: Hive's deadlocks without
    assert " ERROR " not in real_hive.party.call("Threads.cycle", "Initiator")
    (entry,) = queue.entries(entity=Entity("db", "t"))
    found = queue.initiators(3_600_000)
    assert found == ({entry.initiator_id: (1, entry.enqueue_ms)} if real_hive.party.hive_4 else None)
    assert all(re.fullmatch(r".+-\d+", name) for name in found or ())
