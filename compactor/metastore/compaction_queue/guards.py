"""
Guards: conditions under which a row of the compaction queue still has its expected owner, and the errors when it
hasn't.

Source: docs/metastore.md.
"""

from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, Table, and_, select, update

from compactor.errors import OwnershipLostError
from compactor.metastore.db.schema import HiveSchema
from compactor.metastore.db.sql import fitting, same
from compactor.metastore.model import QueueEntry


def owned(queue: Table, entry: QueueEntry) -> ColumnElement[bool]:
    """The row is in `entry.state`, with `entry.worker_id`."""
    return and_(
        queue.c.cq_id == entry.id, queue.c.cq_state == entry.state.code, same(queue.c.cq_worker_id, entry.worker_id)
    )


def update_owned(connection: Connection, queue: Table, entry: QueueEntry, values: Mapping[str, object]) -> None:
    """
    Change columns of a row that still has its expected owner.

    Raises:
        OwnershipLostError: the row is in another state or with another worker.
    """
    if connection.execute(update(queue).where(owned(queue, entry)).values(fitting(queue, values))).rowcount != 1:
        raise lost(entry)


def lock_open(connection: Connection, schema: HiveSchema, txn_id: int) -> None:
    """
    Lock an open transaction's row until the database transaction ends: no process aborts or commits it meanwhile.

    Raises:
        OwnershipLostError: the transaction isn't open.
    """
    txns = schema.txns.c
    state = connection.scalar(select(txns.txn_state).where(txns.txn_id == txn_id).with_for_update())
    if state != "o":
        word = {None: "gone", "a": "aborted", "c": "committed"}.get(state, str(state))
        raise OwnershipLostError(f"transaction {txn_id} is {word}: it was ended by another process")


def lost(entry: QueueEntry) -> OwnershipLostError:
    """The error for a change that matched no row."""
    return OwnershipLostError(
        f"compaction {entry.id} of {entry.entity} isn't {entry.state.value} by {entry.worker_id or 'no worker'} any more"
    )
