"""
Where directories of a table may be that holds aborted writes, and which of them a visit to the table still has to sweep.

One listing of the table's directory clears most of them; the others are swept one by one.
Source: docs/operations.md, Aborted writes; docs/metastore.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from compactor.errors import CompactorError, RefusedError, RetryableError
from compactor.metastore.model import TableFacts
from compactor.planning.picker import cleanup_off
from compactor.reasons import Reason
from compactor.roles.cleaner.cleared import Cleared, Judged, clear_listed
from compactor.roles.cleaner.table_listing import TableListing, is_listed
from compactor.roles.cycle import Progress
from compactor.roles.replication import why_kept
from compactor.roles.services import Services
from compactor.storage.location import is_at_or_inside, place_of


@dataclass(frozen=True, slots=True)
class Visit:
    """
    The cleaning of one table, which may take several cycles. The lists that it began with decide what is swept and what
    is forgotten at the end, regardless of later aborts.

    Args:
        tbl_id: of the table; a table that was created anew gets another visit.
        seen: locations that were there when a cycle of this visit looked for them.
        swept: locations that were swept, or found with nothing to sweep; by PART_ID (None: not in the catalog, or the
            table itself) and location, for another partition may have moved there since; None where the directory was
            missing.
        refused: by location, why it can't be swept; the others are, and then the table is put off.
    """

    tbl_id: int
    judged: Judged
    seen: set[str] = field(default_factory=set)
    swept: dict[tuple[int | None, str], Cleared | None] = field(default_factory=dict)
    refused: dict[str, CompactorError] = field(default_factory=dict)

    def left_of(self, places: Mapping[str, set[int | None]]) -> list[str]:
        """
        Locations that weren't swept as the place of each of these PART_IDs, or that were missing then and are there
        now.
        """
        todo = places.keys() - self.refused.keys()
        return sorted(
            location for location in todo if any(self._is_left(owner, location) for owner in places[location])
        )

    def note(self, owners: set[int | None], location: str, cleared: Cleared | None) -> None:
        """Note that the location needs no other look as the place of these PART_IDs."""
        self.swept.update({(owner, location): cleared for owner in owners})

    def _is_left(self, owner: int | None, location: str) -> bool:
        return (owner, location) not in self.swept or (self.swept[owner, location] is None and location in self.seen)


def look(
    services: Services, table: TableFacts, visit: Visit, progress: Progress
) -> tuple[Mapping[str, set[int | None]], list[str], list[str] | None]:
    """
    Clear by a listing those places that this visit hasn't looked at yet.

    Returns:
        Places and sentences as `_locations`, and which of the places must be swept; None: every place was looked at
        before, and no other look is needed.
    """
    places, foreign, listing = _locations(services, table, visit)
    locations = visit.left_of(places)
    if not locations:
        return places, foreign, None
    told = {location for location in locations if listing.tells_of(location) and _is_alone(services, location, table)}
    there = listing.there(told)
    done = told - there - visit.seen
    for location in done:
        visit.note(places[location], location, None)
    for location, part in listing.parts(there):
        if (cleared := clear_listed(services, location, part, visit.judged, listing.listed_ms)) is not None:
            visit.note(places[location], location, cleared)
            done.add(location)
            progress.made()
    return places, foreign, [location for location in locations if location not in done]


def _is_alone(services: Services, location: str, table: TableFacts) -> bool:
    try:
        return services.places.in_the_way(location, table) is None
    except RefusedError:
        return False  # its sweep says what is wrong with it


def require_never_there(services: Services, table: TableFacts, location: str, visit: Visit) -> None:
    """
    Check that a directory that is missing can't have been moved to where this visit has looked before.

    Raises:
        RetryableError: it may have been.
    """
    if location in visit.seen:
        raise RetryableError(
            f"{location} was there, and is missing now: it may have been moved to where it was looked before"
        )
    assert table.location is not None
    inside = is_at_or_inside(place_of(location, any_host=True), place_of(table.location, any_host=True))
    # in an object store there is no directory without objects
    if not inside and table.partitioned and services.storage(location).uploads is None:
        raise RetryableError(f"{location} is missing, and outside {table.location}: what was in it may lie anywhere")


def _locations(
    services: Services, table: TableFacts, visit: Visit
) -> tuple[dict[str, set[int | None]], list[str], TableListing]:
    """
    Where directories of the table may be.

    Returns:
        The locations with their PART_IDs, those that are there noted with the visit; in words, locations that
        belong to others in the catalog too, so that no rule tells whose they are; and the listing.

    What the rows name isn't trusted. Hive folds or escapes names of static partitions
    (`metastore.partition_names`), writes those of dynamic ones only at the end, statement by statement, and renames
    only what it finds under the catalog's name. An aborted insert may have made a directory for a partition that
    never came into the catalog.
    """
    if cleanup_off(table.parameters, {}):
        raise RefusedError(Reason.NO_CLEANUP, f"no_cleanup is set for {table.full_name}")
    if (why := why_kept(table.database, table.database_parameters, table.location)) is not None:
        raise RefusedError(Reason.REPLICATION_SOURCE, why)
    if not table.location:
        raise RefusedError(Reason.UNSUPPORTED_STORE, f"{table.full_name} has no location in the catalog")
    if not table.partitioned:
        if services.storage(table.location).exists(table.location):
            visit.seen.add(table.location)
        return {table.location: {None}}, [], TableListing(table.location, (), 0)
    places: dict[str, set[int | None]] = {}
    for place in services.catalog.places_of(table):
        if place.location:
            places.setdefault(_without_slash(place.location), set()).add(place.part_id)
    # Before the list: what a rename takes into the table's directory meanwhile was either there or is listed.
    visit.seen.update(
        location
        for location in places.keys() - visit.seen
        if not is_listed(location, table.location) and _is_there(services, location)
    )
    listing = _list(services, table.location, visit)
    below = listing.places()
    visit.seen.update(below, listing.there(places))
    unnamed = below - places.keys()
    others = {place: owner for place in unnamed if (owner := services.places.in_the_way(place, table)) is not None}
    places.update({place: {None} for place in unnamed.difference(others)})
    return places, [f"{place}, which {owner} has too," for place, owner in sorted(others.items())], listing


def _list(services: Services, location: str, visit: Visit) -> TableListing:
    """
    The listing of the table's directory. It is empty when the listing is refused, perhaps because of one partition
    only: the partitions in the catalog are swept even so.
    """
    storage, listed_ms = services.storage(location), services.now_ms()
    try:
        return TableListing(location, storage.list_tree(location).directories, listed_ms)
    except RefusedError as error:
        if error.reason is Reason.LOCATION_MISSING:
            raise
        visit.refused[location] = error
        return TableListing(location, (), listed_ms)


def _is_there(services: Services, location: str) -> bool:
    try:
        return services.storage(location).exists(location)
    except (CompactorError, OSError):
        return False  # its sweep says what is wrong with it


def _without_slash(location: str) -> str:
    """
    The one spelling of a place that the catalog may have with a slash at its end. A location that is refused elsewhere
    for its spelling stays as it is.
    """
    return location if location.endswith("//") else location.removesuffix("/")
