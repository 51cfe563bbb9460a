"""
Finds writers of a table or partition that the catalog doesn't have (again): a writer adds it only at its end.

A write id on the table comes before the first file, in every Hive. The partition is told later, or never: components
and locks name it as `partition_names` says, those of dynamic partitions name none, or only a part. So a writer counts
unless all that is known of it names other partitions.
Source: docs/metastore.md; Hive's Driver.acquireLocks (write ids, then locks), SemanticAnalyzer.genFileSinkPlan (the
dummy partition of a dynamic insert), MoveTask.
"""

from sqlalchemy import Connection, and_, select

from compactor.metastore.clean.may_clean import Blocker
from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import batches, of_table
from compactor.metastore.model import Entity, HeldLock
from compactor.metastore.partition_names import may_mean
from compactor.metastore.txn.locks import read_locks
from compactor.metastore.txn.transactions import read_open_transactions
from compactor.reasons import Reason

_WRITING = frozenset("exw")
"""EXCLUSIVE, EXCL_WRITE, SHARED_WRITE; readers' locks tell nothing."""


def writers(
    connection: Connection, database: Database, entity: Entity, own: int | None, own_lock: int | None = None
) -> list[Blocker]:
    """
    Open transactions, and writing locks without one, that may be writing the table or partition.

    A writer that ends during this look has told the catalog before: ask the catalog afterwards, never before.

    Args:
        own, own_lock: the transaction and the lock of the request itself, which don't count.
    """
    schema, dialect = database.schema, database.dialect
    # Read once, without an index on their state. One that ends meanwhile may still count: the next look tells.
    transactions = {txn.txn_id: txn for txn in read_open_transactions(connection, database) if txn.txn_id != own}
    named: dict[int, list[str | None]] = {}
    locks: list[HeldLock] = []
    held, touched, mapped = schema.hive_locks, schema.txn_components.c, schema.txn_to_write_id.c
    for lock in read_locks(connection, held, held.c.hl_db == entity.database, held.c.hl_table == entity.table):
        named.setdefault(lock.txn_id, []).append(lock.partition)
        if lock.kind in _WRITING and lock.lock_id != own_lock:
            locks.append(lock)
    touches = and_(of_table(schema.txn_components, "tc", entity), touched.tc_operation_type != "c")
    with_id = of_table(schema.txn_to_write_id, "t2w", entity)
    writing = {lock.txn_id for lock in locks}
    for batch in batches(transactions, dialect.at_once):
        touching = select(touched.tc_txnid, touched.tc_partition).where(touches)
        for txn_id, partition in connection.execute(touching.where(dialect.among(touched.tc_txnid, batch))):
            named.setdefault(txn_id, []).append(partition)
            writing.add(txn_id)
    for batch in batches(transactions, dialect.at_once):
        allocated = select(mapped.t2w_txnid).where(with_id, dialect.among(mapped.t2w_txnid, batch))
        writing.update(connection.scalars(allocated))
    found = [
        Blocker(Reason.OPEN_TRANSACTION, f"{txn} may be writing there")
        for txn_id, txn in transactions.items()
        if txn_id in writing and any(_meets(entity, partition) for partition in named.get(txn_id, (None,)))
    ]
    return found + [
        Blocker(Reason.HELD_LOCK, str(lock)) for lock in locks if not lock.txn_id and _meets(entity, lock.partition)
    ]


def written_tables(connection: Connection, database: Database) -> frozenset[Entity]:
    """Tables on which an open transaction has a write id, or any process a lock to write."""
    schema, among = database.schema, database.dialect.among
    txns, mapped, held = schema.txns.c, schema.txn_to_write_id.c, schema.hive_locks.c
    locked = select(held.hl_db, held.hl_table).where(held.hl_table.is_not(None), held.hl_lock_type.in_(_WRITING))
    found = {Entity(*row) for row in connection.execute(locked.distinct())}
    opened = connection.scalars(select(txns.txn_id).where(txns.txn_state == "o").order_by(txns.txn_id)).all()
    for batch in batches(opened, database.dialect.at_once):
        numbered = select(mapped.t2w_database, mapped.t2w_table).where(among(mapped.t2w_txnid, batch)).distinct()
        found.update(Entity(*row) for row in connection.execute(numbered))
    return frozenset(found)


def _meets(entity: Entity, partition: str | None) -> bool:
    return entity.partition is None or partition is None or may_mean(partition, entity.partition)
