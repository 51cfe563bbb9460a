"""
Finds the readers that may still read what a compaction replaced.

An entry may be cleaned when every transaction that was open at its commit has ended, and every lock that was there
without a transaction is gone. Hive 3.1 doesn't note the time of the commit: there the transactions and locks count that
existed when the Cleaner first saw the entry ready. Source: docs/metastore.md; HIVE-23107, HIVE-24291, HIVE-26704;
Hive's ReadyToCleanHandler and 3.1's Cleaner.

A `Sight` is the first observation: it records which transactions and locks exist when the Cleaner first sees an entry
ready. It is taken at the commit or later: at worst cleaning is delayed. On Hive 3.1 it holds only for the results that
lay there before it was taken, so those stay with it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection, and_, or_, select

from compactor.acid.write_ids import ValidTxnList
from compactor.errors import RetryableError
from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import batches
from compactor.metastore.model import Entity, HeldLock, OpenTransaction, duration
from compactor.metastore.partition_names import spellings
from compactor.metastore.txn.locks import AGENT, on_table, read_locks
from compactor.metastore.txn.snapshots import Snapshot, snapshots_for
from compactor.metastore.txn.transactions import read_open_transactions
from compactor.metastore.values import value
from compactor.planning.observed import Seen
from compactor.reasons import Reason

_COMPILES_MS = 120_000
"""
A transaction without a lock is a query that compiles.

One that has been open for longer is most likely of a batch that a streaming writer keeps in reserve.
"""
_NAMED = 3
"""How many of a transaction's locks are told by name."""


@value(frozen=True, slots=True)
class Sight:
    """
    The first observation of a ready entry.

    Args:
        at_ms: the database clock.
        high_watermark: the last transaction that had been opened.
        locks: on the entry's table or partition.
        seen: what had been listed in its directory before (Hive 3.1); None: it wasn't listed.
    """

    at_ms: int
    high_watermark: int
    locks: frozenset[int]
    seen: Seen | None = None


