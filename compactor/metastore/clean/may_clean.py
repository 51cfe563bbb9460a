"""
Decides which finished compactions may be cleaned now, and under which list of transactions.

An entry may be cleaned when every transaction that was open at its commit has ended, and every lock that was there
without a transaction is gone. Hive 3.1 doesn't note the time of the commit: there the transactions and locks count that
existed when the Cleaner first saw the entry ready, its first `Observation`. It is made at the commit or later: at worst
cleaning is delayed. It holds only for the results that lay there before it was made, so those stay with it.

Pure: all facts are given, and what is remembered is returned. `acid.snapshot` decides which files are obsolete then.
Source: docs/metastore.md; HIVE-23107, HIVE-24291, HIVE-26704, HIVE-29572; Hive's ReadyToCleanHandler,
CompactionCleaner, and 3.1's Cleaner.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from compactor.acid.compaction import CompactionKind
from compactor.acid.write_ids import ValidTxnList
from compactor.metastore.model import Entity, HeldLock, OpenTransaction, QueueEntry, duration
from compactor.metastore.partition_names import spellings
from compactor.metastore.txn.snapshot import Snapshot
from compactor.planning.observed import Seen
from compactor.reasons import Reason

_COUNTED_DOWN: Final = frozenset(
    {Reason.RETENTION, Reason.MAY_BE_LISTED, Reason.TABLE_MISSING, Reason.PARTITION_MISSING}
)
"""Reasons whose sentence says how much longer they hold."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """
    One reason why cleaning is held back.

    The sentence names the transaction with its user, host and age, the lock, or the rule.

    Args:
        holder: the transaction or lock, where the reason is one; the sentence names it.
    """

    reason: Reason
    sentence: str
    holder: OpenTransaction | HeldLock | None = field(default=None, hash=False)

    @property
    def what(self) -> tuple[Reason, int | str | None]:
        """The same for as long as the same holds it back; its sentence may tell an age, or how much longer it holds."""
        match self.holder:
            case OpenTransaction(txn_id=number) | HeldLock(lock_id=number):
                return self.reason, number
            case None:
                return self.reason, None if self.reason in _COUNTED_DOWN else self.sentence


@dataclass(frozen=True, slots=True)
class Observation:
    """
    What is remembered of a ready entry from one decision to the next.

    Args:
        at_ms: when it was first observed, by the database's clock.
        high_watermark: the last transaction that had been opened then.
        locks: those on its table or partition.
        seen: what had been listed in its directory before (Hive 3.1); None: it wasn't listed.
        own_open: its own transaction was open: the next observation is made anew.
        free_since_ms: since when nothing but an earlier entry holds it back; None: something else does.
    """

    at_ms: int
    high_watermark: int
    locks: frozenset[int]
    seen: Seen | None = None
    own_open: bool = False
    free_since_ms: int | None = None

    def free_since(self, at_ms: int | None) -> "Observation":
        """The same with another time; made directly, since `dataclasses.replace` takes five times as long."""
        return Observation(self.at_ms, self.high_watermark, self.locks, self.seen, self.own_open, at_ms)


@dataclass(frozen=True, slots=True)
class ReadyEntry:
    """
    One entry that is ready for cleaning, and whether it may be cleaned now.

    Args:
        txns: the list under which visibility is decided: what every possible reader of the table sees as committed.
            None on 3.1.
        seen: what lay in its directory before it was first observed: only that replaces anything for it (3.1). None on
            4.x, or when it wasn't listed: then nothing may be removed for it on 3.1.
        unlisted: the entry may be cleaned only as long as there is no lock.
        blockers: empty: clean the entry now. COMPACTION_ABORTED among them: mark it failed, and delete nothing for it.
    """

    entry: QueueEntry
    txns: ValidTxnList | None
    blockers: tuple[Blocker, ...] = ()
    seen: Seen | None = None
    unlisted: bool = False

    @property
    def failed(self) -> bool:
        """Whether the entry's transaction was rolled back: then it must be marked failed."""
        return any(blocker.reason is Reason.COMPACTION_ABORTED for blocker in self.blockers)


