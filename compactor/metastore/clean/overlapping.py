"""
Finds other compactions of the same table or partition, for the Cleaner on Hive 3.1.

On 3.1 a directory's name doesn't tell which compaction made it. So what an earlier entry may remove depends on what
later ones have published within what it covers. Source: docs/operations.md, *Cleaner*; Hive 3.1's Cleaner.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, func, or_, select

from compactor.metastore.clean.purge import only_its
from compactor.metastore.compaction_queue.rows import entry_columns, queue_entry
from compactor.metastore.db.schema import HiveSchema
from compactor.metastore.db.sql import batches, entity_columns, of_entity, told_apart
from compactor.metastore.model import Entity, QueueEntry, QueueState

_CONDITIONS = 100


def at_work(connection: Connection, schema: HiveSchema) -> dict[Entity, int]:
    """Entities that a compaction is at work on, with the entry's id: its result may appear at any moment."""
    queue = schema.compaction_queue
    query = select(*entry_columns(queue, "cq")).where(queue.c.cq_state == QueueState.WORKING.code)
    return {entry.entity: entry.id for row in connection.execute(query) if (entry := queue_entry(row)) is not None}


def newest_commits(connection: Connection, schema: HiveSchema, entries: Iterable[QueueEntry]) -> dict[Entity, int]:
    """
    The greatest committed write id that isn't compacted and cleaned, for entities that have more than one entry.

    When it isn't above what an entry covers, a later compaction's result lies within that, too, however high the
    table's write ids were when that compaction began.
    """
    several = [entity for entity, count in Counter(entry.entity for entry in entries).items() if count > 1]
    completed = schema.completed_txn_components
    names = entity_columns(completed, "ctc")
    query: Any = select(*names, func.max(completed.c.ctc_writeid)).group_by(*told_apart(names))
    found: dict[Entity, int] = {}
    for batch in batches(several, _CONDITIONS):
        named = {stored: entity for entity in batch for stored in only_its(connection, schema, entity)}
        if not named:
            continue
        for database, table, partition, write_id in connection.execute(
            query.where(or_(*(of_entity(completed, "ctc", stored) for stored in named)))
        ):
            entity = named[Entity(database, table, partition)]
            found[entity] = max(found.get(entity, 0), int(write_id or 0))
    return found


def within(covered: int, entry: QueueEntry, other: QueueEntry, newest: Mapping[Entity, int]) -> bool:
    """Whether the result of `other`, the same entry or a later one, may lie within what `entry` covers."""
    reached = min(other.highest_write_id or 0, newest.get(entry.entity, 0))
    return other.id == entry.id or (other.id > entry.id and reached <= covered)
