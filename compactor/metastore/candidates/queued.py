"""Reads which tables and partitions have entries in the queue."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, func, select

from compactor.acid.compaction import CompactionKind
from compactor.metastore.db.schema import HiveSchema
from compactor.metastore.db.sql import entity_columns, fetched, told_apart
from compactor.metastore.model import KIND_CODES, Entity, QueueState

_OF_WHAT_IS_GONE = (CompactionKind.ABORT_CLEANUP, CompactionKind.DEFERRED_CLEANUP)
"""Kinds of entries that say nothing of what a table of that name holds now."""

Queued = tuple[QueueState | None, int | None]
"""The state of an entry that is initiated or working, and the highest write id of entries that are ready for cleaning."""


def read_queued(connection: Connection, schema: HiveSchema) -> Mapping[Entity, Queued]:
    """What the queue has of each table and partition."""
    queue = schema.compaction_queue
    names = entity_columns(queue, "cq")
    query: Any = select(*names, queue.c.cq_state, func.max(queue.c.cq_highest_write_id)).group_by(
        *told_apart(names), queue.c.cq_state
    )
    query = query.where(queue.c.cq_type.not_in([KIND_CODES[kind] for kind in _OF_WHAT_IS_GONE]))
    found: dict[Entity, Queued] = {}
    for database, table, partition, code, highest in fetched(connection.execute(query)):
        entity = Entity(database, table, partition)
        active, ready = found.get(entity, (None, None))
        match QueueState.from_code(code):
            case QueueState.READY_FOR_CLEANING:
                ready = None if highest is None else int(highest)
            case QueueState.INITIATED | QueueState.WORKING as state:
                active = QueueState.WORKING if QueueState.WORKING in {active, state} else state
        found[entity] = (active, ready)
    return found
