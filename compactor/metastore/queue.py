"""
The compaction queue: who works on what, and how it ends.

Every change of a row carries the state and the worker that we believe in; when no row matches, ownership was lost and nothing is changed.
Source: docs/metastore.md; Hive's NextCompactionFunction, CompactionTxnHandler, CommitTxnFunction.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Connection, and_, case, delete, func, insert, or_, select, true, update

from compactor.acid.compaction import CompactionKind
from compactor.errors import OutcomeUnknownError, OwnershipLostError
from compactor.metastore.database import Database
from compactor.metastore.model import KIND_CODES, Enqueued, Entity, HistoryEntry, QueueEntry, QueueState
from compactor.metastore.requests import Request, Requests
from compactor.metastore.rows import move_to_history, read_history, read_queue
from compactor.metastore.snapshots import snapshots_for
from compactor.metastore.sql import fitting, maximum, next_number, of_entity, same
from compactor.metastore.transactions import Transactions, TxnState, forget_readers

POOL_TIMEOUT_MS = 12 * 3_600_000
"""After this long an entry of a pool that nobody serves is anybody's (`metastore.compactor.worker.pool.timeout`)."""

_CLAIM_AT_ONCE = 50
JOB_ID_CHARACTERS = 32
_STOP = "stop:"


class Gate(Protocol):
    """
    Which entries may be claimed now; asked by database, table and pool.

    `counts`: it has to be told of every entry that is being worked on, and no other claim may be made between that and ours.
    """

    @property
    def counts(self) -> bool: ...

    def open(self, working: Iterable[tuple[str, str, str | None]]) -> Callable[[str, str, str | None], bool]: ...


