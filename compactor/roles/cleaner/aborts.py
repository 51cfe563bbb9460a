"""
Removes what aborted writers left behind, and then the rows that mark it as aborted; in that order, since otherwise
aborted rows would count as committed.

No reader sees aborted rows, but a reader may be listing a directory: that delays the removal by a few minutes at most.
Directories that hold committed rows too stay; a major compaction takes the aborted rows out.

Every partition of a partitioned table must be free of aborted rows. One listing of the table's directory shows that for
most partitions; the others are swept one by one.
Source: docs/operations.md; Hive's AbortedTxnCleaner; HIVE-24481.
"""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from compactor.control import Subject
from compactor.durations import HOUR_MS
from compactor.errors import CompactorError, RefusedError, RetryableError
from compactor.log import get_logger
from compactor.metastore.clean.aborts import AbortedGroup
from compactor.metastore.clean.may_clean import Blocker, may_be_listed
from compactor.metastore.clean.readers import MayBeListedError
from compactor.metastore.model import Entity, TableFacts
from compactor.planning.eligibility import why_pending
from compactor.reasons import Reason
from compactor.roles.cleaner.cleared import Judged, prove
from compactor.roles.cleaner.partition import Sweep, Swept
from compactor.roles.cleaner.tally import CleanerTally
from compactor.roles.cleaner.visit import Visit, look, require_never_there
from compactor.roles.cycle import Clock, Progress
from compactor.roles.leadership import HeldLeadership
from compactor.roles.pauses import pool_of
from compactor.roles.services import Services, about_entity
from compactor.roles.unreachable import AwayStores, StoreAwayError
from compactor.shared import Shared
from compactor.words import one_line

_log = get_logger(__name__)


