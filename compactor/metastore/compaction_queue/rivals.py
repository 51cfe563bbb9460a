"""
Whether a compaction is the only one of its table or partition that may publish, decided where it takes effect.

One entry for each table or partition is what Hive means to hand out; but Hive 4.0.1's compact() gives its mutex back
before it commits, clients may spell a name in other letters, and a claim that was taken back may still be worked on.
Two results over the same write ids are read side by side, so each row of both twice. Of our own attempts the first that
commits wins: each asks here in the transaction that commits it, alone with TXN_LOCK_TBL. Hive's own workers don't ask, so
ours give way to them. Hive 3.1 has no transactions of compactions; there the queue's rows are locked while a result is
renamed (`only_publisher`), and the publisher looks for overlapping directories.
Source: docs/metastore.md, *One compaction at a time*; Hive's CompactFunction, AcidCompactionService.
"""

from collections.abc import Callable, Iterable, Sequence

from sqlalchemy import Connection, and_, func, or_, select

from compactor.acid.write_ids import ValidTxnList
from compactor.errors import OwnershipLostError, RivalError
from compactor.metastore.compaction_queue.rows import read_queue
from compactor.metastore.db.schema import HiveSchema
from compactor.metastore.db.sql import batches
from compactor.metastore.model import Entity, QueueEntry, QueueState
from compactor.metastore.partition_names import folded
from compactor.metastore.txn.snapshots import COMPACTION, REBALANCE_COMPACTION
from compactor.metastore.values import value
from compactor.metastore.worker_ids import parse_worker_id


@value(frozen=True, slots=True)
class Rival:
    """
    Another compaction of the same table or partition.

    Args:
        entry_id: of its queue entry; None: only its transaction tells of it.
        working: whether its entry is claimed.
        worker_id: who has the claim, or opened the transaction.
        txn_id: as stored with the entry; None before it is stored, and on Hive 3.1.
        txn_state: `o`, `a` or `c`; None: the transaction is forgotten, or there is none.
    """

    entry_id: int | None
    working: bool
    worker_id: str | None
    txn_id: int | None
    txn_state: str | None


def same_place(one: Entity, other: Entity) -> bool:
    """
    Whether two names may mean one table or partition, in whatever letters and escapes they are stored.

    Two partitions whose names differ by letters only count as one: their compactions follow each other.
    """
    if one.full_name != other.full_name or (one.partition is None) is not (other.partition is None):
        return False
    return one.partition is None or other.partition is None or folded(one.partition) == folded(other.partition)


def hindrance(rivals: Iterable[Rival], is_seen: Callable[[int], bool]) -> str | None:
    """
    Why a compaction mustn't publish beside these; None: it may.

    Args:
        is_seen: whether the compaction's lists show a transaction as committed: then its result was among the inputs.
    """
    for rival in rivals:
        if rival.txn_id is not None and is_seen(rival.txn_id) and not rival.working:
            continue
        name = f"compaction {rival.entry_id}" if rival.entry_id is not None else f"a compaction in {rival.txn_id}"
        if rival.working or rival.entry_id is None:
            if parse_worker_id(rival.worker_id) is None:  # one of ours asks before it commits
                return f"{name} of the same place is at work, by {rival.worker_id or 'an unknown worker'}"
        elif rival.txn_state == "o":
            return f"{name} of the same place is about to be committed"
        elif rival.txn_state != "a":
            return f"{name} of the same place was committed meanwhile"
    return None


def require_first(
    connection: Connection, schema: HiveSchema, entry: QueueEntry, txn_id: int, lists: ValidTxnList
) -> None:
    """
    Check, on Hive 4, that a compaction may be committed: in its own commit, while no other process opens or commits.

    Args:
        lists: the transactions that the compaction saw as committed.

    Raises:
        RivalError: another one comes first.
    """
    rivals = [*_queued(connection, schema, entry, txn_id, lists), *_opened(connection, schema, entry.entity, txn_id)]
    if (why := hindrance(rivals, lists.is_valid)) is not None:
        raise RivalError(f"{entry.entity}: {why}")


