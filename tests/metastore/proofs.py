"""Proofs for tests that have no directories: as if a sweep had found nothing of what is aborted by now."""

from compactor.metastore.clean.aborts import Aborts
from compactor.metastore.clean.purge import Proof
from compactor.planning.forgetting import Search
from tests.metastore.actor import T

LATE_MS = 24 * 3_600_000
"""`cleaner.late_writer_hours`, as delivered."""


def proof(database, table=T, *, tbl_id=1, partition=None, held=(), up_to=None):
    """
    All of a table was swept just now, or one partition; `held` ids still have rows, ids above `up_to` weren't judged.
    """
    txns, write_ids = Aborts(database).lists(table)
    gone = frozenset(i for i in write_ids.aborted if i not in held and (up_to is None or i <= up_to))
    listed_ms = database.read(database.now_ms)
    return Proof(table, tbl_id, Search(txns, partition, gone, listed_ms, LATE_MS))


def clear(database):
    """Forget all that was aborted in the table, which is the only one in the catalog."""
    aborts = Aborts(database)
    aborts.note_unnamed()
    return aborts.forget(aborts.groups(0, -1), proof(database))
