"""Components that name a table that isn't theirs any more: Hive dropped or renamed it while they were noted."""

import pytest
from sqlalchemy import update

from compactor.acid.write_ids import ValidWriteIdList
from compactor.metastore.clean.aborts import Aborts
from compactor.metastore.housekeeping import Duty, Housekeeping
from compactor.metastore.model import Entity
from tests.metastore.databases import kinds, metastore
from tests.metastore.proofs import LATE_MS, proof

pytestmark = pytest.mark.hive
OLD, NEW = Entity("db", "t"), Entity("db", "s")


@pytest.fixture(params=kinds(["postgres-4", "postgres-3", "mariadb-3"]))
def shared_database(request, tmp_path):
    """
    Without Hive 4 on MySQL: it drops and renames at the server's own isolation, whose locks on gaps let nothing be
    added to TXN_COMPONENTS meanwhile.
    """
    with metastore(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture
def aborts(shared_database):
    return Aborts(shared_database)


def drop(hive, tbl_id):
    """Hive's call, its first half done."""
    hive.drop_table(tbl_id)
    facts = {
        "catName": "hive",
        "dbName": "db",
        "tableName": "t",
        "tableType": "MANAGED_TABLE",
        "parameters": {"transactional": "true"},
    }
    return half(hive, "cleanupRecords", "TABLE", {"name": "db", "catalogName": "hive"}, facts, None)


def rename(hive, tbl_id):
    """As `drop`."""
    tbls = hive.schema.tbls
    hive.change(update(tbls).where(tbls.c.tbl_id == tbl_id).values(tbl_name="s"))
    return half(hive, "onRename", "hive", "db", "t", None, "hive", "db", "s", None)


def half(hive, *call):
    """A call of Hive's that has dealt with the components it saw, and not yet with write ids."""
    pending = hive.party.begin(*call, session="stepped", gated=True)
    while "COMPLETED_TXN_COMPONENTS" not in pending.at().upper():
        pending.go()
    return pending


def unnamed(hive):
    """An aborted write of which Hive noted nothing."""
    txn_id = hive.begin()
    hive.allocate(txn_id)
    hive.abort(txn_id)


def forget_all(database, aborts, table, tbl_id):
    """As the abort cleaner does: what was aborted in a table that it has swept."""
    groups = [group for group in aborts.groups(0, -1) if group.entity == table]
    return aborts.forget(groups, proof(database, table, tbl_id=tbl_id))


def test_what_was_noted_while_its_table_was_dropped_is_forgotten(shared_database, shared_hive, aborts):
    """
    A component that was added as Hive dropped the table names no write id of the next one of that name: the first sweep
    of that one forgets it.
    """
    dropping_id = shared_hive.create_table()
    unnamed(shared_hive)
    dropping = drop(shared_hive, dropping_id)
    aborts.note_unnamed()
    dropping.finish()
    tbl_id = shared_hive.create_table()
    assert forget_all(shared_database, aborts, OLD, tbl_id) == 1
    assert aborts.totals(1, LATE_MS).count == 0


@pytest.mark.parametrize("again", [False, True])
def test_what_was_noted_while_its_table_was_renamed_stays_aborted(shared_database, shared_hive, aborts, again):
    """
    Under the old name, where perhaps another table is by now, nothing is left to forget; under the new one the write
    stays known until that is swept.
    """
    tbl_id = shared_hive.create_table()
    unnamed(shared_hive)
    renaming = rename(shared_hive, tbl_id)
    aborts.note_unnamed()
    renaming.finish()
    if again:
        forget_all(shared_database, aborts, OLD, shared_hive.create_table())
    else:
        aborts.forget_vanished(aborts.groups(0, -1), OLD)
    shared_hive.write("db.other")
    shared_hive.keep_house()
    for duty in Duty:
        Housekeeping(shared_database).run(duty)
    _, (found,) = shared_hive.snapshot("db.s")
    assert not ValidWriteIdList.parse(found).is_valid(1)
    assert [group.entity for group in aborts.groups(0, -1)] == [NEW]
    assert forget_all(shared_database, aborts, NEW, tbl_id) == 1
    assert aborts.totals(1, LATE_MS).count == 0
