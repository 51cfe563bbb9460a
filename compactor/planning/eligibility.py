"""
Whether a table may be compacted at all; part of the one judgement of `roles.eligibility`.

Pure: looks only at the catalog's description of the table itself. `metastore.locations.places` judges where the table
lies, the picker whether it is due, and the plan its files.
Source: docs/compaction.md; Hive's Worker, Initiator, AlterTableCompactOperation.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from compactor.acid.compaction import SUPPORTED, CompactionKind, LayoutVersion
from compactor.planning.insert_only.formats import TEXT_INPUT, lines_skipped
from compactor.planning.picker import Skip
from compactor.planning.thresholds import cleanup_off
from compactor.reasons import Reason

REPLICATION_PENDING: Final = "hive.repl.first.inc.pending"
RENAME_SECONDS: Final = 300.0
"""
A table or partition that isn't in the catalog for so long was dropped. Hive commits a rename in catalog and queue one
after the other: Hive 4 the queue first, Hive 3.1 the catalog.
"""
_TABLE_TYPE: Final = "table_type"
_SINCE_3: Final = {"orc.schema.evolution.case.sensitive": "true"}
_AS_DELIVERED: Final = {
    LayoutVersion.HIVE_3: _SINCE_3,
    LayoutVersion.HIVE_4: _SINCE_3
    | {"orc.force.positional.evolution.level": "1", "orc.proleptic.gregorian.default": "false"},
}
"""
Settings of ORC's readers that HiveConf hasn't, so that a table's property of the name counts: what is counted on. Another
value moves values inside structs, or old dates (cli/hive_settings.yaml).
"""


class Traits(Protocol):
    """Properties of a table that both the catalog and a plan's `TableSpec` know."""

    @property
    def transactional(self) -> bool: ...
    @property
    def insert_only(self) -> bool: ...
    @property
    def sorted(self) -> bool: ...
    @property
    def parameters(self) -> Mapping[str, str]: ...


class Described(Traits, Protocol):
    """A table as the catalog describes it."""

    @property
    def full_name(self) -> str: ...
    @property
    def partitioned(self) -> bool: ...
    @property
    def input_format(self) -> str | None: ...
    @property
    def reader_parameters(self) -> Mapping[str, str]: ...
    @property
    def database_parameters(self) -> Mapping[str, str]: ...


def why_no_table(name: str, table: Traits, kind: CompactionKind | None, layout: LayoutVersion) -> Skip | None:
    """Why a table can't be compacted with this kind; without a kind: why it can't be compacted at all. None: it can."""
    if (skip := why_not_acid(name, table)) is not None:
        return skip
    if table.sorted:
        return Skip(Reason.SORTED_TABLE, f"{name} is declared SORTED BY: no compaction keeps that order")
    if kind is CompactionKind.REBALANCE and table.insert_only:
        return Skip(
            Reason.UNSUPPORTED_KIND,
            f"{name} is insert-only: its rows belong to no bucket that a rebalance could fill, and Hive's own workers fail it; ask for a major one",
        )
    if kind is not None and kind not in SUPPORTED:
        return Skip(
            Reason.UNSUPPORTED_KIND,
            f"{name}: a {kind.value} compaction isn't supported; {' and '.join(sorted(SUPPORTED))} are",
        )
    if kind is CompactionKind.MINOR and table.insert_only and layout is LayoutVersion.HIVE_3:
        return Skip(
            Reason.UNSUPPORTED_KIND,
            f"{name} is insert-only: Hive 3.1 knows no minor compaction of those; ask for a major one",
        )
    return None


def why_not_acid(name: str, table: Traits) -> Skip | None:
    """
    Why a table has nothing that could be compacted here; None: it has.

    Source: Hive's MetaStoreUtils.isIcebergTable, CompactionExecutorFactory (HIVE-27850).
    """
    if table.transactional:
        return None
    if table.parameters.get(_TABLE_TYPE, "").upper() == "ICEBERG":
        return Skip(
            Reason.ICEBERG_TABLE,
            f"{name} is an Iceberg table: its compactions share Hive 4's queue, and are left to Hive's own workers",
        )
    return Skip(Reason.NOT_TRANSACTIONAL, f"{name} isn't a transactional table: only those have deltas to compact")


def why_not(table: Described, kind: CompactionKind | None, layout: LayoutVersion) -> Skip | None:
    """
    Why a table in the catalog can't be compacted with this kind; without a kind: why it can't be compacted at all.
    None: it can.
    """
    return (
        why_no_table(table.full_name, table, kind, layout) or why_pending(table) or _why_read_otherwise(table, layout)
    )


def why_pending(table: Described) -> Skip | None:
    """
    Why nothing of a replica may be touched yet: REPL LOAD is copying files, and has said before which write ids were
    aborted at the source. None: it isn't, or it is through.
    """
    for owner, parameters in (("database", table.database_parameters), ("table", table.parameters)):
        if parameters.get(REPLICATION_PENDING, "").lower() == "true":
            why = f"the {owner} of {table.full_name} waits for its first incremental replication: nothing may touch it yet"
            return Skip(Reason.REPLICATION_PENDING, why)
    return None


def _why_read_otherwise(table: Described, layout: LayoutVersion) -> Skip | None:
    """
    By which property of the table its readers read other rows or values than a compaction does. None: there is none.

    Hive 3.1 leaves out the first or last rows of each file if that is asked for, whatever the format; text is no such
    case here, for its files are never joined where lines are skipped.

    Source: Hive's Utilities.copyTableJobPropertiesToConf, getHeaderCount.
    """
    parameters = table.reader_parameters
    for key, delivered in _AS_DELIVERED[layout].items():
        value = parameters.get(key, delivered)
        if value.strip().lower() != delivered:
            why = f"{table.full_name}: {key} is {value}: its readers find values in ORC files in a way that isn't followed"
            return Skip(Reason.BAD_PROPERTY, why)
    if layout is not LayoutVersion.HIVE_3 or (table.insert_only and table.input_format == TEXT_INPUT):
        return None
    if (skipped := lines_skipped(parameters.items())) is None:
        return None
    why = f"{table.full_name}: {skipped}: of every file, ORC too, Hive 3.1 leaves out so many rows (HIVE-24827); in other files they would be others"
    return Skip(Reason.UNSUPPORTED_FORMAT, why)


def why_unspecified(table: Described, partition: str | None) -> Skip | None:
    """Why a request leaves open which partition of a table it means; None: the request is clear."""
    if partition is None and table.partitioned and table.transactional:
        return Skip(Reason.PARTITION_UNSPECIFIED, f"{table.full_name} is partitioned, and no partition is named")
    return None


def why_nowhere(table: Described, partition: str | None, location: str | None) -> Skip | None:
    """Why the place of a table or partition is unknown to the catalog; None: the catalog has a location."""
    if location:
        return None
    name = f"{table.full_name}/{partition}" if partition else table.full_name
    return Skip(Reason.UNSUPPORTED_STORE, f"{name} has no location in the catalog")


def what_is_kept(name: str, table_parameters: Mapping[str, str], partition_parameters: Mapping[str, str]) -> str | None:
    """
    Why a compaction frees no space, because the Cleaner leaves the replaced files; None: the Cleaner removes them.

    Args:
        name: of the table or partition, for people.
        partition_parameters: empty for a whole table.
    """
    if cleanup_off(table_parameters, partition_parameters):
        return f"no_cleanup is set for {name}: replaced files stay"
    return None