@dataclass(frozen=True, slots=True)
class Readers:
    """
    All transactions and locks at one moment that may protect files from cleaning.

    Args:
        settled: every transaction below it is finished.
        open: ascending.
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

        The answer is made once for all entries that the same transactions hold back: there may be many of both.
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


NOBODY: Final = Readers(Snapshot(0, (), (), ()), 1, (), {})
"""No transaction and no lock."""


@dataclass(frozen=True, slots=True)
class Environment:
    """
    Everything at one moment that decides whether entries may be cleaned.

    Args:
        ready: the entries that are ready for cleaning by id, each with the state of its own transaction, read in one
            statement: "o" open, "a" aborted, "c" committed; None: it has no row, or Hive 3.1.
        now_ms: the database's clock.
        commits_noted: the queue tells when a compaction was committed, by the next transaction (4.x: CQ_NEXT_TXN_ID).
        listed: on 3.1, what lies in the directories of entries that haven't been listed before, by id: None of one that
            can't be listed now. It was listed before the readers were read, so a reader that isn't among these lists
            later, and finds what was found here.
        lists: whether the caller lists directories, so that an entry whose directory wasn't reached yet waits for that;
            a command that only shows what is held back doesn't list.
        retention_ms: how long files stay after the commit, for readers that open no transaction.
        listing_wait_ms: how much longer at most files stay while there is a lock: a reader that is listing when a
            directory vanishes may take all of it for empty.
    """

    ready: Sequence[tuple[QueueEntry, str | None]]
    readers: Readers
    now_ms: int
    commits_noted: bool
    listed: Mapping[int, Seen | None] = field(default_factory=dict)
    lists: bool = True
    retention_ms: int = 0
    listing_wait_ms: int = 0


def may_clean(
    environment: Environment, known: Mapping[int, Observation]
) -> tuple[list[ReadyEntry], dict[int, Observation]]:
    """
    Which entries may be cleaned now, and what is to be remembered of each until the next time.

    Args:
        known: what was remembered the last time, by the entry's id.
    """
    alike: dict[Entity, list[QueueEntry]] = {}
    for entry, _ in environment.ready:
        # a removal of a directory neither waits for a new object of that name nor holds it up
        if entry.location is None:
            alike.setdefault(entry.entity, []).append(entry)
    judge = _by_commit if environment.commits_noted else _by_observation
    judged, observations = [], {}
    for entry, own_state in environment.ready:
        observation = _observed(environment, entry, own_state, known.get(entry.id))
        siblings = alike.get(entry.entity, ()) if entry.location is None else ()
        item = judge(environment, entry, own_state, observation, siblings)
        item, observations[entry.id] = _unless_listed(environment, item, observation)
        judged.append(item)
    return judged, observations


def _observed(
    environment: Environment, entry: QueueEntry, own_state: str | None, known: Observation | None
) -> Observation:
    """
    The first observation of an entry: made anew until its own transaction is seen ended, since transactions and locks
    that came meanwhile count as well, and when its directory was listed only now.
    """
    own_open, listed = own_state == "o", environment.listed.get(entry.id)
    if known is not None and not (known.own_open or own_open or (known.seen is None and listed is not None)):
        return known
    readers = environment.readers
    return Observation(
        environment.now_ms,
        readers.snapshot.high_watermark,
        frozenset(lock.lock_id for lock in readers.locks_on(entry.entity)),
        listed,
        own_open,
        None if known is None else known.free_since_ms,
    )


def _waits_by_itself(
    environment: Environment, entry: QueueEntry, observation: Observation, siblings: Sequence[QueueEntry]
) -> tuple[Blocker, ...]:
    """Blockers that no reader makes: an earlier entry of the same place, and retention."""
    blockers: tuple[Blocker, ...] = ()
    if len(siblings) > 1:
        first = min(siblings, key=lambda sibling: (sibling.highest_write_id or 0, sibling.id))
        if first.id != entry.id:
            what = "partition" if entry.entity.partition else "table"
            blockers += (Blocker(Reason.EARLIER_ENTRY, f"compaction {first.id} of the same {what} is cleaned first"),)
    since = environment.now_ms - (entry.commit_ms if entry.commit_ms is not None else observation.at_ms)
    left = environment.retention_ms + entry.retry_retention_ms - since
    if left > 0:
        blockers += (Blocker(Reason.RETENTION, f"files are kept for another {duration(left)}"),)
    return blockers


def _by_observation(
    environment: Environment,
    entry: QueueEntry,
    own_state: str | None,  # noqa: ARG001 - 3.1's entries are ready once their files are renamed
    observation: Observation,
    siblings: Sequence[QueueEntry],
) -> ReadyEntry:
    """Hive 3.1's own Cleaner asks for locks only; but a query has its snapshot before it has its locks."""
    readers = environment.readers
    blockers = _waits_by_itself(environment, entry, observation, siblings)
    if environment.lists and observation.seen is None and entry.id not in environment.listed:
        blockers += (Blocker(Reason.NOT_OBSERVED, "the Cleaner hasn't come to list its directory yet"),)
    blockers += readers.open_at(entry.entity, observation.high_watermark)
    blockers += _locks(entry, readers, observation, None)
    return ReadyEntry(entry, None, blockers, observation.seen)


