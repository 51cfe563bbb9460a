"""
Sources of replication: what is removed from their tables must first be handed to Hive's change management. When that
isn't possible, nothing is compacted or removed.

Source: docs/operations.md; Hive's ReplChangeManager (isSourceOfReplication, shouldEnableCm), FSRemover.
"""

from collections.abc import Mapping

from compactor.storage.change_management import why_not_recycled

_KEY = "repl.source.for"


def is_source(database_parameters: Mapping[str, str]) -> bool:
    """Whether tables of the database are replicated to another cluster."""
    return bool(database_parameters.get(_KEY))


def why_kept(database: str, database_parameters: Mapping[str, str], location: str | None) -> str | None:
    """Why replaced files at the location can't be removed; None if they can."""
    if not is_source(database_parameters) or (why := why_not_recycled(location)) is None:
        return None
    return (
        f"{database} is a source of replication, and replaced files can't be handed to Hive's change management: {why}"
    )