@dataclass(frozen=True, slots=True)
class Blocker:
    """
    One reason why cleaning is held back.

    The sentence names the transaction with its user, host and age, the lock, or the rule.

    Args:
        holder: the transaction or lock, where the reason is one.
    """

    reason: Reason
    sentence: str
    holder: OpenTransaction | HeldLock | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Readers:
    """
    All transactions and locks at one moment that may protect files from cleaning.

    Args:
        settled: every transaction below it is finished.
        history: for each open transaction the smallest id that it saw open when it began.
        registered: tables that an open transaction registered in MIN_HISTORY_WRITE_ID, for those that registered any.
    """

    snapshot: Snapshot
    settled: int
    open: tuple[OpenTransaction, ...]
    locks: Mapping[Entity, tuple[HeldLock, ...]]
    history: Mapping[int, int] = field(default_factory=dict)
    registered: Mapping[int, frozenset[Entity]] = field(default_factory=dict)
    _known: dict[Entity | None, tuple[tuple[OpenTransaction, ...], int, int]] = field(
        default_factory=dict, compare=False
    )
    _capped: dict[int, ValidTxnList] = field(default_factory=dict, compare=False)
    _holding: dict[tuple[Entity | None, int], tuple[Blocker, ...]] = field(default_factory=dict, compare=False)
    _blockers: dict[int, Blocker] = field(default_factory=dict, compare=False)

    def locks_on(self, entity: Entity) -> list[HeldLock]:
        """
        Locks on the entity's table whose partition may be the same, or is unnamed; for a whole table all its locks.
        """
        if not self.locks:
            return []
        held = self.locks.get(entity.whole_table(), ())
        if entity.partition is None or not held:
            return list(held)
        names = spellings(entity.partition)
        return [lock for lock in held if lock.partition is None or lock.partition in names]

    def may_read(self, entity: Entity) -> tuple[OpenTransaction, ...]:
        """
        Open transactions that may read the table.

        A read-only transaction that registered its tables without this one, and holds no lock on this one, reads
        others: it is one query. Any other may have several statements (START TRANSACTION), which have one snapshot, and
        each registers what it reads when it is compiled (Hive's Compiler.generateValidTxnList). A transaction that
        registered this table counts with every write id that it registered: with nothing open that is its high
        watermark + 1, which says nothing about when it began.
        """
        return self._of_table(entity)[0]

    def first_reader(self, entity: Entity) -> int:
        """The smallest transaction that may read the table, or may turn out to."""
        return self._of_table(entity)[1]

    def horizon(self, entity: Entity) -> int:
        """Below it every transaction is finished, and was finished when the first reader of the table began."""
        return self._of_table(entity)[2]

    def _of_table(self, entity: Entity) -> tuple[tuple[OpenTransaction, ...], int, int]:
        """The table's readers, the first of them, the horizon; without registered tables the same for every table."""
        key = entity.whole_table() if self.registered else None
        if key not in self._known:
            reading = self.open if key is None else self._reading(key)
            first = self.settled if len(reading) == len(self.open) else self._first(reading)
            seen_open = [self.history[txn.txn_id] for txn in reading if txn.txn_id in self.history]
            self._known[key] = (reading, first, min([first, *seen_open]))
        return self._known[key]

    def _reading(self, table: Entity) -> tuple[OpenTransaction, ...]:
        locking = {lock.txn_id for lock in self.locks.get(table, ())}
        return tuple(
            txn
            for txn in self.open
            if not txn.read_only or table in self.registered.get(txn.txn_id, (table,)) or txn.txn_id in locking
        )

    def _first(self, reading: tuple[OpenTransaction, ...]) -> int:
        gaps = set(self.snapshot.open) - {txn.txn_id for txn in self.open}
        return min([txn.txn_id for txn in reading] + sorted(gaps)[:1], default=self.snapshot.high_watermark + 1)

    def open_at(self, entity: Entity, txn_id: int) -> tuple[Blocker, ...]:
        """
        Transactions that may read the table and began at or before `txn_id`.

        The answer is one object for all entries that the same transactions hold back: there may be many of both.
        """
        if txn_id < self.first_reader(entity):
            return ()
        reading = self.may_read(entity)  # ascending
        count = bisect_right(reading, txn_id, key=lambda txn: txn.txn_id)
        if not count:
            return (Blocker(Reason.OPEN_TRANSACTION, "a transaction below the newest one may be about to open"),)
        key = (entity.whole_table() if self.registered else None, count)
        if (known := self._holding.get(key)) is None:
            known = self._holding[key] = tuple(self._blocker(txn) for txn in reading[:count])
        return known

    def _blocker(self, txn: OpenTransaction) -> Blocker:
        """One for each transaction, however many entries it holds back."""
        if (known := self._blockers.get(txn.txn_id)) is None:
            known = self._blockers[txn.txn_id] = Blocker(Reason.OPEN_TRANSACTION, str(txn), txn)
        return known

    def capped(self, high_watermark: int) -> ValidTxnList:
        """`Snapshot.capped`, once for all entries with the same high watermark: most have the same."""
        if (known := self._capped.get(high_watermark)) is None:
            known = self._capped[high_watermark] = self.snapshot.capped(high_watermark)
        return known

    def began_while_open(self, entity: Entity, txn_id: int) -> list[Blocker]:
        """
        Transactions that may read the table and, when they began, saw a transaction open that isn't above `txn_id`.

        MIN_HISTORY_LEVEL tells only the smallest id that they may have seen open: `txn_id` itself may have been open as
        well, or not. For a second after an id was handed out Hive 4.0 takes it for open
        (MinOpenTxnIdWaterMarkFunction).
        """
        found = [txn for txn in self.may_read(entity) if self.history.get(txn.txn_id, txn_id + 1) <= txn_id]
        return [
            Blocker(
                Reason.OPEN_TRANSACTION,
                f"{txn}; when it began, transaction {self.history[txn.txn_id]} may still have been open",
                txn,
            )
            for txn in found
        ]


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
    with_id = and_(mapped.t2w_database == entity.database, mapped.t2w_table == entity.table)
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


def may_be_listed(lock: HeldLock, left_ms: int) -> Blocker:
    """
    The blocker for a lock whose holder may be listing; the Cleaner waits at most `left_ms` longer.

    Source: Hive's FetchOperator.generateWrappedSplits, which takes a directory that vanishes for empty.
    """
    return Blocker(Reason.MAY_BE_LISTED, f"{lock} may be listing; waited for at most another {duration(left_ms)}", lock)


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
