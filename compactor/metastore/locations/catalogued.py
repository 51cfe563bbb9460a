"""
Reads from the catalog where databases, tables and partitions lie.

Source: docs/storage.md; Hive's Warehouse.getPartitionPath, getDefaultTablePath.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, or_, select

from compactor.errors import RefusedError
from compactor.log import get_logger
from compactor.metastore.db.schema import HiveSchema
from compactor.metastore.db.sql import batches
from compactor.metastore.locations.owners import Owner, loosely
from compactor.metastore.model import TableFacts
from compactor.storage.location import Place, is_at_or_inside, place_of

_log = get_logger(__name__)
_AT_ONCE: Final = 100
"""How many partitions' siblings one statement looks up."""


class Located:
    """The locations in one metastore's catalog."""

    def __init__(self, schema: HiveSchema) -> None:
        self._schema = schema
        self._derived: Place | None = None

    def databases(self, connection: Connection) -> list[Owner]:
        """The databases, once for each of their locations."""
        dbs = self._schema.dbs.c
        columns = [dbs[name] for name in ("db_location_uri", "db_managed_location_uri") if name in dbs]
        rows = connection.execute(select(dbs.name, *columns)).all()
        return [Owner(name, location) for name, *locations in rows for location in dict.fromkeys(locations) if location]

    def tables(self, connection: Connection) -> list[Owner]:
        """The databases and tables that have a location."""
        schema = self._schema
        dbs, tbls, sds = schema.dbs.c, schema.tbls.c, schema.sds.c
        found = self.databases(connection)
        origin = schema.tbls.join(schema.dbs, tbls.db_id == dbs.db_id).join(schema.sds, tbls.sd_id == sds.sd_id)
        for database, table, tbl_id, location in connection.execute(
            select(dbs.name, tbls.tbl_name, tbls.tbl_id, sds.location).select_from(origin)
        ):
            if location:
                found.append(Owner(f"{database}.{table}", location, int(tbl_id)))
        return found

    def owners(self, connection: Connection) -> list[Owner]:
        """Databases, tables, and those partitions that lie elsewhere than their table and their name say."""
        schema = self._schema
        dbs, tbls, sds, partitions = schema.dbs.c, schema.tbls.c, schema.sds.c, schema.partitions.c
        found = self.tables(connection)
        of_table = schema.sds.alias("table_sds")
        origin = schema.partitions.join(schema.tbls, partitions.tbl_id == tbls.tbl_id).join(
            schema.dbs, tbls.db_id == dbs.db_id
        )
        origin = origin.join(schema.sds, partitions.sd_id == sds.sd_id).outerjoin(
            of_table, tbls.sd_id == of_table.c.sd_id
        )
        elsewhere = or_(
            of_table.c.location.is_(None), sds.location != of_table.c.location.concat("/").concat(partitions.part_name)
        )
        columns = (dbs.name, tbls.tbl_name, partitions.part_name, tbls.tbl_id, partitions.part_id, sds.location)
        query = select(*columns).select_from(origin).where(sds.location.is_not(None), elsewhere)
        for database, table, name, tbl_id, part_id, location in connection.execute(query):
            found.append(Owner(f"{database}.{table}/{name}", location, int(tbl_id), int(part_id)))
        return found

    def are_still_there(self, connection: Connection, owners: AbstractSet[Owner]) -> bool:
        """Whether the catalog still has each owner where it was found."""
        tbls, partitions, sds = self._schema.tbls.c, self._schema.partitions.c, self._schema.sds.c
        now = set(self.databases(connection)) if any(owner.tbl_id is None for owner in owners) else set[Owner]()
        tables = {owner.tbl_id: owner for owner in owners if owner.part_id is None and owner.tbl_id is not None}
        parts = {owner.part_id: owner for owner in owners if owner.part_id is not None}
        for known, key, sd_id in ((tables, tbls.tbl_id, tbls.sd_id), (parts, partitions.part_id, partitions.sd_id)):
            located = select(key, sds.location).join(self._schema.sds, sd_id == sds.sd_id)
            for batch in batches(known):
                for number, location in connection.execute(located.where(key.in_(batch))):
                    now.add(replace(known[number], location=location))
        return owners <= now

    def siblings(
        self, connection: Connection, table: TableFacts, wanted: Sequence[tuple[Place, int | None]]
    ) -> list[Owner | None]:
        """
        For each wanted place, a partition of the same table at, above or below it that lies where its name says.

        Asked for partitions that lie elsewhere than their names say, and for dropped ones: `Owners` leaves out siblings
        that lie where their names say.

        Args:
            wanted: each place, on any host, with its PART_ID, or with another number when the partition was dropped.
        """
        root = loosely(table.location) if table.location else ()
        inside = [
            index
            for index, (place, _) in enumerate(wanted)
            if root and len(place) > len(root) and is_at_or_inside(place, root)
        ]
        found: list[Owner | None] = [None] * len(wanted)
        for batch in batches(inside, _AT_ONCE):
            others = self._named(connection, table, [wanted[index][0][len(root) :] for index in batch])
            for index in batch:
                place, part_id = wanted[index]
                found[index] = next(
                    (owner for owner, other in others if owner.part_id != part_id and _overlap(place, other)), None
                )
        return found

    def _named(
        self, connection: Connection, table: TableFacts, paths: Sequence[tuple[str, ...]]
    ) -> list[tuple[Owner, Place]]:
        """
        The table's partitions, with their places, whose names equal one of these paths below the table, or lie above or
        below one.
        """
        partitions, sds = self._schema.partitions.c, self._schema.sds.c
        names = {"/".join(path[: depth + 1]) for path in paths for depth in range(len(path))}
        below = [partitions.part_name.startswith(f"{'/'.join(path)}/", autoescape=True) for path in paths]
        query = select(partitions.part_name, sds.location, partitions.part_id).join(
            self._schema.sds, partitions.sd_id == sds.sd_id
        )
        query = query.where(partitions.tbl_id == table.tbl_id, or_(partitions.part_name.in_(names), *below))
        return [
            (Owner(f"{table.full_name}/{name}", there, table.tbl_id, int(number)), loosely(there))
            for name, there, number in connection.execute(query)
            if there
        ]

    def roots(self, connection: Connection) -> set[Place]:
        """
        The databases' locations, and the warehouse of managed tables.

        Hive 4 keeps the warehouse in its configuration (`metastore.warehouse.dir`); the catalog holds only locations
        that were set by hand. The warehouse is therefore derived: it is the directory in which the managed tables of
        most databases without a managed location lie under their own names. At most one warehouse is derived, so the
        LOCATION of a few tables makes no second one.
        Source: Hive's Warehouse.getDefaultTablePath.
        """
        roots = {place_of(owner.location) for owner in self.databases(connection) if _understood(owner.location)}
        dbs, tbls, sds = self._schema.dbs.c, self._schema.tbls.c, self._schema.sds.c
        if "db_managed_location_uri" not in dbs:
            return roots
        origin = self._schema.tbls.join(self._schema.dbs, tbls.db_id == dbs.db_id).join(
            self._schema.sds, tbls.sd_id == sds.sd_id
        )
        query = select(dbs.name, tbls.tbl_name, sds.location).select_from(origin)
        found: dict[Place, list[str]] = {}
        for database, table, location in connection.execute(
            query.where(tbls.tbl_type == "MANAGED_TABLE", dbs.db_managed_location_uri.is_(None))
        ):
            if (warehouse := _warehouse_around(database, table, location)) is not None:
                found.setdefault(warehouse, []).append(database)
        if (warehouse := _most_common(found)) is not None:
            self._note_derived(warehouse, len(set(found[warehouse])), len(found[warehouse]))
            roots.add(warehouse)
        return roots

    def _note_derived(self, root: Place, databases: int, tables: int) -> None:
        """Log the derived root when it changes: the catalog doesn't name it."""
        if root != self._derived:
            self._derived = root
            _log.info("root.found", root="/".join(root), databases=databases, tables=tables)


def _overlap(one: Place, other: Place) -> bool:
    return is_at_or_inside(one, other) or is_at_or_inside(other, one)


def _understood(location: str) -> bool:
    try:
        return bool(place_of(location))
    except RefusedError:
        return False


def _warehouse_around(database: str, table: str, location: str | None) -> Place | None:
    """
    The warehouse in which Hive would have put this table by default, judged by where the table lies.

    That default is `<warehouse>/<database>.db/<table>`, and `<warehouse>/<table>` for the database `default`.
    """
    if not location or not _understood(location):
        return None
    *above, own = place_of(location)
    if own != table and not own.startswith(f"{table}.v"):
        return None
    warehouse = above if database == "default" else above[:-1] if above[-1] == f"{database}.db" else []
    return tuple(warehouse) if len(warehouse) > 1 else None


def _most_common(found: Mapping[Place, Sequence[str]]) -> Place | None:
    """The place of most databases, among equals that of most tables; None where two places have as many of both."""
    counts = sorted(((len(set(databases)), len(databases), place) for place, databases in found.items()), reverse=True)
    if not counts or (len(counts) > 1 and counts[0][:2] == counts[1][:2]):
        return None
    return counts[0][2]
