"""
Tells which transactions and write ids a snapshot sees, and how far back a transaction may still be reading.

Reads only. One class per generation of Hive: 3.1 deletes a transaction's row when it commits and counts in NEXT_TXN_ID.
4.x keeps committed rows for a while and hands ids out by a sequence, and so must tell a young gap (an opener is about
to commit that row) from a hole.
Source: docs/metastore.md; Hive's TxnHandler.getOpenTxns, GetOpenTxnsListHandler, GetValidWriteIdsForTableFunction,
TxnUtils.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, case, func, or_, select

from compactor.acid.write_ids import ValidTxnList, ValidWriteIdList
from compactor.durations import DAY_MS
from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import batches, fetched, least, maximum, minimum
from compactor.metastore.txn.allocated_ids import OPENING_MS, SETTLED_MS
from compactor.metastore.txn.snapshot import Snapshot

REPLICATION = 1
REPLICATION_TIMEOUT_MS = 11 * DAY_MS
READ_ONLY = 2
COMPACTION = 3
REBALANCE_COMPACTION = 6


class Snapshots(ABC):
    """How one generation of Hive finds snapshots and bounds."""

    def __init__(self, database: Database) -> None:
        self._schema = schema = database.schema
        self._now = database.now
        self._once = database.dialect.once
        self._handed_out = database.handed_out
        # Built once: building a statement costs more than running it.
        mapping, counters, among = schema.txn_to_write_id.c, schema.next_write_id.c, database.dialect.among
        written = and_(mapping.t2w_database == bindparam("database"), among(mapping.t2w_table, "tables"))
        self._written = (
            select(mapping.t2w_table, func.max(mapping.t2w_writeid))
            .where(written, mapping.t2w_txnid <= bindparam("highest"))
            .group_by(mapping.t2w_table)
        )
        self._unfinished_writes = select(mapping.t2w_table, mapping.t2w_writeid, mapping.t2w_txnid).where(
            written, mapping.t2w_txnid >= bindparam("unfinished")
        )
        self._counters = select(counters.nwi_table, counters.nwi_next).where(
            counters.nwi_database == bindparam("database"), among(counters.nwi_table, "tables")
        )

    @abstractmethod
    def take(self, connection: Connection) -> Snapshot:
        """The unfinished transactions now, read in one statement."""

    @abstractmethod
    def min_open_or_next(self, connection: Connection) -> int:
        """The smallest id that is open, or may turn out to be: every transaction below it is finished."""

    def forget_below(self, connection: Connection) -> int:
        """
        Bound for purging write-id mappings: no open transaction can ask for one below it, and no aborted transaction
        there is remembered.

        The bound is the smallest that any Hive uses, open transactions always included: with both history tables
        switched on, Hive's own formula leaves these out, and a forgotten mapping counts as committed.
        """
        txns, write_set = self._schema.txns, self._schema.write_set
        history = self._schema.min_history_level
        bound = least(
            self.min_open_or_next(connection),
            minimum(connection, txns.c.txn_id, txns.c.txn_state.in_(("a", "o"))),
            minimum(connection, write_set.c.ws_txnid),
            minimum(connection, history.c.mhl_min_open_txnid) if history is not None else None,
        )
        assert bound is not None
        return bound

    def write_ids(
        self, connection: Connection, full_names: Iterable[str], txns: ValidTxnList
    ) -> dict[str, ValidWriteIdList]:
        """
        Valid write ids of tables (`db.table`) under a transaction list.

        A table that Hive's transactions never wrote to has high watermark 0.
        """
        names = dict.fromkeys(name.lower() for name in full_names)
        result: dict[str, ValidWriteIdList] = {}
        for batch in batches(names, 500):
            high = self._high_watermarks(connection, batch, txns)
            open_ids, aborted_ids = self._exceptions(connection, batch, txns, high)
            for name in batch:
                result[name] = ValidWriteIdList(
                    name, high[name], tuple(open_ids.get(name, ())), tuple(aborted_ids.get(name, ()))
                )
        return result

    def _high_watermarks(self, connection: Connection, names: list[str], txns: ValidTxnList) -> dict[str, int]:
        highest: dict[str, int] = dict.fromkeys(names, 0)
        for database, tables in _by_database(names):
            given = {"database": database, "tables": tables, "highest": txns.high_watermark}
            for table, write_id in connection.execute(self._written, given):
                highest[f"{database}.{table}"] = int(write_id)
            for table, following in connection.execute(self._counters, {"database": database, "tables": tables}):
                name = f"{database}.{table}"
                if highest[name] == 0:
                    highest[name] = int(following) - 1
        return highest

    def _exceptions(
        self, connection: Connection, names: list[str], txns: ValidTxnList, high: Mapping[str, int]
    ) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        """
        Write ids at or below the high watermark whose transaction isn't valid.

        Ids without a row are committed: their mapping was forgotten. Only rows that can be invalid are fetched: those
        of listed transactions or of transactions above the watermark.
        """
        open_ids: dict[str, list[int]] = {}
        aborted_ids: dict[str, list[int]] = {}
        unfinished = least(txns.high_watermark + 1, *txns.open[:1], *txns.aborted[:1])
        for database, tables in _by_database(names):
            given = {"database": database, "tables": tables, "unfinished": unfinished}
            for table, write_id, txn_id in connection.execute(self._unfinished_writes, given):
                name = f"{database}.{table}"
                if write_id > high[name] or txns.is_valid(txn_id):
                    continue
                (aborted_ids if txns.is_aborted(txn_id) else open_ids).setdefault(name, []).append(int(write_id))
        return open_ids, aborted_ids


class Hive3Snapshots(Snapshots):
    """Snapshots of 3.1: every row of TXNS is unfinished; an id without a row is committed."""

    def take(self, connection: Connection) -> Snapshot:
        txns = self._schema.txns.c
        highest = select(self._next - 1).scalar_subquery()
        query = select(highest.label("high"), txns.txn_id, txns.txn_state).select_from(
            self._schema.next_txn_id_table.outerjoin(self._schema.txns, txns.txn_id <= self._next - 1)
        )
        rows = connection.execute(query.order_by(txns.txn_id)).all()
        high = int(rows[0][0]) if rows else 0
        listed = [(int(txn_id), state) for _, txn_id, state in rows if txn_id is not None]
        return Snapshot(
            high, tuple(i for i, state in listed if state != "a"), (), tuple(i for i, state in listed if state == "a")
        )

    def min_open_or_next(self, connection: Connection) -> int:
        txns = self._schema.txns.c
        # The counter first: a transaction that is opened in between has an id that isn't below it.
        following = int(connection.scalar(select(self._next)) or 1)
        open_id = minimum(connection, txns.txn_id, txns.txn_state == "o")
        return following if open_id is None else min(open_id, following)

    @property
    def _next(self) -> ColumnElement[int]:
        return self._schema.next_txn_id_table.c.ntxn_next


class Hive4Snapshots(Snapshots):
    """
    Snapshots of 4.x: committed rows stay for a while; a missing id is committed unless a young row stands directly
    above the gap.

    Below a young row, too, a missing id is committed if this process saw long enough ago that ids beyond it were handed
    out: purges of committed rows leave such gaps.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._unfinished = self._select_unfinished()

    def _select_unfinished(self) -> Select[Any]:
        """All rows that aren't committed, and those from which gaps are told; built once."""
        table = self._schema.txns
        txns = table.c
        # One clock for the whole statement: an embedded database's goes on from row to row, and one row must not be
        # young in one place and settled in another.
        settled = self._once(self._now - SETTLED_MS)
        young = txns.txn_started > settled
        newer, older, last = table.alias("newer"), table.alias("older"), table.alias("last")
        first_young = select(func.min(newer.c.txn_id)).where(newer.c.txn_started > settled).scalar_subquery()
        floor = select(func.max(older.c.txn_id)).where(older.c.txn_id < first_young).scalar_subquery()
        highest = select(func.max(last.c.txn_id)).scalar_subquery()
        # The row below the first young one is where its gap begins: wanted are all rows from there on, and all that
        # aren't committed.
        wanted = or_(txns.txn_state != "c", txns.txn_id >= floor, txns.txn_id >= first_young, txns.txn_id == highest)
        return select(txns.txn_id, txns.txn_state, txns.txn_type, case((young, 1))).where(wanted).order_by(txns.txn_id)

    def take(self, connection: Connection) -> Snapshot:
        began = time.monotonic()
        snapshot = _walk(fetched(connection.execute(self._unfinished)), self._handed_out.settled(began))
        self._handed_out.note(snapshot.high_watermark, began, time.monotonic())
        return snapshot

    def min_open_or_next(self, connection: Connection) -> int:
        txns = self._schema.txns.c
        known = self._handed_out.settled(time.monotonic())
        settled = max(known, maximum(connection, txns.txn_id, txns.txn_started < self._now - SETTLED_MS))
        open_id = minimum(connection, txns.txn_id, txns.txn_state == "o")
        return settled + 1 if open_id is None else min(open_id, settled + 1)


