"""
Removes what aborted writers left behind, and then the rows that mark it as aborted; in that order, or aborted rows would count as committed.

Aborted rows are invisible to everybody: no reader holds this up. Directories that hold committed rows too stay; a major compaction takes the aborted rows out.
Source: docs/operations.md; Hive's AbortedTxnCleaner; HIVE-24481.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count

from compactor.acid.listing import Listing
from compactor.acid.names import looks_acid
from compactor.acid.snapshot import AcidState, ListedDir, resolve
from compactor.acid.write_ids import CleanerWriteIdList, ValidTxnList
from compactor.control import Subject
from compactor.engine.aborted_rows import aborted_with_rows
from compactor.errors import CompactorError, RefusedError
from compactor.log import get_logger
from compactor.metastore.aborts import AbortedGroup
from compactor.metastore.model import Entity, TableFacts
from compactor.planning.picker import cleanup_off
from compactor.reasons import Reason
from compactor.roles.away import AwayStores, StoreAwayError
from compactor.roles.cleaner_tally import CleanerTally
from compactor.roles.holding import pool_of
from compactor.roles.leadership import Held
from compactor.roles.progress import Progress
from compactor.roles.services import Services, about_entity
from compactor.roles.sweep import Sweep
from compactor.storage.location import join

_log = get_logger(__name__)
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class _Visit:
    """
    The cleaning of one group, which may take several cycles. What is swept is decided, and forgotten at the end, by the lists it began with, whatever was aborted later.

    Args:
        tbl_id: of the table; one that was created anew is another visit's.
        swept: locations where nothing is left of what those lists call aborted.
        mixed: aborted ids that lie among committed ones.
    """

    tbl_id: int
    txns: ValidTxnList
    write_ids: CleanerWriteIdList
    swept: set[str] = field(default_factory=set)
    mixed: set[int] = field(default_factory=set)


class AbortCleaner:
    """
    Part of the Cleaner's cycle.

    Args:
        progress: told of each location that was swept.
        away: the stores that the cycle found away.
    """

    def __init__(self, services: Services, progress: Progress, away: AwayStores) -> None:
        self._services = services
        self._progress = progress
        self._away = away
        self._held: Held | None = None
        self._begun: dict[Entity, _Visit] = {}

    def run(self, held: Held, tally: CleanerTally, time_is_up: Callable[[], bool]) -> None:
        """
        Clean every group that is due: more aborted writes than the threshold, or older ones. Those first that no cycle has come to yet.

        Args:
            time_is_up: no group is begun any more, nor another location of one; the next cycle goes on there.

        Raises:
            OwnershipLostError: somebody else is the Cleaner by now.
            CompactorError: the metastore can't be asked.
        """
        self._held = held
        limits = self._services.settings.initiator.thresholds
        groups = self._services.aborts.groups(limits.aborted_count, round(limits.aborted_age_hours * _HOUR_MS))
        self._begun = {group.entity: visit for group in groups if (visit := self._begun.get(group.entity)) is not None}
        doubtful: list[AbortedGroup] = []
        for group in sorted(groups, key=lambda group: group.entity in self._begun):
            self._turn(group, tally, time_is_up, doubtful)
        for group in doubtful:
            self._turn(group, tally, time_is_up, None)

    def forget(self) -> None:
        """Another daemon is the Cleaner: whatever was begun begins anew."""
        self._begun.clear()

    def _turn(self, group: AbortedGroup, tally: CleanerTally, time_is_up: Callable[[], bool], doubtful: list[AbortedGroup] | None) -> None:
        """One group's; where its store was away in the latest cycle it is put among the `doubtful`, if there are any: others first."""
        if self._services.stopping.is_set():
            return
        if time_is_up():
            tally.put_off()
            return
        assert self._held is not None
        with about_entity(group.entity):
            try:
                self._held.check()  # what a successor is at must not be settled under its hands
                self._clean(group, tally, time_is_up, doubtful)
            except StoreAwayError as error:
                tally.pass_over(error.store)
                self._put_off(group, str(error))
            except Exception as error:
                self._held.check()
                if not isinstance(error, CompactorError | OSError):
                    _log.exception("cleaning aborted writes broke")
                tally.error(group.entity, error)
                self._away.note(error)
                self._begun.pop(group.entity, None)
                self._put_off(group, str(error))

    def _clean(self, group: AbortedGroup, tally: CleanerTally, time_is_up: Callable[[], bool], doubtful: list[AbortedGroup] | None) -> None:
        aborts, entity = self._services.aborts, group.entity
        table = self._services.catalog.find_table(entity.database, entity.table)
        if table is None:
            tally.forgotten += aborts.mark_gone(group)
            return
        if (denial := self._services.control.judge().cleaning(Subject(table.database, table.name, pool_of(table)))) is not None:
            tally.hold(entity, denial.sentence, denial.reason)
            return
        if table.location:
            self._away.check(table.location)
            if doubtful is not None and self._away.is_doubtful(table.location):
                doubtful.append(group)
                return
        visit = self._begun.get(entity)
        if visit is None or visit.tbl_id != table.tbl_id:
            visit = self._begun[entity] = _Visit(table.tbl_id, *aborts.lists(group))
        left = self._sweep_all(table, entity, visit, tally, time_is_up)
        if left is None:
            tally.put_off()
            return
        del self._begun[entity]
        if left:
            tally.outcome("left")
            self._put_off(group, f"{left[0]} is still there")
            return
        self._still_right(table, entity)
        gone = [write_id for write_id in visit.write_ids.aborted if write_id not in visit.mixed]
        tally.forgotten += aborts.mark_cleaned(group, visit.write_ids.high_watermark, gone, uncompacted=bool(visit.mixed), txns=visit.txns)
        if visit.mixed:
            self._put_off(group, f"rows of {len(visit.mixed)} aborted writes lie among committed ones until a major compaction is cleaned")
        else:
            tally.outcome("cleaned")

    def _sweep_all(self, table: TableFacts, entity: Entity, visit: _Visit, tally: CleanerTally, time_is_up: Callable[[], bool]) -> list[str] | None:
        """
        Sweep every location where nobody did in this visit, in the Cleaner's threads. The catalog is asked anew: what was moved or added since is another location.

        Returns:
            Names that should have gone and are still there; None: there was no time for all.
        """
        threads = self._services.settings.cleaner.threads
        numbers = count()

        def swept(location: str) -> tuple[str, frozenset[int], tuple[str, ...]] | None:
            if self._services.stopping.is_set() or (next(numbers) >= threads and time_is_up()):
                return None  # some are swept in any case: a cycle that only listed would be followed by another such
            with about_entity(entity):
                state, names = self._sweep(table, entity, location, visit, tally)
                # what is replaced counts too: whoever began before that reads it still, and may ask only later which ids are aborted
                mixed = aborted_with_rows(self._services.storage(location), location, state, visit.write_ids, insert_only=table.insert_only)
            self._progress.made()
            return location, mixed, names

        left: list[str] = []
        whole = True
        places = [location for location in self._locations(table, entity) if location not in visit.swept]
        with ThreadPoolExecutor(threads, thread_name_prefix="cleaning") as pool:
            for done in pool.map(swept, places):
                if done is None:
                    whole = False
                    continue
                location, mixed, names = done
                visit.mixed.update(mixed)
                left += names
                if not names:
                    visit.swept.add(location)
        return left if whole or left else None

    def _still_right(self, table: TableFacts, entity: Entity) -> None:
        assert self._held is not None
        self._held.check()
        now = self._services.catalog.find_table(entity.database, entity.table)
        if now is None or now.tbl_id != table.tbl_id:
            raise RefusedError(Reason.INPUT_CHANGED, f"{entity} was dropped or re-created while it was cleaned; everything was put back")

    def _sweep(self, table: TableFacts, entity: Entity, location: str, visit: _Visit, tally: CleanerTally) -> tuple[AcidState, tuple[str, ...]]:
        services = self._services

        def state_of(listing: Listing) -> AcidState:
            return resolve(listing, visit.write_ids, visit.txns if services.hive_4 else None, services.layout)

        sweep = Sweep(services, location, "aborted", entity, lambda: self._still_right(table, entity), table_location=table.location)
        swept = sweep.run(state_of, _aborted, originals=False)
        tally.add(swept.removed, swept.evidence)
        if swept.removed:
            _log.info("removed aborted writes", directories=[removal.name for removal in swept.removed])
        return swept.state, swept.left

    def _locations(self, table: TableFacts, entity: Entity) -> Iterable[str]:
        """
        Where directories of the group may be.

        An aborted insert may have made a directory for a partition that never came into the catalog, and one that names no partition may have written into any.
        """
        services = self._services
        if cleanup_off(table.parameters, {}):
            raise RefusedError(Reason.NO_CLEANUP, f"no_cleanup is set for {table.full_name}")
        if not table.location:
            raise RefusedError(Reason.UNSUPPORTED_STORE, f"{table.full_name} has no location in the catalog")
        if not table.partitioned:
            return [table.location]
        if entity.partition is not None:
            partition = services.catalog.find_partition(table, entity.partition)
            return [partition.location if partition and partition.location else join(table.location, entity.partition)]
        named = [Entity(entity.database, entity.table, name) for name in services.catalog.partition_names(table)]
        known = {found[1].location for found in services.catalog.facts_for(named).values() if found[1] and found[1].location}
        listing = services.storage(table.location).list_tree(table.location)
        parents = {directory.rpartition("/")[0] for directory in listing.directories if looks_acid(directory.rpartition("/")[2])}
        return sorted(known | {join(table.location, parent) for parent in parents if parent})

    def _put_off(self, group: AbortedGroup, why: str) -> None:
        message = " ".join(why.split())
        try:
            pause = self._services.aborts.retry_later(group, message)
            _log.info("aborted writes are left for now", why=message, pause_seconds=pause // 1000)
        except CompactorError as error:
            _log.warning("that can't be stored", error=str(error))


def _aborted(state: AcidState) -> tuple[ListedDir, ...]:
    return state.aborted
