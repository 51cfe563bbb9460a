"""
What is the case in one table or partition: its directory, the picker's verdict, its entries, what keeps a compaction
from beginning, and what blocks cleaning.

Calls the same functions as the Initiator and the Cleaner, for one table or partition.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.listing import Listing
from compactor.acid.snapshot import AcidState, ListedDir, ReadSnapshot
from compactor.acid.write_ids import CompactorWriteIdList
from compactor.control import Subject
from compactor.control.waits import Wait
from compactor.errors import CompactorError, RefusedError, UnreachableError
from compactor.metastore.candidates import Initiating
from compactor.metastore.catalog import Catalog
from compactor.metastore.clean.aborts import Aborts
from compactor.metastore.clean.may_clean import ReadyEntry
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.work import StoredWork
from compactor.metastore.db.database import Database
from compactor.metastore.locations.places import Places
from compactor.metastore.model import (
    Candidate,
    CatalogPlace,
    Entity,
    HistoryEntry,
    OpenTransaction,
    PartitionFacts,
    QueueEntry,
    TableFacts,
    duration,
)
from compactor.metastore.txn.transactions import Transactions
from compactor.planning.eligibility import what_is_kept
from compactor.planning.forgetting import AbortedComponent, ForgettingVerdict
from compactor.planning.picker import Pick, Skip, Thresholds
from compactor.reasons import Reason
from compactor.roles.cleaner.evidence import evidence_in
from compactor.roles.eligibility import judge_all, require_in_store
from compactor.roles.initiator.rules import TableRules, decide, thresholds_from
from compactor.roles.pauses import pool_of
from compactor.settings import ReaderSettings, Settings
from compactor.status.causes import Hindrances
from compactor.status.daemons import Daemons
from compactor.status.items import DirectoryStanding, Item, Totals, items_of, read_totals
from compactor.status.records import Record, history_record, queue_record, undone
from compactor.storage.registry import storage_for
from compactor.words import instant, plural

HISTORY = 5
_SHOWN = 5
"""Write ids that a sentence names."""
_EVIDENCE = "kept by a verification that refused; removed by the Cleaner after cleaner.keep_evidence_days"


@dataclass(frozen=True, slots=True)
class Found:
    """A table or partition in the catalog."""

    table: TableFacts
    partition: PartitionFacts | None

    @property
    def entity(self) -> Entity:
        return Entity(self.table.database, self.table.name, self.partition.name if self.partition else None)

    @property
    def location(self) -> str:
        """
        The location of the table or partition.

        Raises:
            RefusedError: UNSUPPORTED_STORE: the catalog has no location.
        """
        location = self.place.location
        if not location:
            raise RefusedError(Reason.UNSUPPORTED_STORE, f"{self.entity} has no location in the catalog")
        return location

    @property
    def kept(self) -> str | None:
        """Why directories that a compaction replaces would stay; None: the Cleaner removes them."""
        return what_is_kept(
            str(self.entity), self.table.parameters, self.partition.parameters if self.partition else {}
        )

    @property
    def place(self) -> CatalogPlace:
        return CatalogPlace.of(self.table, self.partition)


@dataclass(frozen=True, slots=True)
class CatalogMoment:
    """
    The metastore's state at one moment, for one table.

    Args:
        snapshot: of a query that starts now.
        open: transaction id → open transaction.
        writers: open write id → id of the transaction that allocated it.
    """

    snapshot: ReadSnapshot
    open: Mapping[int, OpenTransaction]
    writers: Mapping[int, int]
    now_ms: int

    def resolve(self, listing: Listing) -> tuple[AcidState, AcidState]:
        """The directory as a query that starts now resolves it, and as a compaction that starts now does."""
        compactor = CompactorWriteIdList.from_reader(self.snapshot.write_ids)
        return self.snapshot.resolve(listing), replace(self.snapshot, write_ids=compactor).resolve(listing)

    def why_unread(self, listed: ListedDir) -> str:
        """The open transaction that keeps a directory from being read, and its user; empty when none is open."""
        acid = listed.acid
        open_ids = [
            write_id for write_id in self.snapshot.write_ids.open if acid.min_write_id <= write_id <= acid.max_write_id
        ]
        txn_ids = (
            [acid.visibility_txn]
            if acid.visibility_txn in self.open
            else [self.writers.get(write_id, 0) for write_id in open_ids[:1]]
        )
        return "; ".join(f"{self.open[txn_id]}" for txn_id in txn_ids if txn_id in self.open)

    def open_writers(self) -> list[str]:
        """A sentence for each open write id of the table, lowest first, that names its transaction."""
        return [
            f"write id {write_id} is open: {self.open.get(self.writers.get(write_id, 0), 'its transaction is just ending')}"
            for write_id in self.snapshot.write_ids.open
        ]

    @property
    def oldest_open_ms(self) -> int | None:
        """Age of the oldest open transaction that may write."""
        return max((txn.age_ms for txn in self.open.values() if not txn.read_only), default=None)


@dataclass(frozen=True, slots=True)
class Inspection:
    """
    Everything that is known of one table or partition.

    Args:
        ineligible: why a compaction would be refused regardless of the directory's contents; None: it may be compacted.
        wait: why a compaction that was queued now wouldn't be claimed.
        cleaning: entries that are ready for it, with all that holds it back.
        late: what is known of the table's aborted writes, and of compactions, whose tasks may still write.
        work: what was done for entries, by their ids.
    """

    found: Found
    moment: CatalogMoment
    items: tuple[Item, ...]
    ineligible: Skip | None
    verdict: Pick | Skip
    wait: Wait | None
    queue: Sequence[QueueEntry]
    history: Sequence[HistoryEntry]
    cleaning: Sequence[ReadyEntry]
    late: Sequence[tuple[AbortedComponent, ForgettingVerdict]] = ()
    daemons: Daemons = field(default_factory=Daemons)
    work: Mapping[int, StoredWork] = field(default_factory=dict)

    @property
    def kind(self) -> CompactionKind:
        """That which is due; otherwise the one that is possible at any time."""
        return self.verdict.kind if isinstance(self.verdict, Pick) else CompactionKind.MAJOR

    @property
    def queued(self) -> list[Record]:
        """The entries in the queue."""
        return [queue_record(entry, self.moment.now_ms, self.daemons) for entry in self.queue]

    @property
    def ended(self) -> list[Record]:
        """The entries of the history, newest first."""
        return [{**history_record(entry), **undone(entry, self.work.get(entry.id))} for entry in self.history]

    def record(self, compaction: Record) -> Record:
        """
        One document for programs; the keys are documented (docs/cli.md).

        Args:
            compaction: what a compaction would do now.
        """
        found, totals = self.found, read_totals(self.items)
        return {
            "database": found.table.database,
            "table": found.table.name,
            "partition": found.partition.name if found.partition else None,
            "location": found.location,
            "layout": self.moment.snapshot.layout.value,
            "insert_only": found.table.insert_only,
            "write_ids": str(self.moment.snapshot.write_ids),
            "open_writers": self.moment.open_writers(),
            "read": {"directories": totals.directories, "files": totals.files, "bytes": totals.bytes},
            "items": [item.record() for item in self.items],
            "verdict": {**verdict_record(self.verdict), "findings": list(self.verdict.findings)},
            "compaction": compaction,
            "waits": None
            if self.wait is None
            else {"reason": self.wait.reason, "sentence": self.wait.sentence, "until": instant(self.wait.until_ms)},
            "queue": self.queued,
            "history": self.ended,
            "cleaning": [
                {
                    "id": ready.entry.id,
                    "blockers": [{"reason": one.reason.value, "sentence": one.sentence} for one in ready.blockers],
                }
                for ready in self.cleaning
            ],
            "late_writers": [
                {
                    "txn_id": row.txn_id,
                    "partition": row.partition,
                    "write_id": row.write_id,
                    "compaction": row.operation == "c",
                    "may_write_until": instant(verdict.until_ms),
                }
                for row, verdict in self.late
            ],
        }

    def why_known(self) -> str | None:
        """A sentence on why the metastore doesn't forget what was aborted in the table yet; None: nothing such is."""
        if not self.late:
            return None
        untils = [verdict.until_ms for _, verdict in self.late if verdict.until_ms is not None]
        left = f" for another {duration(max(untils) - self.moment.now_ms)}" if untils else ""
        numbers = sorted({row.mapped_id for row, _ in self.late if row.operation != "c" and row.mapped_id is not None})
        one = len(numbers) <= 1
        what = plural(len(numbers), "aborted write") if numbers else "an aborted compaction"
        shown = ", ".join(map(str, numbers[:_SHOWN])) + (", …" if len(numbers) > _SHOWN else "")
        ids = f" (write id{'' if one else 's'} {shown})" if numbers else ""
        return (
            f"{what} of the table{ids} {'stays' if one else 'stay'} known to the metastore{left}: "
            "a rollback stops no task, so more may be written (cleaner.late_writer_hours)"
        )


