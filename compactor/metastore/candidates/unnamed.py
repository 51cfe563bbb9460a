"""
Finds writes that no commit tells of, by their write ids.

An INSERT into a table from which it reads has no component: Hive's LockRequestBuilder keeps the reader's of its two
locks. Only the difference between two looks at what is handed out shows such a write.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from sqlalchemy import ColumnElement, Connection, and_, exists, not_, select

from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import batches, fetched
from compactor.metastore.model import DEFAULT_CATALOG, Candidate, Entity

CONDITIONS = 100
"""Tables that one statement names."""

HandedOut = Mapping[Entity, tuple[int, frozenset[int]]]
"""For each table the write id that is handed out next, and which ids before it belong to open transactions."""

_NEVER: tuple[int, frozenset[int]] = (1, frozenset())
_FEW = 1000
"""Tables that are asked for by name; for more it is cheaper to read everything that is being written."""


def read_handed_out(connection: Connection, metastore: Database, before: HandedOut | None) -> HandedOut:
    """
    What is handed out now.

    Args:
        before: the answer of an earlier look: tables that haven't changed since are as they were.
    """
    schema = metastore.schema
    counters, mapped, txns = schema.next_write_id.c, schema.txn_to_write_id.c, schema.txns.c
    # The counters first: an id that is handed out in between isn't below them, and is open in the next look or has
    # ended by then.
    rows = connection.execute(select(counters.nwi_database, counters.nwi_table, counters.nwi_next))
    following = {Entity(database, table): int(number) for database, table, number in rows}
    origin = schema.txn_to_write_id.join(schema.txns, txns.txn_id == mapped.t2w_txnid)
    query = (
        select(mapped.t2w_database, mapped.t2w_table, mapped.t2w_writeid)
        .select_from(origin)
        .where(txns.txn_state == "o")
    )
    queries = [query]
    if before is not None:
        written = [table for table, number in following.items() if before.get(table) != (number, frozenset())]
        if len(written) <= _FEW:  # by its index: the table is large where an old transaction holds up its purge
            queries = [
                query.where(among_tables(metastore, mapped.t2w_database, mapped.t2w_table, batch))
                for batch in batches(written, CONDITIONS)
            ]
    writing: dict[Entity, set[int]] = {}
    for database, table, write_id in chain.from_iterable(fetched(connection.execute(each)) for each in queries):
        writing.setdefault(Entity(database, table), set()).add(int(write_id))
    return {table: (number, frozenset(writing.get(table, ()))) for table, number in following.items()}


def ended(now: HandedOut, before: HandedOut) -> dict[Entity, int]:
    """The newest write of each table that ended since the earlier look."""
    found = {}
    for table, (following, writing) in now.items():
        first, then_writing = before.get(table, _NEVER)
        if following < first:
            first, then_writing = _NEVER  # the table was dropped, and this is another one
        if following == first and not then_writing:
            continue
        newest = next(number for number in range(following - 1, -1, -1) if number not in writing)
        newest = newest if newest >= first else max(then_writing - writing, default=0)
        if newest:
            found[table] = newest
    return found


def among_tables(
    metastore: Database, database: ColumnElement[str], table: ColumnElement[str], tables: Sequence[Entity]
) -> ColumnElement[bool]:
    """Whether two columns name one of at most `CONDITIONS` tables."""
    return metastore.dialect.among_pairs(database, table, [(one.database, one.table) for one in tables])


def read_unnamed(
    connection: Connection, metastore: Database, found: Mapping[Entity, Candidate], newest: Mapping[Entity, int]
) -> dict[Entity, Candidate]:
    """
    Candidates from the newest ended write of each table, unless a commit in `found` is that write.

    A table with partitions is left out: nothing names the partition of such a write.
    """
    newer: dict[Entity, Candidate] = {
        table: replace(found[table], newest_write_id=write_id)
        for table, write_id in newest.items()
        if table in found and write_id > found[table].newest_write_id
    }
    named = {entity.whole_table() for entity in found}
    newer.update(
        (table, Candidate(table, newest_write_id=newest[table]))
        for table in _without_partitions(connection, metastore, (table for table in newest if table not in named))
    )
    return newer


def _without_partitions(connection: Connection, metastore: Database, tables: Iterable[Entity]) -> Iterable[Entity]:
    schema = metastore.schema
    dbs, tbls, keys = schema.dbs.c, schema.tbls.c, schema.partition_keys.c
    origin = schema.tbls.join(schema.dbs, tbls.db_id == dbs.db_id)
    plain = and_(dbs.ctlg_name == DEFAULT_CATALOG, not_(exists().where(keys.tbl_id == tbls.tbl_id)))
    query = select(dbs.name, tbls.tbl_name).select_from(origin).where(plain)
    for batch in batches(tables, CONDITIONS):
        for database, table in connection.execute(query.where(among_tables(metastore, dbs.name, tbls.tbl_name, batch))):
            yield Entity(database, table)
