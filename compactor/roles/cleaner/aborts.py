"""
Removes what aborted writers left behind, and then the rows that mark it as aborted; in that order, since otherwise
aborted rows would count as committed.

No reader sees aborted rows, but a reader may be listing a directory: that delays the removal by a few minutes at most.
Directories that hold committed rows too stay; a major compaction takes the aborted rows out.

Every partition of a partitioned table must be free of aborted rows. One listing of the table's directory shows that for
most partitions; the others are swept one by one.
Source: docs/operations.md; Hive's AbortedTxnCleaner; HIVE-24481.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count

from compactor.acid.snapshot import AcidState, ListedDir
from compactor.control import Subject
from compactor.errors import CompactorError, RefusedError, RetryableError
from compactor.log import get_logger
from compactor.metastore.clean.aborts import AbortedGroup
from compactor.metastore.clean.readers import Blocker, MayBeListedError, may_be_listed
from compactor.metastore.model import Entity, TableFacts
from compactor.planning.picker import cleanup_off
from compactor.reasons import Reason
from compactor.roles.cleaner.partition import Cleared, Judged, Sweep, Swept, clear_listed, prove
from compactor.roles.cleaner.table_listing import TableListing, is_listed
from compactor.roles.cleaner.tally import CleanerTally
from compactor.roles.cycle import Progress
from compactor.roles.leadership import HeldLeadership
from compactor.roles.pauses import pool_of
from compactor.roles.replication import why_kept
from compactor.roles.services import Services, about_entity
from compactor.roles.unreachable import AwayStores, StoreAwayError
from compactor.storage.location import is_at_or_inside, place_of
from compactor.words import one_line

_log = get_logger(__name__)
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class _Visit:
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


class AbortCleaner:
    """
    Cleans aborted writes, as a part of the Cleaner's cycle.

    Args:
        progress: told of each location that was swept, or found with nothing to sweep.
        away: the stores that the cycle found unreachable.
        clock: seconds.
    """

    def __init__(self, services: Services, progress: Progress, away: AwayStores, clock: Callable[[], float]) -> None:
        self._services = services
        self._progress = progress
        self._away = away
        self._held: HeldLeadership | None = None
        self._begun: dict[Entity, _Visit] = {}
        self._due_since: dict[Entity, float] = {}
        self._clock = clock

    def run(self, held: HeldLeadership, tally: CleanerTally, time_is_up: Callable[[], bool]) -> None:
        """
        Clean every table that has a group that is due: more aborted writes than the threshold, or older ones. Tables
        that no cycle has begun yet come first.

        Args:
            time_is_up: True: no table is begun any more, nor another location of one; the next cycle goes on there.

        Raises:
            OwnershipLostError: another daemon is the Cleaner by now.
            CompactorError: the metastore can't be asked.
        """
        self._held = held
        limits = self._services.settings.initiator.thresholds
        self._services.aborts.note_unnamed()
        self._services.aborts.end_retries()
        due: dict[Entity, list[AbortedGroup]] = {}
        for group in self._services.aborts.groups(limits.aborted_count, round(limits.aborted_age_hours * _HOUR_MS)):
            due.setdefault(group.entity.whole_table(), []).append(group)
        self._begun = {entity: visit for entity, visit in self._begun.items() if entity in due}
        self._due_since = {entity: self._due_since.get(entity, self._clock()) for entity in due}
        doubtful: list[Entity] = []
        for entity in sorted(due, key=lambda entity: entity in self._begun):
            self._turn(entity, due[entity], tally, time_is_up, doubtful)
        for entity in doubtful:
            self._turn(entity, due[entity], tally, time_is_up, None)

    def forget(self) -> None:
        """Another daemon is the Cleaner: forget all visits, which then begin anew."""
        self._begun.clear()
        self._due_since.clear()

    def _turn(
        self,
        entity: Entity,
        groups: list[AbortedGroup],
        tally: CleanerTally,
        time_is_up: Callable[[], bool],
        doubtful: list[Entity] | None,
    ) -> None:
        """
        Give one table its turn. When its store was unreachable in the cycle before, the table is added to `doubtful`
        instead, unless that is None: other tables first.
        """
        if self._services.stopping.is_set():
            return
        if time_is_up():
            tally.put_off()
            return
        assert self._held is not None
        with about_entity(entity):
            try:
                self._held.check()  # a removal that the next Cleaner is at must not be settled by this one
                self._clean(entity, groups, tally, time_is_up, doubtful)
            except StoreAwayError as error:
                tally.pass_over(error.store)
                self._put_off(groups, str(error))
            except Exception as error:
                self._held.check()
                if not isinstance(error, CompactorError | OSError):
                    _log.exception("abort_cleaning.crashed")
                tally.error(entity, error)
                self._away.note(error)
                self._begun.pop(entity, None)
                self._put_off(groups, str(error))

    def _clean(
        self,
        entity: Entity,
        groups: list[AbortedGroup],
        tally: CleanerTally,
        time_is_up: Callable[[], bool],
        doubtful: list[Entity] | None,
    ) -> None:
        aborts = self._services.aborts
        table = self._services.catalog.find_table(entity.database, entity.table)
        if table is None:
            forgotten = aborts.forget_vanished(groups, entity)
            tally.forgotten += forgotten
            if not forgotten:
                self._put_off(
                    groups,
                    f"{entity} isn't in the catalog, but its write ids are counted: a later table of that name would read what was aborted",
                )
            return
        if (
            denial := self._services.control.judge().cleaning(Subject(table.database, table.name, pool_of(table)))
        ) is not None:
            tally.hold(entity, denial.sentence, denial.reason)
            return
        if table.location:
            self._away.check(table.location)
            if doubtful is not None and self._away.is_doubtful(table.location):
                doubtful.append(entity)
                return
        if (lister := self._lister(entity)) is not None:
            tally.hold(entity, lister.sentence, lister.reason)
            return
        visit = self._begun.get(entity)
        if visit is None or visit.tbl_id != table.tbl_id:
            visit = self._begun[entity] = _Visit(table.tbl_id, Judged(*aborts.lists(entity)))
        left = self._sweep_all(table, entity, visit, tally, time_is_up)
        if left is None:
            tally.put_off()
            return
        del self._begun[entity], self._due_since[entity]
        if left:
            tally.outcome("left")
            self._put_off(groups, f"{left[0]} is still there")
            return
        self._still_right(table, entity)
        cleared = [one for one in visit.swept.values() if one is not None]
        if not cleared:
            self._put_off(groups, f"no directory of {entity} is there, which proves nothing")
            return
        tally.forgotten += aborts.forget(groups, prove(table, None, cleared))
        if held := frozenset[int]().union(*(one.held for one in cleared)):
            self._put_off(
                groups,
                f"rows of {len(held)} aborted writes lie among committed ones until a major compaction is cleaned",
            )
        else:
            tally.outcome("cleaned")

    def _sweep_all(
        self, table: TableFacts, entity: Entity, visit: _Visit, tally: CleanerTally, time_is_up: Callable[[], bool]
    ) -> list[str] | None:
        """
        Sweep every location that this visit hasn't swept and that a listing doesn't clear, in the Cleaner's threads,
        until the catalog and the store name no other: what was moved or added since is another location.

        Returns:
            Names that should have gone and are still there; None: there was no time for all, or a reader may be
            listing.

        Raises:
            RefusedError: a place can't be swept; every other one was.
            RetryableError: a directory that was there is missing: Hive moves the directory of a partition or table
                before the metastore says so, and its content may lie where this visit looked before. Or a directory
                outside the table's is missing, and no list tells where its content went.
        """
        threads = self._services.settings.cleaner.threads
        numbers = count()
        listed: list[str] = []

        def swept(location: str) -> tuple[str, Swept | None] | None:
            if listed or self._services.stopping.is_set() or (next(numbers) >= threads and time_is_up()):
                return None  # some are swept in any case: a cycle that only listed would be followed by another such
            with about_entity(entity):
                try:
                    found = self._sweep(table, entity, location, visit.judged, tally)
                    if not found.there:
                        self._require_never_there(table, location, visit)
                except (
                    MayBeListedError
                ) as error:  # no failure: an entry that is put off again and again would wait for longer each time
                    listed.append(str(error))
                    return None
                except (RefusedError, RetryableError) as error:
                    _log.warning("sweep.failed", directory=location, error=str(error))
                    visit.refused[location] = error
                    found = None
            self._progress.made()
            return location, found

        left: list[str] = []
        whole = True
        while whole and not left:
            places, foreign, locations = self._look(table, visit)
            if locations is None:
                for error in visit.refused.values():
                    raise error
                left += foreign
                break
            whole = bool(locations) or not (time_is_up() or self._services.stopping.is_set())
            with ThreadPoolExecutor(threads, thread_name_prefix="cleaning") as pool:
                for done in pool.map(swept, locations):
                    if done is None:
                        whole = False
                        continue
                    location, found = done
                    if found is None:
                        continue
                    left += found.left
                    if not found.left:
                        visit.note(places[location], location, found.cleared)
        for why in listed[:1]:
            tally.hold(entity, why, Reason.MAY_BE_LISTED)
        return left if whole or left else None

    def _look(
        self, table: TableFacts, visit: _Visit
    ) -> tuple[Mapping[str, set[int | None]], list[str], list[str] | None]:
        """
        Clear by a listing those places that this visit hasn't looked at yet.

        Returns:
            Places and sentences as `_locations`, and which of the places must be swept; None: every place was looked at
            before, and no other look is needed.
        """
        places, foreign, listing = self._locations(table, visit)
        locations = visit.left_of(places)
        if not locations:
            return places, foreign, None
        told = {location for location in locations if listing.tells_of(location) and self._is_alone(location, table)}
        there = listing.there(told)
        done = told - there - visit.seen
        for location in done:
            visit.note(places[location], location, None)
        for location, part in listing.parts(there):
            if (cleared := clear_listed(self._services, location, part, visit.judged, listing.listed_ms)) is not None:
                visit.note(places[location], location, cleared)
                done.add(location)
                self._progress.made()
        return places, foreign, [location for location in locations if location not in done]

    def _is_alone(self, location: str, table: TableFacts) -> bool:
        try:
            return self._services.places.in_the_way(location, table) is None
        except RefusedError:
            return False  # its sweep says what is wrong with it

    def _require_never_there(self, table: TableFacts, location: str, visit: _Visit) -> None:
        if location in visit.seen:
            raise RetryableError(
                f"{location} was there, and is missing now: it may have been moved to where it was looked before"
            )
        assert table.location is not None
        inside = is_at_or_inside(place_of(location, any_host=True), place_of(table.location, any_host=True))
        if (
            not inside and table.partitioned and self._services.storage(location).uploads is None
        ):  # in an object store there is no directory without objects
            raise RetryableError(
                f"{location} is missing, and outside {table.location}: what was in it may lie anywhere"
            )

    def _still_right(self, table: TableFacts, entity: Entity, location: str | None = None) -> None:
        """
        Check before what was aborted is forgotten and, with a location, before anything there is moved or deleted.
        """
        assert self._held is not None
        now = self._services.catalog.find_table(entity.database, entity.table)
        if now is None or now.tbl_id != table.tbl_id:
            raise RefusedError(
                Reason.INPUT_CHANGED,
                f"{entity} was dropped or re-created while it was cleaned; everything was put back",
            )
        if location is not None:
            if (lister := self._lister(entity)) is not None:
                raise MayBeListedError(f"{lister.sentence}; everything was put back")
            self._services.places.require_alone(location, table, last_look=True)
        self._held.check()  # after the looks: they were at the server that takes writes

    def _lister(self, entity: Entity) -> Blocker | None:
        """
        A reader that may be listing the table. None if there is none, or if it was waited for long enough since a group
        was due there.
        """
        left = self._due_since[entity] + self._services.settings.cleaner.listing_wait_seconds - self._clock()
        held = self._services.locks.held(entity) if left > 0 else []
        return may_be_listed(held[0], round(left * 1000)) if held else None

    def _sweep(self, table: TableFacts, entity: Entity, location: str, judged: Judged, tally: CleanerTally) -> Swept:
        self._services.places.require_alone(location, table)
        sweep = Sweep(
            self._services,
            table,
            location,
            judged,
            tag="aborted",
            about=entity,
            still_right=lambda: self._still_right(table, entity, location),
        )
        swept = sweep.run(_aborted, originals=False)
        tally.add(swept.removed, swept.evidence)
        if swept.removed:
            _log.info("aborted_writes.removed", directories=[removal.name for removal in swept.removed])
        return swept

    def _locations(
        self, table: TableFacts, visit: _Visit
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
        services = self._services
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
        named = [Entity(table.database, table.name, name) for name in services.catalog.partition_names(table)]
        places: dict[str, set[int | None]] = {}
        for place in services.catalog.places_for(named).values():
            if place.location:
                places.setdefault(_without_slash(place.location), set()).add(place.part_id)
        # Before the list: what a rename takes into the table's directory meanwhile was either there or is listed.
        visit.seen.update(
            location
            for location in places.keys() - visit.seen
            if not is_listed(location, table.location) and self._is_there(location)
        )
        listing = self._list(table.location, visit)
        below = listing.places()
        visit.seen.update(below, listing.there(places))
        unnamed = below - places.keys()
        others = {place: owner for place in unnamed if (owner := services.places.in_the_way(place, table)) is not None}
        places.update({place: {None} for place in unnamed.difference(others)})
        return places, [f"{place}, which {owner} has too," for place, owner in sorted(others.items())], listing

    def _list(self, location: str, visit: _Visit) -> TableListing:
        """
        The listing of the table's directory. It is empty when the listing is refused, perhaps because of one partition
        only: the partitions in the catalog are swept even so.
        """
        storage, listed_ms = self._services.storage(location), self._services.now_ms()
        try:
            pending = storage.pending(
                location
            )  # before the list: an upload that is completed meanwhile is either pending or listed
            return TableListing(location, storage.list_tree(location).directories, listed_ms, frozenset(pending))
        except RefusedError as error:
            if error.reason is Reason.LOCATION_MISSING:
                raise
            visit.refused[location] = error
            return TableListing(location, (), listed_ms)

    def _is_there(self, location: str) -> bool:
        try:
            return self._services.storage(location).exists(location)
        except (CompactorError, OSError):
            return False  # its sweep says what is wrong with it

    def _put_off(self, groups: Sequence[AbortedGroup], why: str) -> None:
        message = one_line(why)
        try:
            if pause := self._services.aborts.retry_later(groups, message):
                _log.info("abort_cleaning.postponed", why=message, pause_seconds=pause // 1000)
        except CompactorError as error:
            _log.warning("outcome.not_stored", error=str(error))


def _aborted(state: AcidState) -> tuple[ListedDir, ...]:
    return state.aborted


def _without_slash(location: str) -> str:
    """
    The one spelling of a place that the catalog may have with a slash at its end. A location that is refused elsewhere
    for its spelling stays as it is.
    """
    return location if location.endswith("//") else location.removesuffix("/")
