"""
Reads which other compactions of a table or partition there are, where a compaction is about to take effect.

One entry for each table or partition is what Hive means to hand out; but Hive 4.0.1's compact() gives its mutex back
before it commits, clients may spell a name in other letters, and a claim that was taken back may still be worked on. So
each attempt of ours asks in the transaction that commits it, alone with TXN_LOCK_TBL, under which no process opens or
commits a transaction. The queue has no index but that on its ids, and may be long: it is read before (`neighbours`), and
under the lock only the rows of the place, and those that came since. Hive 3.1 has no transactions of compactions; there
the publisher looks for overlapping directories when the staging directories of all others are gone. What hinders a
compaction is decided by `planning.rivals`.
Source: docs/metastore.md, *One compaction at a time*; Hive's CompactFunction, AcidCompactionService.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, func, select

from compactor.acid.compaction import CompactionKind
from compactor.acid.write_ids import ValidTxnList
from compactor.errors import RivalError
from compactor.metastore.compaction_queue.rows import read_queue
from compactor.metastore.db.database import Database
from compactor.metastore.db.schema import HiveSchema
from compactor.metastore.db.sql import batches, entity_columns
from compactor.metastore.model import Entity, QueueEntry, QueueState
from compactor.metastore.partition_names import FoldedEntity, folded_entity
from compactor.metastore.txn.snapshots import COMPACTION, REBALANCE_COMPACTION
from compactor.metastore.worker_ids import parse_worker_id
from compactor.planning.rivals import Rival, hindrance


@dataclass(frozen=True, slots=True)
class Neighbours:
    """
    The entries of one place, as one reading of the whole queue found them.

    Args:
        ids: of the entries, the compaction's own among them.
        next_id: no entry from this id on was there yet.
    """

    ids: frozenset[int]
    next_id: int


def neighbours(connection: Connection, schema: HiveSchema, entry: QueueEntry) -> Neighbours:
    """
    Find the entries of a compaction's table or partition.

    The next id is read first: Hive and we take an id, and insert its row, in one transaction under the counter's row
    lock, so each row with a smaller id is there when the queue is read afterwards, or was and is gone.
    """
    queue, place = schema.compaction_queue, folded_entity(entry.entity)
    next_id = int(connection.scalar(select(schema.next_compaction_queue_id.c.ncq_next)) or 0)
    of_name = func.lower(queue.c.cq_table) == entry.entity.table
    rows = connection.execute(select(queue.c.cq_id, *entity_columns(queue, "cq")).where(of_name))
    return Neighbours(frozenset({entry.id, *(int(number) for number, *name in rows if _at(name) == place)}), next_id)


def require_first(
    connection: Connection, database: Database, entry: QueueEntry, txn_id: int, lists: ValidTxnList, *, near: Neighbours
) -> None:
    """
    Check, on Hive 4, that a compaction may be committed: in its own commit, while no other process opens or commits.

    Args:
        lists: the transactions that the compaction saw as committed.

    Raises:
        RivalError: another one comes first.
    """
    entity, queued = _queued(connection, database.schema, entry, txn_id, near=near)
    place = folded_entity(entity)
    rivals = (*queued, *_opened(connection, database, txn_id, lists))
    if (why := hindrance(place, rivals, lists)) is not None:
        raise RivalError(f"{entry.entity}: {why}")


def require_none_open(
    connection: Connection, database: Database, entry: QueueEntry, txn_id: int, lists: ValidTxnList
) -> None:
    """
    Check, on Hive 4, that no compaction of Hive's is under way in the place, also none whose claim was taken back: a new
    attempt would be in vain.

    Raises:
        RivalError: there is one.
    """
    rivals = _opened(connection, database, txn_id, lists)
    if (why := hindrance(folded_entity(entry.entity), rivals, lists)) is not None:
        raise RivalError(f"{entry.entity}: {why}")


def require_turn(connection: Connection, schema: HiveSchema, entry: QueueEntry, name_write_id: int | None) -> None:
    """
    Check, on Hive 3.1, that none of Hive's own workers works on another entry of the place, which looks at nothing; and
    that no entry is left to be cleaned for which a Cleaner could take the result for its own.

    Args:
        name_write_id: the highest write id in the result's name; None: there is no result.

    Raises:
        RivalError: there is such an entry.
    """
    queue = schema.compaction_queue.c
    states = [state.code for state in (QueueState.WORKING, QueueState.READY_FOR_CLEANING)]
    of_name = func.lower(queue.cq_table) == entry.entity.table
    others = read_queue(connection, schema, queue.cq_state.in_(states), of_name)
    rivals = [_rival(row, None) for row in others if row.id != entry.id]
    if (why := hindrance(folded_entity(entry.entity), rivals, None, name_write_id)) is not None:
        raise RivalError(f"{entry.entity}: {why}")


def places_at_work(connection: Connection, schema: HiveSchema) -> frozenset[FoldedEntity]:
    """The places with an entry that a worker has claimed, one of ours or of Hive's."""
    queue = schema.compaction_queue
    query = select(*entity_columns(queue, "cq")).where(queue.c.cq_state == QueueState.WORKING.code)
    return frozenset(_at(name) for name in connection.execute(query))