def _walk(rows: Iterable[Sequence[Any]], settled: int) -> Snapshot:
    """
    The snapshot of rows ascending by id: (id, state, type, 1 or NULL: whether it is young).

    A gap below a young row and above `settled` is a transaction whose row isn't visible yet.
    """
    gaps = 0
    open_ids: list[int] = []
    read_only: list[int] = []
    aborted: list[int] = []
    previous = 0
    for txn_id, state, kind, young in rows:
        if young:
            gap = range(max(previous, settled) + 1, txn_id)
            open_ids.extend(gap)
            gaps += len(gap)
        previous = txn_id
        if state == "a":
            aborted.append(txn_id)
        elif state != "c":
            (read_only if kind == READ_ONLY else open_ids).append(txn_id)
    return Snapshot(previous, tuple(open_ids), tuple(read_only), tuple(aborted), gaps)


def settle(connection: Connection, database: Database) -> None:
    """
    Wait until no transaction is being opened, and remember how far ids were handed out.

    No process opens one until this database transaction ends (4.x). Does nothing on 3.1, which has no lock for openers.

    Raises:
        DBAPIError: an opener didn't end within `OPENING_MS`.
    """
    if (lock := database.schema.txn_lock_tbl) is None:
        return
    database.dialect.limit_waiting(connection, OPENING_MS)
    database.dialect.own_openers_lock(connection, lock)
    database.handed_out.settle(maximum(connection, database.schema.txns.c.txn_id), time.monotonic())


def snapshots_for(database: Database) -> Snapshots:
    """By what hands ids out: 3.1's counter, or 4.x's sequence."""
    return Hive4Snapshots(database) if database.schema.next_txn_id is None else Hive3Snapshots(database)


def _by_database(names: Iterable[str]) -> Iterable[tuple[str, list[str]]]:
    grouped: dict[str, list[str]] = {}
    for name in names:
        database, _, table = name.partition(".")
        grouped.setdefault(database, []).append(table)
    return grouped.items()
