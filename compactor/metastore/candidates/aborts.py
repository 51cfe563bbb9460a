"""Reads which tables and partitions have components of aborted transactions: TXN_COMPONENTS."""

from collections.abc import Collection, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, func, or_, select

from compactor.metastore.candidates.commits import Asked
from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import batches, entity_columns, fetched, told_apart
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
    components, txns = database.schema.txn_components, database.schema.txns.c
    names, write_id = entity_columns(components, "tc"), func.coalesce(components.c.tc_writeid, 0)
    origin = components.join(database.schema.txns, txns.txn_id == components.c.tc_txnid)
    counts = and_(txns.txn_state == "a", components.c.tc_operation_type != "c")
    query: Any = (
        select(*names, func.count(), func.min(txns.txn_started), func.min(write_id))
        .select_from(origin)
        .where(counts)
        .group_by(*told_apart(names))
    )
    each: Any = select(*names, txns.txn_started, write_id).select_from(origin).where(counts)
    among = database.dialect.among
    queries = [query]
    if sum(sizes.values()) < _SOME and bounds.count is not None and bounds.age_ms is not None:
        tables = (
            _often_aborted(connection, database, bounds.count, now_ms - bounds.age_ms) | sizes.keys() | always.keys()
        )
        if len(tables) <= _FEW:
            queries = [
                query.where(among(components.c.tc_table, batch))
                for batch in batches({entity.table for entity in tables}, database.dialect.at_once)
            ]
    covered = _covered(connection, database)
    aborted: dict[Entity, tuple[int, int]] = {}
    partly: dict[Entity, list[int]] = {}
    for name, table, partition, count, oldest, lowest in chain.from_iterable(
        fetched(connection.execute(one)) for one in queries
    ):
        entity = Entity(name, table, partition)
        if int(lowest) <= covered.get(entity, -1):
            partly[entity] = []
        else:
            aborted[entity] = int(count), int(oldest)
    for batch in batches({entity.table for entity in partly}, database.dialect.at_once):
        for *name, started, number in fetched(connection.execute(each.where(among(components.c.tc_table, batch)))):
            entity = Entity(*name)
            if entity in partly and int(number) > covered[entity]:
                partly[entity].append(int(started))
    aborted |= {entity: (len(started), min(started)) for entity, started in partly.items() if started}
    found: dict[Entity, list[AbortedIn]] = {}
    for entity, (count, oldest) in aborted.items():
        many = bounds.count is None or count > bounds.count
        old = bounds.age_ms is None or 0 <= bounds.age_ms < now_ms - oldest
        table = entity.whole_table()
        alone = many or old or entity.partition in always.get(table, ())
        if alone or table in sizes:
            found.setdefault(table, []).append(AbortedIn(entity.partition, count, oldest, alone))
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


def _covered(connection: Connection, database: Database) -> dict[Entity, int]:
    """
    The highest write id of the entries of each table and partition that are ready for cleaning.

    Compared here with the aborts, because not every server joins the two in less than rows times entries.
    """
    queue = database.schema.compaction_queue
    names, highest = entity_columns(queue, "cq"), queue.c.cq_highest_write_id
    ready = and_(queue.c.cq_state == QueueState.READY_FOR_CLEANING.code, highest.is_not(None))
    query = select(*names, func.max(highest)).where(ready).group_by(*told_apart(names))
    return {Entity(*name): int(number) for *name, number in fetched(connection.execute(query))}


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
