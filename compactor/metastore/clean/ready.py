"""
Tells the Cleaner which finished compactions may be cleaned, and under which lists, and what to forget afterwards.

`acid.snapshot` decides which files are obsolete; the Cleaner deletes them. Source: docs/metastore.md; Hive's
ReadyToCleanHandler, MarkCleanedFunction, CompactionCleaner; HIVE-29572 (entries whose own transaction was aborted).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count

from sqlalchemy import ColumnElement, Connection, FromClause, and_, delete, func, null, select, update

from compactor.acid.write_ids import CleanerWriteIdList
from compactor.errors import OwnershipLostError
from compactor.metastore.clean.may_clean import NOBODY, Blocker, Environment, Observation, ReadyEntry, may_clean
from compactor.metastore.clean.purge import Proof, forget, forget_commits, is_catalogued
from compactor.metastore.clean.readers import MayBeListedError, read_older, read_readers, read_ties
from compactor.metastore.clean.writers import writers, written_tables
from compactor.metastore.compaction_queue.rows import entry_columns, move_to_history, queue_entry, read_queue, write_end
from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import changed, fetched, fitting, of_entity, of_table, same
from compactor.metastore.model import Entity, QueueEntry, QueueState
from compactor.metastore.partition_names import may_mean
from compactor.metastore.txn.locks import on_table, read_locks
from compactor.metastore.txn.snapshots import snapshots_for
from compactor.planning.observed import Seen


class Cleaning:
    """
    The Cleaner's view of one metastore.

    Remembers, for as long as it lives, the first observation of each ready entry.

    Args:
        look: lists the directories of entries, by the entry's id: None for one that can't be listed now; those that it
            doesn't reach in time are left out. Asked on 3.1, before an entry is observed. None: who asks only shows
            what is held back.
    """

    def __init__(
        self, database: Database, look: Callable[[Sequence[QueueEntry]], Mapping[int, Seen | None]] | None = None
    ) -> None:
        self._database = database
        self._schema = database.schema
        self._look_at = look if self._schema.generation.rename_commits else None
        self._snapshots = snapshots_for(database)
        self._observations: dict[int, Observation] = {}
        self._tried: dict[int, int] = {}
        self._turns = count(1)

    def ready_for_cleaning(self, retention_ms: int = 0, listing_wait_ms: int = 0) -> list[ReadyEntry]:
        """
        Every entry that is ready for cleaning, by id, each with its blockers.

        Args:
            retention_ms, listing_wait_ms: as for `Environment`.
        """
        # Before the readers are read: a reader that isn't among them lists later, and finds what is listed here.
        listed = self._list_unobserved()
        environment = replace(
            self._database.read(self._environment),
            listed=listed,
            lists=self._look_at is not None,
            retention_ms=retention_ms,
            listing_wait_ms=listing_wait_ms,
        )
        judged, self._observations = may_clean(environment, self._observations)
        return judged

    def older(self, entity: Entity, txn_id: int, lock_id: int | None) -> list[Blocker]:
        """
        Transactions and locks that may have an older snapshot than a compaction (`read_older`).

        The compaction is given by the last transaction before its lists and its own lock.
        """
        return self._database.read(read_older, self._database, entity, txn_id, lock_id)

    def ties(self, entity: Entity, txn_ids: Iterable[int]) -> Mapping[int, str]:
        """By what open transactions may see a table or partition (`read_ties`), where each is one statement (3.1)."""
        if not self._schema.generation.transactions_are_statements:
            return {}
        return self._database.read(read_ties, self._database, entity, txn_ids)

    def write_ids(self, ready: ReadyEntry) -> CleanerWriteIdList:
        """
        The write ids under which this entry's obsolete and aborted directories are decided.

        They end at the highest write id that the entry covered.
        """
        entry = ready.entry
        name, covered = entry.entity.full_name, entry.highest_write_id or 0
        if ready.txns is None:
            return CleanerWriteIdList(name, covered)
        txns = ready.txns
        reader = self._database.read(self._snapshots.write_ids, [name], txns)[name]
        return CleanerWriteIdList.from_reader(reader, covered)

    def mark_cleaner_start(self, entry: QueueEntry) -> None:
        """Note that cleaning began (4.x)."""
        self._note(entry, {"cq_cleaner_start": self._database.now})

    def clear_cleaner_start(self, entry: QueueEntry) -> None:
        """Note that cleaning ended and must be tried again (4.x)."""
        self._note(entry, {"cq_cleaner_start": -1})

    def retry_later(self, entry: QueueEntry, retention_ms: int, message: str) -> None:
        """Leave the entry alone until `retention_ms` after its commit, and store why (4.x)."""
        self._note(entry, {"cq_retry_retention": retention_ms, "cq_error_message": message, "cq_cleaner_start": -1})

    def mark_cleaned(
        self, entry: QueueEntry, proof: Proof | None = None, *, unjoined: bool = False, gone: bool = False
    ) -> None:
        """
        Move an entry into the history as succeeded, and forget what its compaction has taken care of.

        One database transaction does both. It forgets committed components of exactly this table or partition up to the
        covered write id, and what the proof covers.

        Args:
            proof: that nothing is left of aborted writes; None: nothing is known of them, and nothing forgotten.
            unjoined: the compaction was a part of a larger one and left out directories below: the committed components
                stay, or the Initiator would never look at what was left out again.
            gone: the table or partition was dropped: forget all of its committed components. The catalog is asked again
                in the same transaction.

        Raises:
            OwnershipLostError: the entry isn't ready for cleaning any more, or is in the catalog though it was gone.
        """

        def finish(connection: Connection) -> None:
            # In the order of Hive's OnRenameFunction: a RENAME that loses a deadlock leaves the catalog with the new
            # name and the write ids with the old one.
            if proof is not None:
                forget(connection, self._database, proof)
            covered = entry.highest_write_id or 0
            if gone or (covered and not unjoined):
                forget_commits(connection, self._database, entry.entity, None if gone else covered)
            # Hive renames the entry with its table: what was forgotten above would be of the table that has the name now.
            queue, named = self._schema.compaction_queue.c, entry.entity
            guard = [
                self._is_ready(entry),
                func.lower(queue.cq_database) == named.database,  # a client may have written it in capitals
                func.lower(queue.cq_table) == named.table,
                same(queue.cq_partition, named.partition),
            ]
            # After the deletion: one of this name that appeared since the catalog was read has commits of its own.
            if gone and is_catalogued(connection, self._schema, named):
                raise OwnershipLostError(f"{named} is in the catalog again")
            if not move_to_history(
                connection, self._schema, guard, QueueState.SUCCEEDED, end=self._database.now, message=None
            ):
                raise OwnershipLostError(f"compaction {entry.id} of {entry.entity} isn't ready for cleaning any more")
            if proof is not None:
                self._forget_retries(connection, entry.entity)

        write_end(self._database, entry, finish)
        self._observations.pop(entry.id, None)

    # Readiness

    def _list_unobserved(self) -> Mapping[int, Seen | None]:
        """On 3.1, what lies in the directories of entries of which no observation has a listing yet."""
        if self._look_at is None:
            return {}
        entries = self._database.read(read_queue, self._schema, self._ready)
        unobserved = [
            entry
            for entry in entries
            if (observation := self._observations.get(entry.id)) is None or observation.seen is None
        ]
        if not unobserved:
            return {}
        # What couldn't be listed comes after what wasn't reached yet, or it would take all the time there is.
        self._tried = {entry.id: self._tried.get(entry.id, 0) for entry in unobserved}
        seen = self._look_at(sorted(unobserved, key=lambda entry: (self._tried[entry.id], entry.id)))
        self._tried |= {number: next(self._turns) for number in seen}
        return seen

    def _environment(self, connection: Connection) -> Environment:
        """What decides at this moment, without what was listed before and settings."""
        queue, txns = self._schema.compaction_queue, self._schema.txns
        commits_noted = not self._schema.generation.rename_commits
        origin: FromClause = queue
        columns = entry_columns(queue, "cq")
        own_state = len(columns)
        if commits_noted:
            # One statement for a row and its transaction's state: a commit in between would look like a transaction
            # that vanished.
            origin = queue.outerjoin(txns, txns.c.txn_id == queue.c.cq_txn_id)
        columns.append(txns.c.txn_state if commits_noted else null())
        query = select(*columns).select_from(origin).where(self._ready).order_by(queue.c.cq_id)
        rows = list(fetched(connection.execute(query)))
        if not rows:
            return Environment((), NOBODY, 0, commits_noted)
        readers = read_readers(connection, self._database)
        now = self._database.now_ms(connection)
        entries = [(entry, row[own_state]) for row in rows if (entry := queue_entry(row)) is not None]
        return Environment(entries, readers, now, commits_noted)

    def check_alone(self, ready: ReadyEntry) -> None:
        """
        Check that no lock was taken since `ready` was judged, where that matters.

        Raises:
            MayBeListedError: a lock was taken.
        """
        if not ready.unlisted:
            return
        locks = self._schema.hive_locks
        for lock in self._database.read(read_locks, locks, on_table(locks, ready.entry.entity)):
            raise MayBeListedError(f"{lock} was taken while it was cleaned; everything was put back")

    def written_tables(self) -> frozenset[Entity]:
        """Tables that somebody may be writing, also such that the catalog doesn't have yet."""
        return self._database.read(written_tables, self._database)

    def writing(self, entity: Entity, own: int | None = None) -> list[Blocker]:
        """Open transactions, and writing locks without one, that may be writing; `own` is one that doesn't count."""
        return self._database.read(writers, self._database, entity, own)

    def written_above(
        self, entity: Entity, write_id: int, own: int | None = None, own_lock: int | None = None
    ) -> list[str]:
        """
        What was written to a table or partition above a write id, or may be being written: a sentence for each.

        Args:
            own, own_lock: a transaction and a lock that don't count.
        """
        commits = self._schema.completed_txn_components
        above = and_(of_table(commits, "ctc", entity), commits.c.ctc_writeid > write_id)

        def look(connection: Connection) -> list[str]:
            # In this order: a writer that ends in between shows among the commits.
            found = [blocker.sentence for blocker in writers(connection, self._database, entity, own, own_lock)]
            rows = connection.execute(select(commits.c.ctc_writeid, commits.c.ctc_partition).where(above))
            return found + [
                f"write id {number} was committed since"
                for number, partition in sorted(rows, key=lambda row: row[0])
                if entity.partition is None or partition is None or may_mean(partition, entity.partition)
            ]

        return self._database.read(look)

    # Rows

    @property
    def _ready(self) -> ColumnElement[bool]:
        queue = self._schema.compaction_queue.c
        return and_(queue.cq_state == QueueState.READY_FOR_CLEANING.code, queue.cq_type != "c")

    def _is_ready(self, entry: QueueEntry) -> ColumnElement[bool]:
        queue = self._schema.compaction_queue.c
        return and_(queue.cq_id == entry.id, queue.cq_state == QueueState.READY_FOR_CLEANING.code)

    def _note(self, entry: QueueEntry, values: dict[str, object]) -> None:
        """Change a row while it is ready; a row that isn't ready any more needs no note."""
        queue = self._schema.compaction_queue
        fitted = fitting(queue, values)
        if fitted:
            self._database.repeatable(changed, update(queue).where(self._is_ready(entry)).values(fitted))

    def _forget_retries(self, connection: Connection, entity: Entity) -> None:
        """Delete the rows that put off the cleaning of aborts: an ordinary cleaning supersedes them."""
        queue = self._schema.compaction_queue
        connection.execute(delete(queue).where(queue.c.cq_type == "c", of_entity(queue, "cq", entity)))
