"""
The table or partition of a queue entry, as the catalog and the transactions have it now: whether it may be compacted,
whether it is still there, and the request for the engine.

Source: docs/compaction.md; Hive's Worker.
"""

import uuid
from dataclasses import dataclass, replace

from compactor.engine.request import CompactionRequest
from compactor.errors import RefusedError
from compactor.metastore.model import CatalogPlace, Entity, PartitionFacts, QueueEntry, TableFacts
from compactor.planning.eligibility import why_not_acid
from compactor.planning.facts import StoredAs
from compactor.reasons import Reason
from compactor.roles.eligibility import require_eligible
from compactor.roles.services import Services
from compactor.roles.unreachable import require_removed
from compactor.storage.base import Storage


@dataclass(frozen=True, slots=True)
class EntryFacts:
    """
    What the catalog says about an entry that may be compacted.

    Args:
        stored: how the files are read; only of insert-only tables.
    """

    table: TableFacts
    partition: PartitionFacts | None
    location: str
    stored: StoredAs


def look_up(services: Services, entry: QueueEntry) -> EntryFacts:
    """
    Find the table and partition of an entry.

    Raises:
        RefusedError: the table or partition is gone, or can't be compacted (`roles.eligibility`).
        UnreachableError: metastore or store can't be asked.
    """
    entity = entry.entity
    table = services.catalog.find_table(entity.database, entity.table)
    if table is None:
        raise RefusedError(Reason.TABLE_MISSING, f"there is no table {entity.full_name}; it was probably dropped")
    if (skip := why_not_acid(entity.full_name, table)) is not None:  # the catalog has no partitions of Iceberg's
        raise RefusedError(skip.reason, skip.explanation)
    partition = services.catalog.find_partition(table, entity.partition) if entity.partition is not None else None
    if entity.partition is not None and partition is None:
        raise RefusedError(Reason.PARTITION_MISSING, f"there is no partition {entity}; it was probably dropped")
    place = CatalogPlace.of(table, partition)
    location = require_eligible(services.places, place, services.layout, entry.kind)
    return EntryFacts(table, partition, location, services.catalog.stored_as(table, partition))


def is_in_the_catalog(services: Services, entity: Entity, table: TableFacts) -> bool:
    """
    Whether the table is still the one that was looked up. A table that was dropped took its directories along, and
    perhaps even the one of its database.
    """
    found = services.catalog.facts_for([entity]).get(entity)
    return found is not None and found[0].tbl_id == table.tbl_id


def require_there(services: Services, entity: Entity, facts: EntryFacts, storage: Storage) -> None:
    """
    Check that the directory itself is there, after a file or directory in it was missing.

    Raises:
        RefusedError: the directory was removed, or the table is no longer in the catalog.
        UnreachableError: whether the directory was removed can't be told.
    """
    if storage.exists(facts.location):
        return
    if is_in_the_catalog(services, entity, facts.table):
        require_removed(storage, facts.location, facts.table.location)
    raise RefusedError(Reason.INPUT_CHANGED, f"{entity}: its directory {facts.location} isn't there")


def request_for(
    services: Services, entry: QueueEntry, facts: EntryFacts, txn_id: int | None, run_as: str
) -> CompactionRequest:
    """
    What the engine shall do, under the transaction and write id lists that are valid now.

    Args:
        txn_id: the compaction's own transaction; None on Hive 3.1.
    """
    seen = services.transactions.valid_txns(txn_id)
    write_ids = services.transactions.compactor_write_ids(facts.table.full_name, seen)
    txns = None
    if txn_id is not None:
        txns = replace(seen, open=tuple(sorted({*seen.open, txn_id})))  # its own result must not be taken for an input
    return CompactionRequest(
        entry=replace(entry, run_as=run_as),
        attempt=uuid.uuid4().hex[:8],
        table=facts.table,
        location=facts.location,
        layout=services.layout,
        write_ids=write_ids,
        txns=txns,
        visibility_txn=txn_id,
        host=services.identity.host,
        columns_by=services.columns_of(facts.table),
        root=services.places.root_of(facts.location),
        stored=facts.stored,
    )
