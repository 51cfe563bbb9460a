"""
Commits a compaction: stores its transaction and what it covers with the entry, and commits both together.

Source: docs/metastore.md; Hive's CompactionTxnHandler, CommitTxnFunction.
"""

from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, and_, case, delete, func, insert, select, update

from compactor.acid.write_ids import ValidTxnList
from compactor.errors import OutcomeUnknownError, OwnershipLostError, RetryableError, UnreachableError
from compactor.metastore.compaction_queue.follow_ups import FollowUp, noted
from compactor.metastore.compaction_queue.guards import lock_open, lost, owned, update_owned
from compactor.metastore.compaction_queue.rivals import (
    Neighbours,
    neighbours,
    require_first,
    require_none_open,
    require_turn,
)
from compactor.metastore.compaction_queue.rows import find
from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import maximum, of_entity
from compactor.metastore.model import QueueEntry, QueueState
from compactor.metastore.txn.transactions import Transactions, TxnState, forget_readers

JOB_ID_CHARACTERS = 32
STOP = "stop:"
"""How a user's request to stop begins, in CQ_HADOOP_JOB_ID."""


class Commits:
    """The part of `Queue` from the plan of an entry to its hand-over to the Cleaner."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema = database.schema
        self._table = self._schema.compaction_queue
        self._transactions = Transactions(database)

    def set_job_id(self, entry: QueueEntry, job_id: str) -> None:
        """Note the Spark job or application, cut to the column's 32 characters; a user's request to stop stays."""
        values = self._job_id(job_id)
        self._database.repeatable(update_owned, self._table, entry, values)

    def _job_id(self, job_id: str) -> Mapping[str, object]:
        noted = func.coalesce(self._table.c.cq_hadoop_job_id, "")
        wished = noted.like(f"{STOP}%")
        return {"cq_hadoop_job_id": case((wished, noted), else_=job_id[:JOB_ID_CHARACTERS])}

    def set_compactor_state(
        self,
        entry: QueueEntry,
        txn_id: int | None,
        highest_write_id: int,
        run_as: str | None,
        job_id: str | None = None,
    ) -> None:
        """
        Store what the compaction will cover, after planning and before its first file.

        On 4.x the same database transaction also stores its transaction, and a component of operation `c`, so that an
        aborted compaction's leftovers are found as those of an aborted write. A second call of the same attempt changes
        nothing more.

        Args:
            job_id: as for `set_job_id`; None: no job will run.

        Raises:
            OwnershipLostError: the entry was lost to another process, or the transaction isn't open.
        """
        values: dict[str, object] = {"cq_highest_write_id": highest_write_id, "cq_txn_id": txn_id}
        if job_id is not None:
            values |= self._job_id(job_id)
        if run_as is not None:
            values["cq_run_as"] = run_as

        def store(connection: Connection) -> None:
            if txn_id is not None:  # components before the queue, as Hive's OnRenameFunction
                lock_open(connection, self._schema, txn_id)
                self._note_component(connection, entry, txn_id, highest_write_id)
            update_owned(connection, self._table, entry, values)

        self._database.repeatable(store)

    def _note_component(self, connection: Connection, entry: QueueEntry, txn_id: int, highest_write_id: int) -> None:
        schema = self._schema
        components = schema.txn_components
        mine = and_(
            components.c.tc_txnid == txn_id,
            components.c.tc_operation_type == "c",
            of_entity(components, "tc", entry.entity),
        )
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
        # A Cleaner goes by this table: a row must also protect what the compaction reads.
        connection.execute(delete(history).where(history.c.mh_txnid == txn_id))
        row = {
            "mh_txnid": txn_id,
            "mh_database": entry.entity.database,
            "mh_table": entry.entity.table,
            "mh_writeid": highest_write_id + 1,
        }
        connection.execute(insert(history).values(row))

    def require_none_open(self, entry: QueueEntry, txn_id: int, lists: ValidTxnList) -> None:
        """Before the work on Hive 4: raise RivalError where it would be in vain (`rivals.require_none_open`)."""
        self._database.read(require_none_open, self._database, entry, txn_id, lists)

    def require_first(
        self, entry: QueueEntry, txn_id: int, lists: ValidTxnList, near: Neighbours | None = None
    ) -> Neighbours:
        """
        What the commit asks (Hive 4), asked now.

        Args:
            near: what an earlier call returned: the queue needn't be read as a whole again.

        Returns:
            the entries of the place, for the commit, which reads only these rows and those that came since.

        Raises:
            RivalError: another compaction of the same place comes first.
        """

        def look(connection: Connection) -> Neighbours:
            found = near or neighbours(connection, self._schema, entry)
            require_first(connection, self._database, entry, txn_id, lists, near=found)
            return found

        return self._database.read(look)

    def require_turn(self, entry: QueueEntry, name_write_id: int | None) -> None:
        """Before the publication on Hive 3.1: raise RivalError where one of Hive's comes first (`rivals.require_turn`)."""
        self._database.read(require_turn, self._schema, entry, name_write_id)

    def withdraw_attempt(self, txn_id: int) -> None:
        """
        Take back the component of an open compaction that has put nothing into the store and never will.

        Does nothing when the compaction's transaction isn't open any more.
        """
        txns, components = self._schema.txns.c, self._schema.txn_components

        def withdraw(connection: Connection) -> None:
            if connection.scalar(select(txns.txn_state).where(txns.txn_id == txn_id).with_for_update()) == "o":
                connection.execute(
                    delete(components).where(components.c.tc_txnid == txn_id, components.c.tc_operation_type == "c")
                )

        self._database.repeatable(withdraw)

    def mark_compacted_and_commit(
        self,
        entry: QueueEntry,
        worker_id: str,
        txn_id: int | None,
        follow_up: FollowUp | None = None,
        lists: ValidTxnList | None = None,
        *,
        near: Neighbours | None = None,
    ) -> None:
        """
        Hand the entry to the Cleaner and, on 4.x, commit its transaction: both or neither.

        The same database transaction notes the follow-up, if any. When the answer of the commit is lost, the tables are
        read again before the result is reported.

        Args:
            lists: what the compaction saw as committed; None: it has published nothing.
            near: what `require_first` returned; None: the queue is read before.

        Raises:
            RivalError: nothing was committed: another compaction of the same place comes first (`rivals`).
            OwnershipLostError: nothing was committed: the entry was lost to another process, or another process ended
                the transaction.
            OutcomeUnknownError: the commit was sent and the database can't be asked; leave all files where they are.
            RetryableError: nothing happened.
        """
        mine = and_(owned(self._table, entry), self._table.c.cq_worker_id == worker_id)
        if near is None and lists is not None:
            near = self._database.read(neighbours, self._schema, entry)
        unknown = False
        while True:
            try:
                self._database.write(self._commit, entry, mine, txn_id, follow_up=follow_up, lists=lists, near=near)
            except OutcomeUnknownError as error:
                try:
                    if self._settled(entry, txn_id):
                        return
                except (UnreachableError, RetryableError):
                    raise error from None
                if unknown:
                    raise
                unknown = True
            except OwnershipLostError:
                # The transaction may have ended by the commit without an answer, which was under way still when the
                # tables were read; or by that of an earlier call, after which they couldn't be read.
                if not ((unknown or txn_id is not None) and self._settled(entry, txn_id)):
                    raise
                return
            else:
                return

    def _commit(
        self,
        connection: Connection,
        entry: QueueEntry,
        mine: ColumnElement[bool],
        txn_id: int | None,
        *,
        follow_up: FollowUp | None,
        lists: ValidTxnList | None,
        near: Neighbours | None,
    ) -> None:
        schema, queue = self._schema, self._table
        values: dict[str, object] = {"cq_state": QueueState.READY_FOR_CLEANING.code, "cq_worker_id": None}
        if txn_id is None and not schema.generation.rename_commits:
            raise OwnershipLostError(f"compaction {entry.id} of {entry.entity} has no transaction to commit")
        if txn_id is not None:
            self._database.dialect.own_openers_lock(connection, schema.txn_lock_table)
            lock_open(connection, schema, txn_id)
            if lists is not None:
                assert near is not None
                require_first(connection, self._database, entry, txn_id, lists, near=near)
            # before the queue, as Hive's OnRenameFunction
            connection.execute(delete(schema.txn_components).where(schema.txn_components.c.tc_txnid == txn_id))
            forget_readers(connection, self._database, [txn_id])
            values |= {
                "cq_next_txn_id": maximum(connection, schema.txns.c.txn_id),
                "cq_commit_time": self._database.now,
            }
            mine = and_(mine, queue.c.cq_txn_id == txn_id)
        if (
            follow_up is not None
            and (text := noted(connection.scalar(select(queue.c.cq_tblproperties).where(mine)), follow_up)) is not None
        ):
            values["cq_tblproperties"] = text
        if connection.execute(update(queue).where(mine).values(values)).rowcount != 1:
            raise lost(entry)
        if txn_id is not None:
            connection.execute(update(schema.txns).where(schema.txns.c.txn_id == txn_id).values(txn_state="c"))

    def _settled(self, entry: QueueEntry, txn_id: int | None) -> bool:
        """Whether the commit happened, after an unknown outcome; False when it may be sent again."""
        schema = self._schema
        if txn_id is not None:
            match self._transactions.state(txn_id):
                case TxnState.OPEN:
                    return False
                case TxnState.COMMITTED:
                    return True
                case TxnState.ABORTED:
                    raise OwnershipLostError(f"transaction {txn_id} of compaction {entry.id} was aborted")
                case TxnState.ABSENT:
                    pass  # committed and forgotten, or aborted and forgotten: the queue or the history tells which
        now = self._database.read(find, schema, entry.id)
        if now is not None and committed(now, txn_id):
            return True
        if now is not None and now.state is QueueState.WORKING and now.worker_id == entry.worker_id and txn_id is None:
            return False
        raise lost(entry)


def committed(entry: QueueEntry, txn_id: int | None) -> bool:
    """
    Whether a row of the queue or the history proves that the compaction in `txn_id` was committed.

    Asked when TXNS has forgotten the transaction. On Hive 4 the proof is a row that names this transaction and has what
    only a commit writes, in the same database transaction: the highest transaction and the time. These values stay
    in every later state of the entry, even when the Cleaner refuses or fails it. The transaction alone proves nothing:
    an attempt stores its transaction before it works, and the next worker may refuse the entry before it stores
    another. Hive 3.1 has no transaction and no such columns: there only the states that follow a commit count.
    """
    if entry.txn_id != txn_id:
        return False
    after = entry.state in {QueueState.READY_FOR_CLEANING, QueueState.SUCCEEDED}
    return after or (txn_id is not None and (entry.next_txn_id is not None or entry.commit_ms is not None))
