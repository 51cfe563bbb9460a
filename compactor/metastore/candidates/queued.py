"""Reads which tables and partitions have entries in the queue."""

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, func, select

from compactor.acid.compaction import CompactionKind
from compactor.metastore.db.database import Database
from compactor.metastore.db.schema import HiveSchema
from compactor.metastore.db.sql import batches, entity_columns, fetched, told_apart
from compactor.metastore.model import KIND_CODES, Entity, QueueState

_OF_WHAT_IS_GONE = tuple(KIND_CODES[kind] for kind in (CompactionKind.ABORT_CLEANUP, CompactionKind.DEFERRED_CLEANUP))
"""Kinds of entries that say nothing of what a table of that name holds now."""


def read_active(connection: Connection, schema: HiveSchema) -> Mapping[Entity, QueueState]:
    """The tables and partitions with an entry that is initiated or working, and which of both; working where both."""
    queue = schema.compaction_queue
    query = select(*entity_columns(queue, "cq"), queue.c.cq_state).where(
        queue.c.cq_state.in_([QueueState.INITIATED.code, QueueState.WORKING.code]),
        queue.c.cq_type.not_in(_OF_WHAT_IS_GONE),
    )
    found: dict[Entity, QueueState] = {}
    for database, table, partition, code in fetched(connection.execute(query)):
        entity = Entity(database, table, partition)
        if code == QueueState.WORKING.code or entity not in found:
            found[entity] = QueueState.WORKING if code == QueueState.WORKING.code else QueueState.INITIATED
    return found


def read_ready(connection: Connection, database: Database, tables: Collection[Entity] | None) -> Mapping[Entity, int]:
    """
    The highest write id of the entries of each table and partition that are ready for cleaning.

    Args:
        tables: of these only, and maybe of others with the same names; None: of all.
    """
    queue = database.schema.compaction_queue
    names, highest = entity_columns(queue, "cq"), queue.c.cq_highest_write_id
    query: Any = (
        select(*names, func.max(highest))
        .where(
            queue.c.cq_state == QueueState.READY_FOR_CLEANING.code,
            queue.c.cq_type.not_in(_OF_WHAT_IS_GONE),
            highest.is_not(None),
        )
        .group_by(*told_apart(names))
    )
    queries = [query]
    if tables is not None:
        queries = [
            query.where(database.dialect.among(queue.c.cq_table, batch))
            for batch in batches({entity.table for entity in tables}, database.dialect.at_once)
        ]
    return {Entity(*name): int(number) for each in queries for *name, number in fetched(connection.execute(each))}
