"""
What the metastore knows, as values: tables, partitions, queue entries, candidates, locks.

Knows Hive's one-letter codes and nothing of SQL. The modules that read rows make these values; all others only read
them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Self

from compactor.acid.compaction import CompactionKind

DEFAULT_CATALOG = "hive"
"""ACID tables exist in this catalog only: the transaction tables have no column for another."""


@dataclass(frozen=True, slots=True)
class Entity:
    """
    The unit of a compaction: a table, or one partition of it.

    Args:
        database, table: as Hive stores them, lower case.
        partition: Hive's partition name `k1=v1/k2=v2`, escaped as in PARTITIONS.PART_NAME; None for the whole table.
    """

    database: str
    table: str
    partition: str | None = None

    def __post_init__(self) -> None:
        database, table = self.database.lower(), self.table.lower()
        if database != self.database:
            object.__setattr__(self, "database", database)
        if table != self.table:
            object.__setattr__(self, "table", table)

    @property
    def full_name(self) -> str:
        """`db.table`, the name in valid write-id strings."""
        return f"{self.database}.{self.table}"

    def whole_table(self) -> "Entity":
        return Entity(self.database, self.table)

    def __str__(self) -> str:
        return self.full_name if self.partition is None else f"{self.full_name}/{self.partition}"


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """One column; `type` is Hive's type string, for example `array<struct<a:int>>`."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class TableFacts:
    """
    A table as the catalog describes it; `buckets` is 0 when it isn't bucketed, `location` is an unescaped Hadoop path
    string.
    """

    tbl_id: int
    database: str
    name: str
    table_type: str
    owner: str | None
    location: str | None
    columns: tuple[CatalogColumn, ...]
    partition_keys: tuple[CatalogColumn, ...]
    input_format: str | None
    serde: str | None
    buckets: int = 0
    bucket_columns: tuple[str, ...] = ()
    sorted: bool = False
    stored_as_subdirectories: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    database_parameters: Mapping[str, str] = field(default_factory=dict)
    serde_parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def reader_parameters(self) -> Mapping[str, str]:
        """
        What Hive hands to its readers of the table: properties of its SerDe, and its own, which come first.

        Source: Hive's MetaStoreUtils.getSchemaWithoutCols, Utilities.copyTableJobPropertiesToConf.
        """
        return {**self.serde_parameters, **self.parameters}

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"

    @property
    def entity(self) -> Entity:
        return Entity(self.database, self.name)

    @property
    def transactional(self) -> bool:
        return (self.parameters.get("transactional") or "").lower() == "true"

    @property
    def insert_only(self) -> bool:
        return self.transactional and (self.parameters.get("transactional_properties") or "").lower() == "insert_only"

    @property
    def partitioned(self) -> bool:
        return bool(self.partition_keys)


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """One partition; `parameters` from a bulk look-up leave Hive's statistics out."""

    part_id: int
    name: str
    location: str | None
    parameters: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[CatalogColumn, ...] = ()
    buckets: int = 0
    input_format: str | None = None


class CatalogPlace(NamedTuple):
    """
    The catalog facts that a scan over thousands of tables and partitions needs.

    `partition` is the partition's name. `partition` and `part_id` are None for a whole table.
    """

    table: TableFacts
    partition: str | None
    part_id: int | None
    location: str | None

    @classmethod
    def of(cls, table: TableFacts, partition: PartitionFacts | None) -> "CatalogPlace":
        return (
            cls(table, None, None, table.location)
            if partition is None
            else cls(table, partition.name, partition.part_id, partition.location)
        )

    @property
    def is_where_named(self) -> bool:
        """
        Whether the partition lies where its table and its name put it, and the location holds printable characters
        only.
        """
        return self.location == f"{self.table.location}/{self.partition}" and self.location.isprintable()


class QueueState(StrEnum):
    """State of a compaction, in the words of SHOW COMPACTIONS; `code` is the letter in CQ_STATE and CC_STATE."""

    code: str

    def __new__(cls, value: str, code: str = "") -> Self:  # by its value alone, a state is looked up
        state = str.__new__(cls, value)
        state._value_ = value
        state.code = code
        return state

    INITIATED = "initiated", "i"
    WORKING = "working", "w"
    READY_FOR_CLEANING = "ready for cleaning", "r"
    SUCCEEDED = "succeeded", "s"
    FAILED = "failed", "f"
    DID_NOT_INITIATE = "did not initiate", "a"
    REFUSED = "refused", "c"
    ABORTED = "aborted", "x"

    @classmethod
    def from_code(cls, code: str) -> "QueueState | None":
        """The state for a letter; None for a letter of a later Hive."""
        return _STATES.get(code)


_STATES = {state.code: state for state in QueueState}

KIND_CODES = {
    CompactionKind.MAJOR: "a",
    CompactionKind.MINOR: "i",
    CompactionKind.REBALANCE: "r",
    CompactionKind.ABORT_CLEANUP: "c",
    CompactionKind.DEFERRED_CLEANUP: "d",
}
"""
The letters of CQ_TYPE. Rows with `*` (Hive's SMART_OPTIMIZE, for Iceberg tables only) or with a letter of a later Hive
are not compacted here (`ForeignEntry`).
"""
KINDS = {code: kind for kind, code in KIND_CODES.items()}