def look(database: Database, table: TableFacts, readers: ReaderSettings) -> CatalogMoment:
    """Read the metastore's state that the other functions of this module judge by."""
    transactions = Transactions(database)
    txns = transactions.valid_txns()
    write_ids = transactions.valid_write_ids(table.full_name, txns)
    with_originals = readers.read_originals(insert_only=table.insert_only)
    return CatalogMoment(
        ReadSnapshot(database.schema.generation.layout, write_ids, txns, with_originals=with_originals),
        open={txn.txn_id: txn for txn in transactions.open_transactions()},
        writers=transactions.mapping(table, write_ids.open),
        now_ms=database.read(database.now_ms),
    )


def inspect(
    database: Database, settings: Settings, places: Places, found: Found, daemons: Daemons | None = None
) -> Inspection:
    """
    Inspect one table or partition; what was done for entries is left out.

    Args:
        daemons: None: they aren't asked.

    Raises:
        RefusedError: the directory is missing, or no reader can resolve it. When the table or partition is ineligible
            for compaction as well, the error gives that reason instead.
        UnreachableError: metastore or store can't be asked.
    """
    moment = look(database, found.table, settings.readers)
    (ineligible,) = why_ineligible(places, [found], moment.snapshot.layout)
    storage = storage_for(found.location)
    try:
        listing = storage.list_tree(found.location)
        reader, compactor = moment.resolve(listing)
    except RefusedError as refusal:
        raise refusal if ineligible is None else RefusedError(ineligible.reason, ineligible.explanation) from None
    evidence = tuple(
        Item(DirectoryStanding.EVIDENCE, one.name, files=one.files, bytes=one.bytes, note=_EVIDENCE)
        for one in evidence_in(storage, found.location, listing)
    )
    entity, daemons = found.entity, daemons or Daemons()
    queue = Queue(database)
    verdict = judge(
        found,
        compactor,
        candidates(database).get(entity),
        moment,
        thresholds_from(settings.initiator.thresholds),
        ineligible=ineligible,
        failing=entity in failing(database, settings),
    )
    ready = Cleaning(database).ready_for_cleaning(*settings.cleaner.waits_ms)
    cleaning = [one for one in ready if one.entry.entity == entity]
    hindrances = Hindrances(Catalog(database), daemons, cleaning)
    inspection = Inspection(
        found=found,
        moment=moment,
        items=(*items_of(reader, compactor, insert_only=found.table.insert_only, explain=moment.why_unread), *evidence),
        ineligible=ineligible,
        verdict=verdict,
        wait=None,
        queue=queue.entries(entity=entity),
        history=queue.history(entity=entity, limit=HISTORY),
        cleaning=[replace(one, blockers=hindrances.of(one).all()) for one in cleaning],
        late=Aborts(database).may_write(entity.whole_table(), settings.cleaner.late_ms),
        daemons=daemons,
    )
    subject = Subject(found.table.database, found.table.name, pool_of(found.table))
    return replace(inspection, wait=daemons.surroundings.wait(subject, inspection.kind))


