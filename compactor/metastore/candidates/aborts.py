"""Reads which tables and partitions have components of aborted transactions: TXN_COMPONENTS."""

from collections.abc import Collection, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, func, or_, select

from compactor.metastore.candidates.commits import Asked
from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import batches, entity_columns, fetched, same_entity, told_apart
from compactor.metastore.model import Candidate, Entity, QueueState

_FEW = 1000
"""Tables that are asked for by name; for more it is cheaper to read all aborted components."""

_SOME = 100_000
"""For so many candidates it is cheaper to read all aborted components than to look for the tables that matter."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """
    What makes a candidate of a table or partition because of aborts alone.

    Args:
        count: it has more components than that; None: any.
        age_ms: it has an older transaction; None: any.
    """

    count: int | None
    age_ms: int | None


class AbortedIn(NamedTuple):
    """
    Aborted transactions in one partition, or in the whole table (None).

    Args:
        components: how many.
        oldest_ms: when the oldest of them started.
        alone: they make a candidate of it without any commit.
    """

    partition: str | None
    components: int
    oldest_ms: int
    alone: bool


def read_aborted(
    connection: Connection,
    database: Database,
    *,
    bounds: Bounds,
    now_ms: int,
    sizes: Mapping[Entity, int],
    always: Asked,
) -> dict[Entity, list[AbortedIn]]:
    """
    Count components of aborted transactions by table, without leftovers of compactions.

    Components that an entry ready for cleaning covers don't count: a major compaction takes their rows out. What makes
    no candidate is left out, unless there may be commits in the table.

    Args:
        sizes: tables in which there may be commits, and about how many.
        always: tables and partitions of which any abort makes a candidate.
    """
    schema = database.schema
    components, txns, queue = schema.txn_components, schema.txns, schema.compaction_queue
    names = entity_columns(queue, "cq")
    ready = queue.c.cq_state == QueueState.READY_FOR_CLEANING.code
    covered = (
        select(*names, func.max(queue.c.cq_highest_write_id).label("covered"))
        .where(ready)
        .group_by(*told_apart(names))
        .subquery()
    )
    names = entity_columns(components, "tc")
    origin = components.join(txns, txns.c.txn_id == components.c.tc_txnid).outerjoin(
        covered, same_entity(components, "tc", covered, "cq")
    )
    counts = and_(
        txns.c.txn_state == "a",
        components.c.tc_operation_type != "c",
        func.coalesce(components.c.tc_writeid, 0) > func.coalesce(covered.c.covered, -1),
    )
    query: Any = (
        select(*names, func.count(), func.min(txns.c.txn_started))
        .select_from(origin)
        .where(counts)
        .group_by(*told_apart(names))
    )
    queries = [query]
    if sum(sizes.values()) < _SOME and bounds.count is not None and bounds.age_ms is not None:
        tables = (
            _often_aborted(connection, database, bounds.count, now_ms - bounds.age_ms) | sizes.keys() | always.keys()
        )
        if len(tables) <= _FEW:
            among = database.dialect.among
            queries = [
                query.where(among(components.c.tc_table, batch))
                for batch in batches({entity.table for entity in tables}, database.dialect.at_once)
            ]
    found: dict[Entity, list[AbortedIn]] = {}
    for name, table, partition, count, oldest in chain.from_iterable(
        fetched(connection.execute(each)) for each in queries
    ):
        entity = Entity(name, table)
        many = bounds.count is None or count > bounds.count
        old = bounds.age_ms is None or 0 <= bounds.age_ms < now_ms - oldest
        alone = many or old or partition in always.get(entity, ())
        if alone or entity in sizes:
            found.setdefault(entity, []).append(AbortedIn(partition, int(count), int(oldest), alone))
    return found


def add_aborted(
    found: MutableMapping[Entity, Candidate], tables: Iterable[Entity], aborted: Mapping[Entity, Collection[AbortedIn]]
) -> None:
    """Add the aborts of some tables to the candidates in them."""
    for table in tables:
        for partition, count, oldest, alone in aborted.get(table, ()):
            entity = Entity(table.database, table.table, partition)
            known = found.get(entity)
            if known is not None or alone:
                found[entity] = replace(known or Candidate(entity), aborted_count=count, oldest_abort_ms=oldest)


def _often_aborted(connection: Connection, database: Database, least_count: int, before_ms: int) -> set[Entity]:
    """
    Tables, partitions together, with more components of aborted transactions, or an older one.

    There are far fewer tables than partitions, and most have neither.
    """
    schema = database.schema
    components, txns = schema.txn_components.c, schema.txns.c
    query = (
        select(components.tc_database, components.tc_table)
        .select_from(schema.txn_components.join(schema.txns, txns.txn_id == components.tc_txnid))
        .where(txns.txn_state == "a", components.tc_operation_type != "c")
        .group_by(components.tc_database, components.tc_table)
        .having(or_(func.count() > least_count, func.min(txns.txn_started) < before_ms))
    )
    return {Entity(name, table) for name, table in connection.execute(query)}
