"""
Runs Hive's housekeeping: the deletes and time-outs that keep the transaction tables small.

Also finds out whether Hive does each of these duties itself. Every purge stays below the smallest open transaction, and
forgets an aborted transaction only when it has no components: an absent transaction, and a write id without mapping,
count as committed. Source: docs/metastore.md; Hive's AcidHouseKeeperService, AcidTxnCleanerService,
CompactionHouseKeeperService, and 3.1's Initiator.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import ColumnElement, Connection, and_, case, delete, exists, false, func, not_, or_, select

from compactor.durations import DAY_MS, HOUR_MS
from compactor.errors import MutexHeldError
from compactor.metastore.clean.purge import last_sign_of_life, unnoted
from compactor.metastore.compaction_queue.retention import Retention, expired
from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import batches, changed, entity_columns, fetched, maximum, of_entity, told_apart
from compactor.metastore.model import Entity, duration
from compactor.metastore.txn.snapshots import REPLICATION, REPLICATION_TIMEOUT_MS, settle, snapshots_for
from compactor.metastore.txn.transactions import abort_transactions

LATE_MS = DAY_MS
"""How long after its last heartbeat the tasks of an aborted transaction may still write, where no setting says."""
_SILENT_MS = DAY_MS
_OVERDUE_MS = HOUR_MS
_KEPT_MS = 30_000
"""
Younger transactions stay in TXNS.

A row that a reader takes for young turns the forgotten ids below it into a gap, and the reader may have begun before
the purge, or have a clock that went back. The time isn't longer, because Hive's clients fetch every row.
"""
_TABLES_AT_ONCE = 100
"""Tables whose mappings are forgotten in one database transaction."""
_ENTITIES_AT_ONCE = 100
"""Tables and partitions whose duplicate components are dropped in one database transaction."""


class Duty(StrEnum):
    """One of Hive's housekeeping tasks."""

    TIME_OUTS = "time-outs"
    WRITE_SET = "write-set"
    WRITE_ID_MAPPINGS = "write-id-mappings"
    EMPTY_TRANSACTIONS = "empty-transactions"
    DUPLICATE_COMPONENTS = "duplicate-components"
    HISTORY = "history"


MUTEXES = dict.fromkeys(Duty, "HouseKeeper") | {Duty.EMPTY_TRANSACTIONS: "TxnCleaner"}


@dataclass(frozen=True, slots=True)
class DutyFinding:
    """Whether the compactor does a duty, and the sentence that says why."""

    ours: bool
    sentence: str


class _ChangedError(Exception):
    """What made rows superfluous is gone: none of them may go."""