def verdict_record(verdict: Pick | Skip) -> Record:
    """Whether and why a compaction is due."""
    due = verdict if isinstance(verdict, Pick) else None
    return {
        "due": due is not None,
        "kind": due.kind.value if due else None,
        "score": due.score if due else None,
        "reason": verdict.reason.value,
        "explanation": verdict.explanation,
    }


def partition_records(
    database: Database, settings: Settings, places: Places, table: TableFacts, limit: int
) -> list[Record]:
    """
    The first `limit` partitions of a table, those most in need first: what a query opens of each, and the verdict.

    Raises:
        UnreachableError: metastore or store can't be asked.
    """
    everything = partitions(Catalog(database), table, limit)
    moment, known = look(database, table, settings.readers), candidates(database)
    failed, defaults = failing(database, settings), thresholds_from(settings.initiator.thresholds)

    def record(found: Found, ineligible: Skip | None) -> Record:
        totals: Totals | None = None
        try:
            reader, compactor = moment.resolve(storage_for(found.location).list_tree(found.location))
            totals = read_totals(items_of(reader, compactor, insert_only=table.insert_only))
            verdict = judge(
                found,
                compactor,
                known.get(found.entity),
                moment,
                defaults,
                ineligible=ineligible,
                failing=found.entity in failed,
            )
        except RefusedError as refusal:
            verdict = ineligible or Skip(refusal.reason, refusal.message)
            totals = None
        judged = verdict_record(verdict)
        return {
            "partition": found.partition.name if found.partition else None,
            "directories": totals.directories if totals else None,
            "files": totals.files if totals else None,
            "bytes": totals.bytes if totals else None,
            "due": judged["kind"],
            **{key: judged[key] for key in ("score", "reason", "explanation")},
        }

    ineligible = why_ineligible(places, everything, moment.snapshot.layout)
    return sorted(
        (record(*each) for each in zip(everything, ineligible, strict=True)),
        key=lambda row: (
            row["due"] is None,
            -float(str(row["score"] or 0)),
            -int(str(row["directories"] or 0)),
            str(row["partition"]),
        ),
    )


