"""
Inspects one table or partition: its directory, the picker's verdict, its entries, and what blocks cleaning.

Changes nothing. Calls the same functions as the Initiator and the Cleaner, for one table or partition.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from compactor.acid.compaction import LayoutVersion
from compactor.acid.listing import Listing
from compactor.acid.snapshot import AcidState, ListedDir, resolve
from compactor.acid.write_ids import CompactorWriteIdList, ValidTxnList, ValidWriteIdList
from compactor.cli.naming.lookup import Found
from compactor.cli.views.drawing import DirectoryStanding, Item, items_of
from compactor.errors import CompactorError, RefusedError, UnreachableError
from compactor.metastore.candidates import Initiating
from compactor.metastore.catalog import Catalog
from compactor.metastore.clean.aborts import Aborts
from compactor.metastore.clean.may_clean import ReadyEntry
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.locations.places import Places
from compactor.metastore.model import (
    Candidate,
    Entity,
    HistoryEntry,
    OpenTransaction,
    QueueEntry,
    TableFacts,
    duration,
)
from compactor.metastore.txn.transactions import Transactions
from compactor.planning.forgetting import AbortedComponent, ForgettingVerdict
from compactor.planning.picker import Pick, Skip, Thresholds
from compactor.reasons import Reason
from compactor.roles.cleaner.evidence import evidence_in
from compactor.roles.eligibility import judge_all, require_in_store
from compactor.roles.initiator.rules import TableRules, decide, thresholds_from
from compactor.settings import ReaderSettings, Settings
from compactor.storage.registry import storage_for
from compactor.words import plural

HISTORY = 5
_SHOWN = 5
"""Write ids that a sentence names."""
_EVIDENCE = "kept by a verification that refused; removed by the Cleaner after cleaner.keep_evidence_days"


@dataclass(frozen=True, slots=True)
class CatalogMoment:
    """
    The metastore's state at one moment, for one table.

    Args:
        open: transaction id → open transaction.
        writers: open write id → id of the transaction that allocated it.
        with_originals: whether queries read the table's original files.
    """

    layout: LayoutVersion
    txns: ValidTxnList
    write_ids: ValidWriteIdList
    open: Mapping[int, OpenTransaction]
    writers: Mapping[int, int]
    now_ms: int
    with_originals: bool = True

    def resolve(self, listing: Listing) -> tuple[AcidState, AcidState]:
        """The directory as a query that starts now resolves it, and as a compaction that starts now does."""
        compactor = CompactorWriteIdList.from_reader(self.write_ids)
        reader, other = (
            resolve(listing, write_ids, self.txns, self.layout, with_originals=self.with_originals)
            for write_ids in (self.write_ids, compactor)
        )
        return reader, other

    def why_unread(self, listed: ListedDir) -> str:
        """The open transaction that keeps a directory from being read, and its user; empty when none is open."""
        acid = listed.acid
        open_ids = [write_id for write_id in self.write_ids.open if acid.min_write_id <= write_id <= acid.max_write_id]
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
            for write_id in self.write_ids.open
        ]

    @property
    def oldest_open_ms(self) -> int | None:
        """Age of the oldest open transaction that may write."""
        return max((txn.age_ms for txn in self.open.values() if not txn.read_only), default=None)


@dataclass(frozen=True, slots=True)
class Inspection:
    """
    Everything that `compactor explain` shows.

    Args:
        ineligible: why a compaction would be refused regardless of the directory's contents; None: it may be compacted.
        late: what is known of the table's aborted writes, and of compactions, whose tasks may still write.
    """

    found: Found
    moment: CatalogMoment
    items: tuple[Item, ...]
    ineligible: Skip | None
    verdict: Pick | Skip
    queue: Sequence[QueueEntry]
    history: Sequence[HistoryEntry]
    cleaning: Sequence[ReadyEntry]
    late: Sequence[tuple[AbortedComponent, ForgettingVerdict]] = ()

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
    return CatalogMoment(
        layout=database.schema.version,
        txns=txns,
        write_ids=write_ids,
        open={txn.txn_id: txn for txn in transactions.open_transactions()},
        writers=transactions.mapping(table, write_ids.open),
        now_ms=database.read(database.now_ms),
        with_originals=readers.read_originals(insert_only=table.insert_only),
    )


def inspect(database: Database, settings: Settings, places: Places, found: Found) -> Inspection:
    """
    Inspect one table or partition.

    Raises:
        RefusedError: the directory is missing, or no reader can resolve it. When the table or partition is ineligible
            for compaction as well, the error gives that reason instead.
        UnreachableError: metastore or store can't be asked.
    """
    moment = look(database, found.table, settings.readers)
    (ineligible,) = why_ineligible(places, [found], moment.layout)
    storage = storage_for(found.location)
    try:
        listing = storage.list_tree(found.location)
        reader, compactor = moment.resolve(listing)
    except RefusedError as refusal:
        raise refusal if ineligible is None else RefusedError(ineligible.reason, ineligible.explanation) from None
    evidence = tuple(
        Item(DirectoryStanding.EVIDENCE, one.name, one.files, one.bytes, note=_EVIDENCE)
        for one in evidence_in(storage, found.location, listing)
    )
    entity = found.entity
    queue = Queue(database)
    candidate = candidates(database).get(entity)
    verdict = judge(
        found,
        compactor,
        candidate,
        moment,
        thresholds_from(settings.initiator.thresholds),
        ineligible=ineligible,
        failing=entity in failing(database, settings),
    )
    return Inspection(
        found=found,
        moment=moment,
        items=(*items_of(reader, compactor, insert_only=found.table.insert_only, explain=moment.why_unread), *evidence),
        ineligible=ineligible,
        verdict=verdict,
        queue=queue.entries(entity=entity),
        history=queue.history(entity=entity, limit=HISTORY),
        cleaning=[
            ready
            for ready in Cleaning(database).ready_for_cleaning(*settings.cleaner.waits_ms)
            if ready.entry.entity == entity
        ],
        late=Aborts(database).may_write(entity.whole_table(), settings.cleaner.late_ms),
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
    rules = TableRules.of(table, defaults, moment.layout)
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
        layout=moment.layout,
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
