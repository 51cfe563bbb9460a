"""
What the Cleaner asks of the metastore: which finished compactions may be cleaned, under which lists, and what to forget afterwards.

Which files are obsolete is `acid.snapshot`'s to say; deleting them is the Cleaner's. Source: docs/metastore.md; Hive's ReadyToCleanHandler,
MarkCleanedFunction, CompactionCleaner; HIVE-29572 (entries whose own transaction was aborted).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, Connection, and_, delete, select, update

from compactor.acid.compaction import CompactionKind
from compactor.acid.write_ids import CleanerWriteIdList, ValidTxnList
from compactor.errors import OutcomeUnknownError, OwnershipLostError, RetryableError
from compactor.metastore.database import Database
from compactor.metastore.forgetting import Proof, forget, forget_commits
from compactor.metastore.locks import on_table, read_locks
from compactor.metastore.model import Entity, QueueEntry, QueueState, duration
from compactor.metastore.readers import Blocker, MayBeListedError, Readers, may_be_listed, read_older, read_readers
from compactor.metastore.rows import labelled, move_to_history, queue_entry
from compactor.metastore.siblings import at_work, newest_commits, within
from compactor.metastore.sights import Sight, together
from compactor.metastore.snapshots import snapshots_for
from compactor.metastore.sql import fitting, of_entity
from compactor.metastore.writers import writers
from compactor.reasons import Reason


@dataclass(frozen=True, slots=True)
class ReadyEntry:
    """
    One entry that is ready for cleaning, and whether it may be cleaned now.

    Args:
        txns: under which visibility is decided: what everybody who may still read the table sees as committed. None on 3.1.
        known: entries of the same table or partition that were ready, too (3.1).
        unlisted: it may be cleaned only as long as nobody has a lock.
        blockers: empty: clean it now. COMPACTION_ABORTED among them: it must be marked failed, and nothing deleted for it.
    """

    entry: QueueEntry
    txns: ValidTxnList | None
    blockers: tuple[Blocker, ...] = ()
    known: frozenset[int] = frozenset()
    unlisted: bool = False

    @property
    def failed(self) -> bool:
        """Its transaction was rolled back: mark it failed."""
        return any(blocker.reason is Reason.COMPACTION_ABORTED for blocker in self.blockers)


class Cleaning:
    """The Cleaner's view of one metastore. Remembers, for as long as it lives, who was there when each entry was first seen ready."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema = database.schema
        self._snapshots = snapshots_for(database)
        self._sights: dict[int, Sight] = {}
        self._seen_open: set[int] = set()
        self._free_since: dict[int, int] = {}

    def ready_for_cleaning(self, retention_ms: int = 0, listing_wait_ms: int = 0) -> list[ReadyEntry]:
        """
        Every entry that is ready for cleaning, by id, each with what holds it back.

        Args:
            retention_ms: leave files for so long after the commit, for readers that open no transaction.
            listing_wait_ms: then leave them while anybody has a lock, for so long at most: who is listing when a directory vanishes may take all for empty.
        """
        return self._database.read(lambda connection: self._ready(connection, retention_ms, listing_wait_ms))

    def older(self, entity: Entity, txn_id: int, lock_id: int | None) -> list[Blocker]:
        """Who may have an older snapshot than a compaction, by the last transaction before its lists and its own lock (`read_older`)."""
        return self._database.read(lambda connection: read_older(connection, self._database, entity, txn_id, lock_id))

    def write_ids(self, ready: ReadyEntry) -> CleanerWriteIdList:
        """The write ids under which this entry's obsolete and aborted directories are decided: nothing beyond what it covered."""
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
        """Leave the entry alone until so long after its commit, and say why (4.x)."""
        self._note(entry, {"cq_retry_retention": retention_ms, "cq_error_message": message, "cq_cleaner_start": -1})

    def mark_cleaned(self, entry: QueueEntry, proof: Proof | None = None, *, unjoined: bool = False, gone: bool = False) -> None:
        """
        Finish an entry: into the history as succeeded, and forget what its compaction has taken care of, in one database transaction: committed components of
        this very table or partition up to the covered write id, and what the proof covers.

        Args:
            proof: of what is left of aborted writes; None: nothing is known of them, and nothing forgotten.
            unjoined: it was a part of a larger compaction and left out something below: the committed components stay, or nobody would look at the rest again.
            gone: the table or partition was dropped: forget all of its committed components.

        Raises:
            OwnershipLostError: the entry isn't ready for cleaning any more.
        """

        def finish(connection: Connection) -> None:
            # In the order of Hive's OnRenameFunction: a RENAME that loses a deadlock leaves the catalog with the new name and the write ids with the old one.
            if proof is not None:
                forget(connection, self._database, proof)
            covered = entry.highest_write_id or 0
            if gone or (covered and not unjoined):
                forget_commits(connection, self._database, entry.entity, None if gone else covered)
            guard = [self._is_ready(entry)]
            if gone:  # what was renamed since is there, under another name
                guard.append(of_entity(self._schema.compaction_queue, "cq", entry.entity))
            if not move_to_history(connection, self._schema, guard, QueueState.SUCCEEDED, end=self._database.now, message=None):
                raise OwnershipLostError(f"compaction {entry.id} of {entry.entity} isn't ready for cleaning any more")
            if proof is not None:
                self._forget_retries(connection, entry.entity)

        try:
            self._database.write(finish)
        except OutcomeUnknownError:
            history = self._schema.completed_compactions.c
            if not self._database.read(lambda connection: connection.scalar(select(history.cc_id).where(history.cc_id == entry.id))):
                self._database.write(finish)
        self._sights.pop(entry.id, None)

    # Readiness

    def _ready(self, connection: Connection, retention_ms: int, listing_wait_ms: int) -> list[ReadyEntry]:
        schema = self._schema
        queue, txns = schema.compaction_queue, schema.txns
        columns = labelled(queue)
        ready = and_(queue.c.cq_state == QueueState.READY_FOR_CLEANING.code, queue.c.cq_type != "c")
        # One statement for a row and its transaction's state: a commit in between would look like a transaction that vanished.
        query = select(*columns).where(ready)
        if schema.hive_4:
            query = select(*columns, txns.c.txn_state.label("own_state")).select_from(queue.outerjoin(txns, txns.c.txn_id == queue.c.cq_txn_id)).where(ready)
        rows = connection.execute(query.order_by(queue.c.cq_id)).mappings().all()
        if not rows:
            self._sights.clear()
            self._seen_open.clear()
            self._free_since.clear()
            return []
        readers = read_readers(connection, self._database)
        now = self._database.now_ms(connection)
        entries = [(entry, row.get("own_state")) for row in rows if (entry := queue_entry(row)) is not None]
        self._look(entries, readers, now)
        alike: dict[Entity, list[QueueEntry]] = {}
        for entry, _ in entries:
            if entry.location is None:  # one that only removes a directory neither waits for what has its name by now, nor holds it up
                alike.setdefault(entry.entity, []).append(entry)
        first = {entity: min(found, key=lambda entry: (entry.highest_write_id or 0, entry.id)) for entity, found in alike.items()}
        newest = {} if schema.hive_4 else newest_commits(connection, schema, (entry for entry, _ in entries))
        sights = {entry.id: self._sight(entry, alike.get(entry.entity, ()), newest) for entry, _ in entries}
        judged = [
            self._judge(entry, state, readers, first=first.get(entry.entity, entry), sight=sights[entry.id], now=now, retention_ms=retention_ms)
            for entry, state in entries
        ]
        judged = [self._unless_listed(item, readers, now, listing_wait_ms) for item in judged]
        return judged if schema.hive_4 else self._beside(judged, at_work(connection, schema), alike)

    def _unless_listed(self, item: ReadyEntry, readers: Readers, now: int, wait_ms: int) -> ReadyEntry:
        """
        Where nothing else is in the way a lock, whosever and since whenever, tells that somebody may be listing; what was dropped nobody finds to list.

        What only waits for an earlier entry has its time meanwhile: one after the other they would add up, and on a table that is always locked never end.
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

    @staticmethod
    def _beside(judged: list[ReadyEntry], working: Mapping[Entity, int], alike: Mapping[Entity, list[QueueEntry]]) -> list[ReadyEntry]:
        """On 3.1 an entry waits for a compaction that is at work on the same: its result would make obsolete what readers still read."""
        found = []
        for item in judged:
            entity = item.entry.entity
            more = [Blocker(Reason.AT_WORK, f"compaction {working[entity]} is at work there")] if entity in working else []
            found.append(replace(item, blockers=(*item.blockers, *more), known=frozenset(entry.id for entry in alike[entity])))
        return found

    def check_alone(self, ready: ReadyEntry) -> None:
        """
        Since `ready` was judged nobody took a lock, where that matters; on 3.1 nobody began or finished a compaction of the same.

        Raises:
            RetryableError: somebody did; `MayBeListedError`: took a lock.
        """
        if ready.unlisted:
            locks = self._schema.hive_locks
            for lock in self._database.read(lambda connection: read_locks(connection, locks, on_table(locks, ready.entry.entity))):
                raise MayBeListedError(f"{lock} was taken while it was cleaned; everything was put back")
        if self._schema.hive_4:
            return
        queue = self._schema.compaction_queue
        active = queue.c.cq_state.in_((QueueState.WORKING.code, QueueState.READY_FOR_CLEANING.code))
        query = select(queue.c.cq_id).where(active, queue.c.cq_type != "c", of_entity(queue, "cq", ready.entry.entity), queue.c.cq_id.not_in(ready.known))
        number = self._database.read(lambda connection: connection.scalar(query))
        if number is not None:
            raise RetryableError(f"compaction {number} of {ready.entry.entity} began while it was cleaned; everything was put back")

    def writers(self, entry: QueueEntry) -> list[Blocker]:
        """Who may be writing into the directory that this entry asks to remove: what the catalog says of it counts only when it is asked afterwards."""
        return self._database.read(lambda connection: writers(connection, self._database, entry.entity, entry.txn_id))

    def _look(self, entries: list[tuple[QueueEntry, str | None]], readers: Readers, now: int) -> None:
        """Remember what is there when an entry is first seen with its transaction ended; forget entries that are gone."""
        alive = {entry.id for entry, _ in entries}
        for number in set(self._sights) - alive:
            del self._sights[number]
        self._seen_open &= alive
        self._free_since = {number: since for number, since in self._free_since.items() if number in alive}
        for entry, own_state in entries:
            if entry.id not in self._sights or entry.id in self._seen_open or own_state == "o":
                held = frozenset(lock.lock_id for lock in readers.locks_on(entry.entity))
                self._sights[entry.id] = Sight(now, readers.snapshot.high_watermark, held)
                (self._seen_open.add if own_state == "o" else self._seen_open.discard)(entry.id)  # who came since the last such look counts as well

    def _sight(self, entry: QueueEntry, alike: Iterable[QueueEntry], newest: Mapping[Entity, int]) -> Sight:
        """
        Who was there when an entry was first seen; on 3.1 also when later ones were whose results may lie within what it covers.

        Names don't tell there which compaction made a directory, so what those replaced is removed with what this one did.
        """
        if self._schema.hive_4:
            return self._sights[entry.id]
        covered = entry.highest_write_id or 0
        return together(self._sights[other.id] for other in alike if within(covered, entry, other, newest))

    def _judge(self, entry: QueueEntry, own_state: str | None, readers: Readers, *, first: QueueEntry, sight: Sight, now: int, retention_ms: int) -> ReadyEntry:
        blockers: list[Blocker] = []
        if first.id != entry.id and entry.location is None:
            blockers.append(
                Blocker(Reason.EARLIER_ENTRY, f"compaction {first.id} of the same {'partition' if entry.entity.partition else 'table'} is cleaned first")
            )
        since = now - (entry.commit_ms if entry.commit_ms is not None else sight.at_ms)
        if since < retention_ms + entry.retry_retention_ms:
            blockers.append(Blocker(Reason.RETENTION, f"files are kept for another {duration(retention_ms + entry.retry_retention_ms - since)}"))
        if not self._schema.hive_4:
            # Hive 3.1's Cleaner asks for locks only; but a query has its snapshot before it has its locks
            blockers += readers.open_at(entry.entity, sight.high_watermark)
            return ReadyEntry(entry, None, (*blockers, *self._locks(entry, readers, sight, None)))
        blockers += self._own_transaction(entry, own_state)
        horizon = readers.horizon(entry.entity)
        committed_at = entry.next_txn_id if entry.next_txn_id is not None else sight.high_watermark
        blockers += readers.open_at(entry.entity, committed_at)
        blockers += self._locks(entry, readers, sight, committed_at)
        txns = readers.snapshot.capped(min(committed_at, horizon - 1))
        if not blockers and entry.location is None and entry.txn_id is not None and not txns.is_valid(entry.txn_id):
            blockers += readers.began_while_open(entry.entity, entry.txn_id)
        return ReadyEntry(entry, txns, tuple(blockers))

    @staticmethod
    def _own_transaction(entry: QueueEntry, state: str | None) -> list[Blocker]:
        """
        Entries become ready before their transaction commits; one without CQ_NEXT_TXN_ID may not have committed.

        The commit of a rebalance never sets it: there an absent or committed transaction is taken as committed.

        A request to remove a directory only waits for its transaction to end: that of a CTAS was rolled back, and a DROP whose client died has dropped all the
        same, for the catalog is changed before. What the catalog has there (again) is never removed (`roles.soft_delete`).
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
        """Locks that were there from the beginning; of transactions only those that the transaction rule may have let pass."""
        left = [lock for lock in readers.locks_on(entry.entity) if lock.lock_id in sight.locks]
        if committed_at is not None:
            left = [lock for lock in left if lock.txn_id <= committed_at]
        return [Blocker(Reason.HELD_LOCK, str(lock)) for lock in left]

    # Rows

    def _is_ready(self, entry: QueueEntry) -> ColumnElement[bool]:
        queue = self._schema.compaction_queue.c
        return and_(queue.cq_id == entry.id, queue.cq_state == QueueState.READY_FOR_CLEANING.code)

    def _note(self, entry: QueueEntry, values: dict[str, object]) -> None:
        """Change a row while it is ready; one that isn't any more needs no note."""
        queue = self._schema.compaction_queue
        fitted = fitting(queue, values)
        if fitted:
            self._database.repeatable(lambda connection: connection.execute(update(queue).where(self._is_ready(entry)).values(fitted)).rowcount)

    def _forget_retries(self, connection: Connection, entity: Entity) -> None:
        """An ordinary cleaning supersedes what the cleaning of aborts had to put off."""
        queue = self._schema.compaction_queue
        connection.execute(delete(queue).where(queue.c.cq_type == "c", of_entity(queue, "cq", entity)))
