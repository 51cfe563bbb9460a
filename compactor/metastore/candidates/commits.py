"""Reads what was committed in tables and partitions, and isn't compacted and cleaned: COMPLETED_TXN_COMPONENTS."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from sqlalchemy import Connection, FromClause, Select, and_, bindparam, func, select

from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import batches, entity_columns, fetched, told_apart
from compactor.metastore.model import Candidate, Entity

Asked = Mapping[Entity, AbstractSet[str | None]]
"""For some tables the partitions that are asked for, as Hive stores their names; None stands for the whole table."""


class CommittedWrites:
    """The commits of one metastore. Building a statement costs more than running it, so each is built once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._at_once = database.dialect.at_once
        self._table = completed = database.schema.completed_txn_components
        among, columns = database.dialect.among, completed.c
        self._names = entity_columns(completed, "ctc")
        of_tables = and_(columns.ctc_database == bindparam("database"), among(columns.ctc_table, "tables"))
        self._all = _newest(completed).where(of_tables)
        self._whole = self._all.where(columns.ctc_partition.is_(None))

    def sizes(self, connection: Connection) -> dict[Entity, int]:
        """Every table with commits, and how many."""
        columns = self._table.c
        query = select(columns.ctc_database, columns.ctc_table, func.count())
        rows = connection.execute(query.group_by(columns.ctc_database, columns.ctc_table))
        sizes: dict[Entity, int] = {}
        for database, table, count in rows:
            entity = Entity(database, table)
            sizes[entity] = sizes.get(entity, 0) + int(count)
        return sizes

    def since(self, connection: Connection, first: int) -> Iterator[Entity]:
        """
        What was committed by transactions from `first` on.

        No index leads to transactions, but one leads to names: this is read once from end to end, and only what it
        tells is counted.
        """
        query = select(*self._names).where(self._table.c.ctc_txnid >= first).distinct()
        return (Entity(*row) for row in fetched(connection.execute(query)))

    def read(self, connection: Connection, tables: Iterable[Entity], asked: Asked | None) -> dict[Entity, Candidate]:
        """
        The commits of some tables.

        Args:
            asked: only of these partitions; None: of all.
        """
        found = {}
        for database, table, partition, write_id, txn_id, commits in self._rows(connection, tables, asked):
            entity = Entity(database, table, partition)
            if asked is None or partition in asked.get(entity.whole_table(), ()):
                found[entity] = Candidate(entity, int(write_id or 0), int(txn_id), int(commits))
        return found

    def _rows(self, connection: Connection, tables: Iterable[Entity], asked: Asked | None) -> Iterator[Sequence[Any]]:
        """Rows of these partitions, and maybe of others with the same names."""
        by_database: dict[str, list[str]] = {}
        for table in tables:
            if asked is None or table in asked:
                by_database.setdefault(table.database, []).append(table.table)
        for database, names in by_database.items():
            for batch in batches(names, self._at_once):
                given: dict[str, object] = {"database": database, "tables": batch}
                if asked is None:
                    yield from fetched(connection.execute(self._all, given))
                    continue
                wanted = {name: asked[Entity(database, name)] for name in batch}
                yield from self._asked_rows(connection, database, wanted)

    def _asked_rows(
        self, connection: Connection, database: str, wanted: Mapping[str, AbstractSet[str | None]]
    ) -> Iterator[Sequence[Any]]:
        pairs = [(table, name) for table, asked in wanted.items() for name in sorted(asked - {None}, key=str)]
        dialect, of_database = self._database.dialect, self._table.c.ctc_database == database
        for some in batches(pairs, dialect.pairs_at_once):
            rows, origin, where = dialect.of_pairs(self._table, "ctc_table", "ctc_partition", some, of_database)
            yield from fetched(connection.execute(_newest(rows).select_from(origin).where(*where)))
        if whole := [table for table, asked in wanted.items() if None in asked]:
            yield from fetched(connection.execute(self._whole, {"database": database, "tables": whole}))


def _newest(rows: FromClause) -> Select[Any]:
    """Of rows of the table, by name, the newest write id and transaction, and how many."""
    names, columns = entity_columns(rows, "ctc"), rows.c
    newest = select(*names, func.max(columns.ctc_writeid), func.max(columns.ctc_txnid), func.count())
    return newest.group_by(*told_apart(names))
