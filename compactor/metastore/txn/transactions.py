"""
Opens, heartbeats and aborts transactions of the metastore, and tells what they see.

The commit of a COMPACTION transaction is `Queue.mark_compacted_and_commit`: it belongs to the queue row's state in one
database transaction.
Source: docs/metastore.md; Hive's OpenTxnsFunction, AbortTxnsFunction, HeartbeatTxnFunction.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from compactor.acid.compaction import CompactionKind
from compactor.acid.write_ids import CompactorWriteIdList, ValidTxnList, ValidWriteIdList
from compactor.errors import OutcomeUnknownError, OwnershipLostError, RetryableError
from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import changed, of_table
from compactor.metastore.model import OpenTransaction, TableFacts
from compactor.metastore.txn.allocated_ids import OPENING_MS, SETTLED_MS
from compactor.metastore.txn.snapshot import Snapshot
from compactor.metastore.txn.snapshots import (
    COMPACTION,
    READ_ONLY,
    REBALANCE_COMPACTION,
    REPLICATION,
    settle,
    snapshots_for,
)

_ATTEMPTS = 10
_LATELY_SECONDS = 60.0
"""For this time one read may take forgotten or just opened ids for open; `QueueMetrics` reads more often."""


class TxnState(StrEnum):
    """State of a transaction in TXNS; a forgotten transaction is ABSENT, which a snapshot counts as committed."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class OpenCompaction:
    """
    An open transaction of a compaction; `agent` is its opener's name for itself, for the compactor the worker's id.
    """

    txn_id: int
    agent: str | None
    silent_ms: int


_STATES = {"o": TxnState.OPEN, "c": TxnState.COMMITTED, "a": TxnState.ABORTED}


