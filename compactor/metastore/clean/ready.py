"""
Tells the Cleaner which finished compactions may be cleaned, and under which lists, and what to forget afterwards.

`acid.snapshot` decides which files are obsolete; the Cleaner deletes them. Source: docs/metastore.md; Hive's
ReadyToCleanHandler, MarkCleanedFunction, CompactionCleaner; HIVE-29572 (entries whose own transaction was aborted).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count

from sqlalchemy import ColumnElement, Connection, FromClause, and_, delete, func, null, select, update

from compactor.acid.compaction import CompactionKind
from compactor.acid.write_ids import CleanerWriteIdList, ValidTxnList
from compactor.errors import OutcomeUnknownError, OwnershipLostError
from compactor.metastore.clean.parameters import Parameters, beside, told
from compactor.metastore.clean.purge import Proof, forget, forget_commits, is_catalogued
from compactor.metastore.clean.readers import (
    Blocker,
    MayBeListedError,
    Readers,
    Sight,
    may_be_listed,
    read_older,
    read_readers,
    read_ties,
)
from compactor.metastore.clean.writers import writers, written_tables
from compactor.metastore.compaction_queue.rows import entry_columns, move_to_history, queue_entry, read_queue
from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import fetched, fitting, of_entity, same
from compactor.metastore.model import Entity, QueueEntry, QueueState, duration
from compactor.metastore.partition_names import may_mean
from compactor.metastore.txn.locks import on_table, read_locks
from compactor.metastore.txn.snapshots import snapshots_for
from compactor.metastore.values import value
from compactor.planning.observed import Seen
from compactor.reasons import Reason


@value(frozen=True, slots=True)
class ReadyEntry:
    """
    One entry that is ready for cleaning, and whether it may be cleaned now.

    Args:
        txns: the list under which visibility is decided: what every possible reader of the table sees as committed.
            None on 3.1.
        seen: what lay in its directory before it was first observed: only that replaces anything for it (3.1). None on
            4.x, or when it wasn't listed: then nothing may be removed for it on 3.1.
        unlisted: the entry may be cleaned only as long as there is no lock.
        parameters: of its table and partition, those that were asked for.
        blockers: empty: clean the entry now. COMPACTION_ABORTED among them: mark it failed, and delete nothing for it.
    """

    entry: QueueEntry
    txns: ValidTxnList | None
    blockers: tuple[Blocker, ...] = ()
    seen: Seen | None = None
    unlisted: bool = False
    parameters: Parameters = ({}, {})

    @property
    def failed(self) -> bool:
        """Whether the entry's transaction was rolled back: then it must be marked failed."""
        return any(blocker.reason is Reason.COMPACTION_ABORTED for blocker in self.blockers)


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
        self._look_at = look
        self._database = database
        self._schema = database.schema
        self._snapshots = snapshots_for(database)
        self._sights: dict[int, Sight] = {}
        self._seen_open: set[int] = set()
        self._free_since: dict[int, int] = {}
        self._tried: dict[int, int] = {}
        self._turns = count(1)

    def ready_for_cleaning(
        self, retention_ms: int = 0, listing_wait_ms: int = 0, keys: Collection[str] = ()
    ) -> list[ReadyEntry]:
        """
        Every entry that is ready for cleaning, by id, each with its blockers.

        Args:
            retention_ms: how long files stay after the commit, for readers that open no transaction.
            listing_wait_ms: how much longer at most files stay while there is a lock: a reader that is listing when a
                directory vanishes may take all of it for empty.
            keys: names of parameters of the entry's table and partition to read as well.
        """
        # Before the readers are read: a reader that isn't among them lists later, and finds what is listed here.
        seen = self._list_unobserved()
        return self._database.read(
            lambda connection: self._ready(connection, retention_ms, listing_wait_ms, keys, seen=seen)
        )

    def older(self, entity: Entity, txn_id: int, lock_id: int | None) -> list[Blocker]:
        """
        Transactions and locks that may have an older snapshot than a compaction (`read_older`).

        The compaction is given by the last transaction before its lists and its own lock.
        """
        return self._database.read(lambda connection: read_older(connection, self._database, entity, txn_id, lock_id))

    def ties(self, entity: Entity, txn_ids: Iterable[int]) -> Mapping[int, str]:
        """By what open transactions of Hive 3.1 may see a table or partition (`read_ties`)."""
        return self._database.read(lambda connection: read_ties(connection, self._database, entity, txn_ids))

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
        reader = self._database.read(lambda connection: self._snapshots.write_ids(connection, [name], txns))[name]
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

        try:
            self._database.write(finish)
        except OutcomeUnknownError:
            history = self._schema.completed_compactions.c
            if not self._database.read(
                lambda connection: connection.scalar(select(history.cc_id).where(history.cc_id == entry.id))
            ):
                self._database.write(finish)
        self._sights.pop(entry.id, None)

    # Readiness

    def _list_unobserved(self) -> Mapping[int, Seen | None]:
        """On 3.1, what lies in the directories of entries of which no observation has a listing yet."""
        if self._schema.hive_4 or self._look_at is None:
            return {}
        queue = self._schema.compaction_queue
        ready = and_(queue.c.cq_state == QueueState.READY_FOR_CLEANING.code, queue.c.cq_type != "c")
        entries = self._database.read(lambda connection: read_queue(connection, self._schema, ready))
        unobserved = [entry for entry in entries if (sight := self._sights.get(entry.id)) is None or sight.seen is None]
        if not unobserved:
            return {}
        # What couldn't be listed comes after what wasn't reached yet, or it would take all the time there is.
        self._tried = {entry.id: self._tried.get(entry.id, 0) for entry in unobserved}
        seen = self._look_at(sorted(unobserved, key=lambda entry: (self._tried[entry.id], entry.id)))
        self._tried |= {number: next(self._turns) for number in seen}
        return seen

    def _ready(
        self,
        connection: Connection,
        retention_ms: int,
        listing_wait_ms: int,
        keys: Collection[str],
        *,
        seen: Mapping[int, Seen | None],
    ) -> list[ReadyEntry]:
        schema = self._schema
        queue, txns = schema.compaction_queue, schema.txns
        origin: FromClause = queue
        columns = entry_columns(queue, "cq")
        own_state = len(columns)
        if schema.hive_4:
            # One statement for a row and its transaction's state: a commit in between would look like a transaction
            # that vanished.
            origin = queue.outerjoin(txns, txns.c.txn_id == queue.c.cq_txn_id)
        columns.append(txns.c.txn_state if schema.hive_4 else null())
        if keys:
            origin, more = beside(schema, origin, keys)
            columns.extend(more)
        ready = and_(queue.c.cq_state == QueueState.READY_FOR_CLEANING.code, queue.c.cq_type != "c")
        query = select(*columns).select_from(origin).where(ready).order_by(queue.c.cq_id)
        rows = list(fetched(connection.execute(query)))
        if not rows:
            self._sights.clear()
            self._seen_open.clear()
            self._free_since.clear()
            return []
        readers = read_readers(connection, self._database)
        now = self._database.now_ms(connection)
        parameters = told(rows) if keys else {}
        rows = list({row[0]: row for row in rows}.values()) if keys else rows
        entries = [(entry, row[own_state]) for row in rows if (entry := queue_entry(row)) is not None]
        self._look(entries, readers, now, seen)
        alike: dict[Entity, list[QueueEntry]] = {}
        for entry, _ in entries:
            # a request to remove a directory neither waits for a new object of that name nor holds it up
            if entry.location is None:
                alike.setdefault(entry.entity, []).append(entry)
        first = {
            entity: found[0]
            if len(found) == 1
            else min(found, key=lambda entry: (entry.highest_write_id or 0, entry.id))
            for entity, found in alike.items()
        }
        judged = [
            self._judge(
                entry,
                state,
                readers,
                first=first.get(entry.entity, entry),
                later=_later(entry, alike.get(entry.entity, ())),
                sight=self._sights[entry.id],
                tried=entry.id in seen,
                now=now,
                retention_ms=retention_ms,
            )
            for entry, state in entries
        ]
        judged = [self._unless_listed(item, readers, now, listing_wait_ms) for item in judged]
        if parameters:
            judged = [
                replace(item, parameters=parameters[item.entry.id]) if item.entry.id in parameters else item
                for item in judged
            ]
        return judged

    def _unless_listed(self, item: ReadyEntry, readers: Readers, now: int, wait_ms: int) -> ReadyEntry:
        """
        Hold an entry without other blockers back while a lock tells that a reader may be listing.

        Any lock counts, of any holder and any age. For a request to remove a directory no lock counts: a reader can't
        find what was dropped. The wait also runs while an entry only waits for an earlier one: one after the other the
        waits would add up, and on a table that is always locked never end.
        """
        entry = item.entry
        if entry.location is not None:
            return item
        if any(blocker.reason is not Reason.EARLIER_ENTRY for blocker in item.blockers):
            self._free_since.pop(entry.id, None)
            return item
        left = self._free_since.setdefault(entry.id, now) + wait_ms - now
        if item.blockers or left <= 0:
            return item
        item = replace(item, unlisted=True)
        return replace(item, blockers=tuple(may_be_listed(lock, left) for lock in readers.locks_on(entry.entity)))

    def check_alone(self, ready: ReadyEntry) -> None:
        """
        Check that no lock was taken since `ready` was judged, where that matters.

        Raises:
            MayBeListedError: a lock was taken.
        """
        if not ready.unlisted:
            return
        locks = self._schema.hive_locks
        for lock in self._database.read(
            lambda connection: read_locks(connection, locks, on_table(locks, ready.entry.entity))
        ):
            raise MayBeListedError(f"{lock} was taken while it was cleaned; everything was put back")

    def written_tables(self) -> frozenset[Entity]:
        """Tables that somebody may be writing, also such that the catalog doesn't have yet."""
        return self._database.read(lambda connection: written_tables(connection, self._database))

    def writing(self, entity: Entity, own: int | None = None) -> list[Blocker]:
        """Open transactions, and writing locks without one, that may be writing; `own` is one that doesn't count."""
        return self._database.read(lambda connection: writers(connection, self._database, entity, own))

    def written_above(
        self, entity: Entity, write_id: int, own: int | None = None, own_lock: int | None = None
    ) -> list[str]:
        """
        What was written to a table or partition above a write id, or may be being written: a sentence for each.

        Args:
            own, own_lock: a transaction and a lock that don't count.
        """
        commits = self._schema.completed_txn_components
        of_table = and_(
            commits.c.ctc_database == entity.database,
            commits.c.ctc_table == entity.table,
            commits.c.ctc_writeid > write_id,
        )

        def look(connection: Connection) -> list[str]:
            # In this order: a writer that ends in between shows among the commits.
            found = [blocker.sentence for blocker in writers(connection, self._database, entity, own, own_lock)]
            rows = connection.execute(select(commits.c.ctc_writeid, commits.c.ctc_partition).where(of_table))
            return found + [
                f"write id {number} was committed since"
                for number, partition in sorted(rows, key=lambda row: row[0])
                if entity.partition is None or partition is None or may_mean(partition, entity.partition)
            ]

        return self._database.read(look)

    def _look(
        self, entries: list[tuple[QueueEntry, str | None]], readers: Readers, now: int, seen: Mapping[int, Seen | None]
    ) -> None:
        """
        Record the first observation of each entry, anew until its own transaction is seen ended, and when its directory
        was listed only now; forget entries that are gone.
        """
        alive = {entry.id for entry, _ in entries}
        for number in set(self._sights) - alive:
            del self._sights[number]
        self._seen_open &= alive
        self._free_since = {number: since for number, since in self._free_since.items() if number in alive}
        for entry, own_state in entries:
            known = self._sights.get(entry.id)
            listed = known is not None and known.seen is None and seen.get(entry.id) is not None
            if known is None or listed or entry.id in self._seen_open or own_state == "o":
                held = frozenset(lock.lock_id for lock in readers.locks_on(entry.entity))
                self._sights[entry.id] = Sight(now, readers.snapshot.high_watermark, held, seen.get(entry.id))
                # transactions and locks that came since the last such look count as well
                (self._seen_open.add if own_state == "o" else self._seen_open.discard)(entry.id)

    def _judge(
        self,
        entry: QueueEntry,
        own_state: str | None,
        readers: Readers,
        *,
        first: QueueEntry,
        later: Collection[int],
        sight: Sight,
        tried: bool,
        now: int,
        retention_ms: int,
    ) -> ReadyEntry:
        blockers: tuple[Blocker, ...] = ()  # an empty one added to `open_at`'s makes no copy
        if first.id != entry.id and entry.location is None:
            what = "partition" if entry.entity.partition else "table"
            blockers += (Blocker(Reason.EARLIER_ENTRY, f"compaction {first.id} of the same {what} is cleaned first"),)
        since = now - (entry.commit_ms if entry.commit_ms is not None else sight.at_ms)
        if since < retention_ms + entry.retry_retention_ms:
            left = duration(retention_ms + entry.retry_retention_ms - since)
            blockers += (Blocker(Reason.RETENTION, f"files are kept for another {left}"),)
        if not self._schema.hive_4:
            if self._look_at is not None and sight.seen is None and not tried:
                blockers += (Blocker(Reason.NOT_OBSERVED, "the Cleaner hasn't come to list its directory yet"),)
            # Hive 3.1's Cleaner asks for locks only; but a query has its snapshot before it has its locks
            blockers += readers.open_at(entry.entity, sight.high_watermark)
            return ReadyEntry(entry, None, blockers + tuple(self._locks(entry, readers, sight, None)), sight.seen)
        blockers += tuple(self._own_transaction(entry, own_state))
        horizon = readers.horizon(entry.entity)
        committed_at = entry.next_txn_id if entry.next_txn_id is not None else sight.high_watermark
        blockers += readers.open_at(entry.entity, committed_at)
        blockers += tuple(self._locks(entry, readers, sight, committed_at))
        txns = readers.capped(min(committed_at, horizon - 1))
        if hidden := [txn_id for txn_id in later if txn_id <= txns.high_watermark]:
            txns = replace(txns, open=(*txns.open, *hidden))
        if not blockers and entry.location is None and entry.txn_id is not None and not txns.is_valid(entry.txn_id):
            blockers += tuple(readers.began_while_open(entry.entity, entry.txn_id))
        return ReadyEntry(entry, txns, blockers)

    @staticmethod
    def _own_transaction(entry: QueueEntry, state: str | None) -> list[Blocker]:
        """
        Blockers because of the entry's own transaction.

        Entries become ready before their transaction commits, so an entry without CQ_NEXT_TXN_ID may not have
        committed. The commit of a rebalance never sets it: there an absent or committed transaction is taken as
        committed.

        A request to remove a directory only waits for its transaction to end: that of a CTAS was rolled back, and a
        DROP whose client died has dropped all the same, because the catalog is changed before. What the catalog has
        there (again) is never removed (`roles.cleaner.dropped`).
        """
        if entry.next_txn_id is not None or not entry.txn_id:
            return []
        if state == "o":
            return [Blocker(Reason.NOT_YET_COMMITTED, f"its own transaction {entry.txn_id} isn't committed yet")]
        if entry.location is not None:
            return []
        if state == "a" or (state is None and entry.kind is not CompactionKind.REBALANCE):
            return [Blocker(Reason.COMPACTION_ABORTED, f"its own transaction {entry.txn_id} was rolled back")]
        return []

    @staticmethod
    def _locks(entry: QueueEntry, readers: Readers, sight: Sight, committed_at: int | None) -> list[Blocker]:
        """
        Locks that existed at the first observation.

        Of transactions' locks only those count that the transaction rule may have let pass.
        """
        left = [lock for lock in readers.locks_on(entry.entity) if lock.lock_id in sight.locks]
        if committed_at is not None:
            left = [lock for lock in left if lock.txn_id <= committed_at]
        return [Blocker(Reason.HELD_LOCK, str(lock), lock) for lock in left]

    # Rows

    def _is_ready(self, entry: QueueEntry) -> ColumnElement[bool]:
        queue = self._schema.compaction_queue.c
        return and_(queue.cq_id == entry.id, queue.cq_state == QueueState.READY_FOR_CLEANING.code)

    def _note(self, entry: QueueEntry, values: dict[str, object]) -> None:
        """Change a row while it is ready; a row that isn't ready any more needs no note."""
        queue = self._schema.compaction_queue
        fitted = fitting(queue, values)
        if fitted:
            self._database.repeatable(
                lambda connection: (
                    connection.execute(update(queue).where(self._is_ready(entry)).values(fitted)).rowcount
                )
            )

    def _forget_retries(self, connection: Connection, entity: Entity) -> None:
        """Delete the rows that put off the cleaning of aborts: an ordinary cleaning supersedes them."""
        queue = self._schema.compaction_queue
        connection.execute(delete(queue).where(queue.c.cq_type == "c", of_entity(queue, "cq", entity)))


def _later(entry: QueueEntry, alike: Collection[QueueEntry]) -> list[int]:
    """
    Transactions of other ready entries of the same place that were committed after this one: for it they replace
    nothing, and each of their own entries removes what they replaced.

    The transaction may be older than this entry's CQ_NEXT_TXN_ID, if it was open at that time: a reader that began
    before its commit isn't waited for here. An entry without CQ_NEXT_TXN_ID (a rebalance) may be either.
    Source: docs/protocol.md, *Hive 4: only what no open transaction may read*.
    """
    if len(alike) < 2:
        return []
    own = entry.next_txn_id
    return [
        other.txn_id
        for other in alike
        if other.id != entry.id
        and other.txn_id
        and (own is None or other.next_txn_id is None or other.next_txn_id > own)
    ]