class Housekeeping:
    """The housekeeping of one metastore."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema = database.schema
        self._snapshots = snapshots_for(database)

    def who_does_it(self) -> Mapping[Duty, DutyFinding]:
        """
        For each duty, whether the compactor does it, judged by the rows that are left undone.

        On the embedded database the compactor does all duties, because no Hive uses it. On any other database the
        compactor does a duty in these cases:

        - Work has been due for an hour and is still there. For time-outs a transaction must have been silent for a
          day at least, because the database doesn't tell the time-out that Hive's clients keep.
        - On 3.1, the two purges of Hive's own Initiator: an operator who runs the compactor switches that Initiator
          off, and so stops them.

        Duplicate components are left to Hive: they only cost space, and no column tells how long they have been there.
        """
        if self._database.embedded:
            return dict.fromkeys(Duty, DutyFinding(ours=True, sentence="no other process uses the embedded database"))
        found = self._database.read(lambda connection: {duty: self._undone(connection, duty) for duty in Duty})
        replaced = DutyFinding(ours=True, sentence="Hive 3.1 leaves it to its Initiator, which we replace")
        return {duty: replaced if duty in self._schema.generation.initiators_duties else found[duty] for duty in found}

    def run(
        self, duty: Duty, *, timeout_ms: int = 300_000, retention: Retention | None = None, late_ms: int = LATE_MS
    ) -> int:
        """
        Do one duty under Hive's mutex for it; returns how many rows were changed, 0 when another process holds the
        mutex.

        Args:
            timeout_ms: for TIME_OUTS; `metastore.txn.timeout` of the installation.
            retention: for HISTORY; None: Hive's own.
            late_ms: for EMPTY_TRANSACTIONS: how long after its last heartbeat an aborted transaction's tasks may write.

        Raises:
            CompactorError: the duty couldn't be done.
        """
        name = self._schema.generation.mutexes.get(duty, MUTEXES[duty])
        try:
            with self._database.mutex(name, wait_seconds=1.0):
                match duty:
                    case Duty.TIME_OUTS:
                        return self.time_outs(timeout_ms)
                    case Duty.WRITE_SET:
                        return self.purge_write_set()
                    case Duty.WRITE_ID_MAPPINGS:
                        return self.purge_write_id_mappings()
                    case Duty.EMPTY_TRANSACTIONS:
                        return self.purge_empty_transactions(late_ms)
                    case Duty.DUPLICATE_COMPONENTS:
                        return self.remove_duplicate_components()
                    case Duty.HISTORY:
                        return self.purge_history(retention or Retention())
        except MutexHeldError:
            return 0

    # Time-outs

    def time_outs(self, timeout_ms: int) -> int:
        """
        Drop locks without a transaction, and abort transactions, that had no heartbeat for `timeout_ms`.

        Replication transactions have their own limit. Returns the number of dropped locks and aborted transactions
        together.
        """
        locks = self._schema.hive_locks
        silent = and_(locks.c.hl_txnid == 0, locks.c.hl_last_heartbeat < self._database.now - timeout_ms)
        ended = self._database.repeatable(changed, delete(locks).where(silent))
        txns = self._schema.txns.c
        late = self._silent(timeout_ms, REPLICATION_TIMEOUT_MS)
        numbers = self._database.read(
            lambda connection: connection.scalars(select(txns.txn_id).where(late).order_by(txns.txn_id)).all()
        )
        return ended + sum(self._abort_silent(batch, late) for batch in batches(numbers))

    def _abort_silent(self, numbers: list[int], late: ColumnElement[bool]) -> int:
        """Abort those transactions that are still silent: a heartbeat may have come meanwhile."""
        txns = self._schema.txns.c

        def abort(connection: Connection) -> int:
            query = select(txns.txn_id).where(txns.txn_id.in_(numbers), late).order_by(txns.txn_id).with_for_update()
            return abort_transactions(connection, self._database, list(connection.scalars(query)), "timed out")

        return self._database.repeatable(abort)

    def _silent(self, timeout_ms: int, replication_timeout_ms: int) -> ColumnElement[bool]:
        txns = self._schema.txns.c
        kind, now = func.coalesce(txns.txn_type, 0), self._database.now
        ordinary = and_(kind != REPLICATION, txns.txn_last_heartbeat < now - timeout_ms)
        return and_(
            txns.txn_state == "o",
            or_(ordinary, and_(kind == REPLICATION, txns.txn_last_heartbeat < now - replication_timeout_ms)),
        )

    # Purges

    def purge_write_set(self) -> int:
        """Forget which rows finished transactions changed: no open transaction can conflict with them any more."""
        table = self._schema.write_set
        return self._database.repeatable(
            lambda connection: changed(connection, delete(table).where(self._old_write_set(connection)))
        )

    def _old_write_set(self, connection: Connection) -> ColumnElement[bool]:
        return self._schema.write_set.c.ws_commit_id < self._snapshots.min_open_or_next(connection)

    def purge_write_id_mappings(self) -> int:
        """
        Forget the transactions of write ids that every snapshot, present or future, counts as committed.

        A mapping stays while a smaller write id of its table keeps its own mapping: a reader takes the largest write id
        that it finds for the high watermark. Some tables in a database transaction: in one for all, a server would hold
        the locks of a million rows for more than a minute.
        """
        table, old = self._schema.txn_to_write_id, self._database.read(self._old_mappings, self._finished())

        def forget(connection: Connection, some: Iterable[tuple[ColumnElement[bool], int]]) -> int:
            return sum(changed(connection, delete(table).where(where)) for where, _ in some)

        return sum(self._database.repeatable(forget, some) for some in batches(old, _TABLES_AT_ONCE))

    def _finished(self) -> int:
        """
        A transaction id below which every transaction has ended, read while no transaction was being opened
        (`snapshots.settle`).

        A purge below this id is right at any later time, even after a process was stopped in between. The id is read in
        a database transaction of its own: a purge takes long, and Hive opens no transaction before the reading one
        ends.
        """

        def look(connection: Connection) -> int:
            settle(connection, self._database)
            return self._snapshots.min_open_or_next(connection)

        return self._database.write(look)

    def _old_mappings(self, connection: Connection, below: int) -> list[tuple[ColumnElement[bool], int]]:
        """
        The superfluous mappings of transactions below an id, table by table, and how many they are.

        They may be forgotten at any later time, too: a write id is never smaller than one that was given before.
        """
        columns = self._schema.txn_to_write_id.c
        names = columns.t2w_database, columns.t2w_table
        bound = self._snapshots.forget_below(connection)
        staying = select(*names, func.min(columns.t2w_writeid)).where(columns.t2w_txnid >= bound).group_by(*names)
        first = {(database, table): number for database, table, number in fetched(connection.execute(staying))}
        is_old = columns.t2w_txnid < min(bound, below)
        old = (
            select(*names, func.count(), func.max(columns.t2w_writeid)).where(is_old).group_by(*names).order_by(*names)
        )
        found = []
        for database, table, count, last in fetched(connection.execute(old)):
            where = and_(columns.t2w_database == database, columns.t2w_table == table, is_old)
            if (stays := first.get((database, table))) is not None and stays < last:
                where = and_(where, columns.t2w_writeid < stays)
                count = connection.scalar(select(func.count()).where(where))  # noqa: PLW2901
            if count:
                found.append((where, int(count)))
        return found

    def purge_empty_transactions(self, late_ms: int = LATE_MS) -> int:
        """
        Forget transactions that have ended and whose components are gone.

        On 3.1 these are aborted ones only: committed ones have no row there. On 4.x those of the last half minute stay,
        and always the newest row, from which the high watermark is read. Aborted transactions stay while TXN_COMPONENTS
        may be incomplete for them (`purge.note_unnamed`), and while their tasks may still write: the components may have
        been deleted by Hive's Cleaner, which doesn't ask.
        """
        table = self._schema.txns
        settled = delete(table).where(table.c.txn_id < self._finished())
        return self._database.repeatable(
            lambda connection: changed(connection, settled.where(self._empty(connection, late_ms)))
        )

    def _empty(self, connection: Connection, late_ms: int = LATE_MS) -> ColumnElement[bool]:
        schema = self._schema
        mappings = schema.txn_to_write_id.c
        silent = last_sign_of_life(schema) <= self._database.now - late_ms
        txns, components, history = schema.txns.c, schema.txn_components.c, schema.min_history_write_id
        bound = self._snapshots.min_open_or_next(connection)
        if schema.next_txn_id is None:  # the high watermark is the newest row
            bound = min(bound, maximum(connection, txns.txn_id, txns.txn_started < self._database.now - _KEPT_MS))
        where = and_(
            txns.txn_state.in_(["a", "c"]),
            txns.txn_id < bound,
            not_(exists().where(components.tc_txnid == txns.txn_id)),
            not_(unnoted(schema)),
            or_(txns.txn_state == "c", silent, not_(exists().where(mappings.t2w_txnid == txns.txn_id))),
        )
        if history is not None:
            where = and_(where, not_(exists().where(history.c.mh_txnid == txns.txn_id)))
        return where

    def remove_duplicate_components(self) -> int:
        """
        Drop committed components that a later one of the same table or partition makes superfluous.

        The newest component, and the newest one that updated or deleted, stay.
        """
        latest = self._database.read(self._latest)
        return sum(self._drop_earlier(dict(some)) for some in batches(latest.items(), _ENTITIES_AT_ONCE))

    def _latest(
        self, connection: Connection, entities: Collection[Entity] | None = None
    ) -> dict[Entity, tuple[int, int]]:
        """
        The newest write id of each table or partition with superfluous committed components, and the newest that
        updated or deleted, 0 without one.

        Args:
            entities: these alone, whatever components they have; None: all.
        """
        table = self._schema.completed_txn_components
        columns, names = table.c, entity_columns(table, "ctc")
        updating = case((columns.ctc_update_delete == "Y", columns.ctc_writeid))
        plain = case((columns.ctc_update_delete == "N", columns.ctc_writeid))
        query = select(*names, func.max(columns.ctc_writeid), func.max(updating)).group_by(*told_apart(names))
        if entities is None:  # not what earlier cycles left: each of these costs a statement
            some = func.min(plain) < func.max(columns.ctc_writeid), func.min(updating) < func.max(updating)
            query = query.having(or_(*some))
        else:
            query = query.where(or_(false(), *(of_entity(table, "ctc", entity) for entity in entities)))
        return {
            Entity(database, table_name, partition): (int(newest or 0), int(newest_update or 0))
            for database, table_name, partition, newest, newest_update in fetched(connection.execute(query))
        }

    def _drop_earlier(self, latest: Mapping[Entity, tuple[int, int]]) -> int:
        """
        Drop the components of some tables or partitions that are earlier than these write ids.

        The ids are values in the statement: InnoDB reads a subquery once, and then waits for rows that a rename may
        move into the name. What made the rows superfluous is asked for again at the end, by a statement of its own.
        """
        table = self._schema.completed_txn_components

        def purge(connection: Connection) -> int:
            below = table.c.ctc_txnid < self._snapshots.min_open_or_next(connection)
            deleted = 0
            for entity, (newest, newest_update) in latest.items():
                plain = and_(table.c.ctc_update_delete == "N", table.c.ctc_writeid < newest)
                earlier = or_(plain, table.c.ctc_writeid < newest_update)
                deleted += changed(connection, delete(table).where(of_entity(table, "ctc", entity), below, earlier))
            now = self._latest(connection, latest)
            if any(now.get(entity, (0, 0))[at] < latest[entity][at] for entity in latest for at in (0, 1)):
                raise _ChangedError
            return deleted

        try:
            return self._database.repeatable(purge)
        except _ChangedError:
            return 0  # dropped or renamed meanwhile; the next cycle looks anew

    def purge_history(self, retention: Retention) -> int:
        """Keep the newest few finished compactions of each table and partition; see `Retention`."""
        table = self._schema.completed_compactions
        numbers = self._database.read(
            lambda connection: expired(connection, self._schema, retention, self._database.now_ms(connection))
        )
        return sum(
            self._database.repeatable(changed, delete(table).where(table.c.cc_id.in_(batch)))
            for batch in batches(numbers)
        )

    # Finding out

    def _undone(self, connection: Connection, duty: Duty) -> DutyFinding:
        schema, now = self._schema, self._database.now
        txns = schema.txns.c
        long_ago = select(func.max(txns.txn_id)).where(txns.txn_started < now - _OVERDUE_MS).scalar_subquery()
        match duty:
            case Duty.TIME_OUTS:
                silent = self._silent(_SILENT_MS, REPLICATION_TIMEOUT_MS + _SILENT_MS)
                count = connection.scalar(select(func.count()).where(silent))
                return _finding(count, f"open transactions have been silent for more than {duration(_SILENT_MS)}")
            case Duty.WRITE_SET:
                table = schema.write_set
                count = connection.scalar(
                    select(func.count()).where(self._old_write_set(connection), table.c.ws_commit_id < long_ago)
                )
                return _finding(count, f"rows of WRITE_SET have been superfluous for more than {duration(_OVERDUE_MS)}")
            case Duty.WRITE_ID_MAPPINGS:
                mappings = self._old_mappings(connection, int(connection.scalar(select(long_ago)) or 0))
                count = sum(some for _, some in mappings)
                return _finding(
                    count, f"rows of TXN_TO_WRITE_ID have been superfluous for more than {duration(_OVERDUE_MS)}"
                )
            case Duty.EMPTY_TRANSACTIONS:
                # the row that the schema script seeds started at 0
                old = and_(txns.txn_started > 0, txns.txn_started < now - _OVERDUE_MS)
                count = connection.scalar(select(func.count()).where(self._empty(connection), old))
                return _finding(count, f"rows of TXNS are finished, empty and more than {duration(_OVERDUE_MS)} old")
            case Duty.HISTORY:
                before = self._database.now_ms(connection) - _OVERDUE_MS
                generous = Retention(succeeded=6, failed=10, did_not_initiate=6, refused=6)
                count = len(
                    expired(connection, schema, generous, self._database.now_ms(connection), ended_before=before)
                )
                return _finding(count, "rows of COMPLETED_COMPACTIONS are far beyond what Hive keeps")
            case Duty.DUPLICATE_COMPONENTS:
                return DutyFinding(ours=False, sentence="left to Hive: duplicates only cost space")


def _finding(count: int | None, what: str) -> DutyFinding:
    if count:
        return DutyFinding(ours=True, sentence=f"no service does it: {count} {what}")
    return DutyFinding(ours=False, sentence="nothing is overdue: a service does it, or there is nothing to do")