class Queue:
    """COMPACTION_QUEUE and COMPLETED_COMPACTIONS of one metastore."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema = database.schema
        self._table = self._schema.compaction_queue
        self._requests = Requests(database)
        self._transactions = Transactions(database)
        self._snapshots = snapshots_for(self._schema, database.now)

    # Coming in

    def enqueue(
        self,
        entity: Entity,
        kind: CompactionKind,
        *,
        pool: str | None = None,
        properties: Mapping[str, str] | None = None,
        run_as: str | None = None,
        initiator_id: str | None = None,
        initiator_version: str | None = None,
    ) -> Enqueued:
        """Ask for one compaction; errors as for `enqueue_all`."""
        return self.enqueue_all([Request(entity, kind, pool, properties or {}, run_as, initiator_id, initiator_version)])[0]

    def enqueue_all(self, requests: Iterable[Request], still: Callable[[], None] = lambda: None) -> list[Enqueued]:
        """Ask for many, in one go under Hive's scheduler mutex; see `Requests.enqueue_all`."""
        return self._requests.enqueue_all(list(requests), still)

    # Working

    def claim(self, worker_id: str, version: str, pool: str | None = None, *, without: Collection[int] = (), gate: Gate | None = None) -> QueueEntry | None:
        """
        Take the oldest entry that is ours to take, or None.

        Args:
            pool: entries of this pool only; None: entries without a pool, and those that waited half a day for theirs.
            without: ids of entries to leave.
            gate: what it turns away is left, and the next is looked at; None: everything may be claimed.
        """
        values = {"cq_state": QueueState.WORKING.code, "cq_worker_id": worker_id, "cq_worker_version": version, "cq_start": self._database.now}
        if gate is None:
            return self._database.write(lambda connection: self._claim(connection, values, pool, without))
        return self._database.write(lambda connection: self._claim_by(connection, values, pool, without, gate))

    def _claim(self, connection: Connection, values: Mapping[str, object], pool: str | None, without: Collection[int]) -> QueueEntry | None:
        queue = self._table.c
        after = 0
        while True:
            query = select(queue.cq_id).where(self._waiting(pool), queue.cq_id > after).order_by(queue.cq_id).limit(_CLAIM_AT_ONCE)
            numbers = connection.scalars(query).all()
            for number in numbers:
                if number not in without and (entry := self._take(connection, number, values)) is not None:
                    return entry
            if len(numbers) < _CLAIM_AT_ONCE:
                return None
            after = numbers[-1]

    def _claim_by(self, connection: Connection, values: Mapping[str, object], pool: str | None, without: Collection[int], gate: Gate) -> QueueEntry | None:
        """The oldest that the gate lets through. It is asked once for each table and pool: however many partitions of a table wait, they are one row here."""
        queue = self._table.c
        place = [queue.cq_database, queue.cq_table, *([queue.cq_pool_name] if "cq_pool_name" in queue else [])]
        working: list[tuple[str, str, str | None]] = []
        if gate.counts:
            next_number(connection, self._schema.next_compaction_queue_id.c.ncq_next, 0)  # the row's lock: two claims at once would count the same
            rows = connection.execute(select(*place).where(queue.cq_state == QueueState.WORKING.code, self._kinds())).all()
            working = [_place(row) for row in rows]
        may = gate.open(working)
        oldest = func.min(queue.cq_id)
        query = select(*place, oldest).where(self._waiting(pool), queue.cq_id.not_in(without)).group_by(*place).order_by(oldest)
        for _ in range(_CLAIM_AT_ONCE):
            number = next((int(row[-1]) for row in connection.execute(query) if may(*_place(row[:-1]))), None)
            if number is None:
                return None
            if (entry := self._take(connection, number, values)) is not None:
                return entry
        return None  # each time another worker was quicker: there will be a next look

    def _take(self, connection: Connection, number: int, values: Mapping[str, object]) -> QueueEntry | None:
        """One row, unless it is somebody else's by now."""
        queue = self._table.c
        mine = (queue.cq_id == number, queue.cq_state == QueueState.INITIATED.code)
        if connection.execute(update(self._table).where(*mine).values(fitting(self._table, values))).rowcount != 1:
            return None
        return read_queue(connection, self._schema, queue.cq_id == number)[0]

    def _waiting(self, pool: str | None) -> ColumnElement[bool]:
        return and_(self._table.c.cq_state == QueueState.INITIATED.code, self._kinds(), self._in_pool(pool))

    def _kinds(self) -> ColumnElement[bool]:
        """What workers do."""
        return self._table.c.cq_type.in_([KIND_CODES[kind] for kind in (CompactionKind.MAJOR, CompactionKind.MINOR, CompactionKind.REBALANCE)])

    def _in_pool(self, pool: str | None) -> ColumnElement[bool]:
        queue = self._table.c
        if "cq_pool_name" not in queue:
            return true()
        if pool is not None:
            return queue.cq_pool_name == pool
        return or_(queue.cq_pool_name.is_(None), queue.cq_enqueue_time < self._database.now - POOL_TIMEOUT_MS)

    def set_run_as(self, entry: QueueEntry, user: str) -> None:
        """Note as whom the compaction runs. Raises OwnershipLostError."""
        self._guarded(entry, {"cq_run_as": user})

    def set_job_id(self, entry: QueueEntry, job_id: str) -> None:
        """Note the Spark job or application; cut to the column's 32 characters. Somebody's wish that it stop stays. Raises OwnershipLostError."""
        noted = func.coalesce(self._table.c.cq_hadoop_job_id, "")
        wished = noted.like(f"{_STOP}%")
        self._guarded(entry, {"cq_hadoop_job_id": case((wished, noted), else_=job_id[:JOB_ID_CHARACTERS])})

    def set_compactor_state(self, entry: QueueEntry, txn_id: int | None, highest_write_id: int, run_as: str | None) -> None:
        """
        Store what the compaction will cover, after planning and before its first file.

        On 4.x also its transaction, and a component of operation `c`, so that an aborted compaction's leftovers are found as those of an
        aborted write; in the same database transaction. A second call of the same attempt changes nothing more.

        Raises:
            OwnershipLostError: the entry isn't ours any more, or the transaction isn't open.
        """
        self._database.repeatable(lambda connection: self._set_compactor_state(connection, entry, txn_id, highest_write_id=highest_write_id, run_as=run_as))

    def _set_compactor_state(self, connection: Connection, entry: QueueEntry, txn_id: int | None, *, highest_write_id: int, run_as: str | None) -> None:
        schema = self._schema
        if schema.hive_4 and txn_id is not None:
            self._lock_open(connection, txn_id)
        values = {"cq_highest_write_id": highest_write_id, "cq_txn_id": txn_id}
        if run_as is not None:
            values["cq_run_as"] = run_as  # type: ignore[assignment]
        self._update_owned(connection, entry, values)
        if not schema.hive_4 or txn_id is None:
            return
        components = schema.txn_components
        mine = and_(components.c.tc_txnid == txn_id, components.c.tc_operation_type == "c", of_entity(components, "tc", entry.entity))
        connection.execute(delete(components).where(mine))
        connection.execute(
            insert(components).values(
                tc_txnid=txn_id,
                tc_database=entry.entity.database,
                tc_table=entry.entity.table,
                tc_partition=entry.entity.partition,
                tc_operation_type="c",
                tc_writeid=highest_write_id,
            )
        )
        history = schema.min_history_write_id
        if history is None or connection.scalar(select(history.c.mh_txnid).limit(1)) is None:
            return
        # Somebody's Cleaner goes by this table: what we read must be held by a row, too.
        connection.execute(delete(history).where(history.c.mh_txnid == txn_id))
        row = {"mh_txnid": txn_id, "mh_database": entry.entity.database, "mh_table": entry.entity.table, "mh_writeid": highest_write_id + 1}
        connection.execute(insert(history).values(row))

    def mark_compacted_and_commit(self, entry: QueueEntry, worker_id: str, txn_id: int | None) -> None:
        """
        Hand the entry to the Cleaner and, on 4.x, commit its transaction: both or neither.

        When the answer of the commit is lost, the tables are read again before anything is said.

        Raises:
            OwnershipLostError: nothing was committed: the entry isn't ours any more, or the transaction was ended by somebody else.
            OutcomeUnknownError: the commit was sent and the database can't be asked; leave all files where they are.
            RetryableError: nothing happened.
        """
        mine = and_(self._owned(entry), self._table.c.cq_worker_id == worker_id)
        try:
            self._database.write(lambda connection: self._commit(connection, entry, mine, txn_id))
        except OutcomeUnknownError:
            if self._settled(entry, txn_id):
                return
            self._database.write(lambda connection: self._commit(connection, entry, mine, txn_id))

    def _commit(self, connection: Connection, entry: QueueEntry, mine: ColumnElement[bool], txn_id: int | None) -> None:
        schema, queue = self._schema, self._table
        values: dict[str, object] = {"cq_state": QueueState.READY_FOR_CLEANING.code, "cq_worker_id": None}
        if schema.hive_4:
            if txn_id is None:
                raise OwnershipLostError(f"compaction {entry.id} of {entry.entity} has no transaction to commit")
            self._database.dialect.own_openers_lock(connection, schema.txn_lock_table)
            self._lock_open(connection, txn_id)
            values |= {"cq_next_txn_id": maximum(connection, schema.txns.c.txn_id), "cq_commit_time": self._database.now}
            mine = and_(mine, queue.c.cq_txn_id == txn_id)
        if connection.execute(update(queue).where(mine).values(values)).rowcount != 1:
            raise self._lost(entry)
        if not schema.hive_4 or txn_id is None:
            return
        connection.execute(delete(schema.txn_components).where(schema.txn_components.c.tc_txnid == txn_id))
        forget_readers(connection, self._database, [txn_id])
        connection.execute(update(schema.txns).where(schema.txns.c.txn_id == txn_id).values(txn_state="c"))

    def _settled(self, entry: QueueEntry, txn_id: int | None) -> bool:
        """After an unknown outcome: whether the commit happened; False when it may be sent again."""
        if self._schema.hive_4 and txn_id is not None:
            match self._transactions.state(txn_id):
                case TxnState.OPEN:
                    return False
                case TxnState.COMMITTED:
                    return True
                case TxnState.ABORTED:
                    raise OwnershipLostError(f"transaction {txn_id} of compaction {entry.id} was aborted")
                case TxnState.ABSENT:
                    pass  # committed and forgotten, unless it was aborted and forgotten: the queue or the history tells
        now = self.entry(entry.id)
        if now is not None and committed(now, txn_id):
            return True
        if now is not None and now.state is QueueState.WORKING and now.worker_id == entry.worker_id and not self._schema.hive_4:
            return False
        raise self._lost(entry)

    # Ending otherwise

    def mark_failed(self, entry: QueueEntry, message: str) -> None:
        """Into the history as failed. Raises OwnershipLostError when the entry isn't in `entry.state` with `entry.worker_id` any more."""
        self._finish(entry, QueueState.FAILED, message)

    def mark_refused(self, entry: QueueEntry, message: str) -> None:
        """Into the history as refused; Hive 3.1 has no such state, there as failed. Raises OwnershipLostError."""
        self._finish(entry, QueueState.REFUSED if self._schema.hive_4 else QueueState.FAILED, message)

    def _finish(self, entry: QueueEntry, state: QueueState, message: str) -> None:
        def finish(connection: Connection) -> None:
            if not move_to_history(connection, self._schema, [self._owned(entry)], state, end=self._database.now, message=message):
                raise self._lost(entry)

        try:
            self._database.write(finish)
        except OutcomeUnknownError:
            history = self._schema.completed_compactions.c
            if not self._database.read(lambda connection: connection.scalar(select(history.cc_id).where(history.cc_id == entry.id))):
                self._database.write(finish)

    def record_did_not_initiate(self, entity: Entity, message: str, kind: CompactionKind = CompactionKind.MINOR, initiator_id: str | None = None) -> int:
        """Note in the history that something wasn't queued, and why; returns the row's id."""

        def record(connection: Connection) -> int:
            number = next_number(connection, self._schema.next_compaction_queue_id.c.ncq_next)
            values = {
                "cc_id": number,
                "cc_database": entity.database,
                "cc_table": entity.table,
                "cc_partition": entity.partition,
                "cc_state": QueueState.DID_NOT_INITIATE.code,
                "cc_type": KIND_CODES[kind],
                "cc_start": self._database.now,
                "cc_end": self._database.now,
                "cc_enqueue_time": self._database.now,
                "cc_error_message": message,
                "cc_initiator_id": initiator_id,
            }
            history = self._schema.completed_compactions
            connection.execute(insert(history).values(fitting(history, values)))
            return number

        return self._database.write(record)

    def cancel(self, entry_id: int, message: str) -> bool:
        """Take an entry that nobody has begun out of the queue, into the history as aborted (3.1: failed); False when it was begun or is gone."""
        waiting = and_(self._table.c.cq_id == entry_id, self._table.c.cq_state == QueueState.INITIATED.code)
        state = QueueState.ABORTED if self._schema.hive_4 else QueueState.FAILED
        return self._database.write(lambda connection: move_to_history(connection, self._schema, [waiting], state, end=self._database.now, message=message))

    def ask_to_stop(self, entry: QueueEntry, user: str) -> bool:
        """
        Ask the worker of an entry to stop, by a mark in CQ_HADOOP_JOB_ID: it looks there every few seconds, undoes what it did, and ends the entry. If it is dead,
        whoever takes the entry next does. False when the entry is in another state or with another worker now.
        """
        values = {"cq_hadoop_job_id": f"{_STOP}{user}"[:JOB_ID_CHARACTERS]}
        return self._database.write(lambda connection: connection.execute(update(self._table).where(self._owned(entry)).values(values)).rowcount == 1)

    def mark_aborted(self, entry: QueueEntry, message: str) -> None:
        """Into the history as aborted, on somebody's wish; Hive 3.1 has no such state, there as failed. Raises OwnershipLostError."""
        self._finish(entry, QueueState.ABORTED if self._schema.hive_4 else QueueState.FAILED, message)

    # Giving back

    def give_back(self, entry: QueueEntry) -> None:
        """
        Put a claimed entry back among the initiated ones, for anybody to claim.

        Only after whatever its attempt staged or published without committing is gone. Raises OwnershipLostError.
        """
        self._database.repeatable(lambda connection: self._give_back(connection, entry))

    def _give_back(self, connection: Connection, entry: QueueEntry) -> None:
        same_start = same(self._table.c.cq_start, entry.start_ms)
        values = {"cq_state": QueueState.INITIATED.code, "cq_worker_id": None, "cq_start": None}
        if connection.execute(update(self._table).where(self._owned(entry), same_start).values(values)).rowcount == 1:
            return
        now = connection.execute(select(self._table.c.cq_state, self._table.c.cq_worker_id).where(self._table.c.cq_id == entry.id)).first()
        if now is None or tuple(now) != (QueueState.INITIATED.code, None):
            raise self._lost(entry)

    def working(self) -> list[QueueEntry]:
        """Entries that somebody claims to work on."""
        return self.entries(QueueState.WORKING)

    def timed_out(self, timeout_ms: int) -> list[QueueEntry]:
        """Entries claimed longer ago than that; Hive judges by the claim's time alone, there is no heartbeat in the queue."""
        queue = self._table.c
        late = and_(queue.cq_state == QueueState.WORKING.code, queue.cq_start < self._database.now - timeout_ms)
        return self._database.read(lambda connection: read_queue(connection, self._schema, late))

    def revoke_timed_out(self, timeout_ms: int, clear: Callable[[QueueEntry], bool] | None = None) -> list[QueueEntry]:
        """
        Give back what was claimed longer ago than that; returns what was.

        Args:
            clear: called first for each; removes what the attempt left, and says False when the claim had better stay.
        """
        return self._revoke(self.timed_out(timeout_ms), clear)

    def revoke_workers(self, is_dead: Callable[[QueueEntry], bool] | Collection[str], clear: Callable[[QueueEntry], bool] | None = None) -> list[QueueEntry]:
        """As `revoke_timed_out`, for the entries of workers that are known to be dead: a test, or their ids."""
        dead = is_dead if callable(is_dead) else lambda entry: entry.worker_id in is_dead
        return self._revoke([entry for entry in self.working() if dead(entry)], clear)

    def _revoke(self, entries: Iterable[QueueEntry], clear: Callable[[QueueEntry], bool] | None) -> list[QueueEntry]:
        revoked = []
        for entry in entries:
            if clear is not None and not clear(entry):
                continue
            try:
                self.give_back(entry)
            except OwnershipLostError:
                continue  # it ended by itself meanwhile
            revoked.append(entry)
        return revoked

    def forget_attempt(self, entity: Entity, txn_id: int) -> bool:
        """
        Delete the `c` component of an aborted compaction, once nothing that it wrote is left; False when there was none.

        Until then the component keeps the aborted transaction from being forgotten: an absent transaction counts as committed.
        """
        components, txns = self._schema.txn_components, self._schema.txns

        def forget(connection: Connection) -> int:
            if connection.scalar(select(txns.c.txn_state).where(txns.c.txn_id == txn_id).with_for_update()) != "a":
                return 0
            mine = (components.c.tc_txnid == txn_id, components.c.tc_operation_type == "c", of_entity(components, "tc", entity))
            return connection.execute(delete(components).where(*mine)).rowcount

        return self._database.repeatable(forget) > 0

    # Looking

    def entries(self, *states: QueueState, entity: Entity | None = None) -> list[QueueEntry]:
        """The queue by id, all of it or the given states."""
        where: list[ColumnElement[bool]] = [self._table.c.cq_state.in_([state.code for state in states])] if states else []
        if entity is not None:
            where.append(of_entity(self._table, "cq", entity))
        return self._database.read(lambda connection: read_queue(connection, self._schema, *where))

    def entry(self, entry_id: int) -> QueueEntry | HistoryEntry | None:
        """One compaction by its id, wherever it is."""

        def look(connection: Connection) -> QueueEntry | HistoryEntry | None:
            history = self._schema.completed_compactions.c
            found = read_queue(connection, self._schema, self._table.c.cq_id == entry_id)
            return found[0] if found else next(iter(read_history(connection, self._schema, history.cc_id == entry_id)), None)

        return self._database.read(look)

    def history(self, *states: QueueState, entity: Entity | None = None, limit: int | None = None) -> list[HistoryEntry]:
        """Finished compactions, newest first."""
        table = self._schema.completed_compactions
        where: list[ColumnElement[bool]] = [table.c.cc_state.in_([state.code for state in states])] if states else []
        if entity is not None:
            where.append(of_entity(table, "cc", entity))
        return self._database.read(lambda connection: read_history(connection, self._schema, *where, limit=limit))

    # Guards

    def _owned(self, entry: QueueEntry) -> ColumnElement[bool]:
        queue = self._table.c
        return and_(queue.cq_id == entry.id, queue.cq_state == entry.state.code, same(queue.cq_worker_id, entry.worker_id))

    def _guarded(self, entry: QueueEntry, values: Mapping[str, object]) -> None:
        self._database.repeatable(lambda connection: self._update_owned(connection, entry, values))

    def _update_owned(self, connection: Connection, entry: QueueEntry, values: Mapping[str, object]) -> None:
        if connection.execute(update(self._table).where(self._owned(entry)).values(fitting(self._table, values))).rowcount != 1:
            raise self._lost(entry)

    def _lock_open(self, connection: Connection, txn_id: int) -> None:
        txns = self._schema.txns.c
        state = connection.scalar(select(txns.txn_state).where(txns.txn_id == txn_id).with_for_update())
        if state != "o":
            word = {None: "gone", "a": "aborted", "c": "committed"}.get(state, str(state))
            raise OwnershipLostError(f"transaction {txn_id} is {word}: it was ended by somebody else")

    @staticmethod
    def _lost(entry: QueueEntry) -> OwnershipLostError:
        return OwnershipLostError(f"compaction {entry.id} of {entry.entity} isn't {entry.state.value} by {entry.worker_id or 'nobody'} any more")


