"""
The compaction queue: which worker has which entry, and how the entry ends.

Every change of a row names the state and the worker that the caller expects. When no row matches, the entry was lost to
another process and nothing is changed.
Source: docs/metastore.md; Hive's NextCompactionFunction, CompactionTxnHandler, CommitTxnFunction.
"""

from collections.abc import Collection, Mapping

from sqlalchemy import ColumnElement, Connection, and_, func, insert, select, update

from compactor.acid.compaction import CompactionKind
from compactor.metastore.compaction_queue.claims import Claims
from compactor.metastore.compaction_queue.commits import JOB_ID_CHARACTERS, STOP, Commits
from compactor.metastore.compaction_queue.follow_ups import FollowUpStore
from compactor.metastore.compaction_queue.guards import lost, owned
from compactor.metastore.compaction_queue.requests import Requests
from compactor.metastore.compaction_queue.rows import (
    ending,
    find,
    move_to_history,
    read_foreign,
    read_history,
    read_queue,
    stored_as,
    write_end,
)
from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import changed, fitting, next_number, of_entity, same
from compactor.metastore.model import KIND_CODES, Entity, ForeignEntry, HistoryEntry, QueueEntry, QueueState
from compactor.metastore.txn.transactions import abort_transactions


class Queue(Requests, Claims, Commits):
    """
    COMPACTION_QUEUE and COMPLETED_COMPACTIONS of one metastore.

    What changes a given entry raises OwnershipLostError when the entry isn't in `entry.state` with `entry.worker_id` any
    more.
    """

    def __init__(self, database: Database) -> None:
        Requests.__init__(self, database)
        Claims.__init__(self, database)
        Commits.__init__(self, database)
        self.follow_ups = FollowUpStore(database, self)

    # Ending otherwise

    def mark_failed(self, entry: QueueEntry, message: str) -> None:
        """Move the entry into the history as failed."""
        self._finish(entry, QueueState.FAILED, message)

    def mark_refused(self, entry: QueueEntry, message: str) -> None:
        """Move the entry into the history as refused; on Hive 3.1, which has no such state, as failed (`rows`)."""
        self._finish(entry, QueueState.REFUSED, message)

    def mark_unneeded(self, entry: QueueEntry, message: str) -> None:
        """
        Move the entry into the history because there was nothing to compact.

        It ends as refused; on Hive 3.1, which has no such state, as succeeded. As failed it would count against the
        table: neither Initiator queues a table any more after `initiator.failed_threshold` failures.
        """
        told = self._schema.generation.tells_refusals
        self._finish(entry, QueueState.REFUSED if told else QueueState.SUCCEEDED, message)

    def _finish(self, entry: QueueEntry, state: QueueState, message: str) -> None:
        def finish(connection: Connection) -> None:
            if not move_to_history(
                connection, self._schema, [owned(self._table, entry)], state, end=self._database.now, message=message
            ):
                raise lost(entry)

        write_end(self._database, entry, finish)

    def record_did_not_initiate(self, entity: Entity, message: str, initiator_id: str | None = None) -> int:
        """Note in the history that a compaction wasn't queued, and why; returns the row's id."""

        def record(connection: Connection) -> int:
            number = next_number(connection, self._schema.next_compaction_queue_id.c.ncq_next)
            values = {
                "cc_id": number,
                "cc_database": entity.database,
                "cc_table": entity.table,
                "cc_partition": entity.partition,
                "cc_type": KIND_CODES[CompactionKind.MINOR],
                "cc_start": self._database.now,
                "cc_end": self._database.now,
                "cc_enqueue_time": self._database.now,
                "cc_initiator_id": initiator_id,
                **ending(self._schema, QueueState.DID_NOT_INITIATE, message),
            }
            history = self._schema.completed_compactions
            connection.execute(insert(history).values(fitting(history, values)))
            return number

        return self._database.write(record)

    def cancel(self, entry_id: int, message: str) -> bool:
        """
        Move an entry that no worker has begun from the queue into the history, as `mark_aborted` does.

        Returns False when a worker has begun the entry, or the entry is gone.
        """
        waiting = and_(self._table.c.cq_id == entry_id, self._table.c.cq_state == QueueState.INITIATED.code)
        return self._database.write(
            move_to_history, self._schema, [waiting], QueueState.ABORTED, end=self._database.now, message=message
        )

    def ask_to_stop(self, entry: QueueEntry, user: str) -> bool:
        """
        Ask the worker of an entry to stop, by a mark in CQ_HADOOP_JOB_ID.

        The worker reads the mark every few seconds, undoes its work, and ends the entry. If the worker is dead, the
        next worker that takes the entry does so. Returns False when the entry is in another state or with another
        worker now.
        """
        values = {"cq_hadoop_job_id": f"{STOP}{user}"[:JOB_ID_CHARACTERS]}
        return self._database.write(changed, update(self._table).where(owned(self._table, entry)).values(values)) == 1

    def mark_aborted(self, entry: QueueEntry, message: str) -> None:
        """
        Move the entry into the history as aborted, at a user's request; on Hive 3.1, which has no such state, as failed
        (`rows`).
        """
        self._finish(entry, QueueState.ABORTED, message)

    # Giving back

    def give_back(self, entry: QueueEntry) -> None:
        """
        Put a claimed entry back among the initiated ones, for any worker to claim.

        To be called only after all files that the attempt staged or published without committing are gone.
        """
        self._database.repeatable(self._give_back, entry)
        self._look_again()

    def _give_back(self, connection: Connection, entry: QueueEntry, *more: ColumnElement[bool]) -> None:
        same_start = same(self._table.c.cq_start, entry.start_ms)
        values = {"cq_state": QueueState.INITIATED.code, "cq_worker_id": None, "cq_start": None}
        given_back = update(self._table).where(owned(self._table, entry), same_start, *more).values(values)
        if changed(connection, given_back) == 1:
            return
        now = connection.execute(
            select(self._table.c.cq_state, self._table.c.cq_worker_id).where(self._table.c.cq_id == entry.id)
        ).first()
        if now is None or tuple(now) != (QueueState.INITIATED.code, None):
            raise lost(entry)

    def take_back(self, entry: QueueEntry, reason: str) -> None:
        """
        End the transaction of a claim of Hive's own worker, where it has one, and give the entry back: both or neither.

        Such a worker may be alive. Its commit asks for its transaction alone (Hive's CommitTxnFunction), so a claim that
        was given back without ending it would be published beside the next worker's result.

        Raises:
            OwnershipLostError: the entry was lost to another process, or was committed; nothing happened.
        """
        self._database.repeatable(self._take_back, entry, reason)
        self._look_again()

    def _take_back(self, connection: Connection, entry: QueueEntry, reason: str) -> None:
        if entry.txn_id is not None:
            # The transaction first, as in a commit. A worker that has marked its entry compacted commits next: then the
            # queue's row isn't as expected, and the abort is rolled back.
            abort_transactions(connection, self._database, [entry.txn_id], reason)
        txn_id = self._table.c.get("cq_txn_id")
        self._give_back(connection, entry, *(() if txn_id is None else (same(txn_id, entry.txn_id),)))

    def working(self) -> list[QueueEntry]:
        """Entries that a worker has claimed and works on."""
        return self.entries(QueueState.WORKING)

    def timed_out(self, timeout_ms: int) -> list[QueueEntry]:
        """
        Entries that were claimed longer ago than `timeout_ms`.

        Hive judges by the time of the claim alone: there is no heartbeat in the queue.
        """
        queue = self._table.c
        late = and_(queue.cq_state == QueueState.WORKING.code, queue.cq_start < self._database.now - timeout_ms)
        return self._database.read(read_queue, self._schema, late)

    # Looking

    def entries(self, *states: QueueState, entity: Entity | None = None, limit: int | None = None) -> list[QueueEntry]:
        """The queue's entries by id, all or those in the given states, at most `limit`."""
        where = self._in(states)
        if entity is not None:
            where.append(of_entity(self._table, "cq", entity))
        return self._database.read(read_queue, self._schema, *where, limit=limit)

    def waiting(self, kind: CompactionKind) -> list[QueueEntry]:
        """Entries of one kind that no worker has claimed."""
        where = [*self._in([QueueState.INITIATED]), self._table.c.cq_type == KIND_CODES[kind]]
        return self._database.read(read_queue, self._schema, *where)

    def count(self, *states: QueueState) -> int:
        """How many rows the queue has, all or those in the given states; those of a later Hive count, too."""
        query = select(func.count()).select_from(self._table).where(*self._in(states))
        return self._database.read(lambda connection: int(connection.scalar(query) or 0))

    def _in(self, states: Collection[QueueState]) -> list[ColumnElement[bool]]:
        return [self._table.c.cq_state.in_([state.code for state in states])] if states else []

    def foreign(self) -> list[ForeignEntry]:
        """Rows with types and states of a later Hive; no other method returns them."""
        return self._database.read(read_foreign, self._schema)

    def initiators(self, within_ms: int) -> Mapping[str, tuple[int, int]] | None:
        """
        By the id of each initiator (CQ_INITIATOR_ID): how many entries of queue and history it queued within this time,
        and when the newest of them, by the database's clock. None: Hive 3.1 doesn't note who queued an entry.
        """
        if "cq_initiator_id" not in self._table.c:
            return None
        queue, history = self._table.c, self._schema.completed_compactions.c

        def look(connection: Connection) -> dict[str, tuple[int, int]]:
            found: dict[str, tuple[int, int]] = {}
            for name, enqueued in (
                (queue.cq_initiator_id, queue.cq_enqueue_time),
                (history.cc_initiator_id, history.cc_enqueue_time),
            ):
                query = select(name, func.count(), func.max(enqueued))
                recent = query.where(name.is_not(None), enqueued >= self._database.now - within_ms)
                for one, count, last in connection.execute(recent.group_by(name)):
                    before = found.get(one, (0, 0))
                    found[one] = (before[0] + int(count), max(before[1], int(last)))
            return found

        return self._database.read(look)

    def entry(self, entry_id: int) -> QueueEntry | HistoryEntry | None:
        """One compaction by its id, from the queue or the history."""
        return self._database.glance(find, self._schema, entry_id)

    def history(
        self, *states: QueueState, entity: Entity | None = None, limit: int | None = None, within_ms: int | None = None
    ) -> list[HistoryEntry]:
        """Finished compactions, newest first; `within_ms`: only those that ended so lately."""
        table = self._schema.completed_compactions
        stored = {stored_as(self._schema, state) for state in states}
        where: list[ColumnElement[bool]] = [table.c.cc_state.in_([state.code for state in stored])] if states else []
        if entity is not None:
            where.append(of_entity(table, "cc", entity))
        if within_ms is not None:
            where.append(table.c.cc_end >= self._database.now - within_ms)
        stored_apart = not states or self._schema.generation.tells_refusals  # else only the row as read tells its state
        found = self._database.read(read_history, self._schema, *where, limit=limit if stored_apart else None)
        return found if stored_apart else [entry for entry in found if entry.state in states][:limit]


def asked_to_stop(entry: QueueEntry) -> str | None:
    """The user who asked to stop an entry (`Queue.ask_to_stop`); None without such a request."""
    return entry.job_id.removeprefix(STOP) or "an operator" if entry.job_id and entry.job_id.startswith(STOP) else None
