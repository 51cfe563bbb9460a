"""Reads from the history which tables and partitions failed lately, and which keep failing."""

from sqlalchemy import Connection, exists, func, select

from compactor.metastore.compaction_queue.rows import read_history
from compactor.metastore.db.schema import HiveSchema
from compactor.metastore.db.sql import entity_columns, same_entity, told_apart
from compactor.metastore.model import Entity, QueueState

_COUNTED = (QueueState.SUCCEEDED, QueueState.FAILED)
"""End states that tell whether compactions of a table or partition fail."""


def read_unlucky(connection: Connection, schema: HiveSchema) -> set[Entity]:
    """Entities whose newest compaction didn't initiate or failed: they are looked at again without a new write."""
    history, newer = schema.completed_compactions, schema.completed_compactions.alias("newer")
    names = entity_columns(history, "cc")
    unlucky = history.c.cc_state.in_([QueueState.DID_NOT_INITIATE.code, QueueState.FAILED.code])
    query = select(*names).where(unlucky)
    if schema.generation.indexes_history:
        # apart from each other: an index serves either, and not every product's serves a comparison that takes both
        later = exists().where(
            newer.c.cc_database == history.c.cc_database,
            newer.c.cc_table == history.c.cc_table,
            newer.c.cc_id > history.c.cc_id,
        )
        of_partitions = ~later.where(newer.c.cc_partition == history.c.cc_partition)
        of_tables = ~later.where(newer.c.cc_partition.is_(None))
        queries = [
            query.where(history.c.cc_partition.is_not(None), of_partitions),
            query.where(history.c.cc_partition.is_(None), of_tables),
        ]
    else:
        newest = select(func.max(history.c.cc_id)).group_by(*told_apart(names))
        queries = [query.where(history.c.cc_id.in_(newest))]
    return {Entity(*name) for each in queries for name in connection.execute(each)}


def read_failing(
    connection: Connection, schema: HiveSchema, threshold: int, forgiven_before_ms: int | None
) -> set[Entity]:
    """
    The entities whose newest `threshold` finished compactions all failed; only the history of entities with enough
    failures is read.

    Args:
        forgiven_before_ms: the newest failure must not be older; None: its age doesn't matter.
    """
    history = schema.completed_compactions
    names = entity_columns(history, "cc")
    failures = select(*names).where(history.c.cc_state == QueueState.FAILED.code)
    failed = failures.group_by(*told_apart(names)).having(func.count() >= threshold).subquery()
    theirs = select(history.c.cc_id).join(failed, same_entity(history, "cc", failed, "cc"))
    states = history.c.cc_state.in_([state.code for state in _COUNTED])
    by_entity: dict[Entity, list[tuple[QueueState, int]]] = {}
    for entry in read_history(connection, schema, states, history.c.cc_id.in_(theirs)):
        if entry.state not in _COUNTED:
            continue  # Hive 3.1 stores the state as failed (`rows`)
        by_entity.setdefault(entry.entity, []).append(
            (entry.state, entry.enqueue_ms or entry.end_ms or entry.start_ms or 0)
        )
    blocked = set()
    for entity, finished in by_entity.items():
        latest = finished[:threshold]
        if len(latest) < threshold or any(state is not QueueState.FAILED for state, _ in latest):
            continue
        if forgiven_before_ms is None or max(moment for _, moment in latest) >= forgiven_before_ms:
            blocked.add(entity)
    return blocked
