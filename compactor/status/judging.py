"""
What the Initiator would decide about a table or partition, and from what: its place in the catalog, the metastore's state
at one moment, why no compaction is possible at all.

Calls the same functions as the Initiator.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from compactor.acid.compaction import LayoutVersion
from compactor.acid.listing import Listing
from compactor.acid.snapshot import AcidState, ListedDir, ReadSnapshot
from compactor.acid.write_ids import CompactorWriteIdList
from compactor.errors import CompactorError, RefusedError, UnreachableError
from compactor.metastore.candidates import Initiating
from compactor.metastore.catalog import Catalog
from compactor.metastore.db.database import Database
from compactor.metastore.locations.places import Places
from compactor.metastore.model import (
    Candidate,
    CatalogPlace,
    Entity,
    OpenTransaction,
    PartitionFacts,
    TableFacts,
)
from compactor.metastore.txn.transactions import Transactions
from compactor.planning.eligibility import what_is_kept
from compactor.planning.picker import Pick, Skip, Thresholds
from compactor.reasons import Reason
from compactor.roles.eligibility import judge_all, require_in_store
from compactor.roles.initiator.rules import TableRules, decide
from compactor.settings import ReaderSettings, Settings


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