def _by_commit(
    environment: Environment,
    entry: QueueEntry,
    own_state: str | None,
    observation: Observation,
    siblings: Sequence[QueueEntry],
) -> ReadyEntry:
    """On 4.x the commit is known, and what an open transaction saw when it began."""
    readers = environment.readers
    committed_at = entry.next_txn_id if entry.next_txn_id is not None else observation.high_watermark
    blockers = _waits_by_itself(environment, entry, observation, siblings)
    blockers += _own_transaction(entry, own_state)
    blockers += readers.open_at(entry.entity, committed_at)
    blockers += _locks(entry, readers, observation, committed_at)
    txns = readers.capped(min(committed_at, readers.horizon(entry.entity) - 1))
    if hidden := [txn_id for txn_id in _later(entry, siblings) if txn_id <= txns.high_watermark]:
        txns = replace(txns, open=(*txns.open, *hidden))
    if not blockers and entry.location is None and entry.txn_id is not None and not txns.is_valid(entry.txn_id):
        blockers = tuple(readers.began_while_open(entry.entity, entry.txn_id))
    return ReadyEntry(entry, txns, blockers)


def _own_transaction(entry: QueueEntry, state: str | None) -> tuple[Blocker, ...]:
    """
    Blockers because of the entry's own transaction.

    Entries become ready before their transaction commits, so an entry without CQ_NEXT_TXN_ID may not have committed.
    The commit of a rebalance never sets it: there an absent or committed transaction is taken as committed.

    A request to remove a directory only waits for its transaction to end: that of a CTAS was rolled back, and a DROP
    whose client died has dropped all the same, because the catalog is changed before. What the catalog has there
    (again) is never removed (`roles.cleaner.dropped`).
    """
    if entry.next_txn_id is not None or not entry.txn_id:
        return ()
    if state == "o":
        return (Blocker(Reason.NOT_YET_COMMITTED, f"its own transaction {entry.txn_id} isn't committed yet"),)
    if entry.location is not None:
        return ()
    if state == "a" or (state is None and entry.kind is not CompactionKind.REBALANCE):
        return (Blocker(Reason.COMPACTION_ABORTED, f"its own transaction {entry.txn_id} was rolled back"),)
    return ()


def _locks(
    entry: QueueEntry, readers: Readers, observation: Observation, committed_at: int | None
) -> tuple[Blocker, ...]:
    """
    Locks that existed at the first observation.

    Args:
        committed_at: of transactions' locks only those count that the transaction rule may have let pass.
    """
    return tuple(
        Blocker(Reason.HELD_LOCK, str(lock), lock)
        for lock in readers.locks_on(entry.entity)
        if lock.lock_id in observation.locks and (committed_at is None or lock.txn_id <= committed_at)
    )


def _later(entry: QueueEntry, siblings: Sequence[QueueEntry]) -> list[int]:
    """
    Transactions of other ready entries of the same place that were committed after this one: for it they replace
    nothing, and each of their own entries removes what they replaced.

    The transaction may be older than this entry's CQ_NEXT_TXN_ID, if it was open at that time: a reader that began
    before its commit isn't waited for here. An entry without CQ_NEXT_TXN_ID (a rebalance) may be either.
    Source: docs/protocol.md, *Hive 4: only what no open transaction may read*.
    """
    own = entry.next_txn_id
    return [
        other.txn_id
        for other in siblings
        if other.id != entry.id
        and other.txn_id
        and (own is None or other.next_txn_id is None or other.next_txn_id > own)
    ]


def _unless_listed(
    environment: Environment, item: ReadyEntry, observation: Observation
) -> tuple[ReadyEntry, Observation]:
    """
    Hold an entry without other blockers back while a lock tells that a reader may be listing.

    Any lock counts, of any holder and any age. For a request to remove a directory no lock counts: a reader can't find
    what was dropped. The wait also runs while an entry only waits for an earlier one: one after the other the waits
    would add up, and on a table that is always locked never end.
    """
    entry, now = item.entry, environment.now_ms
    if entry.location is not None:
        return item, observation
    if any(blocker.reason is not Reason.EARLIER_ENTRY for blocker in item.blockers):
        return item, observation if observation.free_since_ms is None else observation.free_since(None)
    since = observation.free_since_ms
    if since is None:
        since, observation = now, observation.free_since(now)
    left = since + environment.listing_wait_ms - now
    if item.blockers or left <= 0:
        return item, observation
    listing = tuple(may_be_listed(lock, left) for lock in environment.readers.locks_on(entry.entity))
    return replace(item, unlisted=True, blockers=listing), observation


def may_be_listed(lock: HeldLock, left_ms: int) -> Blocker:
    """
    The blocker for a lock whose holder may be listing; the Cleaner waits at most `left_ms` longer.

    Source: Hive's FetchOperator.generateWrappedSplits, which takes a directory that vanishes for empty.
    """
    return Blocker(Reason.MAY_BE_LISTED, f"{lock} may be listing; waited for at most another {duration(left_ms)}", lock)