def judge(
    found: Found,
    compactor: AcidState,
    candidate: Candidate | None,
    moment: CatalogMoment,
    defaults: Thresholds,
    *,
    ineligible: Skip | None = None,
    failing: bool = False,
) -> Pick | Skip:
    """
    The verdict that the Initiator would reach. Rules that need no listing are applied first.

    Args:
        ineligible: why the table or partition can't be compacted at all; see `why_ineligible`.
        failing: whether its latest compactions all failed.
    """
    table, candidate = found.table, candidate or Candidate(found.entity)
    rules = TableRules.of(table, defaults, moment.snapshot.layout)
    if (skip := rules.skip(candidate, ineligible)) is not None:
        return skip
    if failing:
        return Skip(
            Reason.FAILED_TOO_OFTEN,
            "its last compactions all failed: see `compactor history`; `compactor enqueue` still works",
        )
    if isinstance(rules.thresholds, CompactorError):
        return Skip(Reason.BAD_PROPERTY, str(rules.thresholds))
    return decide(
        candidate,
        table,
        found.partition.parameters if found.partition else {},
        compactor,
        thresholds=rules.thresholds,
        layout=moment.snapshot.layout,
        now_ms=moment.now_ms,
        oldest_open_ms=moment.oldest_open_ms,
    )


def why_ineligible(places: Places, everything: Sequence[Found], layout: LayoutVersion) -> list[Skip | None]:
    """
    For each table or partition, why a compaction would be refused regardless of the directory's contents.

    None: it may be compacted.
    """
    skips = judge_all(places, [found.place for found in everything], layout)
    return [skip or _why_not_there(places, found) for found, skip in zip(everything, skips, strict=True)]


def _why_not_there(places: Places, found: Found) -> Skip | None:
    try:
        require_in_store(places, found.place)
    except RefusedError as refusal:
        return Skip(refusal.reason, refusal.message)
    except UnreachableError as error:
        return Skip(
            Reason.REPLICATION_SOURCE, f"whether Hive's change management can take its files isn't known: {error}"
        )
    return None


def failing(database: Database, settings: Settings) -> Collection[Entity]:
    """The tables and partitions whose latest compactions all failed."""
    limits = settings.initiator
    return Initiating(database).failing(limits.failed_threshold, limits.failed_retry_days)


def candidates(database: Database) -> Mapping[Entity, Candidate]:
    """The metastore's record of writes and aborts, for all tables and partitions."""
    return {candidate.entity: candidate for candidate in Initiating(database).candidates()}


def partitions(catalog: Catalog, table: TableFacts, limit: int | None = None) -> list[Found]:
    """The partitions of a table, sorted by name, at most `limit` when given."""
    names = catalog.partition_names(table, limit)
    facts = catalog.facts_for(Entity(table.database, table.name, name) for name in names)
    return [Found(table, partition) for _, partition in facts.values() if partition is not None]
