"""
Where we may write and delete: inside the warehouse's roots, and only where nothing else of the catalog lies at, above or below.

The catalog is read as a whole, for SDS has no index on locations: databases, tables, and of the partitions those that lie elsewhere than their table and their name
say. What was read serves every question of the next half minute; directly before something is published or removed, of ten times as long as the read took. Source: docs/storage.md; Hive's Warehouse.getPartitionPath.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import Connection, and_, or_, select

from compactor.errors import CompactorError, RefusedError
from compactor.log import get_logger
from compactor.metastore.database import Database
from compactor.metastore.model import PartitionFacts, TableFacts
from compactor.metastore.owners import Owner, Owners, overlapping
from compactor.reasons import Reason
from compactor.storage.links import LOCAL, link_below
from compactor.storage.location import Place, is_at_or_inside, place_of

FRESH_SECONDS: Final = 30.0
_TIMES_ITS_COST: Final = 10
"""A last look reads again what is older than so many times the read's own time: it costs a tenth of a connection at most, however large the catalog is."""
_log = get_logger(__name__)


class Places:
    """
    Part of a process; any number of threads.

    Args:
        roots: `warehouse.roots`; empty: the databases' locations.
        clock: seconds.
    """

    def __init__(self, database: Database, roots: Callable[[], Sequence[str]], clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._schema = database.schema
        self._wanted = roots
        self._clock = clock
        self._lock = threading.Lock()
        self._owners: tuple[float, Owners] | None = None
        self._cost = 0.0
        self._roots: tuple[float, frozenset[Place]] | None = None
        self._derived: set[Place] = set()

    # Inside

    def require_inside(self, location: str) -> None:
        """
        Raises:
            RefusedError: OUTSIDE_ROOTS; UNSAFE_LOCATION (a symbolic link below the root leads there); or the location can't be understood.
        """
        place, set_by_hand = place_of(location), self._wanted()
        root = self._root_around(place, FRESH_SECONDS) or (None if set_by_hand else self._root_around(place, 0.0))
        if root is not None:
            _require_no_link(location, root, place)
        elif set_by_hand:
            raise RefusedError(Reason.OUTSIDE_ROOTS, f"{location} is outside warehouse.roots ({', '.join(set_by_hand)}): nothing is written or removed there")
        else:
            why = "is outside the locations of all databases: nothing is written or removed there unless warehouse.roots names a directory around it"
            raise RefusedError(Reason.OUTSIDE_ROOTS, f"{location} {why}")

    def require_unlinked(self, location: str) -> None:
        """
        For reading, which is free outside the roots.

        Raises:
            RefusedError: UNSAFE_LOCATION (a symbolic link below the root leads there).
        """
        place = place_of(location)
        if place[0] == LOCAL and (root := self._root_around(place, FRESH_SECONDS)) is not None:
            _require_no_link(location, root, place)

    def _root_around(self, place: Place, age: float) -> Place | None:
        """
        Of the roots that were set by hand the nearest one, for each is trusted. Of the databases' locations the outermost: who may write in one directory may put
        a link there, and create a database at it.
        """
        set_by_hand = self._wanted()
        roots = frozenset(map(place_of, set_by_hand)) if set_by_hand else self._databases(age)
        around = [place[:depth] for depth in range(1, len(place) + 1) if place[:depth] in roots]
        if not around:
            return None
        return around[-1] if set_by_hand else around[0]

    def _databases(self, age: float) -> frozenset[Place]:
        with self._lock:
            if self._roots is None or self._clock() - self._roots[0] >= age:
                try:
                    roots = frozenset(self._database.read(self._read_roots))
                    self._roots = (self._clock(), roots)  # the time after the read, which may take longer than its result is good for
                except CompactorError:
                    if self._roots is None:  # what an attempt staged must go even while the metastore is away
                        raise
            return self._roots[1]

    # Alone

    def require_alone(self, location: str, table: TableFacts | None, partition: PartitionFacts | None = None, *, last_look: bool = False) -> None:
        """
        Args:
            table, partition: whose the place is. For the directory of a dropped partition the table that it was of.
            last_look: something is published or removed next.

        Raises:
            RefusedError: OVERLAPPING_LOCATION, naming who else has a share in it; or the location can't be understood.
        """
        if (owner := self.in_the_way(location, table, partition, last_look=last_look)) is not None:
            raise overlapping(location, owner)

    def in_the_way(
        self, location: str, table: TableFacts | None, partition: PartitionFacts | None = None, *, dropped: bool = False, last_look: bool = False
    ) -> Owner | None:
        """As `require_alone`; `dropped`: the place is that of a partition that isn't in the catalog any more."""
        tbl_id, part_id = table.tbl_id if table else None, partition.part_id if partition else -1 if dropped else None
        owners = self._all(min(FRESH_SECONDS, _TIMES_ITS_COST * self._cost) if last_look else FRESH_SECONDS)
        found = owners.in_the_way(place_of(location, any_host=True), tbl_id, part_id)
        while found is not None and not self._is_still_there(found):  # dropped, moved, or created anew since the catalog was read
            self.forget()
            owners = self._all(FRESH_SECONDS)
            found = owners.in_the_way(place_of(location, any_host=True), tbl_id, part_id)
        if found is not None or table is None or part_id is None or (partition is not None and not owners.has(partition.part_id)):
            return found
        return self._database.read(lambda connection: self._sibling(connection, location, table, part_id))

    def _all(self, age: float) -> Owners:
        with self._lock:
            if self._owners is None or self._clock() - self._owners[0] >= age:
                began = self._clock()
                owners = Owners(self._database.read(self._read))
                self._owners = (self._clock(), owners)  # the time after the read, which may take longer than its result is good for
                self._cost = self._owners[0] - began
            return self._owners[1]

    def forget(self) -> None:
        """What was read is out of date."""
        with self._lock:
            self._owners = self._roots = None

    def _is_still_there(self, owner: Owner) -> bool:
        return self._database.read(lambda connection: owner.location in self._locations(connection, owner))

    # Rows

    def _locations(self, connection: Connection, owner: Owner) -> list[str]:
        """Where the catalog has it now; of a database all locations."""
        sds, tbls, partitions = self._schema.sds.c, self._schema.tbls.c, self._schema.partitions.c
        if owner.tbl_id is None:
            return [other.location for other in self._read_databases(connection) if other.name == owner.name]
        if owner.part_id is None:
            return list(connection.scalars(select(sds.location).join(self._schema.tbls, tbls.sd_id == sds.sd_id).where(tbls.tbl_id == owner.tbl_id)))
        return list(
            connection.scalars(select(sds.location).join(self._schema.partitions, partitions.sd_id == sds.sd_id).where(partitions.part_id == owner.part_id))
        )

    def _read(self, connection: Connection) -> list[Owner]:
        schema = self._schema
        dbs, tbls, sds, partitions = schema.dbs.c, schema.tbls.c, schema.sds.c, schema.partitions.c
        found = self._read_databases(connection)
        origin = schema.tbls.join(schema.dbs, tbls.db_id == dbs.db_id).join(schema.sds, tbls.sd_id == sds.sd_id)
        for database, table, tbl_id, location in connection.execute(select(dbs.name, tbls.tbl_name, tbls.tbl_id, sds.location).select_from(origin)):
            if location:
                found.append(Owner(f"{database}.{table}", location, int(tbl_id)))
        of_table = schema.sds.alias("table_sds")
        origin = schema.partitions.join(schema.tbls, partitions.tbl_id == tbls.tbl_id).join(schema.dbs, tbls.db_id == dbs.db_id)
        origin = origin.join(schema.sds, partitions.sd_id == sds.sd_id).outerjoin(of_table, tbls.sd_id == of_table.c.sd_id)
        elsewhere = or_(of_table.c.location.is_(None), sds.location != of_table.c.location.concat("/").concat(partitions.part_name))
        columns = (dbs.name, tbls.tbl_name, partitions.part_name, tbls.tbl_id, partitions.part_id, sds.location)
        query = select(*columns).select_from(origin).where(sds.location.is_not(None), elsewhere)
        for database, table, name, tbl_id, part_id, location in connection.execute(query):
            found.append(Owner(f"{database}.{table}/{name}", location, int(tbl_id), int(part_id)))
        return found

    def _read_databases(self, connection: Connection) -> list[Owner]:
        dbs = self._schema.dbs.c
        columns = [dbs[name] for name in ("db_location_uri", "db_managed_location_uri") if name in dbs]
        rows = connection.execute(select(dbs.name, *columns)).all()
        return [Owner(name, location) for name, *locations in rows for location in dict.fromkeys(locations) if location]

    def _read_roots(self, connection: Connection) -> set[Place]:
        """
        The databases' locations, and the warehouse of managed tables.

        Hive 4 keeps that one in its configuration (`metastore.warehouse.dir`), and in the catalog only what was set by hand: of a database without a managed location
        it is told by where managed tables lie that have their own name there. Source: Hive's Warehouse.getDefaultTablePath.
        """
        roots = {place_of(owner.location) for owner in self._read_databases(connection) if _understood(owner)}
        dbs, tbls, sds = self._schema.dbs.c, self._schema.tbls.c, self._schema.sds.c
        if "db_managed_location_uri" not in dbs:
            return roots
        origin = self._schema.tbls.join(self._schema.dbs, tbls.db_id == dbs.db_id).join(self._schema.sds, tbls.sd_id == sds.sd_id)
        query = select(dbs.name, tbls.tbl_name, sds.location).select_from(origin)
        for database, table, location in connection.execute(query.where(tbls.tbl_type == "MANAGED_TABLE", dbs.db_managed_location_uri.is_(None))):
            if not location or not _understood(Owner(table, location)):
                continue
            *above, own = place_of(location)
            if own != table and not own.startswith(f"{table}.v"):
                continue
            warehouse = above if database == "default" else above[:-1] if above[-1] == f"{database}.db" else []
            if len(warehouse) > 1:
                self._note_derived(tuple(warehouse), f"{database}.{table}", location)
                roots.add(tuple(warehouse))
        return roots

    def _note_derived(self, root: Place, table: str, location: str) -> None:
        """Say once what a root was derived from: the catalog doesn't name it."""
        if root not in self._derived:
            self._derived.add(root)
            _log.info("takes a directory of managed tables for a root of the warehouse", root="/".join(root), table=table, location=location)

    def _sibling(self, connection: Connection, location: str, table: TableFacts, part_id: int) -> Owner | None:
        """A partition of the same table, where its name puts it, at, above or below: of one that lies elsewhere only the table can tell."""
        place, root = place_of(location, any_host=True), place_of(table.location, any_host=True) if table.location else ()
        below = place[len(root) :]
        if not root or not below or not is_at_or_inside(place, root):
            return None
        partitions, sds = self._schema.partitions.c, self._schema.sds.c
        names = ["/".join(below[: depth + 1]) for depth in range(len(below))]
        query = (
            select(partitions.part_name, sds.location, partitions.part_id)
            .join(self._schema.sds, partitions.sd_id == sds.sd_id)
            .where(
                and_(partitions.tbl_id == table.tbl_id, partitions.part_id != part_id),
                or_(partitions.part_name.in_(names), partitions.part_name.startswith(f"{names[-1]}/", autoescape=True)),
            )
        )
        for name, there, number in connection.execute(query):
            other = place_of(there, any_host=True) if there else ()
            if other and (is_at_or_inside(other, place) or is_at_or_inside(place, other)):
                return Owner(f"{table.full_name}/{name}", there, table.tbl_id, int(number))
        return None


def _require_no_link(location: str, root: Place, place: Place) -> None:
    if (link := link_below(root, place)) is not None:
        why = f"{link} is a symbolic link below the root {'/'.join(root)}: nothing is listed, written or removed there; give the location that it leads to"
        raise RefusedError(Reason.UNSAFE_LOCATION, f"{location} isn't the directory's own name: {why}")


def _understood(owner: Owner) -> bool:
    try:
        return bool(place_of(owner.location))
    except RefusedError:
        return False
