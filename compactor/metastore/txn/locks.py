"""
Takes locks on tables and partitions, at once or not at all, and lists the holders of locks.

A compaction reads, so it takes SHARED_READ. Only an EXCLUSIVE lock (drop, truncate, 3.1's insert overwrite), held or
waiting, is in its way. A restore takes EXCLUSIVE: any lock on the table or partition is in its way, and later readers
and writers wait for it.
Source: docs/metastore.md; Hive's EnqueueLockFunction, CheckLockFunction, TxnHandler.checkLock.
"""

from typing import Literal

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, insert, or_, select, update

from compactor.errors import OutcomeUnknownError, OwnershipLostError, RefusedError, RetryableError
from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import changed, next_number
from compactor.metastore.model import Entity, HeldLock
from compactor.metastore.partition_names import spellings
from compactor.reasons import Reason

AGENT = "compactor"
"""The value of HL_AGENT_INFO in the compactor's locks."""


class Locks:
    """HIVE_LOCKS of one metastore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def acquire_shared(self, entity: Entity, txn_id: int, user: str, host: str, *, agent: str = AGENT) -> int:
        """
        Take SHARED_READ without waiting; returns the lock's id. A refused lock leaves no row behind.

        Args:
            txn_id: the transaction that the lock belongs to and ends with; or 0: the lock lives as long as it gets
                heartbeats (3.1).

        Raises:
            RefusedError: LOCK_NOT_ACQUIRED, naming the lock in the way.
            OwnershipLostError: the transaction isn't open any more.
            RetryableError: the database was in the way.
        """
        return self._take(entity, txn_id, user, host, kind="r", agent=agent)

    def acquire_exclusive(self, entity: Entity, txn_id: int, user: str, host: str) -> int:
        """
        Take EXCLUSIVE without waiting; returns the lock's id. As `acquire_shared`, with the same errors.

        In its way are all locks on the table or partition, held or waiting, and exclusive ones on the database.
        """
        return self._take(entity, txn_id, user, host, kind="e")

    def heartbeat(self, lock_id: int) -> None:
        """
        Keep a lock without a transaction alive.

        Raises:
            OwnershipLostError: the lock is gone: it timed out, or its table was dropped.
        """
        locks = self._table
        change = (
            update(locks)
            .where(locks.c.hl_lock_ext_id == lock_id, locks.c.hl_txnid == 0)
            .values(hl_last_heartbeat=self._database.now)
        )
        if self._database.repeatable(changed, change) == 0:
            raise OwnershipLostError(f"lock {lock_id} is gone: it timed out or was removed")

    def release(self, lock_id: int) -> None:
        """
        Release a lock without a transaction; the lock may be gone already. A transaction's locks end with the
        transaction.
        """
        locks = self._table
        change = delete(locks).where(locks.c.hl_lock_ext_id == lock_id, locks.c.hl_txnid == 0)
        self._database.repeatable(changed, change)

    def held(self, entity: Entity) -> list[HeldLock]:
        """
        Locks, held or waiting, on the same table whose partition may be the same, or is unnamed.

        For a whole table these are the locks of all its partitions. Locks on the database as a whole are left out: a
        CREATE TABLE has one there (an AS SELECT until its end), and a query that reads the table has a lock on the
        table. Wider than Hive 3.1's own Cleaner, which overlooks a reader that locked the table as a whole.
        """
        return self._database.read(read_locks, self._table, on_table(self._table, entity))

    def waiting_for(self, lock_id: int, entity: Entity) -> HeldLock | None:
        """The first exclusive lock that waits until this lock, on that entity, is released."""
        behind = (
            self._table.c.hl_lock_type == "e",
            self._table.c.hl_lock_state == "w",
            self._table.c.hl_lock_ext_id > lock_id,
        )
        found = self._database.read(read_locks, self._table, touching(self._table, entity), *behind)
        return found[0] if found else None

    def all(self) -> list[HeldLock]:
        """Every lock."""
        return self._database.read(read_locks, self._table)

    @property
    def _table(self) -> Table:
        return self._database.schema.hive_locks

    def _take(
        self, entity: Entity, txn_id: int, user: str, host: str, *, kind: Literal["r", "e"], agent: str = AGENT
    ) -> int:
        schema, locks = self._database.schema, self._table

        def take(connection: Connection) -> int:
            if txn_id:
                txns = schema.txns.c
                if connection.scalar(select(txns.txn_state).where(txns.txn_id == txn_id).with_for_update()) != "o":
                    raise OwnershipLostError(f"transaction {txn_id} isn't open any more")
            # Lockers with a smaller id have committed their rows by now: ids are handed out under this row's lock.
            lock_id = next_number(connection, schema.next_lock_id.c.nl_next)
            exclusive = locks.c.hl_lock_type == "e"
            in_the_way = and_(touching(locks, entity), exclusive)
            if kind == "e":
                in_the_way = or_(in_the_way, on_table(locks, entity))
            blocking = read_locks(connection, locks, in_the_way, locks.c.hl_lock_ext_id < lock_id)
            others = [lock for lock in blocking if not txn_id or lock.txn_id != txn_id]
            if others:
                raise RefusedError(Reason.LOCK_NOT_ACQUIRED, f"{entity} is locked: {others[0]}")
            # under each spelling of the name, because Hive compares the names that it stores
            names = (None,) if entity.partition is None else schema.generation.stored_as(entity.partition)
            for number, partition in enumerate(names, 1):
                row = insert(locks).values(
                    hl_lock_ext_id=lock_id,
                    hl_lock_int_id=number,
                    hl_txnid=txn_id,
                    hl_db=entity.database,
                    hl_table=entity.table,
                    hl_partition=partition,
                    hl_lock_state="a",
                    hl_lock_type=kind,
                    hl_last_heartbeat=0 if txn_id else self._database.now,
                    hl_acquired_at=self._database.now,
                    hl_user=user[:128],
                    hl_host=host[:128],
                    hl_agent_info=agent[:128],
                )
                connection.execute(row)
            return lock_id

        try:
            return self._database.write(take)
        except OutcomeUnknownError as error:
            raise RetryableError(
                f"it isn't known whether the lock on {entity} was taken; unused it times out"
            ) from error


def touching(locks: Table, entity: Entity) -> ColumnElement[bool]:
    """
    Locks whose scope may meet the entity: on the whole database, the whole table, or the partition in any stored
    spelling.
    """
    return or_(and_(locks.c.hl_db == entity.database, locks.c.hl_table.is_(None)), on_table(locks, entity))


def on_table(locks: Table, entity: Entity) -> ColumnElement[bool]:
    """The locks of `touching` without those on the database."""
    named = and_(locks.c.hl_db == entity.database, locks.c.hl_table == entity.table)
    if entity.partition is None:
        return named
    return and_(named, or_(locks.c.hl_partition.is_(None), locks.c.hl_partition.in_(spellings(entity.partition))))


def read_locks(connection: Connection, locks: Table, *where: ColumnElement[bool]) -> list[HeldLock]:
    """Locks in the order of their ids."""
    names = "lock_ext_id lock_int_id txnid db table partition lock_state lock_type user host acquired_at"
    columns = [locks.c[f"hl_{name}"] for name in names.split()]
    rows = connection.execute(select(*columns).where(*where).order_by(locks.c.hl_lock_ext_id, locks.c.hl_lock_int_id))
    return [HeldLock(*row) for row in rows]
