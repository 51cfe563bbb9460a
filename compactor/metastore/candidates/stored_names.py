"""Turns the names under which Hive stored partitions into those of the catalog."""

from collections.abc import Mapping
from dataclasses import replace

from sqlalchemy import Connection, select

from compactor.metastore.candidates.unnamed import CONDITIONS, among_tables
from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import batches, fetched, least
from compactor.metastore.model import DEFAULT_CATALOG, Candidate, Entity
from compactor.metastore.partition_names import folded, is_plain, spellings


def as_stored(partition: str | None) -> tuple[str | None, ...]:
    """All names that Hive may have stored for a partition of the catalog; None stands for the whole table."""
    return (None,) if partition is None else spellings(partition)


def catalogued(
    connection: Connection, metastore: Database, found: Mapping[Entity, Candidate]
) -> Mapping[Entity, Candidate]:
    """
    Candidates under the catalog's names instead of the names that Hive stored.

    When a stored name may mean several partitions, each of them becomes a candidate. The names of the tables
    concerned are read in one go; tables with plain names only aren't read.

    Args:
        found: of each table all that is to be told apart.
    """
    doubtful: dict[Entity, dict[str, list[Candidate]]] = {}
    for entity, candidate in found.items():
        if entity.partition is not None and not is_plain(entity.partition):
            doubtful.setdefault(entity.whole_table(), {}).setdefault(folded(entity.partition), []).append(candidate)
    if not doubtful:
        return found
    sure = {
        entity: candidate
        for entity, candidate in found.items()
        if entity.partition is None or is_plain(entity.partition)
    }
    gone = {
        candidate.entity: candidate for names in doubtful.values() for alike in names.values() for candidate in alike
    }
    schema = metastore.schema
    dbs, tbls, partitions = schema.dbs.c, schema.tbls.c, schema.partitions.c
    origin = schema.partitions.join(schema.tbls, partitions.tbl_id == tbls.tbl_id).join(
        schema.dbs, tbls.db_id == dbs.db_id
    )
    query = (
        select(dbs.name, tbls.tbl_name, partitions.part_name)
        .select_from(origin)
        .where(dbs.ctlg_name == DEFAULT_CATALOG)
    )
    for batch in batches(doubtful, CONDITIONS):
        named = among_tables(metastore, dbs.name, tbls.tbl_name, batch)
        for database, table, partition in fetched(connection.execute(query.where(named))):
            for candidate in doubtful[Entity(database, table)].get(folded(partition), ()):
                entity = Entity(database, table, partition)
                sure[entity] = _both(sure.get(entity), replace(candidate, entity=entity))
                gone.pop(candidate.entity, None)
    return gone | sure


def _both(one: Candidate | None, other: Candidate) -> Candidate:
    """The candidate of one partition that was stored under two names."""
    if one is None:
        return other
    return Candidate(
        other.entity,
        newest_write_id=max(one.newest_write_id, other.newest_write_id),
        newest_txn_id=max(one.newest_txn_id, other.newest_txn_id),
        commits=one.commits + other.commits,
        aborted_count=one.aborted_count + other.aborted_count,
        oldest_abort_ms=least(one.oldest_abort_ms, other.oldest_abort_ms),
    )
