"""Keeps tables and partitions in an order, compactly: what a cycle of the Initiator didn't reach. Pure."""

from collections.abc import Collection, Iterable, Iterator

from compactor.metastore.model import Entity

Names = Collection[str | None]
"""Partitions of one table; None stands for the whole table."""


class Left:
    """
    Tables and partitions in the order in which they were added, each once.

    Beside its name a partition takes a few bytes, since partitions of one table mostly follow each other.
    """

    def __init__(self, entities: Iterable[Entity] = ()) -> None:
        self._runs: list[tuple[Entity, list[str | None]]] = []
        self._of: dict[Entity, list[list[str | None]]] = {}
        self._count = 0
        self.add(entities)

    def add(self, entities: Iterable[Entity]) -> None:
        for entity in entities:
            if not self._runs or not _is_of(entity, self._runs[-1][0]):
                run = entity.whole_table(), list[str | None]()
                self._runs.append(run)
                self._of.setdefault(run[0], []).append(run[1])
            self._runs[-1][1].append(entity.partition)
            self._count += 1

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Entity]:
        return (Entity(table.database, table.table, name) for table, names in self._runs for name in names)

    def by_table(self) -> Iterator[tuple[Entity, Names]]:
        """Tables with their partitions; a table may come several times."""
        return iter(self._runs)

    def of(self, tables: Iterable[Entity]) -> set[Entity]:
        """Those that are, or lie in, some tables."""
        return {
            Entity(table.database, table.table, name)
            for table in tables
            for names in self._of.get(table, ())
            for name in names
        }


def _is_of(entity: Entity, table: Entity) -> bool:
    return entity.table == table.table and entity.database == table.database
