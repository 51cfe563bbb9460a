"""
Measures a warehouse from outside: for every table and partition of the catalog, the files on disk and the rows that a
query reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compactor.acid.snapshot import resolve
from compactor.acid.write_ids import ValidWriteIdList
from compactor.metastore.catalog import Catalog
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity
from compactor.settings import ReaderSettings
from compactor.status.items import DirectoryStanding, Item, Totals, items_of, read_totals
from compactor.status.judging import CatalogMoment, Found, look
from compactor.storage.registry import storage_for
from tests.demo.reading import Fingerprint, fingerprint


@dataclass(frozen=True, slots=True)
class MeasuredPlace:
    """A table or partition with its directory."""

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
        items: the contents of the directory.
        rows: count and hash of the rows that a query reads.
        write_ids: the snapshot under which the rows were read.
    """

    place: MeasuredPlace
    items: tuple[Item, ...]
    rows: Fingerprint
    write_ids: ValidWriteIdList

    @property
    def read(self) -> Totals:
        """Totals of the items that a query opens."""
        return read_totals(self.items)

    @property
    def on_disk(self) -> Totals:
        """Totals of all items, including replaced and aborted directories."""
        return Totals.of(self.items)

    @property
    def leftovers(self) -> int:
        """Directories that no query reads."""
        return sum(
            item.standing in (DirectoryStanding.OBSOLETE, DirectoryStanding.ABORTED, DirectoryStanding.NOT_VISIBLE)
            for item in self.items
        )


def places(database: Database, name: str) -> list[MeasuredPlace]:
    """The unpartitioned tables and the partitions of a database of the catalog, sorted by name."""
    catalog = Catalog(database)
    entities: list[Entity] = []
    for table_name in catalog.table_names(name):
        table = catalog.find_table(name, table_name)
        assert table is not None
        partitions = catalog.partition_names(table) if table.partitioned else [None]
        entities += [Entity(name, table_name, partition) for partition in partitions]
    found = [Found(table, partition) for table, partition in catalog.facts_for(entities).values()]
    return [
        MeasuredPlace(one, Path(one.location.removeprefix("file:")))
        for one in sorted(found, key=lambda one: str(one.entity))
    ]


def contents(database: Database, place: MeasuredPlace) -> tuple[Item, ...]:
    """The items in the directory now; reads no rows."""
    return _items(place, look(database, place.found.table, ReaderSettings()))


def measure(
    database: Database, places: list[MeasuredPlace], snapshots: Mapping[Entity, ValidWriteIdList] | None = None
) -> dict[Entity, Measured]:
    """
    Measure tables and partitions, reading all their rows.

    Args:
        snapshots: the write ids to read each table or partition under; None: read as a query that starts now.
    """
    measured = {}
    for place in places:
        moment = look(database, place.found.table, ReaderSettings())
        write_ids = moment.snapshot.write_ids if snapshots is None else snapshots[place.entity]
        state = resolve(
            storage_for(place.found.location).list_tree(place.found.location),
            write_ids,
            moment.snapshot.txns,
            moment.snapshot.layout,
        )
        columns = [column.name for column in place.found.table.columns]
        rows = fingerprint(place.path, state, write_ids, columns, insert_only=place.found.table.insert_only)
        measured[place.entity] = Measured(place, _items(place, moment), rows, write_ids)
    return measured


def _items(place: MeasuredPlace, moment: CatalogMoment) -> tuple[Item, ...]:
    reader, compactor = moment.resolve(storage_for(place.found.location).list_tree(place.found.location))
    return items_of(reader, compactor, insert_only=place.found.table.insert_only, explain=moment.why_unread)
