"""
Removes directories of tables and partitions that were dropped and left to the Cleaner, and of a CTAS that was rolled
back: Hive's own requests that name a `location`.

Such a request is no compaction, and nothing that is said of compactions holds for it. The whole directory goes, but
only when nothing else in the catalog overlaps it: names are re-used, and by now the directory may belong to another
table. The Cleaner waits for readers that could have seen it before the drop, as after a compaction
(`metastore.clean.ready`); later readers don't find it in the catalog. Later writers don't either: they create it anew
and tell the catalog at their end, so the Cleaner waits for each writer that may do so. Of the directory above, only the
names in it are looked at.
Source: docs/operations.md; Hive's CompactionCleaner.cleanUsingLocation, AcidEventListener, HiveQueryLifeTimeHook;
HIVE-25115.
"""

from collections.abc import Iterator
from dataclasses import replace

from compactor.engine.change_management import change_management
from compactor.errors import OwnershipLostError, RefusedError, RetryableError, UnreachableError
from compactor.log import get_logger
from compactor.metastore.catalog import Facts
from compactor.metastore.clean.may_clean import Blocker
from compactor.metastore.locations.owners import Owner, loosely
from compactor.metastore.model import CatalogPlace, Entity, QueueEntry, QueueState
from compactor.reasons import Reason
from compactor.roles import steps
from compactor.roles.cleaner.quarantine.contents import of_dropped
from compactor.roles.cleaner.quarantine.kept import hours_for
from compactor.roles.cleaner.tally import CleanerTally
from compactor.roles.cleaner.trash import Removal, settle
from compactor.roles.cleaner.trash_in_place import trash_for
from compactor.roles.leadership import HeldLeadership
from compactor.roles.replication import is_source
from compactor.roles.services import Services
from compactor.storage.base import Storage
from compactor.storage.location import is_at_or_inside, name, parent, split

_log = get_logger(__name__)


def remove_dropped(
    services: Services, held: HeldLeadership, entry: QueueEntry, facts: Facts | None, tally: CleanerTally
) -> None:
    """
    Remove the directory and finish the entry. When the catalog has the table or partition (again) at that very place,
    nothing is removed. While a transaction that may re-create it is open, the entry waits.

    Raises:
        RefusedError: the catalog has another table or partition there, or the directory changed while it was being
            removed.
        RetryableError: a writer came meanwhile; everything was put back.
        OwnershipLostError: another daemon is the Cleaner by now.
        UnreachableError: the directory is missing, and whether it was removed can't be told.
    """
    location = entry.location
    assert location is not None
    if facts is not None and _same(location, CatalogPlace.of(*facts).location):
        services.cleaning.mark_cleaned(replace(entry, highest_write_id=0))
        services.steps.enter(steps.CLEANER_MARKED, entry)
        tally.clean()
        _log.info("removal.skipped", location=location, why="the catalog has the table or partition there")
        return
    if blockers := _writers(services, entry):
        tally.wait(entry, blockers[0])
        _log.info("cleaning.blocked", reason=blockers[0].reason.value, why=blockers[0].sentence)
        return
    _require_unused(services, entry, location)
    services.cleaning.mark_cleaner_start(entry)
    removed = _remove(services, held, entry, location)
    if removed is not None:
        tally.add([removed])
    if facts is None:
        services.cleaning.mark_cleaned(entry, gone=True)
    else:
        # the name is another table's by now: forget nothing of that one
        services.cleaning.mark_cleaned(replace(entry, highest_write_id=0))
    services.steps.enter(steps.CLEANER_MARKED, entry)
    tally.clean()
    _log.info("directory.removed", location=location)


def _remove(services: Services, held: HeldLeadership, entry: QueueEntry, location: str) -> Removal | None:
    storage, above, own_name = services.storage(location), parent(location), name(location)
    if not storage.exists(above):
        _require_removed_with_more(services, entry, storage, location)
        return None
    recycled = is_source(services.catalog.database_parameters(entry.entity.database))
    if recycled:
        change_management().require(location)  # before anything is moved: a replica finds it where it is
    settle(storage, above, storage.directories(above), entry.id)
    if not storage.exists(location):
        return None
    hours = 0.0 if recycled else hours_for(services, None)

    def still() -> None:
        _still_right(services, held, entry, location)

    def passed(step: str) -> None:
        services.steps.enter(step, entry)

    trash = trash_for(storage, above, entry.id, still=still, recycled=recycled)
    trash.open()
    try:
        still()  # with the trash in place, as in a sweep
        listing = storage.list_tree(location)
        passed(steps.CLEANER_LISTED)
        files = tuple(replace(file, path=f"{own_name}/{file.path}") for file in listing.files)
        removal = Removal(own_name, files, whole_partition=True)
        manifest = of_dropped(services, entry, removal, hours) if hours else None
    except Exception:
        trash.put_back()
        raise
    trash.carry_out([removal], manifest, still=still, passed=passed, closed=False)
    return removal


def _still_right(services: Services, held: HeldLeadership, entry: QueueEntry, location: str) -> None:
    now = services.queue.entry(entry.id)
    if now is None or now.state is not QueueState.READY_FOR_CLEANING:
        raise OwnershipLostError(f"entry {entry.id} is no longer ready for cleaning")
    # before the catalog is asked: a writer that ends in between has added it there
    if blockers := _writers(services, entry):
        raise RetryableError(f"{blockers[0].sentence}; everything was put back")
    _require_unused(services, entry, location)
    held.check()  # after the looks: they were at the server that takes writes


