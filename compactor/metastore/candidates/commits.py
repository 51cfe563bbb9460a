"""Reads what was committed in tables and partitions, and isn't compacted and cleaned: COMPLETED_TXN_COMPONENTS."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from sqlalchemy import Connection, and_, bindparam, func, select

from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import batches, entity_columns, fetched, told_apart
from compactor.metastore.model import Candidate, Entity

Asked = Mapping[Entity, AbstractSet[str | None]]
"""For some tables the partitions that are asked for, as Hive stores their names; None stands for the whole table."""


class Commits:
    """The commits of one metastore. Building a statement costs more than running it, so each is built once."""

    def __init__(self, database: Database) -> None:
        self._at_once = database.dialect.at_once
        self._table = completed = database.schema.completed_txn_components
        among, columns = database.dialect.among, completed.c
        self._names = names = entity_columns(completed, "ctc")
        of_tables = and_(columns.ctc_database == bindparam("database"), among(columns.ctc_table, "tables"))
        newest: Any = select(*names, func.max(columns.ctc_writeid), func.max(columns.ctc_txnid), func.count())
        self._all = newest.where(of_tables).group_by(*told_apart(names))
        self._named = self._all.where(among(columns.ctc_partition, "partitions"))
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
                partitions = sorted({part for parts in wanted.values() for part in parts if part is not None})
                for some in batches(partitions, self._at_once):
                    yield from fetched(connection.execute(self._named, given | {"partitions": some}))
                if whole := [name for name, parts in wanted.items() if None in parts]:
                    yield from fetched(connection.execute(self._whole, given | {"tables": whole}))
