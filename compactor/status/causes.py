"""
What holds entries back: the cleaning of those that are ready for it, and the compaction of those that wait.

Each cause once for all entries that it holds back, with what ends it; and of one entry all that the Cleaner asks.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from compactor.acid.compaction import CompactionKind
from compactor.control import Denial, Subject
from compactor.control.waits import TIME, Wait
from compactor.coordination import Role
from compactor.metastore.catalog import Catalog
from compactor.metastore.clean.may_clean import Blocker, ReadyEntry
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.db.sql import least
from compactor.metastore.model import Entity, HeldLock, OpenTransaction, QueueEntry
from compactor.planning.eligibility import what_is_kept
from compactor.planning.picker import Skip
from compactor.planning.thresholds import CLEANUP_KEYS
from compactor.reasons import Reason
from compactor.roles.pauses import subject_of
from compactor.roles.replication import SOURCE_KEY, why_stays
from compactor.status.daemons import Daemons
from compactor.status.records import Record, entered_ms
from compactor.words import instant

CLEANING, COMPACTION = "cleaning", "compaction"
_RULES: Final[Mapping[Reason, tuple[str, str]]] = {
    Reason.RETENTION: ("files are kept for a while after the commit", "time: cleaner.retention_seconds"),
    Reason.EARLIER_ENTRY: (
        "an earlier compaction of the same table or partition is cleaned first",
        "what holds back the earlier one",
    ),
    Reason.NOT_YET_COMMITTED: ("its own transaction isn't committed yet", "the commit"),
    Reason.COMPACTION_ABORTED: ("its own transaction was rolled back", "the Cleaner's next cycle: it ends as failed"),
}
"""Reasons that are the same for every entry: the cause, and what ends it."""
_STAYS: Final = {
    Reason.NO_CLEANUP: "ALTER TABLE … UNSET TBLPROPERTIES ('no_cleanup')",
    Reason.REPLICATION_SOURCE: "hdfs.change_management_root, on the file system of the table",
}
_NO_CLEANER: Final = Blocker(Reason.NO_CLEANER, "no daemon is the Cleaner")
_NEXT_CYCLE = "nothing: the Cleaner's next cycle removes what was replaced"
_AGAIN = "what it names; the Cleaner tries again, after longer and longer pauses"
_ABORTED = "what aborted writes left couldn't be removed"
_NOT_LONG = "time: at most cleaner.listing_wait_seconds, however long it is held"
_FREE_WORKER = "nothing: the next free worker takes it"


@dataclass(frozen=True, slots=True)
class Cause:
    """
    What holds entries back; equal for all entries that it holds back.

    Args:
        reason: empty: nothing does.
        remedy: what ends it: a command, or what to wait for.
    """

    holds: str
    reason: str
    sentence: str
    remedy: str

    @classmethod
    def of(cls, holds: str, wait: Wait) -> Self:
        until = instant(wait.until_ms)
        remedy = f"time: until {until[:19].replace('T', ' ')} UTC" if until and wait.remedy == TIME else wait.remedy
        return cls(holds, wait.reason, wait.sentence, remedy)


class Hindrance(NamedTuple):
    """
    All that holds back the cleaning of an entry that is ready for it; equal for entries that the same holds back.

    Args:
        blockers: readers, and what waits by itself.
        denial: a pause of cleaning.
        stays: the Cleaner doesn't wait: it ends the entry, and the files stay.
        unattended: no daemon is the Cleaner.
        failed: how the latest cleaning failed, after which it is tried again; empty: none did, or Hive 3.1 has no room
            for that.
    """

    blockers: tuple[Blocker, ...] = ()
    denial: Denial | None = None
    stays: Skip | None = None
    unattended: bool = False
    failed: str = ""

    def readers(self) -> tuple[Blocker, ...]:
        """The blockers; the sentence of a transaction tells of its locks, too, which don't count beside it."""
        txns = {one.holder.txn_id: [one.sentence] for one in self.blockers if isinstance(one.holder, OpenTransaction)}
        found: list[Blocker] = []
        for one in self.blockers:
            if isinstance(one.holder, HeldLock) and one.holder.txn_id in txns:
                txns[one.holder.txn_id].append(one.sentence)
            else:
                found.append(one)
        return tuple(
            replace(one, sentence="; ".join(txns[one.holder.txn_id]))
            if isinstance(one.holder, OpenTransaction)
            else one
            for one in found
        )

    def all(self) -> tuple[Blocker, ...]:
        """One for each thing; empty: the Cleaner's next cycle removes what was replaced."""
        found = tuple(
            replace(one, sentence=f"{self.failed}; {one.sentence}")
            if self.failed and one.reason is Reason.RETENTION
            else one
            for one in self.readers()
        )
        if self.denial is not None:
            found += (Blocker(self.denial.reason, self.denial.sentence),)
        if self.stays is not None:
            found += (Blocker(self.stays.reason, self.stays.explanation),)
        return found or ((_NO_CLEANER,) if self.unattended else ())

    def causes(self, ties: Mapping[int, str] = MappingProxyType({})) -> list[Cause]:
        """
        The causes, of which other entries may have the same.

        Args:
            ties: of transactions, by what they may see the entry's table, where that is told.
        """
        again = Cause(CLEANING, Reason.RETENTION.value, self.failed, _AGAIN)
        causes = list(
            dict.fromkeys(
                again if self.failed and blocker.reason is Reason.RETENTION else _blocked(blocker, ties)
                for blocker in self.readers()
            )
        )
        if self.denial is not None:
            causes.append(Cause.of(CLEANING, Wait.of(self.denial)))
        if self.stays is not None:
            reason = self.stays.reason
            causes.append(Cause(CLEANING, reason.value, self.stays.explanation, _STAYS[reason]))
        if not causes and self.unattended:
            return [
                Cause(CLEANING, _NO_CLEANER.reason.value, _NO_CLEANER.sentence, "compactor run, with cleaner.enabled")
            ]
        return causes or [Cause(CLEANING, "", _NEXT_CYCLE, TIME)]


