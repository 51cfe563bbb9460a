"""
Deletes that wait for rows which Hive's own DROP or RENAME is changing: they find others under the name afterwards.

InnoDB reads a subquery of a DELETE once, then waits for the rows and takes them as they are by then; PostgreSQL takes
none that didn't fit when the statement began.
"""

import threading

import pytest
from sqlalchemy import delete, select, update

from compactor.acid.compaction import CompactionKind
from compactor.acid.write_ids import ValidWriteIdList
from compactor.errors import OwnershipLostError
from compactor.metastore.clean.aborts import Aborts
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.housekeeping import Duty, Housekeeping
from compactor.metastore.model import Entity
from compactor.metastore.txn.transactions import Transactions
from tests.metastore.databases import client, kinds, metastore

pytestmark = pytest.mark.hive
OLD, NEW = Entity("db", "t"), Entity("db", "s")


@pytest.fixture(params=kinds(["postgres-4", "postgres-3", "mariadb-4", "mariadb-3", "mysql5-4", "mysql5-3"]))
def shared_database(request, tmp_path):
    with metastore(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture(params=kinds(["postgres-4", "postgres-3", "mariadb-3", "mysql5-3"]))
def stepped_database(request, tmp_path):
    """Without Hive 4 on MySQL: its locks on gaps make two of its own calls wait for each other."""
    with metastore(request.param, request, tmp_path) as found:
        yield found


def dropping(hive, table, *, session="stepped"):
    """Hive's own DROP TABLE as it stands before it looks at the next table after the commits, which it has deleted."""
    database, name = table.split(".")
    facts = {
        "catName": "hive",
        "dbName": database,
        "tableName": name,
        "tableType": "MANAGED_TABLE",
        "parameters": {"transactional": "true"},
    }
    place = {"name": database, "catalogName": "hive"}
    return _until_after_commits(
        hive.party.begin("cleanupRecords", "TABLE", place, facts, None, session=session, gated=True)
    )


def renaming(hive, old, new, *, session="stepped"):
    """Hive's own RENAME; as `dropping`. The catalog is changed before."""
    names = [part for name in (old, new) for part in ("hive", *name.split("."), None)]
    return _until_after_commits(hive.party.begin("onRename", *names, session=session, gated=True))


def _until_after_commits(pending):
    while "COMPLETED_TXN_COMPONENTS" not in pending.at().upper():
        pending.go()
    pending.go()
    pending.at()
    return pending


def beside(change, *pending):
    """What `change` returns while these calls of Hive's are under way, and end, in this order, after it began."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(change()))
    thread.start()
    for one in pending:
        thread.join(0.7)  # it waits for a row by then, or has ended
        one.finish()
    thread.join(30)
    return answers[0]


def test_what_vanished_beside_a_rename_to_its_name(shared_database, parties):
    """
    Components of a table that was dropped are forgotten; aborted writes to a table that gets the name meanwhile stay
    aborted, also of a transaction that wrote to both.
    """
    hive, aborts, schema = client(shared_database, parties), Aborts(shared_database), shared_database.schema
    s_id, t_id = hive.create_table("db.s"), hive.create_table("db.t")
    both = hive.begin()
    for table in ("db.s", "db.t"):
        hive.touch(both, table)
    hive.abort(both)
    hive.fail_write("db.t")
    hive.drop_table(s_id)
    for table, name in ((schema.txn_to_write_id, "t2w"), (schema.next_write_id, "nwi")):
        hive.change(delete(table).where(table.c[f"{name}_table"] == "s"))  # as DROP does; the component came later
    aborts.note_unnamed()
    groups = [group for group in aborts.groups(0, -1) if group.entity == NEW]
    assert groups
    rename = renaming(hive, "db.t", "db.s")  # its catalog's change is committed later, for the harder order
    beside(lambda: aborts.forget_vanished(groups, NEW), rename)
    hive.change(update(schema.tbls).where(schema.tbls.c.tbl_id == t_id).values(tbl_name="s"))
    hive.write("db.other")
    hive.keep_house()
    for duty in Duty:
        Housekeeping(shared_database).run(duty)
    _, (text,) = hive.snapshot("db.s")
    valid = ValidWriteIdList.parse(text)
    assert not any(valid.is_valid(number) for number in (1, 2))


def test_duplicates_beside_a_drop_and_a_rename(stepped_database, parties):
    """A commit is no duplicate because of a later one that another table of the name had."""
    hive, commits = client(stepped_database, parties), stepped_database.schema.completed_txn_components.c
    for _ in range(3):
        hive.write("db.s")
    for _ in range(2):
        hive.write("db.t")
    hive.write("db.other")
    look = select(commits.ctc_writeid).where(commits.ctc_table == "s")
    drop = dropping(hive, "db.s", session="dropping")
    rename = renaming(hive, "db.t", "db.s", session="renaming")
    beside(Housekeeping(stepped_database).remove_duplicate_components, drop, rename)
    assert 2 in stepped_database.read(lambda connection: connection.scalars(look).all())


def test_a_cleaned_entry_that_was_renamed_forgets_nothing_of_its_old_name(stepped_database, parties):
    """A table that has the name now keeps its commits: the Cleaner learns that the entry moved, and looks anew."""
    hive, queue = client(stepped_database, parties), Queue(stepped_database)
    hive.create_table("db.t")
    hive.write("db.t")
    queue.enqueue(OLD, CompactionKind.MAJOR)
    entry = queue.claim("w", "1")
    txn_id = Transactions(stepped_database).open_compaction("u", "h")
    queue.set_compactor_state(entry, txn_id, 1, None)
    entry = queue.entry(entry.id)
    queue.mark_compacted_and_commit(entry, "w", txn_id)
    entry = queue.entry(entry.id)
    renaming(hive, "db.t", "db.s").finish()
    hive.write("db.t")  # of a table that was created since
    with pytest.raises(OwnershipLostError):
        Cleaning(stepped_database).mark_cleaned(entry)
    assert queue.entry(entry.id).entity == NEW
    commits = stepped_database.schema.completed_txn_components.c
    tables = stepped_database.read(lambda connection: connection.scalars(select(commits.ctc_table)).all())
    assert sorted(tables) == ["s", "t"]