def _writers(services: Services, entry: QueueEntry) -> list[Blocker]:
    """
    Writers that may be re-creating a table or partition at the place. What the catalog has by its name is written
    where the catalog has it (`_require_unused` tells whether that is here).

    Hive renames a request with the table or partition that has its name by then (OnRenameFunction), and not its
    location. So the name alone doesn't tell who may be writing there: a table that the catalog doesn't have may be
    written anywhere, and a partition that it doesn't have where the path says.
    """
    found = {entity: services.cleaning.writing(entity, entry.txn_id) for entity in _meant(services, entry)}
    written = services.cleaning.written_tables() - found.keys()
    unseen = written - services.catalog.facts_for(written).keys() if written else frozenset()
    found |= {table: services.cleaning.writing(table, entry.txn_id) for table in sorted(unseen, key=str)}
    busy = {entity: blockers for entity, blockers in found.items() if blockers}
    there = services.catalog.facts_for(busy) if busy else {}
    return [blocker for entity, blockers in busy.items() if entity not in there for blocker in blockers]


def _meant(services: Services, entry: QueueEntry) -> Iterator[Entity]:
    """What may lie at the place: what the request names, and the partition that the path names."""
    entity, location = entry.entity, entry.location
    yield entity
    table = services.catalog.find_table(entity.database, entity.table)
    if location is None or table is None or not table.partitioned or not table.location:
        return
    if _around(table.location, location):
        below = len(loosely(location)) - len(loosely(table.location))
        if (by_path := "/".join(split(location).names[-below:])) != entity.partition:
            yield Entity(entity.database, entity.table, by_path)


def _require_removed_with_more(services: Services, entry: QueueEntry, storage: Storage, location: str) -> None:
    """
    When the directory above is missing too, tell a drop that took more with it from a file system that isn't mounted.

    When a partition's table, or a table's database, is still in the catalog with a directory further up, that directory
    must be there. Without one the database was dropped as well (DROP DATABASE … CASCADE), and its directory with it.
    Then a directory of another database must be seen where it lay: beside it, or around it. A directory around it must
    not be empty, since the mount point of a warehouse that isn't mounted looks like an empty one.

    Raises:
        UnreachableError: no such directory is there.
    """
    table = services.catalog.tables_for([entry.entity]).get(entry.entity.whole_table())
    store = _store(location)
    databases = [owner for owner in services.places.databases() if _store(owner.location) == store]
    own = [table.location] if table is not None and table.location else []
    own += [owner.location for owner in databases if owner.name.lower() == entry.entity.database.lower()]
    if witnesses := [witness for witness in own if _around(witness, location)]:
        if any(storage.exists(witness) for witness in witnesses):
            return
        raise UnreachableError(
            f"{location} is missing, and so is {witnesses[0]}, which the catalog still has: is the file system mounted?"
        )
    everywhere = {owner.location for owner in databases}
    place = parent(parent(location))
    beside = sorted(other for other in everywhere if _same(parent(other), place))
    around = sorted(other for other in everywhere if _around(other, location))
    if any(storage.exists(other) for other in beside) or any(storage.directories(other) for other in around):
        return
    raise UnreachableError(
        f"{location} is missing, and so is everything that the catalog has near it: is the file system mounted?"
    )


def _around(outer: str, inner: str) -> bool:
    outer_place, inner_place = loosely(outer), loosely(inner)
    return inner_place != outer_place and is_at_or_inside(inner_place, outer_place)


def _require_unused(services: Services, entry: QueueEntry, location: str) -> None:
    """
    Check that nothing in the catalog lies there by now. An INSERT or a CTAS that has just ended, and isn't among the
    open transactions any more, may have put a table or partition of the dropped one's name there.

    Raises:
        RefusedError: the catalog names a location at, above or below the place; or the place is too near the root.
    """
    if split(location).path.count("/") < 2:
        raise RefusedError(Reason.UNKNOWN_NAME, f"{location} is too near the root to be removed as a dropped table")
    if (facts := services.catalog.facts_for([entry.entity]).get(entry.entity)) is not None:
        table, partition = facts
        there = partition.location if partition else table.location
        if there and (_same(there, location) or _around(there, location) or _around(location, there)):
            raise _used(
                location, Owner(str(entry.entity), there, table.tbl_id, partition.part_id if partition else None)
            )
    of_table = (
        services.catalog.find_table(entry.entity.database, entry.entity.table)
        if entry.entity.partition is not None
        else None
    )
    if (owner := services.places.in_a_left_place(location, of_table)) is not None:
        raise _used(location, owner)


def _used(location: str, owner: Owner) -> RefusedError:
    return RefusedError(
        Reason.OVERLAPPING_LOCATION,
        f"{location} was left by a dropped table or partition, but the catalog has {owner} there: nothing is removed",
    )


def _same(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and loosely(one) == loosely(other)


def _store(location: str) -> tuple[str, str]:
    """Scheme and authority: places with the same ones may be asked of one driver."""
    try:
        parts = split(location)
    except RefusedError:
        return "", ""
    return parts.scheme or "file", parts.authority