class Hindrances:
    """Tells what holds back each of these entries that are ready for cleaning."""

    def __init__(self, catalog: Catalog, daemons: Daemons, cleaning: Iterable[ReadyEntry]) -> None:
        self._daemons = daemons
        self._unattended = daemons.lack(Role.CLEANER)
        self._denials: dict[Subject, Denial | None] = {}
        entities = {ready.entry.entity for ready in cleaning if ready.entry.location is None}
        self._stay = {**_sources(catalog, entities), **_kept(catalog, entities)} if entities else {}

    def of(self, ready: ReadyEntry) -> Hindrance:
        subject = subject_of(ready.entry)
        if subject not in self._denials:
            self._denials[subject] = self._daemons.judge.cleaning(subject)
        denial = self._denials[subject]
        if denial is not None and denial.reason is Reason.NOT_INCLUDED:
            return Hindrance(denial=denial)  # the Cleaner asks nothing else of it
        if ready.entry.kind is CompactionKind.ABORT_CLEANUP:
            return Hindrance(ready.blockers, denial, failed=ready.entry.error_message or _ABORTED)
        # as the Cleaner will judge; nothing stays for a request to remove a directory
        stays = self._stay.get(ready.entry.entity) if self._stay and ready.entry.location is None else None
        failed = failed_cleaning(ready.entry)
        return Hindrance(ready.blockers, denial, stays, self._unattended, failed)


def put_off(entries: Iterable[QueueEntry]) -> list[ReadyEntry]:
    """
    Those of the entries that stand for aborted writes (`abort-cleanup`): a Cleaner couldn't remove all that they left,
    and tries again later. `may_clean` doesn't judge them.
    """
    return [
        ReadyEntry(entry, None, (Blocker(Reason.RETENTION, entry.error_message or _ABORTED),))
        for entry in entries
        if entry.kind is CompactionKind.ABORT_CLEANUP
    ]


def failed_cleaning(entry: QueueEntry) -> str:
    """How the latest cleaning after a compaction failed, if it is tried again."""
    return (
        (entry.error_message or "")
        if entry.retry_retention_ms and entry.kind is not CompactionKind.ABORT_CLEANUP
        else ""
    )


def _kept(catalog: Catalog, entities: Collection[Entity]) -> Mapping[Entity, Skip]:
    """Of tables and partitions with `no_cleanup`, why their replaced files stay."""
    of_tables = catalog.parameters_of_tables(CLEANUP_KEYS)
    of_partitions = catalog.parameters_of_partitions(entities, CLEANUP_KEYS)
    said = {
        entity: what_is_kept(
            str(entity), of_tables.get(entity.whole_table(), ({}, {}))[0], of_partitions.get(entity, {})
        )
        for entity in entities
        if entity in of_partitions or entity.whole_table() in of_tables
    }
    return {entity: Skip(Reason.NO_CLEANUP, why) for entity, why in said.items() if why is not None}


def _sources(catalog: Catalog, entities: Collection[Entity]) -> Mapping[Entity, Skip]:
    """Of tables and partitions of a source of replication, why their replaced files stay, where they do."""
    sources = {name for name, value in catalog.databases_with(SOURCE_KEY).items() if value}
    facts = catalog.facts_for(entity for entity in entities if entity.database in sources) if sources else {}
    return {entity: skip for entity, both in facts.items() if (skip := why_stays(*both)) is not None}


def ties(cleaner: Cleaning, cleaning: Sequence[ReadyEntry]) -> Mapping[int, str]:
    """By what the transactions that hold cleaning back see the table, where all entries are of one table."""
    entities = {ready.entry.entity for ready in cleaning}
    tables = {entity.whole_table() for entity in entities}
    if len(tables) != 1:
        return {}
    holders = (blocker.holder for ready in cleaning for blocker in ready.blockers)
    txns = {holder.txn_id for holder in holders if isinstance(holder, OpenTransaction)}
    return cleaner.ties((entities if len(entities) == 1 else tables).pop(), sorted(txns))