def require_only(connection: Connection, schema: HiveSchema, entry: QueueEntry) -> None:
    """
    Check, on Hive 3.1, that a compaction may be published, and lock the rows of all entries of its place until the
    transaction ends: none of them is claimed, taken back or published by our workers meanwhile.

    Raises:
        RivalError: another one comes first.
        OwnershipLostError: the entry isn't this worker's any more.
    """
    queue = schema.compaction_queue
    active = queue.c.cq_state.in_((QueueState.INITIATED.code, QueueState.WORKING.code))
    of_name = func.lower(queue.c.cq_table) == entry.entity.table
    alike = [row.id for row in read_queue(connection, schema, active, of_name) if same_place(row.entity, entry.entity)]
    for numbers in batches(sorted({*alike, entry.id})):  # in one order for all, or two would wait for each other
        connection.execute(
            select(queue.c.cq_id).where(queue.c.cq_id.in_(numbers)).order_by(queue.c.cq_id).with_for_update()
        ).all()
    now = {row.id: row for row in read_queue(connection, schema, active, queue.c.cq_id.in_([*alike, entry.id]))}
    mine = now.pop(entry.id, None)
    if mine is None or (mine.state, mine.worker_id, mine.start_ms) != (
        QueueState.WORKING,
        entry.worker_id,
        entry.start_ms,
    ):
        raise OwnershipLostError(f"compaction {entry.id} of {entry.entity} isn't with {entry.worker_id} any more")
    rivals = [_rival(row, None) for row in now.values() if row.state is QueueState.WORKING]
    if (why := hindrance(rivals, lambda _: False)) is not None:
        raise RivalError(f"{entry.entity}: {why}")


def at_work_on(connection: Connection, schema: HiveSchema, entry_id: int) -> int | None:
    """The id of another entry of the same place as this one that a worker has claimed; None: there is none."""
    queue = schema.compaction_queue
    other = queue.alias()
    columns = (other.c.cq_id, *(table.c[f"cq_{name}"] for table in (queue, other) for name in _NAMES))
    query = select(*columns).where(
        queue.c.cq_id == entry_id,
        other.c.cq_id != entry_id,
        other.c.cq_state == QueueState.WORKING.code,
        func.lower(other.c.cq_table) == func.lower(queue.c.cq_table),
    )
    for number, *names in connection.execute(query):
        if same_place(Entity(*names[:3]), Entity(*names[3:])):
            return int(number)
    return None


_NAMES = ("database", "table", "partition")


def _queued(
    connection: Connection, schema: HiveSchema, entry: QueueEntry, txn_id: int, lists: ValidTxnList
) -> Sequence[Rival]:
    """Entries that are worked on, and those that ended in a transaction that the lists don't show as committed."""
    queue, txns = schema.compaction_queue, schema.txns
    lowest = min([*lists.open, lists.high_watermark + 1])
    unseen = and_(queue.c.cq_txn_id >= lowest, queue.c.cq_txn_id != txn_id)
    relevant = and_(
        queue.c.cq_id != entry.id,
        func.lower(queue.c.cq_table) == entry.entity.table,
        queue.c.cq_type != "c",
        or_(queue.c.cq_state == QueueState.WORKING.code, unseen),
    )
    rows = [row for row in read_queue(connection, schema, relevant) if same_place(row.entity, entry.entity)]
    states: dict[int, str] = {}
    for numbers in batches([row.txn_id for row in rows if row.txn_id is not None]):
        found = connection.execute(select(txns.c.txn_id, txns.c.txn_state).where(txns.c.txn_id.in_(numbers)))
        states.update({int(number): state for number, state in found})
    return [
        _rival(row, states.get(row.txn_id or 0)) for row in rows if row.location is None and row.state in _MAY_PUBLISH
    ]


_MAY_PUBLISH = frozenset({QueueState.WORKING, QueueState.READY_FOR_CLEANING})


def _opened(connection: Connection, schema: HiveSchema, entity: Entity, txn_id: int) -> Sequence[Rival]:
    """
    Open transactions of compactions that noted, or locked, this place: also of those whose claim was taken back.
    """
    txns, components, locks = schema.txns, schema.txn_components, schema.hive_locks
    kinds = and_(
        txns.c.txn_state == "o",
        txns.c.txn_type.in_((COMPACTION, REBALANCE_COMPACTION)),
        txns.c.txn_id != txn_id,
    )
    noted = (
        select(txns.c.txn_id, txns.c.txn_agent_info, *(components.c[f"tc_{name}"] for name in _NAMES))
        .join(components, and_(components.c.tc_txnid == txns.c.txn_id, components.c.tc_operation_type == "c"))
        .where(kinds)
    )
    locked = (
        select(txns.c.txn_id, txns.c.txn_agent_info, locks.c.hl_db, locks.c.hl_table, locks.c.hl_partition)
        .join(locks, locks.c.hl_txnid == txns.c.txn_id)
        .where(kinds, locks.c.hl_table.is_not(None))
    )
    found = {
        int(number): agent
        for query in (noted, locked)
        for number, agent, database, table, partition in connection.execute(query)
        if same_place(Entity(database, table, partition), entity)
    }
    return [Rival(None, False, agent, number, "o") for number, agent in sorted(found.items())]


def _rival(row: QueueEntry, txn_state: str | None) -> Rival:
    return Rival(row.id, row.state is QueueState.WORKING, row.worker_id, row.txn_id, txn_state)
