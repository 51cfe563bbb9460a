"""Reads which tables and partitions have components of aborted transactions: TXN_COMPONENTS."""

from collections.abc import Collection, Iterable, Mapping, MutableMapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, func, or_

from compactor.metastore.candidates.commits import Asked
from compactor.metastore.clean.purge import of_aborted
from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import batches, entity_columns, fetched, told_apart
from compactor.metastore.model import Candidate, Entity

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
        before_ms: it has a transaction that started earlier; None: any.
    """

    count: int | None
    before_ms: int | None


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


def tables_in_question(
    connection: Connection, database: Database, bounds: Bounds, sizes: Mapping[Entity, int], always: Asked
) -> AbstractSet[Entity] | None:
    """
    The only tables in which aborts may matter; None: all, where that is cheaper to read than to tell apart.

    Args:
        sizes: tables in which there may be commits, and about how many.
        always: tables and partitions of which any abort makes a candidate.
    """
    asked = sizes.keys() | always.keys()
    if bounds.count is None or bounds.before_ms is None or len(asked) > _FEW or sum(sizes.values()) >= _SOME:
        return None
    tables = _often_aborted(connection, database, bounds.count, bounds.before_ms) | asked
    return tables if len(tables) <= _FEW else None


def read_aborted(
    connection: Connection,
    database: Database,
    bounds: Bounds,
    sizes: Mapping[Entity, int],
    always: Asked,
    *,
    among: AbstractSet[Entity] | None,
    ready: Mapping[Entity, int],
) -> dict[Entity, list[AbortedIn]]:
    """
    Count components of aborted transactions by table, without leftovers of compactions.

    Components that an entry ready for cleaning covers don't count: a major compaction takes their rows out. What makes
    no candidate is left out, unless there may be commits in the table.

    Args:
        sizes, always: as for `tables_in_question`.
        among: its answer.
        ready: the highest write id of the entries that are ready for cleaning, of these tables at least. Compared here
            with the aborts, because not every server joins the two in less than rows times entries.
    """
    components, txns = database.schema.txn_components, database.schema.txns.c
    names, write_id = entity_columns(components, "tc"), func.coalesce(components.c.tc_writeid, 0)
    query: Any = _of_aborted(database, *names, func.count(), func.min(txns.txn_started), func.min(write_id)).group_by(
        *told_apart(names)
    )
    each: Any = _of_aborted(database, *names, txns.txn_started, write_id)
    named = partial(database.dialect.among, components.c.tc_table)
    at_once = database.dialect.at_once
    queries = [query]
    if among is not None:
        queries = [query.where(named(batch)) for batch in batches({entity.table for entity in among}, at_once)]
    aborted: dict[Entity, tuple[int, int]] = {}
    partly: dict[Entity, list[int]] = {}
    for name, table, partition, count, oldest, lowest in chain.from_iterable(
        fetched(connection.execute(one)) for one in queries
    ):
        entity = Entity(name, table, partition)
        if int(lowest) <= ready.get(entity, -1):
            partly[entity] = []
        else:
            aborted[entity] = int(count), int(oldest)
    for batch in batches({entity.table for entity in partly}, at_once):
        for *name, started, number in fetched(connection.execute(each.where(named(batch)))):
            entity = Entity(*name)
            if entity in partly and int(number) > ready[entity]:
                partly[entity].append(int(started))
    aborted |= {entity: (len(started), min(started)) for entity, started in partly.items() if started}
    found: dict[Entity, list[AbortedIn]] = {}
    for entity, (count, oldest) in aborted.items():
        many = bounds.count is None or count > bounds.count
        old = bounds.before_ms is None or oldest < bounds.before_ms
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


def _often_aborted(connection: Connection, database: Database, least_count: int, before_ms: int) -> set[Entity]:
    """
    Tables, partitions together, with more components of aborted transactions, or an older one.

    There are far fewer tables than partitions, and most have neither.
    """
    components, txns = database.schema.txn_components.c, database.schema.txns.c
    names = components.tc_database, components.tc_table
    query = (
        _of_aborted(database, *names)
        .group_by(*names)
        .having(or_(func.count() > least_count, func.min(txns.txn_started) < before_ms))
    )
    return {Entity(name, table) for name, table in connection.execute(query)}


def _of_aborted(database: Database, *columns: ColumnElement[Any]) -> Select[Any]:
    """Columns of the components of aborted transactions: few of all transactions are, but most that have components."""
    query = of_aborted(database.schema, *columns).where(database.schema.txn_components.c.tc_operation_type != "c")
    return database.dialect.in_this_order(query)