def _blocked(blocker: Blocker, ties: Mapping[int, str]) -> Cause:
    match blocker.holder:
        case OpenTransaction() as txn:
            remedy = (
                "its end at the source of the replication"
                if txn.replication
                else f"ABORT TRANSACTIONS {txn.txn_id} (in Hive), if its client is gone"
            )
            what = str(txn) + (", which only reads" if txn.read_only else "")
            what += f"; {ties[txn.txn_id]}" if txn.txn_id in ties else ""
            return Cause(CLEANING, blocker.reason.value, what, remedy)
        case HeldLock() as lock if blocker.reason is Reason.MAY_BE_LISTED:
            return Cause(CLEANING, blocker.reason.value, f"{lock} may be listing", _NOT_LONG)
        case HeldLock() as lock:
            remedy = (
                f"ABORT TRANSACTIONS {lock.txn_id} (in Hive), if its client is gone"
                if lock.txn_id
                else f"the end of the query of {lock.user}@{lock.host}, or hive.txn.timeout without a heartbeat"
            )
            return Cause(CLEANING, blocker.reason.value, str(lock), remedy)
        case _:
            sentence, remedy = _RULES.get(blocker.reason, (blocker.sentence, TIME))
            return Cause(CLEANING, blocker.reason.value, sentence, remedy)


# Over all entries


@dataclass(frozen=True, slots=True)
class Alike:
    """
    What a record needs to know of entries that the same causes hold back, told once for all of these causes.

    Args:
        ids: ascending.
        first: of the entry with the lowest id.
        since_ms: when the first of them entered its state.
        measured: those of their tables and partitions whose bytes are known.
    """

    ids: list[int]
    first: Entity
    tables: set[tuple[str, str]]
    since_ms: int | None
    measured: set[Entity]

    @classmethod
    def of(cls, entries: Sequence[QueueEntry], sizes: Mapping[Entity, int]) -> Self:
        """Of entries by id; at least one."""
        return cls(
            [entry.id for entry in entries],
            entries[0].entity,
            {(entry.entity.database, entry.entity.table) for entry in entries},
            least(*{entered_ms(entry) for entry in entries}),
            {entry.entity for entry in entries}.intersection(sizes) if sizes else set(),
        )


def record(cause: Cause, held: Sequence[Alike], sizes: Mapping[Entity, int], now_ms: int) -> Record:
    """A cause as a record; bytes are those that were measured, None where none were."""
    ids = sorted(chain.from_iterable(some.ids for some in held))
    measured = set[Entity]().union(*(some.measured for some in held))
    since = least(*(some.since_ms for some in held))
    return {
        "holds": cause.holds,
        "reason": cause.reason,
        "cause": cause.sentence,
        "entries": len(ids),
        "tables": len(set[tuple[str, str]]().union(*(some.tables for some in held))),
        "bytes": sum(sizes[entity] for entity in measured) if measured else None,
        "since_ms": None if since is None else max(0, now_ms - since),
        "example": str(min(held, key=lambda some: some.ids[0]).first),
        "remedy": cause.remedy,
        "ids": ids,
    }


Held = Sequence[tuple[Sequence[Cause], Sequence[QueueEntry]]]
"""Causes, and the entries by id that just these hold back."""


def causes_of(
    hindrances: Hindrances,
    cleaning: Iterable[ReadyEntry],
    waiting: Iterable[QueueEntry],
    daemons: Daemons,
    ties: Mapping[int, str] = MappingProxyType({}),
) -> Held:
    """
    The entries that wait, and what holds them back.

    Args:
        cleaning: the entries that are ready for cleaning.
        waiting: initiated entries.
    """
    alike: dict[Hindrance, list[QueueEntry]] = {}  # transactions hold back many entries alike
    for ready in cleaning:
        alike.setdefault(hindrances.of(ready), []).append(ready.entry)
    waits: dict[Wait | None, list[QueueEntry]] = {}
    for entry in waiting:
        waits.setdefault(daemons.wait(entry), []).append(entry)
    nothing = Cause(COMPACTION, "", _FREE_WORKER, TIME)
    return [
        *((hindrance.causes(ties), entries) for hindrance, entries in alike.items()),
        *(([nothing if wait is None else Cause.of(COMPACTION, wait)], entries) for wait, entries in waits.items()),
    ]


def cause_records(held: Held, sizes: Mapping[Entity, int], now_ms: int) -> list[Record]:
    """One for each cause; what holds back most bytes, then most entries, comes first."""
    by_cause: dict[Cause, list[Alike]] = {}
    for causes, entries in held:
        counted = Alike.of(entries, sizes)
        for cause in causes:
            by_cause.setdefault(cause, []).append(counted)
    records = [record(cause, some, sizes, now_ms) for cause, some in by_cause.items()]
    return sorted(records, key=lambda one: (-int(str(one["bytes"] or 0)), -int(str(one["entries"]))))
