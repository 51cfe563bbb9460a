"""
Converts rows of COMPACTION_QUEUE and COMPLETED_COMPACTIONS into values and back, for the columns that a schema has.

Hive 3.1 knows neither refused nor aborted compactions, and its history has no column for a message. There both end as
failed, and CC_META_INFO, which Hive 3.1 leaves empty, holds the true state and the message (`refused: corrupt-file:
…`): Hive's own Initiator counts a failure, and the compactor's doesn't.
Source: Hive 3.1's CompactionTxnHandler (markFailed: "to set in CC_META_INFO to provide some context for the failure").
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, bindparam, delete, insert, not_, null, select

from compactor.errors import OutcomeUnknownError, printable
from compactor.metastore.compaction_queue.properties import decode_properties
from compactor.metastore.db.database import Database
from compactor.metastore.db.schema import HiveSchema
from compactor.metastore.db.sql import fetched, fitting
from compactor.metastore.model import KINDS, Entity, ForeignEntry, HistoryEntry, QueueEntry, QueueState

_FIELDS = (
    *("id", "database", "table", "partition", "type", "state"),
    *("worker_id", "start", "run_as", "highest_write_id", "txn_id", "next_txn_id", "commit_time", "enqueue_time"),
    *("pool_name", "tblproperties", "error_message", "retry_retention"),
    *("initiator_id", "initiator_version", "worker_version", "hadoop_job_id", "cleaner_start"),
)
"""Columns of the queue (`cq_…`) and the history (`cc_…`), in the order of `QueueEntry`'s fields (`_values`)."""

_FAILED_ON_3 = (QueueState.REFUSED, QueueState.ABORTED)
_META_INFO = 2048
"""Bytes that CC_META_INFO holds on every database product of Hive's."""


def read_queue(
    connection: Connection, schema: HiveSchema, *where: ColumnElement[bool], limit: int | None = None
) -> list[QueueEntry]:
    """Queue entries by id; rows with a state or type of a later Hive are left out."""
    table = schema.compaction_queue
    query = select(*entry_columns(table, "cq")).where(*where).order_by(table.c.cq_id).limit(limit)
    return [entry for row in fetched(connection.execute(query)) if (entry := queue_entry(row)) is not None]


def read_foreign(connection: Connection, schema: HiveSchema) -> list[ForeignEntry]:
    """The rows that `read_queue` leaves out, by id."""
    queue = schema.compaction_queue
    known = and_(queue.c.cq_type.in_(list(KINDS)), queue.c.cq_state.in_([state.code for state in QueueState]))
    found = []
    for row in connection.execute(select(*labelled(queue)).where(not_(known)).order_by(queue.c.cq_id)).mappings():
        entity = Entity(row["cq_database"], row["cq_table"], row["cq_partition"])
        enqueued = row.get("cq_enqueue_time") or None
        found.append(
            ForeignEntry(
                int(row["cq_id"]), entity, row["cq_type"] or "", row["cq_state"] or "", row["cq_worker_id"], enqueued
            )
        )
    return found


def read_history(
    connection: Connection, schema: HiveSchema, *where: ColumnElement[bool], limit: int | None = None
) -> list[HistoryEntry]:
    """History entries, newest first."""
    table = schema.completed_compactions
    told = null() if "cc_error_message" in table.c else table.c.cc_meta_info
    query = select(*entry_columns(table, "cc"), table.c.cc_end, told).where(*where).order_by(table.c.cc_id.desc())
    rows = fetched(connection.execute(query.limit(limit)))
    return [entry for row in rows if (entry := _history_entry(row)) is not None]


def find(connection: Connection, schema: HiveSchema, entry_id: int) -> QueueEntry | HistoryEntry | None:
    """One compaction by its id, in the queue or in the history."""
    if (found := find_queued(connection, schema, entry_id)) is not None:
        return found
    return next(iter(read_history(connection, schema, schema.completed_compactions.c.cc_id == entry_id)), None)


def find_queued(connection: Connection, schema: HiveSchema, entry_id: int) -> QueueEntry | None:
    """One compaction by its id, in the queue."""
    row = connection.execute(_one_queued(schema), {"id": entry_id}).first()
    return None if row is None else queue_entry(row)


@lru_cache(maxsize=4)
def _one_queued(schema: HiveSchema) -> Select[Any]:
    """The statement of `find_queued`; building it costs more than running it."""
    queue = schema.compaction_queue
    return select(*entry_columns(queue, "cq")).where(queue.c.cq_id == bindparam("id"))


def entry_columns(table: Table, prefix: str) -> list[ColumnElement[Any]]:
    """The columns that `queue_entry` takes, `prefix` being `cq` or `cc`; NULL for those that the schema doesn't have."""
    named = (table.c.get(f"{prefix}_{name}") for name in _FIELDS)
    return [null() if column is None else column for column in named]


