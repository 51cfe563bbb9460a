"""
Tells which databases, tables and partitions share a directory: what the catalog has at, above and below a place.

Pure values. A partition that lies where its table and its name put it is left out: a place that overlaps it overlaps
its table, or is one of the partitions held here.
Source: docs/storage.md.
"""

import posixpath
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.storage.location import Place, is_at_or_inside, place_of


@dataclass(frozen=True, slots=True)
class Owner:
    """A database (no `tbl_id`), a table (no `part_id`) or a partition of the catalog, and where it lies."""

    name: str
    location: str
    tbl_id: int | None = None
    part_id: int | None = None

    def __str__(self) -> str:
        kind = "database" if self.tbl_id is None else "table" if self.part_id is None else "partition"
        return f"{kind} {self.name} ({self.location})"


class Owners:
    """
    All owners at one moment, found by place.

    An ancestor is found by looking it up, what lies below in one stretch of a sorted list.

    Args:
        resolve: gives the real place where a directory has two names.
    """

    def __init__(self, owners: Iterable[Owner], resolve: Callable[[Place], Place] = lambda place: place) -> None:
        self._resolve = resolve
        self._at: dict[Place, list[Owner]] = {}
        for owner in owners:
            self._at.setdefault(resolve(loosely(owner.location)), []).append(owner)
        self._places = sorted(self._at)
        self._elsewhere = {owner.part_id for at in self._at.values() for owner in at}

    def in_the_way(self, place: Place, tbl_id: int | None, part_id: int | None) -> Owner | None:
        """
        Another owner that has a share in a place, if any.

        Args:
            tbl_id, part_id: the owner of the place. A whole table has no `part_id`. For a dropped partition `tbl_id` is
                its table; both are None for a dropped table.
        """
        place = self._resolve(place)
        for depth in range(1, len(place)):
            for owner in self._at.get(place[:depth], ()):
                if owner.tbl_id is not None and not (owner.tbl_id == tbl_id and owner.part_id is None):
                    return owner
        for owner in self._from(place):
            own = owner.tbl_id is not None and owner.tbl_id == tbl_id
            if not (own and (part_id is None or owner.part_id == part_id)):
                return owner
        return None

    def has(self, part_id: int) -> bool:
        """Whether this partition lies elsewhere than its table and its name say."""
        return part_id in self._elsewhere

    def is_free(self, place: Place, tbl_id: int) -> bool:
        """
        Whether a table's place is its own, and none of its partitions that lie elsewhere than their names say is
        inside.
        """
        return self.in_the_way(place, tbl_id, None) is None and all(
            owner.part_id is None for owner in self._from(self._resolve(place))
        )

    def _from(self, place: Place) -> Iterator[Owner]:
        """Owners at the place and below."""
        for index in range(bisect_left(self._places, place), len(self._places)):
            if not is_at_or_inside(self._places[index], place):
                return
            yield from self._at[self._places[index]]


def overlapping(location: str, owner: Owner) -> RefusedError:
    """The refusal of a place in which another owner has a share."""
    return RefusedError(
        Reason.OVERLAPPING_LOCATION,
        f"{location} is shared: the catalog has {owner} there; nothing is written or removed",
    )


def loosely(location: str) -> Place:
    """
    A location's place, read as Hadoop reads it even where the compactor would refuse the location.

    An owner with such a location must not be overlooked.
    """
    try:
        return place_of(location, any_host=True)
    except RefusedError:
        head, colon, path = location.rpartition(":")
        start = path.find("/", 2) if path.startswith("//") else 0
        try:
            return place_of(
                f"{head}{colon}{path[:start]}{posixpath.normpath('/' + path[start:].strip('/'))}", any_host=True
            )
        except RefusedError:
            return (location,)
