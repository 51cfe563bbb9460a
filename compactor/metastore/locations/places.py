"""
Decides where the compactor may write and delete: inside the warehouse's roots, and only where no other object of the
catalog lies at, above or below.

The catalog is read as a whole, because SDS has no index on locations: databases, tables, and of the partitions those
that lie elsewhere than their table and their name say (`catalogued`). One reading serves all questions of the next half
minute; where many are judged, for a hundred times as long as the reading took, if that is longer. Directly before a
publication or a removal, it serves only for ten times as long.
Source: docs/storage.md.
"""

import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from compactor.errors import CompactorError, RefusedError
from compactor.metastore import model
from compactor.metastore.db.database import Database
from compactor.metastore.locations.catalogued import Located
from compactor.metastore.locations.owners import Owner, Owners, overlapping
from compactor.metastore.model import PartitionFacts, TableFacts
from compactor.reasons import Reason
from compactor.shared import Freshness, Shared
from compactor.storage.local_fs import beneath
from compactor.storage.location import LOCAL, Place, local_path, place_of

FRESH_SECONDS: Final = 30.0
_USUAL: Final = Freshness(FRESH_SECONDS)
_LAST_LOOK: Final = Freshness(times=10, most=FRESH_SECONDS)
"""Reading takes a tenth of a connection at most, however large the catalog is."""
_MANY: Final = Freshness(FRESH_SECONDS, times=100)
"""Where many are judged to be queued: the Worker that compacts one of them looks anew."""
_DROPPED: Final = -1
"""Stands for the PART_ID of a dropped partition."""


class _Asked(NamedTuple):
    """A place and its owner: a whole table has no `part_id`; a dropped table has no `table`."""

    place: Place
    table: TableFacts | None
    part_id: int | None


@dataclass(frozen=True, slots=True)
class _Roots:
    """
    The directories inside which the compactor may write and delete.

    Args:
        set_by_hand: `warehouse.roots`; when it is empty, the roots are the databases' locations.
    """

    places: frozenset[Place]
    set_by_hand: Sequence[str]

    def around(self, place: Place) -> Place | None:
        """The nearest root around a place."""
        return next((place[:depth] for depth in range(len(place), 0, -1) if place[:depth] in self.places), None)

    def resolver(self) -> Callable[[Place], Place]:
        """
        A function that gives a place's real place.

        A root that was set by hand may be a symbolic link, or lie below one. No other link is ever followed.
        """
        resolved: dict[Place, Place] = {}

        def resolve(place: Place) -> Place:
            root = self.around(place) if self.set_by_hand and place[0] == LOCAL else None
            if root is None:
                return place
            if root not in resolved:
                resolved[root] = place_of(os.path.realpath("/" + "/".join(root[1:])))
            return resolved[root] + place[len(root) :]

        return resolve

    def refusal(self, location: str) -> RefusedError:
        """The refusal of a place outside all roots."""
        if self.set_by_hand:
            why = f"is outside warehouse.roots ({', '.join(self.set_by_hand)}): nothing is written or removed there"
        else:
            why = "is outside the locations of all databases: nothing is written or removed there unless warehouse.roots names a directory around it"
        return RefusedError(Reason.OUTSIDE_ROOTS, f"{location} {why}")


