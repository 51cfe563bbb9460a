"""
Sources of replication: what is removed from their tables must first be handed to Hive's change management. When that
isn't possible, nothing is compacted or removed.

Source: docs/operations.md; Hive's ReplChangeManager (isSourceOfReplication, shouldEnableCm), FSRemover.
"""

from collections.abc import Mapping

from compactor.metastore.model import PartitionFacts, TableFacts
from compactor.planning.eligibility import what_is_kept
from compactor.planning.picker import Skip
from compactor.reasons import Reason
from compactor.storage.change_management import why_not_recycled

SOURCE_KEY = "repl.source.for"


def is_source(database_parameters: Mapping[str, str]) -> bool:
    """Whether tables of the database are replicated to another cluster."""
    return bool(database_parameters.get(SOURCE_KEY))


def why_kept(database: str, database_parameters: Mapping[str, str], location: str | None) -> str | None:
    """Why replaced files at the location can't be removed; None if they can."""
    if not is_source(database_parameters) or (why := why_not_recycled(location)) is None:
        return None
    return (
        f"{database} is a source of replication, and replaced files can't be handed to Hive's change management: {why}"
    )


def why_stays(table: TableFacts, partition: PartitionFacts | None) -> Skip | None:
    """Why the Cleaner leaves the replaced files of a table or partition where they are; None: it removes them."""
    name = table.full_name + (f"/{partition.name}" if partition else "")
    if (kept := what_is_kept(name, table.parameters, partition.parameters if partition else {})) is not None:
        return Skip(Reason.NO_CLEANUP, kept)
    location = partition.location if partition else table.location
    if (why := why_kept(table.database, table.database_parameters, location)) is not None:
        return Skip(Reason.REPLICATION_SOURCE, why)
    return None