class AbortCleaner:
    """
    Cleans aborted writes, as a part of the Cleaner's cycle.

    Args:
        progress: told of each location that was swept, or found with nothing to sweep.
        away: the stores that the cycle found unreachable.
    """

    def __init__(self, services: Services, progress: Progress, away: AwayStores, clock: Clock) -> None:
        self._services = services
        self._progress = progress
        self._away = away
        self._held: HeldLeadership | None = None
        self._tally = CleanerTally()
        self._time_is_up: Callable[[], bool] = lambda: True
        self._begun: dict[Entity, Visit] = {}
        self._due_since: dict[Entity, float] = {}
        self._snapshot = Shared(services.aborts.snapshot, clock)
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
        self._held, self._tally, self._time_is_up = held, tally, time_is_up
        self._snapshot.forget()
        limits, includes = self._services.settings.initiator.thresholds, self._services.control.includes
        self._services.aborts.note_unnamed()
        self._services.aborts.end_retries(includes)
        age_ms = round(limits.aborted_age_hours * HOUR_MS)
        due: dict[Entity, list[AbortedGroup]] = {}
        for group in self._services.aborts.groups(limits.aborted_count, age_ms, includes=includes):
            due.setdefault(group.entity.whole_table(), []).append(group)
        self._begun = {entity: visit for entity, visit in self._begun.items() if entity in due}
        self._due_since = {entity: self._due_since.get(entity, self._clock()) for entity in due}
        doubtful: list[Entity] = []
        for entity in sorted(due, key=lambda entity: entity in self._begun):
            self._turn(entity, due[entity], doubtful)
        for entity in doubtful:
            self._turn(entity, due[entity], None)

    def forget(self) -> None:
        """Another daemon is the Cleaner: forget all visits, which then begin anew."""
        self._begun.clear()
        self._due_since.clear()

    def _turn(self, entity: Entity, groups: list[AbortedGroup], doubtful: list[Entity] | None) -> None:
        """
        Give one table its turn. When its store was unreachable in the cycle before, the table is added to `doubtful`
        instead, unless that is None: other tables first.
        """
        if self._services.stopping.is_set():
            return
        if self._time_is_up():
            self._tally.put_off()
            return
        assert self._held is not None
        with about_entity(entity):
            try:
                self._held.check()  # a removal that the next Cleaner is at must not be settled by this one
                self._clean(entity, groups, doubtful)
            except StoreAwayError as error:
                self._tally.pass_over(error.store)
                self._put_off(groups, str(error))
            except Exception as error:
                self._held.check()
                if not isinstance(error, CompactorError | OSError):
                    _log.exception("abort_cleaning.crashed")
                self._tally.error(entity, error)
                self._away.note(error)
                self._begun.pop(entity, None)
                self._put_off(groups, str(error))

    def _clean(self, entity: Entity, groups: list[AbortedGroup], doubtful: list[Entity] | None) -> None:
        aborts = self._services.aborts
        table = self._services.catalog.find_table(entity.database, entity.table)
        if table is None:
            forgotten = aborts.forget_vanished(groups, entity)
            self._tally.forgotten += forgotten
            if not forgotten:
                self._put_off(
                    groups,
                    f"{entity} isn't in the catalog, but its write ids are counted: a later table of that name would read what was aborted",
                )
            return
        if (
            denial := self._services.control.judge().cleaning(Subject(table.database, table.name, pool_of(table)))
        ) is not None:
            self._tally.hold(entity, Blocker(denial.reason, denial.sentence))
            return
        if (skip := why_pending(table)) is not None:
            self._tally.hold(entity, Blocker(skip.reason, skip.explanation))
            return
        if table.location:
            self._away.check(table.location)
            if doubtful is not None and self._away.is_doubtful(table.location):
                doubtful.append(entity)
                return
        if (lister := self._lister(entity)) is not None:
            self._tally.hold(entity, lister)
            return
        visit = self._begun.get(entity)
        if visit is None or visit.tbl_id != table.tbl_id:
            visit = self._begun[entity] = Visit(table.tbl_id, Judged(*aborts.lists(entity, self._snapshot.get())))
        left = self._sweep_all(table, entity, visit)
        if left is None:
            self._tally.put_off()
            return
        del self._begun[entity], self._due_since[entity]
        if left:
            self._tally.outcome("left")
            self._put_off(groups, f"{left[0]} is still there")
            return
        self._still_right(table, entity)
        cleared = [one for one in visit.swept.values() if one is not None]
        if not cleared:
            self._put_off(groups, f"no directory of {entity} is there, which proves nothing")
            return
        proof = prove(table, None, cleared, self._services.settings.cleaner.late_ms)
        self._tally.forgotten += aborts.forget(groups, proof)
        if (remembered := aborts.remember(proof)) is not None:
            count, until_ms = remembered
            seconds = max(0, until_ms - self._services.now_ms()) // 1000
            _log.info("aborted_writes.remembered", components=count, seconds=seconds)
        if held := frozenset[int]().union(*(one.held for one in cleared)):
            self._put_off(
                groups,
                f"rows of {len(held)} aborted writes lie among committed ones until a major compaction is cleaned",
                held,
            )
        else:
            self._tally.outcome("cleaned")

    def _sweep_all(self, table: TableFacts, entity: Entity, visit: Visit) -> list[str] | None:
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
            if listed or self._services.stopping.is_set() or (next(numbers) >= threads and self._time_is_up()):
                return None  # some are swept in any case: a cycle that only listed would be followed by another such
            with about_entity(entity):
                try:
                    found = self._sweep(table, entity, location, visit.judged)
                    if not found.there:
                        require_never_there(self._services, table, location, visit)
                except MayBeListedError as error:
                    # no failure: an entry that is put off again and again would wait for longer each time
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
            places, foreign, locations = look(self._services, table, visit, self._progress)
            if locations is None:
                for error in visit.refused.values():
                    raise error
                left += foreign
                break
            whole = bool(locations) or not (self._time_is_up() or self._services.stopping.is_set())
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
            self._tally.hold(entity, Blocker(Reason.MAY_BE_LISTED, why))
        return left if whole or left else None

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

    def _sweep(self, table: TableFacts, entity: Entity, location: str, judged: Judged) -> Swept:
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
        swept = sweep.run(lambda state: state.aborted, originals=False)
        self._tally.add(swept.removed, swept.evidence)
        if swept.removed:
            _log.info("aborted_writes.removed", directories=[removal.name for removal in swept.removed])
        return swept

    def _put_off(self, groups: Sequence[AbortedGroup], why: str, write_ids: Collection[int] | None = None) -> None:
        message = one_line(why)
        try:
            if pause := self._services.aborts.retry_later(groups, message, write_ids):
                _log.info("abort_cleaning.postponed", why=message, pause_seconds=pause // 1000)
        except CompactorError as error:
            _log.warning("outcome.not_stored", error=str(error))