LOCATION = "location"
HIVES_OWN_PROPERTIES = frozenset({LOCATION, "ifPurge"})
"""Properties by which Hive's Cleaner removes a whole directory; a request must not set them (`QueueEntry.location`)."""


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """
    One row of COMPACTION_QUEUE.

    Times are milliseconds of the database clock, None where Hive stores NULL or the schema has no such column.

    Args:
        highest_write_id: the highest write id that the compaction covers; None until a worker has stored it.
        txn_id: the COMPACTION transaction (4.x).
        next_txn_id: the highest transaction id when that transaction committed (4.x).
        properties: CQ_TBLPROPERTIES, decoded: the requester's own words.
    """

    id: int
    entity: Entity
    kind: CompactionKind
    state: QueueState
    worker_id: str | None = None
    start_ms: int | None = None
    run_as: str | None = None
    highest_write_id: int | None = None
    txn_id: int | None = None
    next_txn_id: int | None = None
    commit_ms: int | None = None
    enqueue_ms: int | None = None
    pool: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    error_message: str | None = None
    retry_retention_ms: int = 0
    initiator_id: str | None = None
    initiator_version: str | None = None
    worker_version: str | None = None
    job_id: str | None = None
    cleaner_start_ms: int | None = None

    @property
    def location(self) -> str | None:
        """
        The directory to remove, for an entry that asks for a removal; None for every other entry.

        Hive makes such an entry for a table or partition that was dropped without its files, and for a CTAS that was
        rolled back. The entry enters the queue ready for cleaning, with its transaction, and no worker ever claims it.
        In any other entry the property means nothing: it came with ALTER TABLE … COMPACT … WITH OVERWRITE
        TBLPROPERTIES. Source: Hive's TxnHandler.submitForCleanup.
        """
        claimed = self.start_ms is not None or self.worker_id is not None or self.worker_version is not None
        return (
            None
            if claimed or self.state is not QueueState.READY_FOR_CLEANING or self.txn_id is None
            else self.properties.get(LOCATION)
        )


@dataclass(frozen=True, slots=True)
class HistoryEntry(QueueEntry):
    """One row of COMPLETED_COMPACTIONS."""

    end_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ForeignEntry:
    """
    A row of COMPACTION_QUEUE whose type or state isn't known here, as a later Hive may write it.

    The row is left to Hive. `type` and `state` are its letters.
    """

    id: int
    entity: Entity
    type: str
    state: str
    worker_id: str | None = None
    enqueue_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Enqueued:
    """
    Answer to a request for a compaction.

    When `accepted` is false, `id` and `state` are those of the entry that already stands in the way.
    """

    id: int
    accepted: bool
    state: QueueState
    message: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """
    A table or partition whose directories may be worth listing.

    Args:
        newest_write_id: highest committed write id not yet compacted and cleaned; 0 when only aborts made it a
            candidate.
        newest_txn_id: highest transaction among those commits.
        commits: rows of COMPLETED_TXN_COMPONENTS.
        aborted_count: components of aborted transactions above the highest write id of entries that are ready for
            cleaning.
        oldest_abort_ms: when the oldest of these aborted transactions started; None without any.
        active: INITIATED or WORKING when such an entry is in the queue.
        ready_for_cleaning_hwm: highest write id of entries that are ready for cleaning.
    """

    entity: Entity
    newest_write_id: int = 0
    newest_txn_id: int = 0
    commits: int = 0
    aborted_count: int = 0
    oldest_abort_ms: int | None = None
    active: QueueState | None = None
    ready_for_cleaning_hwm: int | None = None


@dataclass(frozen=True, slots=True)
class HeldLock:
    """One row of HIVE_LOCKS; `kind` and `state` are Hive's letters."""

    lock_id: int
    internal_id: int
    txn_id: int
    database: str
    table: str | None
    partition: str | None
    state: str
    kind: str
    user: str
    host: str
    acquired_ms: int | None

    def __str__(self) -> str:
        words = {"r": "shared read", "w": "shared write", "x": "exclusive write", "e": "exclusive"}
        where = ".".join(part for part in (self.database, self.table) if part) + (
            f"/{self.partition}" if self.partition else ""
        )
        owner = f" of transaction {self.txn_id}" if self.txn_id else ""
        waiting = "" if self.state == "a" else ", waiting"
        return f"lock {self.lock_id} ({words.get(self.kind, self.kind)}{waiting}) on {where}{owner} by {self.user}@{self.host}"


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """
    An open transaction.

    A `read_only` transaction writes nothing, yet still reads files. A `replication` transaction stays open for as long
    as its transaction at the source.
    """

    txn_id: int
    user: str
    host: str
    started_ms: int
    heartbeat_ms: int
    age_ms: int
    read_only: bool = False
    replication: bool = False

    def __str__(self) -> str:
        return f"transaction {self.txn_id} of {self.user}@{self.host}, open for {duration(self.age_ms)}"


def duration(milliseconds: int) -> str:
    """A length of time for people: `3 s`, `12 min`, `5 h`, `9 d`."""
    seconds = max(0, milliseconds) // 1000
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
