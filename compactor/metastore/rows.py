"""Rows of COMPACTION_QUEUE and COMPLETED_COMPACTIONS into values and back, for whichever columns a schema has."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, Table, and_, delete, insert, not_, select

from compactor.metastore.model import KINDS, Entity, ForeignEntry, HistoryEntry, QueueEntry, QueueState
from compactor.metastore.properties import decode_properties
from compactor.metastore.schema import HiveSchema
from compactor.metastore.sql import fitting

_FIELDS = {
    "worker_id": "worker_id",
    "start": "start_ms",
    "run_as": "run_as",
    "highest_write_id": "highest_write_id",
    "txn_id": "txn_id",
    "next_txn_id": "next_txn_id",
    "commit_time": "commit_ms",
    "enqueue_time": "enqueue_ms",
    "pool_name": "pool",
    "error_message": "error_message",
    "initiator_id": "initiator_id",
    "initiator_version": "initiator_version",
    "worker_version": "worker_version",
    "hadoop_job_id": "job_id",
    "cleaner_start": "cleaner_start_ms",
}

_TIMES = ("start_ms", "commit_ms", "enqueue_ms")
"""Hive reads NULL as 0 and writes it so into the history: of what was aborted before it began."""


def read_queue(connection: Connection, schema: HiveSchema, *where: ColumnElement[bool], limit: int | None = None) -> list[QueueEntry]:
    """Queue entries by id; rows with a state or type of a later Hive are left out."""
    table = schema.compaction_queue
    query = select(*labelled(table)).where(*where).order_by(table.c.cq_id).limit(limit)
    return [entry for row in connection.execute(query).mappings() if (entry := queue_entry(row)) is not None]


def read_foreign(connection: Connection, schema: HiveSchema) -> list[ForeignEntry]:
    """Those that `read_queue` leaves out, by id."""
    queue = schema.compaction_queue
    known = and_(queue.c.cq_type.in_(list(KINDS)), queue.c.cq_state.in_([state.code for state in QueueState]))
    found = []
    for row in connection.execute(select(*labelled(queue)).where(not_(known)).order_by(queue.c.cq_id)).mappings():
        entity = Entity(row["cq_database"], row["cq_table"], row["cq_partition"])
        enqueued = row.get("cq_enqueue_time") or None
        found.append(ForeignEntry(int(row["cq_id"]), entity, row["cq_type"] or "", row["cq_state"] or "", row["cq_worker_id"], enqueued))
    return found


def read_history(connection: Connection, schema: HiveSchema, *where: ColumnElement[bool], limit: int | None = None) -> list[HistoryEntry]:
    """History entries, newest first."""
    table = schema.completed_compactions
    query = select(*labelled(table)).where(*where).order_by(table.c.cc_id.desc()).limit(limit)
    return [entry for row in connection.execute(query).mappings() if (entry := history_entry(row)) is not None]


def find(connection: Connection, schema: HiveSchema, entry_id: int) -> QueueEntry | HistoryEntry | None:
    """One compaction by its id, in the queue or in the history."""
    found = read_queue(connection, schema, schema.compaction_queue.c.cq_id == entry_id)
    return found[0] if found else next(iter(read_history(connection, schema, schema.completed_compactions.c.cc_id == entry_id)), None)


def queue_entry(row: RowMapping) -> QueueEntry | None:
    """A row selected with all columns of the queue; None for one that a later Hive wrote."""
    values = _common(row, "cq")
    return None if values is None else QueueEntry(**values, retry_retention_ms=int(row.get("cq_retry_retention") or 0))


def history_entry(row: RowMapping) -> HistoryEntry | None:
    """As `queue_entry`, for the history."""
    values = _common(row, "cc")
    return None if values is None else HistoryEntry(**values, end_ms=row.get("cc_end"))


def move_to_history(
    connection: Connection, schema: HiveSchema, guard: Sequence[ColumnElement[bool]], state: QueueState, *, end: ColumnElement[int], message: str | None
) -> bool:
    """
    Take the queue row that `guard` names out and leave it in the history in another state; False when there is none.

    Callers run it in a transaction of their own and give up when it is False.
    """
    queue, history = schema.compaction_queue, schema.completed_compactions
    row = connection.execute(select(*labelled(queue)).where(*guard).with_for_update()).mappings().first()
    if row is None:
        return False
    if connection.execute(delete(queue).where(*guard)).rowcount != 1:
        return False
    values = {f"cc_{key.removeprefix('cq_')}": value for key, value in row.items()}
    values |= {"cc_state": state.code, "cc_end": end}
    if message is not None:
        values["cc_error_message"] = message
    connection.execute(insert(history).values(fitting(history, values)))
    return True


def labelled(table: Table) -> list[ColumnElement[Any]]:
    """All columns that we know, each under its key."""
    return [column.label(column.key) for column in table.c]


def _common(row: RowMapping, prefix: str) -> dict[str, Any] | None:
    def get(name: str) -> Any:
        return row.get(name)

    state, kind = QueueState.from_code(get(f"{prefix}_state") or ""), KINDS.get(get(f"{prefix}_type") or "")
    if state is None or kind is None:
        return None
    try:
        properties = decode_properties(get(f"{prefix}_tblproperties"))
    except ValueError:
        properties = {}  # one unreadable row must not stop the loop; without its location nothing is deleted for it
    values: dict[str, Any] = {field: get(f"{prefix}_{name}") for name, field in _FIELDS.items()}
    values |= {field: values[field] or None for field in _TIMES}
    entity = Entity(get(f"{prefix}_database"), get(f"{prefix}_table"), get(f"{prefix}_partition"))
    return values | {"id": int(get(f"{prefix}_id")), "entity": entity, "kind": kind, "state": state, "properties": properties}