class Transactions:
    """The transactions of one metastore."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._snapshots = snapshots_for(database)

    def open_compaction(
        self, user: str, host: str, kind: CompactionKind = CompactionKind.MAJOR, *, agent: str = "compactor"
    ) -> int | None:
        """
        Open a COMPACTION transaction and return its id; None on 3.1, where a compaction has no transaction.

        The row is inserted and committed within Hive's time for opening, or taken back: a gap younger than that counts
        as open for every snapshot, an older one as committed.

        Args:
            agent: the opener, kept in TXN_AGENT_INFO. By a worker's id its transaction is found when the worker dies
                before its entry names the transaction.

        Raises:
            RetryableError: the database was too slow, ten times in a row.
        """
        if self._database.schema.generation.rename_commits:
            return None
        txn_type = REBALANCE_COMPACTION if kind is CompactionKind.REBALANCE else COMPACTION
        for _ in range(_ATTEMPTS):
            started = time.monotonic()
            try:
                txn_id = self._database.write(self._insert, user, host, agent=agent, txn_type=txn_type)
            except (_TooSlowError, OutcomeUnknownError):
                continue  # an unknown outcome leaves at worst an empty transaction, which times out
            if (time.monotonic() - started) * 1000 < OPENING_MS:
                return txn_id
            self.abort(txn_id, "opened too slowly")
        raise RetryableError(
            f"metastore database {self._database} took more than {OPENING_MS} ms to open a transaction"
        )

    def heartbeat(self, txn_id: int) -> None:
        """
        Keep a transaction alive.

        Raises:
            OwnershipLostError: the transaction isn't open any more.
        """
        txns = self._database.schema.txns
        change = (
            update(txns)
            .where(txns.c.txn_id == txn_id, txns.c.txn_state == "o")
            .values(txn_last_heartbeat=self._database.now)
        )
        if self._database.repeatable(changed, change) == 0:
            raise OwnershipLostError(
                f"transaction {txn_id} is {self.state(txn_id).value}: it was ended by another process"
            )

    def abort(self, txn_id: int, reason: str) -> TxnState:
        """
        Roll back; returns the state afterwards: ABORTED, or COMMITTED or ABSENT when the transaction had ended before.

        Its components and write ids stay: they mark what it wrote as aborted until the Cleaner has removed it.
        """
        if self._database.repeatable(abort_transactions, self._database, [txn_id], reason):
            return TxnState.ABORTED
        return self.state(txn_id)

    def end_empty(self, txn_id: int) -> bool:
        """
        Commit a transaction that has no components; False when it isn't open, or has components and must be aborted.

        No component can be added meanwhile: adding one takes a lock on the row of the open transaction, which this
        method holds. Hive's worker, too, commits when it refuses for lack of work: an aborted transaction would show in
        SHOW TRANSACTIONS, and in the metrics of aborted ones.
        """
        schema = self._database.schema
        txns, components = schema.txns.c, schema.txn_components.c

        def end(connection: Connection) -> bool:
            if connection.scalar(select(txns.txn_state).where(txns.txn_id == txn_id).with_for_update()) != "o":
                return False
            if connection.scalar(select(components.tc_txnid).where(components.tc_txnid == txn_id).limit(1)) is not None:
                return False
            connection.execute(update(schema.txns).where(txns.txn_id == txn_id).values(txn_state="c"))
            forget_readers(connection, self._database, [txn_id])
            return True

        return self._database.repeatable(end)

    def state(self, txn_id: int) -> TxnState:
        txns = self._database.schema.txns.c
        query = select(txns.txn_state).where(txns.txn_id == txn_id)
        code = self._database.glance(lambda connection: connection.scalar(query))
        return TxnState.ABSENT if code is None else _STATES.get(code, TxnState.OPEN)

    def snapshot(self) -> Snapshot:
        """
        The unfinished transactions now, taken while none is being opened.

        Hive 4 takes an id and commits its row under a shared lock on TXN_LOCK_TBL. While the compactor holds that table
        alone, every id up to the highest has its row or never will, however long an opener, or the compactor, was
        stopped. The age of a row doesn't tell, because a server's clock may stand still from before the wait for that
        lock. So a compaction never takes an open transaction for committed.

        On a read-only database the table can't be locked, and the snapshot may be wrong about a transaction that is
        just being opened. There, a process without a recent read that finds ids without a row reads again after two
        seconds.

        Raises:
            RetryableError: an opener didn't end in time.
        """
        if self._database.schema.txn_lock_tbl is not None and not self._database.read_only:
            return self._database.write(self._alone)
        age = self._database.handed_out.age(time.monotonic())
        taken = self._database.read(self._snapshots.take)
        if not taken.gaps or (age is not None and age < _LATELY_SECONDS):
            return taken
        time.sleep(SETTLED_MS / 1000)
        return self._database.read(self._snapshots.take)

    def _alone(self, connection: Connection) -> Snapshot:
        settle(connection, self._database)
        return self._snapshots.take(connection)

    def keep_up(self) -> None:
        """
        Remember how far ids were handed out by now, so that a snapshot of this process needn't read twice
        (`HandedOut`).
        """
        self._database.read(self._snapshots.take)

    def valid_txns(self, for_txn: int | None = None) -> ValidTxnList:
        """What transaction `for_txn` sees (itself included), or what is committed now."""
        return self.snapshot().as_seen_by(for_txn)

    def compaction_txns(self, txn_id: int) -> ValidTxnList:
        """What a compaction may read: what its transaction sees, without its own writes."""
        seen = self.valid_txns(txn_id)
        return ValidTxnList(seen.high_watermark, (*seen.open, txn_id), seen.aborted)

    def valid_write_ids(self, table: str, txns: ValidTxnList) -> ValidWriteIdList:
        """Valid write ids of `db.table` under a transaction list."""
        return self.valid_write_ids_of([table], txns)[table.lower()]

    def valid_write_ids_of(self, tables: Iterable[str], txns: ValidTxnList) -> Mapping[str, ValidWriteIdList]:
        """Valid write ids of many tables at once, keyed by `db.table` in lower case."""
        names = list(tables)
        return self._database.glance(self._snapshots.write_ids, names, txns)

    def compactor_write_ids(self, table: str, txns: ValidTxnList) -> CompactorWriteIdList:
        """What a compaction of `db.table` may take under a transaction list."""
        return CompactorWriteIdList.from_reader(self.valid_write_ids(table, txns))

    def compactor_write_ids_of(self, tables: Iterable[str], txns: ValidTxnList) -> Mapping[str, CompactorWriteIdList]:
        """`compactor_write_ids` for many tables at once, keyed by `db.table` in lower case."""
        return {
            name: CompactorWriteIdList.from_reader(found)
            for name, found in self.valid_write_ids_of(tables, txns).items()
        }

    def mapping(self, table: TableFacts, write_ids: Sequence[int]) -> dict[int, int]:
        """Write id → the transaction that allocated it, for the span of some write ids of a table in ascending order."""
        if not write_ids:
            return {}
        mapping = self._database.schema.txn_to_write_id
        query = select(mapping.c.t2w_writeid, mapping.c.t2w_txnid).where(
            of_table(mapping, "t2w", table.entity), mapping.c.t2w_writeid.between(write_ids[0], write_ids[-1])
        )
        rows = self._database.read(lambda connection: connection.execute(query).all())
        return {int(write_id): int(txn_id) for write_id, txn_id in rows}

    def min_open(self) -> int:
        """The smallest transaction that is open or may turn out to be; all below are finished."""
        return self._database.read(self._snapshots.min_open_or_next)

    def open_compactions(self) -> list[OpenCompaction]:
        """Open transactions of compactions with their openers' names, oldest first; none on Hive 3.1."""
        if self._database.schema.generation.rename_commits:
            return []
        txns = self._database.schema.txns.c
        silent = self._database.now - txns.txn_last_heartbeat
        query = select(txns.txn_id, txns.txn_agent_info, silent).where(
            txns.txn_state == "o", txns.txn_type.in_([COMPACTION, REBALANCE_COMPACTION])
        )
        rows = self._database.read(lambda connection: connection.execute(query.order_by(txns.txn_id)).all())
        return [OpenCompaction(int(txn_id), agent, int(silent_ms)) for txn_id, agent, silent_ms in rows]

    def open_transactions(self) -> list[OpenTransaction]:
        """Every open transaction, oldest first: these may hold back cleaning and purges."""
        return self._database.read(read_open_transactions, self._database)

    def _insert(self, connection: Connection, user: str, host: str, *, agent: str, txn_type: int) -> int:
        schema = self._database.schema
        started = time.monotonic()
        self._database.dialect.limit_waiting(connection, OPENING_MS // 2)
        self._database.dialect.share_openers_lock(connection, schema.txn_lock_table)
        min_open = self._snapshots.min_open_or_next(connection) if schema.min_history_level is not None else None
        row = insert(schema.txns).values(
            txn_state="o",
            txn_started=self._database.now,
            txn_last_heartbeat=self._database.now,
            txn_user=user[:128],
            txn_host=host[:128],
            txn_agent_info=agent[:128],
            txn_type=txn_type,
        )
        key = connection.execute(row).inserted_primary_key
        assert key is not None
        txn_id = int(key[0])
        if schema.min_history_level is not None:
            assert min_open is not None
            connection.execute(
                insert(schema.min_history_level).values(mhl_txnid=txn_id, mhl_min_open_txnid=min(min_open, txn_id))
            )
        if (time.monotonic() - started) * 1000 >= OPENING_MS / 2:
            raise _TooSlowError("opening took too long")
        return txn_id


class _TooSlowError(Exception):
    """Opening took so long that the transaction must not become visible."""


def abort_transactions(connection: Connection, database: Database, txn_ids: list[int], reason: str) -> int:
    """Abort those of the transactions that are open; returns how many were."""
    schema = database.schema
    txns = schema.txns
    values: dict[str, object] = {"txn_state": "a"}
    if schema.generation.notes_aborts:
        values["txn_meta_info"] = reason[:128]
    # In order of ids, as in every code that locks several rows: so no two processes can wait for each other.
    still_open = connection.scalars(
        select(txns.c.txn_id)
        .where(txns.c.txn_id.in_(txn_ids), txns.c.txn_state == "o")
        .order_by(txns.c.txn_id)
        .with_for_update()
    ).all()
    if not still_open:
        return 0
    connection.execute(update(txns).where(txns.c.txn_id.in_(still_open)).values(values))
    forget_readers(connection, database, still_open)
    return len(still_open)


def forget_readers(connection: Connection, database: Database, txn_ids: Iterable[int]) -> None:
    """Delete locks and history rows of transactions that end now."""
    schema, ids = database.schema, list(txn_ids)
    connection.execute(delete(schema.hive_locks).where(schema.hive_locks.c.hl_txnid.in_(ids)))
    if schema.min_history_level is not None:
        connection.execute(delete(schema.min_history_level).where(schema.min_history_level.c.mhl_txnid.in_(ids)))
    if schema.min_history_write_id is not None:
        connection.execute(delete(schema.min_history_write_id).where(schema.min_history_write_id.c.mh_txnid.in_(ids)))


def read_open_transactions(
    connection: Connection, database: Database, *where: ColumnElement[bool]
) -> list[OpenTransaction]:
    """Open transactions with user, host and age, oldest first."""
    txns = database.schema.txns.c
    age = (database.now - txns.txn_started).label("age")
    query = select(
        txns.txn_id,
        txns.txn_user,
        txns.txn_host,
        txns.txn_started,
        txns.txn_last_heartbeat,
        age,
        func.coalesce(txns.txn_type, 0),
    )
    rows = connection.execute(query.where(txns.txn_state == "o", *where).order_by(txns.txn_id))
    return [
        OpenTransaction(int(i), user, host, int(started), int(beat), int(old), kind == READ_ONLY, kind == REPLICATION)
        for i, user, host, started, beat, old, kind in rows
    ]