def _queued(
    connection: Connection, schema: HiveSchema, entry: QueueEntry, txn_id: int, *, near: Neighbours
) -> tuple[Entity, Sequence[Rival]]:
    """
    The name of the entry's place now, and the other entries of it that may be published, or were. Hive's RENAME gives
    the entries of a table another name, and they keep their ids.
    """
    queue, txns = schema.compaction_queue, schema.txns
    found = {row.id: row for row in _of_ids(connection, schema, near.ids)}
    mine = found.pop(entry.id, entry)
    since = read_queue(
        connection, schema, queue.c.cq_id >= near.next_id, func.lower(queue.c.cq_table) == mine.entity.table
    )
    found |= {row.id: row for row in since if row.id != entry.id}
    rows = [row for row in found.values() if _may_publish(row) and row.txn_id != txn_id]
    states: dict[int, str] = {}
    for numbers in batches([row.txn_id for row in rows if row.txn_id is not None]):
        told = connection.execute(select(txns.c.txn_id, txns.c.txn_state).where(txns.c.txn_id.in_(numbers)))
        states.update({int(number): state for number, state in told})
    return mine.entity, [_rival(row, states.get(row.txn_id or 0)) for row in rows]


def _may_publish(row: QueueEntry) -> bool:
    """Whether an entry is a compaction that is worked on or ended well: no clean-up, no directory that is dropped."""
    compacts = row.kind is not CompactionKind.ABORT_CLEANUP and row.location is None
    return compacts and row.state in {QueueState.WORKING, QueueState.READY_FOR_CLEANING}


def _opened(connection: Connection, database: Database, txn_id: int, lists: ValidTxnList) -> Sequence[Rival]:
    """
    Open transactions of compactions, with each place that they noted or locked: also of those whose claim was taken back.

    What is open now was open, or not yet there, when the lists were taken: by these ids an index leads to the rows.
    """
    schema, among = database.schema, database.dialect.among
    txns, components, locks = schema.txns, schema.txn_components, schema.hive_locks
    kinds = and_(
        txns.c.txn_state == "o", txns.c.txn_type.in_((COMPACTION, REBALANCE_COMPACTION)), txns.c.txn_id != txn_id
    )
    noted = (
        select(txns.c.txn_id, txns.c.txn_agent_info, *entity_columns(components, "tc"))
        .join(components, and_(components.c.tc_txnid == txns.c.txn_id, components.c.tc_operation_type == "c"))
        .where(kinds)
    )
    locked = (
        select(txns.c.txn_id, txns.c.txn_agent_info, locks.c.hl_db, locks.c.hl_table, locks.c.hl_partition)
        .join(locks, locks.c.hl_txnid == txns.c.txn_id)
        .where(kinds, locks.c.hl_table.is_not(None))
    )
    unfinished: list[ColumnElement[bool]] = [txns.c.txn_id > lists.high_watermark]
    unfinished += [among(txns.c.txn_id, batch) for batch in batches(lists.open, database.dialect.at_once)]
    return [
        Rival(_at(name), None, False, agent, parse_worker_id(agent) is not None, int(number), "o")
        for ids in unfinished
        for query in (noted, locked)
        for number, agent, *name in connection.execute(query.where(ids).order_by(txns.c.txn_id))
    ]


def _of_ids(connection: Connection, schema: HiveSchema, ids: frozenset[int]) -> Iterator[QueueEntry]:
    for numbers in batches(sorted(ids)):
        yield from read_queue(connection, schema, schema.compaction_queue.c.cq_id.in_(numbers))


def _at(name: Sequence[str | None]) -> FoldedEntity:
    database, table, partition = name
    return folded_entity(Entity(database or "", table or "", partition))


def _rival(row: QueueEntry, txn_state: str | None) -> Rival:
    ours = parse_worker_id(row.worker_id) is not None
    working = row.state is QueueState.WORKING
    return Rival(
        folded_entity(row.entity),
        row.id,
        working,
        row.worker_id,
        ours,
        row.txn_id,
        txn_state,
        row.highest_write_id or 0,
    )
