"""Finds in the catalog the table or partition that a user named: exactly one, or a refusal with near names."""

from compactor.cli.naming.target import did_you_mean, no_database, partition_names
from compactor.errors import RefusedError, UsageError
from compactor.metastore.catalog import Catalog
from compactor.metastore.model import Entity, PartitionFacts, TableFacts
from compactor.planning.eligibility import why_not_acid, why_unspecified
from compactor.reasons import Reason
from compactor.status.judging import Found
from compactor.words import plural


def find_table(catalog: Catalog, target: Entity) -> TableFacts:
    """
    The table, ACID or not.

    Raises:
        RefusedError: TABLE_MISSING, with near names.
    """
    table = catalog.find_table(target.database, target.table)
    if table is not None:
        return table
    databases = catalog.databases()
    if target.database not in databases:
        raise no_database(target.database, databases)
    known = [f"{target.database}.{name}" for name in catalog.table_names(target.database, transactional=False)]
    near = did_you_mean(target.full_name, known)
    raise RefusedError(Reason.TABLE_MISSING, f"there is no table {target.full_name}{near}")


def find(catalog: Catalog, target: Entity) -> Found:
    """
    The ACID table or partition that a target names.

    Raises:
        RefusedError: TABLE_MISSING, PARTITION_MISSING (with near names), NOT_TRANSACTIONAL, PARTITION_UNSPECIFIED (with
            an example).
        UsageError: the target names a partition of a table without partitions, or keys that the table hasn't.
    """
    table = find_table(catalog, target)
    require_transactional(table)
    if not table.partitioned:
        if target.partition is not None:
            raise UsageError(f"{table.full_name} has no partitions: leave {target.partition!r} out")
        return Found(table, None)
    if (skip := why_unspecified(table, target.partition)) is not None:
        raise RefusedError(skip.reason, f"{skip.explanation}: name one partition, such as {_example(catalog, table)}")
    return Found(table, find_partition(catalog, table, target.partition or ""))


def find_partition(catalog: Catalog, table: TableFacts, spec: str) -> PartitionFacts:
    """
    The partition that a spec stands for.

    Raises:
        RefusedError: PARTITION_MISSING, with near names.
        UsageError: the spec has keys that the table hasn't, or not all of the table's keys.
    """
    names = partition_names(spec, [key.name for key in table.partition_keys])
    for name in names:
        if (partition := catalog.find_partition(table, name)) is not None:
            return partition
    known = catalog.partition_names(table)
    near = did_you_mean(names[0], known) or (
        f" (it has {plural(len(known), 'partition')}, such as {known[-1]})" if known else " (it has none)"
    )
    raise RefusedError(Reason.PARTITION_MISSING, f"{table.full_name} has no partition {spec}{near}")


def require_transactional(table: TableFacts) -> None:
    """Refuse a table that isn't an ACID table; the error names the table's type."""
    if (skip := why_not_acid(f"{table.full_name} ({table.table_type.lower().replace('_', ' ')})", table)) is not None:
        raise RefusedError(skip.reason, skip.explanation)


def _example(catalog: Catalog, table: TableFacts) -> str:
    known = catalog.partition_names(table)
    name = known[-1] if known else "/".join(f"{key.name}=…" for key in table.partition_keys)
    return f"{table.full_name}/{name}"
