"""What a warehouse holds, seen from outside: for every table and partition of the catalog its files on disk and the rows that a query reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compactor.acid.snapshot import resolve
from compactor.acid.write_ids import ValidWriteIdList
from compactor.cli.inspect import Moment, look
from compactor.cli.lookup import Found
from compactor.cli.partition import Item, Standing, Totals, items_of, read_totals
from compactor.demo.reading import Fingerprint, fingerprint
from compactor.metastore.catalog import Catalog
from compactor.metastore.database import Database
from compactor.metastore.model import Entity
from compactor.storage.registry import storage_for


@dataclass(frozen=True, slots=True)
class Place:
    """A table or partition and its directory."""

    found: Found
    path: Path

    @property
    def entity(self) -> Entity:
        return self.found.entity


@dataclass(frozen=True, slots=True)
class Measured:
    """
    One table or partition at one moment.

    Args:
        read: what a query opens.
        on_disk: everything that is there, replaced and aborted directories too.
        rows: what a query reads.
        write_ids: the snapshot it was read under.
    """

    place: Place
    items: tuple[Item, ...]
    rows: Fingerprint
    write_ids: ValidWriteIdList

    @property
    def read(self) -> Totals:
        return read_totals(self.items)

    @property
    def on_disk(self) -> Totals:
        return Totals.of(self.items)

    @property
    def leftovers(self) -> int:
        """Directories that no query reads."""
        return sum(item.standing in (Standing.OBSOLETE, Standing.ABORTED, Standing.NOT_VISIBLE) for item in self.items)


def places(database: Database, name: str) -> list[Place]:
    """Every table or partition of a database of the catalog."""
    catalog = Catalog(database)
    entities: list[Entity] = []
    for table_name in catalog.table_names(name):
        table = catalog.find_table(name, table_name)
        assert table is not None
        partitions = catalog.partition_names(table) if table.partitioned else [None]
        entities += [Entity(name, table_name, partition) for partition in partitions]
    found = [Found(table, partition) for table, partition in catalog.facts_for(entities).values()]
    return [Place(one, Path(one.location.removeprefix("file:"))) for one in sorted(found, key=lambda one: str(one.entity))]


def contents(database: Database, place: Place) -> tuple[Item, ...]:
    """What lies in the directory now, without reading rows."""
    return _items(place, look(database, place.found.table))


def measure(database: Database, places: list[Place], snapshots: Mapping[Entity, ValidWriteIdList] | None = None) -> dict[Entity, Measured]:
    """
    Read everything.

    Args:
        snapshots: read as somebody who took these write ids earlier; None: as a query that starts now.
    """
    measured = {}
    for place in places:
        moment = look(database, place.found.table)
        write_ids = moment.write_ids if snapshots is None else snapshots[place.entity]
        state = resolve(storage_for(place.found.location).list_tree(place.found.location), write_ids, moment.txns, moment.layout)
        columns = [column.name for column in place.found.table.columns]
        rows = fingerprint(place.path, state, write_ids, columns, insert_only=place.found.table.insert_only)
        measured[place.entity] = Measured(place, _items(place, moment), rows, write_ids)
    return measured


def _items(place: Place, moment: Moment) -> tuple[Item, ...]:
    reader, compactor = moment.resolve(storage_for(place.found.location).list_tree(place.found.location))
    return items_of(reader, compactor, insert_only=place.found.table.insert_only, explain=moment.why_unread)