def asked_to_stop(entry: QueueEntry) -> str | None:
    """Who wants an entry stopped (`Queue.ask_to_stop`); None: nobody."""
    return entry.job_id.removeprefix(_STOP) or "somebody" if entry.job_id and entry.job_id.startswith(_STOP) else None


def _place(row: Sequence[Any]) -> tuple[str, str, str | None]:
    """Database, table and, where the schema has pools, the pool."""
    return row[0], row[1], row[2] if len(row) > 2 else None


def committed(entry: QueueEntry, txn_id: int | None) -> bool:
    """
    Whether a row of the queue or the history proves that the compaction in `txn_id` was committed; for when TXNS has forgotten the transaction.

    Hive 4: the row names this transaction, and has what only a commit writes, in the same database transaction: the highest transaction and the time. They
    stay whatever becomes of the entry afterwards: also the Cleaner may refuse or fail it. The transaction alone proves nothing: an attempt stores its own
    before it works, and whoever comes next may refuse the entry before storing another. Hive 3.1 has no transaction and no such columns: there only the
    states that follow a commit count.
    """
    if entry.txn_id != txn_id:
        return False
    after = entry.state in {QueueState.READY_FOR_CLEANING, QueueState.SUCCEEDED}
    return after or (txn_id is not None and (entry.next_txn_id is not None or entry.commit_ms is not None))
