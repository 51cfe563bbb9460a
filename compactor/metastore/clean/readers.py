"""
Reads who may still read what a compaction replaced: all transactions and locks, or those that a question needs.

`may_clean` decides by them. Source: docs/metastore.md; HIVE-23107.
"""

from collections.abc import Iterable

from sqlalchemy import Connection, or_, select

from compactor.errors import RetryableError
from compactor.metastore.clean.may_clean import Blocker, Readers
from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import batches, of_table
from compactor.metastore.model import Entity, HeldLock
from compactor.metastore.partition_names import spellings
from compactor.metastore.txn.locks import AGENT, on_table, read_locks
from compactor.metastore.txn.snapshots import snapshots_for
from compactor.metastore.txn.transactions import read_open_transactions
from compactor.reasons import Reason

_COMPILES_MS = 120_000
"""
A transaction without a lock is a query that compiles.

One that has been open for longer is most likely of a batch that a streaming writer keeps in reserve.
"""
_NAMED = 3
"""How many of a transaction's locks are told by name."""


def read_older(
    connection: Connection, database: Database, entity: Entity, txn_id: int, lock_id: int | None
) -> list[Blocker]:
    """
    On Hive 3.1: transactions and locks that may list the table under a snapshot from before a compaction's lists.

    Asked every two seconds, so no lock on other tables is fetched. A transaction on 3.1 is one statement, which asks
    for all its locks at once: a transaction that locks only other tables doesn't read this one.

    Args:
        txn_id: the last transaction that had been opened when these lists were taken.
        lock_id: the compaction's own lock; a lock without a transaction counts if it is older.
    """
    locks, txns = database.schema.hive_locks, database.schema.txns.c
    opened = read_open_transactions(connection, database, txns.txn_id <= txn_id)
    compiling = [txn.txn_id for txn in opened if txn.age_ms < _COMPILES_MS]
    locking = {
        found
        for batch in batches(compiling)
        for found in connection.scalars(select(locks.c.hl_txnid).where(locks.c.hl_txnid.in_(batch)).distinct())
    }
    # a dead compaction's lock stays behind, and reads nothing
    others = or_(locks.c.hl_agent_info.is_(None), locks.c.hl_agent_info != AGENT)
    # last: a transaction that reads the table and got its locks in between has one here
    here = read_locks(connection, locks, on_table(locks, entity), others)
    reading = {lock.txn_id for lock in here}
    may_read = reading | (set(compiling) - locking)
    held = [lock for lock in here if not lock.txn_id and lock_id is not None and lock.lock_id < lock_id]
    found = [Blocker(Reason.OPEN_TRANSACTION, str(txn), txn) for txn in opened if txn.txn_id in may_read]
    return found + [Blocker(Reason.HELD_LOCK, str(lock), lock) for lock in held]


def read_ties(connection: Connection, database: Database, entity: Entity, txn_ids: Iterable[int]) -> dict[int, str]:
    """
    On Hive 3.1: for each of these transactions that is open, words that tell by what it may see the table or partition.

    A lock there, or a write id of the table, shows that it does. Without any lock it may be a query that compiles, and
    has its snapshot already. With locks elsewhere only, it is no query of Hive that reads here: such a transaction is
    one statement, which asks for its locks in one request (Hive's DbTxnManager.acquireLocks); other clients may do
    otherwise. For people only: the Cleaner waits for all of them.
    """
    schema, among = database.schema, database.dialect.among
    txns, locks, mapped = schema.txns.c, schema.hive_locks.c, schema.txn_to_write_id.c
    # one statement: a transaction that ends between two would seem to have no lock
    held = (
        select(txns.txn_id, locks.hl_db, locks.hl_table, locks.hl_partition)
        .select_from(schema.txns.outerjoin(schema.hive_locks, locks.hl_txnid == txns.txn_id))
        .where(txns.txn_state == "o")
        .distinct()
    )
    with_id = of_table(schema.txn_to_write_id, "t2w", entity)
    writing: set[int] = set()
    places: dict[int, tuple[set[str], set[str]]] = {}
    for batch in batches(txn_ids, database.dialect.at_once):
        writing.update(connection.scalars(select(mapped.t2w_txnid).where(with_id, among(mapped.t2w_txnid, batch))))
        for txn_id, name, table, partition in connection.execute(held.where(among(txns.txn_id, batch))):
            here, elsewhere = places.setdefault(txn_id, (set(), set()))
            if name is None:
                continue
            same = (name, table) == (entity.database, entity.table)
            meets = same and (None in {entity.partition, partition} or partition in spellings(entity.partition))
            (here if meets else elsewhere).add(str(Entity(name, table, partition)) if table else name)
    return {
        txn_id: _tie(entity, here, elsewhere, writes=txn_id in writing) for txn_id, (here, elsewhere) in places.items()
    }


def _tie(entity: Entity, here: set[str], elsewhere: set[str], *, writes: bool) -> str:
    known = [f"a lock on {_some(here)}"] if here else []
    known += [f"a write id of {entity.full_name}"] if writes else []
    if known:
        return f"it has {' and '.join(known)}"
    if elsewhere:
        return f"its locks are all elsewhere, on {_some(elsewhere)}; a query of Hive asks for all its locks at once"
    return f"it has no lock yet: it may come to read {entity}"


def _some(names: set[str]) -> str:
    return ", ".join([*sorted(names)[:_NAMED], *(["…"] if len(names) > _NAMED else [])])


class MayBeListedError(RetryableError):
    """A lock was found while a directory was being removed; everything was put back."""


def read_readers(connection: Connection, database: Database) -> Readers:
    """Read the transactions and locks of this moment."""
    schema = database.schema
    snapshots = snapshots_for(database)
    settled = snapshots.min_open_or_next(connection)
    snapshot = snapshots.take(connection)
    transactions = tuple(read_open_transactions(connection, database))
    locks: dict[Entity, list[HeldLock]] = {}
    for lock in read_locks(connection, schema.hive_locks):
        if lock.table is not None:
            locks.setdefault(Entity(lock.database, lock.table), []).append(lock)
    history: dict[int, int] = {}
    if schema.min_history_level is not None:
        level = schema.min_history_level.c
        history = {
            int(txn_id): int(seen)
            for txn_id, seen in connection.execute(select(level.mhl_txnid, level.mhl_min_open_txnid))
        }
    registered: dict[int, set[Entity]] = {}
    if schema.min_history_write_id is not None:
        write_id = schema.min_history_write_id.c
        for txn_id, name, table in connection.execute(
            select(write_id.mh_txnid, write_id.mh_database, write_id.mh_table)
        ):
            registered.setdefault(int(txn_id), set()).add(Entity(name, table))
    held = {table: tuple(those) for table, those in locks.items()}
    return Readers(
        snapshot,
        settled,
        transactions,
        held,
        history,
        {txn_id: frozenset(tables) for txn_id, tables in registered.items()},
    )