class Places:
    """
    Answers whether the compactor may write and delete at a location.

    One instance serves a process; any number of threads may use it.

    Args:
        roots: `warehouse.roots`; empty: the databases' locations.
        clock: seconds.
    """

    def __init__(
        self, database: Database, roots: Callable[[], Sequence[str]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._located = Located(database.schema)
        self._wanted = roots
        self._clock = clock
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._owners = Shared(self._read_owners, clock)
        self._of_databases: tuple[float, frozenset[Place]] | None = None

    # Many at once

    def refusals(self, wanted: Sequence[model.CatalogPlace], *, last_look: bool = False) -> list[RefusedError | None]:
        """
        For each table or partition, why nothing may be written where it lies; None when writing is allowed.

        Gives the answers of `require_inside` and `require_alone`, in a few statements however many places are asked
        for. Symbolic links below a root, which only the file system knows, aren't looked for (`require_unlinked`).

        Args:
            wanted: each with a location.
            last_look: a compaction comes next; otherwise the Worker looks anew.
        """
        freshness = _LAST_LOOK if last_look else _MANY
        refused: list[RefusedError | None] = [None] * len(wanted)
        asked: dict[int, _Asked] = {}
        for index in self._doubtful(wanted, freshness):
            location, table, part_id = wanted[index].location or "", wanted[index].table, wanted[index].part_id
            try:
                asked[index] = _Asked(place_of(location, any_host=True), table, part_id)
            except RefusedError as error:
                refused[index] = error
        places = {index: place_of(wanted[index].location or "") for index in asked}
        roots = self._roots_around(places.values())
        for index, place in places.items():
            if roots.around(place) is None:
                refused[index] = roots.refusal(wanted[index].location or "")
                del asked[index]
        for index, owner in zip(asked, self._in_the_way(list(asked.values()), freshness), strict=True):
            if owner is not None:
                refused[index] = overlapping(wanted[index].location or "", owner)
        return refused

    def _doubtful(self, wanted: Sequence[model.CatalogPlace], freshness: Freshness) -> list[int]:
        """
        The indexes of the places that need a closer look.

        Left out are tables inside a root with no other owner around, at or below them, and the partitions that lie in
        these tables where their names say.
        """
        if not wanted:
            return []
        roots, owners = self._roots(FRESH_SECONDS), self._all(freshness)
        free: dict[int, bool] = {}
        found = []
        for index, one in enumerate(wanted):
            table = one.table
            if (is_free := free.get(table.tbl_id)) is None:
                is_free = free[table.tbl_id] = _is_free(table, roots, owners)
            if not (is_free and (one.part_id is None or one.is_where_named)):
                found.append(index)
        return found

    # Inside

    def require_inside(self, location: str) -> None:
        """
        Refuse a location outside the roots.

        Raises:
            RefusedError: OUTSIDE_ROOTS; or the location can't be understood.
        """
        place = place_of(location)
        roots = self._roots_around([place])
        if roots.around(place) is None:
            raise roots.refusal(location)

    def root_of(self, location: str) -> str | None:
        """
        Path of the directory around a local place below which no symbolic link is followed.

        None outside the roots, where only reading is allowed, and on other stores. A root that was set by hand is
        trusted. A database's location isn't trusted: a user who may create a database may name a link of their own.
        """
        place = place_of(location)
        roots = self._roots(FRESH_SECONDS)
        root = roots.around(place) if place[0] == LOCAL else None
        return None if root is None else "/" + "/".join(root[1:] if roots.set_by_hand else ())

    def require_unlinked(self, location: str) -> None:
        """
        Refuse a location that a symbolic link below its root leads to.

        Meant for places that are only judged yet: each call of the local driver checks by itself.

        Raises:
            RefusedError: UNSAFE_LOCATION (a symbolic link below the root leads there).
        """
        if (root := self.root_of(location)) is not None:
            with suppress(OSError):  # the directory may not exist yet
                beneath.status(local_path(location), root)

    def _by_hand(self) -> _Roots:
        wanted = self._wanted()
        return _Roots(frozenset(map(place_of, wanted)), wanted)

    def _roots_around(self, places: Collection[Place]) -> _Roots:
        """The roots, read again when one of these places is outside all of them: its database may be new."""
        roots = self._roots(FRESH_SECONDS)
        if roots.set_by_hand or all(roots.around(place) is not None for place in places):
            return roots
        return self._roots(0.0)

    def _roots(self, age: float) -> _Roots:
        if (by_hand := self._by_hand()).set_by_hand:
            return by_hand
        known = self._of_databases
        if not self._reading.acquire(blocking=known is None or age == 0):
            assert known is not None
            return _Roots(known[1], ())  # another thread is reading the roots: opening a file never waits for that
        try:
            known = self._of_databases
            if known is None or self._clock() - known[0] >= age:
                try:
                    found = frozenset(self._database.glance(self._located.roots))
                except CompactorError:
                    if known is None:  # what an attempt staged must go even while the metastore is unreachable
                        raise
                    found = known[1]
                # the time after the read, which may take longer than its result is good for
                known = self._of_databases = (self._clock(), found)
            return _Roots(known[1], ())
        finally:
            self._reading.release()

    # Alone

    def require_alone(
        self,
        location: str,
        table: TableFacts | None,
        partition: PartitionFacts | None = None,
        *,
        last_look: bool = False,
    ) -> None:
        """
        Refuse a location in which another owner has a share.

        Args:
            table, partition: the owner of the place. For a dropped partition's directory, the table it belonged to.
            last_look: a publication or a removal comes next.

        Raises:
            RefusedError: OVERLAPPING_LOCATION, naming the other owner; or the location can't be understood.
        """
        if (owner := self.in_the_way(location, table, partition, last_look=last_look)) is not None:
            raise overlapping(location, owner)

    def in_the_way(
        self,
        location: str,
        table: TableFacts | None,
        partition: PartitionFacts | None = None,
        *,
        last_look: bool = False,
    ) -> Owner | None:
        """The owner that `require_alone` would refuse for, if any."""
        asked = _Asked(place_of(location, any_host=True), table, partition.part_id if partition else None)
        return self._in_the_way([asked], _LAST_LOOK if last_look else _USUAL)[0]

    def in_a_left_place(self, location: str, table: TableFacts | None) -> Owner | None:
        """
        The owner that has a share in the place of a dropped table or partition, if any.

        Asked before the directory is removed with all its contents. Databases and tables are read at this moment;
        partitions are those of a last look.

        Args:
            table: the table that a dropped partition belonged to; None when a table was dropped.
        """
        asked = _Asked(place_of(location, any_host=True), table, None if table is None else _DROPPED)
        now = Owners(self._database.glance(self._located.tables), self._by_hand().resolver())
        owner = now.in_the_way(asked.place, table.tbl_id if table else None, asked.part_id)
        return owner or self._in_the_way([asked], _LAST_LOOK)[0]

    def databases(self) -> list[Owner]:
        """The databases, once for each of their locations, as the catalog has them at this moment."""
        return self._database.glance(self._located.databases)

    def _in_the_way(self, asked: Sequence[_Asked], freshness: Freshness) -> list[Owner | None]:
        while True:
            owners = self._all(freshness)
            found = [
                owners.in_the_way(one.place, one.table.tbl_id if one.table else None, one.part_id) for one in asked
            ]
            named = frozenset(owner for owner in found if owner is not None)
            if not named or self._database.glance(self._located.are_still_there, named):
                break
            self.forget()  # an owner was dropped, moved, or created anew since the catalog was read
            freshness = _USUAL
        unsure: dict[int, tuple[TableFacts, list[int]]] = {}
        for index, one in enumerate(asked):
            if (
                found[index] is None
                and one.table is not None
                and one.part_id is not None
                and (one.part_id == _DROPPED or owners.has(one.part_id))
            ):
                unsure.setdefault(one.table.tbl_id, (one.table, []))[1].append(index)
        for table, indexes in unsure.values():
            wanted = [(asked[index].place, asked[index].part_id) for index in indexes]
            for index, sibling in zip(
                indexes, self._database.glance(self._located.siblings, table, wanted), strict=True
            ):
                found[index] = sibling
        return found

    def _all(self, freshness: Freshness) -> Owners:
        with self._lock:
            return self._owners.get(freshness)

    def _read_owners(self) -> Owners:
        return Owners(self._database.glance(self._located.owners), self._by_hand().resolver())

    def forget(self) -> None:
        """Forget what was read: it is out of date."""
        with self._lock:
            self._owners.forget()
            self._of_databases = None


def _is_free(table: TableFacts, roots: _Roots, owners: Owners) -> bool:
    """
    Whether a table lies inside the roots and no other owner has a share in it.

    Then the same holds for every partition that lies in the table where its name says.
    """
    try:
        return (
            bool(table.location)
            and roots.around(place_of(table.location or "")) is not None
            and owners.is_free(place_of(table.location or "", any_host=True), table.tbl_id)
        )
    except RefusedError:
        return False
