"""
Removes what aborted writers left behind, and then the rows that mark it as aborted; in that order, or aborted rows would count as committed.

Aborted rows are invisible to everybody: no reader holds this up. Directories that hold committed rows too stay; a major compaction takes the aborted rows out.
Source: docs/operations.md; Hive's AbortedTxnCleaner; HIVE-24481.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

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
from compactor.roles.cleaner_tally import CleanerTally
from compactor.roles.holding import pool_of
from compactor.roles.leadership import Held
from compactor.roles.services import Services, about_entity
from compactor.roles.sweep import Sweep
from compactor.storage.location import join

_log = get_logger(__name__)
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class _Lists:
    txns: ValidTxnList
    write_ids: CleanerWriteIdList


class AbortCleaner:
    """Part of the Cleaner's cycle."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._held: Held | None = None

    def run(self, held: Held, tally: CleanerTally, time_is_up: Callable[[], bool]) -> None:
        """
        Clean every group that is due: more aborted writes than the threshold, or older ones.

        Args:
            time_is_up: no group is begun any more; the next cycle begins with it.

        Raises:
            OwnershipLostError: somebody else is the Cleaner by now.
            CompactorError: the metastore can't be asked.
        """
        self._held = held
        limits = self._services.settings.initiator.thresholds
        for group in self._services.aborts.groups(limits.aborted_count, round(limits.aborted_age_hours * _HOUR_MS)):
            if self._services.stopping.is_set():
                return
            if time_is_up():
                tally.put_off()
                continue
            with about_entity(group.entity):
                try:
                    held.check()  # what a successor is at must not be settled under its hands
                    self._clean(group, tally)
                except Exception as error:
                    held.check()
                    if not isinstance(error, CompactorError | OSError):
                        _log.exception("cleaning aborted writes broke")
                    tally.error(group.entity, error)
                    self._put_off(group, str(error))

    def _clean(self, group: AbortedGroup, tally: CleanerTally) -> None:
        aborts, entity = self._services.aborts, group.entity
        table = self._services.catalog.find_table(entity.database, entity.table)
        if table is None:
            tally.forgotten += aborts.mark_gone(group)
            return
        if (denial := self._services.control.judge().cleaning(Subject(table.database, table.name, pool_of(table)))) is not None:
            tally.hold(entity, denial.sentence, denial.reason)
            return
        lists = _Lists(*aborts.lists(group))
        mixed: set[int] = set()
        left: list[str] = []
        for location in self._locations(table, entity):
            state, names = self._sweep(table, entity, location, lists, tally)
            # what is replaced counts too: whoever began before that reads it still, and may ask only later which ids are aborted
            mixed |= aborted_with_rows(self._services.storage(location), location, state, lists.write_ids, insert_only=table.insert_only)
            left += names
        if left:
            tally.outcome("left")
            self._put_off(group, f"{left[0]} is still there")
            return
        self._still_right(table, entity)
        gone = [write_id for write_id in lists.write_ids.aborted if write_id not in mixed]
        tally.forgotten += aborts.mark_cleaned(group, lists.write_ids.high_watermark, gone, uncompacted=bool(mixed), txns=lists.txns)
        if mixed:
            self._put_off(group, f"rows of {len(mixed)} aborted writes lie among committed ones until a major compaction is cleaned")
        else:
            tally.outcome("cleaned")

    def _still_right(self, table: TableFacts, entity: Entity) -> None:
        assert self._held is not None
        self._held.check()
        now = self._services.catalog.find_table(entity.database, entity.table)
        if now is None or now.tbl_id != table.tbl_id:
            raise RefusedError(Reason.INPUT_CHANGED, f"{entity} was dropped or re-created while it was cleaned; everything was put back")

    def _sweep(self, table: TableFacts, entity: Entity, location: str, lists: _Lists, tally: CleanerTally) -> tuple[AcidState, tuple[str, ...]]:
        services = self._services

        def state_of(listing: Listing) -> AcidState:
            return resolve(listing, lists.write_ids, lists.txns if services.hive_4 else None, services.layout)

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
