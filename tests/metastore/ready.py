"""Finished compactions that wait for the Cleaner."""

from compactor.metastore.txn.snapshots import COMPACTION


def compacted(database, hive, entity="db.t", *, write_id=1, kind="a", next_txn=None):
    """A compaction that was committed a minute ago, as its worker leaves it; returns its id and transaction."""
    if database.schema.generation.layout != "hive-4":
        return hive.queued(entity, state="r", type=kind, highest_write_id=write_id), None
    txn_id = hive.begin(kind=COMPACTION)
    newest = max(number for (number,) in hive.rows(database.schema.txns, "txn_id"))
    hive.commit(txn_id)
    committed = database.read(database.now_ms) - 60_000
    values = {
        "state": "r",
        "type": kind,
        "highest_write_id": write_id,
        "txn_id": txn_id,
        "next_txn_id": next_txn or newest,
        "commit_time": committed,
    }
    return hive.queued(entity, **values), txn_id


def judged(cleaning, number, **arguments):
    """The one entry with this id."""
    (found,) = (ready for ready in cleaning.ready_for_cleaning(**arguments) if ready.entry.id == number)
    return found


def reasons(cleaning, number, **arguments):
    return [blocker.reason for blocker in judged(cleaning, number, **arguments).blockers]