def queue_entry(row: Sequence[Any]) -> QueueEntry | None:
    """The entry of a row that begins with `entry_columns`; None for a row that a later Hive wrote."""
    values = _values(row)
    return None if values is None else QueueEntry(*values)


def _history_entry(row: Sequence[Any]) -> HistoryEntry | None:
    """The entry of a row of `entry_columns`, end, and what 3.1 keeps of the message; None as for `queue_entry`."""
    *_, end, meta_info = row
    if (values := _values(row)) is None:
        return None
    entry = HistoryEntry(*(*values, end))
    return replace(entry, **told) if (told := _told(entry.state, meta_info)) else entry


def stored_as(schema: HiveSchema, state: QueueState) -> QueueState:
    """The state that the history of this generation stores for an end."""
    return QueueState.FAILED if state in _FAILED_ON_3 and not schema.generation.tells_refusals else state


def ending(schema: HiveSchema, state: QueueState, message: str | None) -> dict[str, Any]:
    """State and message of a history row, by column."""
    values: dict[str, Any] = {"cc_state": stored_as(schema, state).code}
    message = None if message is None else printable(message)
    if message is not None and schema.generation.tells_refusals:
        values["cc_error_message"] = message
    elif message is not None:
        values["cc_meta_info"] = f"{state.value}: {message}".replace("\0", "").encode()[:_META_INFO]
    return values


def move_to_history(
    connection: Connection,
    schema: HiveSchema,
    guard: Sequence[ColumnElement[bool]],
    state: QueueState,
    *,
    end: ColumnElement[int],
    message: str | None,
) -> bool:
    """
    Move the queue row that `guard` names into the history with this end state (`stored_as`); False when there is none.

    Callers run it in a transaction of their own and give up when it is False.
    """
    queue, history = schema.compaction_queue, schema.completed_compactions
    row = connection.execute(select(*labelled(queue)).where(*guard).with_for_update()).mappings().first()
    if row is None or connection.execute(delete(queue).where(*guard)).rowcount != 1:
        return False
    values = {f"cc_{key.removeprefix('cq_')}": value for key, value in row.items()}
    values |= ending(schema, state, message) | {"cc_end": end}
    connection.execute(insert(history).values(fitting(history, values)))
    return True


def write_end(database: Database, entry: QueueEntry, finish: Callable[[Connection], None]) -> None:
    """Write the end of an entry (`move_to_history`); after an unknown outcome again, unless the history has it."""
    history = database.schema.completed_compactions.c
    ended = select(history.cc_id).where(history.cc_id == entry.id)
    try:
        database.write(finish)
    except OutcomeUnknownError:
        if not database.read(lambda connection: connection.scalar(ended)):
            database.write(finish)


def labelled(table: Table) -> list[ColumnElement[Any]]:
    """All known columns of the table, each under its key."""
    return [column.label(column.key) for column in table.c]


def _told(state: QueueState, meta_info: bytes | None) -> dict[str, Any]:
    """True state and message of a row without a message column; empty for a row of another writer."""
    word, colon, message = bytes(meta_info or b"").decode(errors="ignore").partition(": ")
    told = next((one for one in QueueState if one.value == word), None)
    if not colon or told is None:
        return {}
    return {"error_message": message, "state": told if state is QueueState.FAILED and told in _FAILED_ON_3 else state}


def _values(row: Sequence[Any]) -> tuple[Any, ...] | None:
    """
    The fields of a `QueueEntry` in their order, of a row that begins with the columns of `_FIELDS`: by name they would
    take twice the time, of a hundred thousand rows.

    Hive reads NULL as 0 and writes 0 into the history, for an entry that was aborted before it began, or failed before
    it was committed: in some columns 0 means NULL.
    """
    number, database, table, partition, kind_code, state_code = row[:6]
    worker_id, start, run_as, covered, txn_id, next_txn_id, commit, enqueued = row[6:14]
    pool, written, message, retention = row[14:18]
    state, kind = QueueState.from_code(state_code or ""), KINDS.get(kind_code or "")
    if state is None or kind is None:
        return None
    properties: Mapping[str, str] = {}
    if written:
        with suppress(ValueError):  # one unreadable row must not stop the loop; without its location nothing is deleted
            properties = decode_properties(written)
    return (
        int(number),
        Entity(database, table, partition),
        kind,
        state,
        worker_id,
        start or None,
        run_as,
        covered,
        txn_id or None,
        next_txn_id or None,
        commit or None,
        enqueued or None,
        pool,
        properties,
        message,
        int(retention or 0),
        *row[18:23],
    )
