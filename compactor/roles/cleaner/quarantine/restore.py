"""
Undoes a compaction from quarantine: moves back what it replaced, then takes its result out of sight.

A restore holds Hive's mutex of the Cleaner and an exclusive lock on the table or partition. Before anything is decided
it makes the directory for the result, `.trash-compactor-<entry>-<x>-undo`: a Cleaner that comes after a stopped restore
takes it away (`trash.settle_undo`), and the last rename finds no target. Every state between two renames is one that
readers read alike (`undo`). Cut off anywhere, a second run goes on.
Source: docs/operations.md, Restore.
"""

import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from compactor.acid.children import children_of
from compactor.acid.listing import Listing
from compactor.acid.names import TRASH_PREFIX
from compactor.acid.snapshot import ListedDir, ReadSnapshot
from compactor.engine.aborted_rows import aborted_in
from compactor.errors import CompactorError, OutcomeUnknownError, RefusedError
from compactor.log import get_logger
from compactor.metastore.model import CatalogPlace, Entity, PartitionFacts, QueueState, TableFacts
from compactor.metastore.txn.mutex import Mutex
from compactor.reasons import Reason
from compactor.roles.cleaner.quarantine.kept import Kept, holds_nothing, kept_in
from compactor.roles.cleaner.quarantine.lease import ExclusiveLock, exclusively
from compactor.roles.cleaner.quarantine.manifest import MANIFEST, KeptDirectory, QuarantineManifest
from compactor.roles.cleaner.quarantine.proof import require_same_rows
from compactor.roles.cleaner.quarantine.sight import files_of
from compactor.roles.cleaner.quarantine.undo import Undo, require_none_aborted, undo_of
from compactor.roles.cleaner.trash import UNDO, remove_hidden, settle, settle_undo
from compactor.roles.services import Services
from compactor.storage.base import Storage
from compactor.storage.location import join

_log = get_logger(__name__)
_MUTEX_SECONDS = 30.0
"""How long a restore waits for a Cleaner's cycle to end."""
_ALIVE = (QueueState.INITIATED, QueueState.WORKING, QueueState.READY_FOR_CLEANING)


@dataclass(frozen=True, slots=True)
class Restore:
    """
    The undoing of compactions of one table or partition.

    Args:
        passed: told when the place for the result is made (`opened`), after each move back (`moved`), and when the
            result is out of sight (`taken`).
    """

    services: Services
    table: TableFacts
    partition: PartitionFacts | None
    location: str
    passed: Callable[[str], None] = lambda _: None

    @property
    def entity(self) -> Entity:
        return Entity(self.table.database, self.table.name, self.partition.name if self.partition else None)

    @property
    def storage(self) -> Storage:
        return self.services.storage(self.location)

    def kept(self) -> tuple[Kept, ...]:
        """What is in quarantine, by name."""
        return kept_in(self.storage, self.location, self.storage.directories(self.location))

    def settle(self) -> tuple[QuarantineManifest, ...]:
        """
        Finish what was cut off: removals, and restores that had taken the result away; returns what those took.

        Raises:
            RefusedError: UNSUPPORTED_STORE; or another owner has a share in the place.
            MutexHeldError: a Cleaner is at work.
        """
        self._require_renames()
        storage, names = self.storage, self.storage.directories(self.location)
        if not any(name.startswith(TRASH_PREFIX) for name in names):
            return ()
        with self.services.database.mutex("Cleaner", wait_seconds=_MUTEX_SECONDS):
            self.services.places.require_alone(self.location, self.table, self.partition, last_look=True)
            before = {kept.name for kept in self.kept()}
            settle(storage, self.location, names)
            there = storage.directories(self.location)
            finished = []
            for kept in self.kept():
                if kept.manifest is None:
                    continue
                if kept.manifest.taken_back and kept.name not in before:
                    finished.append(kept.manifest)
                if kept.manifest.result and not any(one.name in there for one in kept.manifest.result):
                    self._remove_empty(kept)
            return tuple(finished)

    def _remove_empty(self, kept: Kept) -> None:
        """Remove a quarantine directory from which everything went back."""
        if holds_nothing(self.storage, self.location, kept.name):
            remove_hidden(self.storage, self.location, [kept.name])

    def plan(self, kept: Kept, *, own_txn: int | None = None, own_lock: int | None = None) -> Undo:
        """
        Decide how a compaction is undone; changes nothing.

        Args:
            own_txn, own_lock: of a restore that is at work.

        Raises:
            RefusedError: it can't be undone, or not now, with the reason.
        """
        self._require_renames()
        if kept.manifest is None:
            raise RefusedError(Reason.NOT_RESTORABLE, f"{kept.name} has no readable {MANIFEST}")
        part_id = self.partition.part_id if self.partition else None
        if (kept.manifest.tbl_id, kept.manifest.part_id) != (self.table.tbl_id, part_id):
            raise RefusedError(
                Reason.NOT_RESTORABLE,
                f"{kept.name} is of {kept.manifest.what}, or of an earlier table or partition of this name",
            )
        self._require_quiet()
        inside = self._inside(kept)
        listing = self.storage.list_tree(self.location)
        sight = self._sight()
        undo = undo_of(kept.name, kept.manifest, listing, inside, sight)
        require_none_aborted(undo, self._aborted(undo, listing, inside, sight))
        if self.table.insert_only and not kept.manifest.first_look:
            why = "another Cleaner may have removed a part before, and rows without ROW__ID can't be compared"
            raise RefusedError(Reason.NOT_RESTORABLE, f"what {undo.away} replaced may be incomplete: {why}")
        self._require_unwritten(undo, own_txn, own_lock)
        return undo

    def run(self, kept: Kept) -> Undo:
        """
        Undo a compaction.

        Raises:
            RefusedError: it can't be undone, with the reason; nothing was changed, or all was put back.
            MutexHeldError: a Cleaner is at work.
            OwnershipLostError: the lock or the mutex was lost; a second run goes on.
        """
        first = self.plan(kept)
        if not self.table.insert_only:
            rule = self.services.columns_of(self.table)
            require_same_rows(
                self.storage, self.location, self.entity, self.table, rule, undo=first, sight=self._sight()
            )
        with (
            self.services.database.mutex("Cleaner", wait_seconds=_MUTEX_SECONDS) as mutex,
            exclusively(self.services, self.entity) as lease,
        ):
            return self._run(kept, first, mutex, lease)

    def _run(self, kept: Kept, first: Undo, mutex: Mutex, lease: ExclusiveLock) -> Undo:
        storage = self.storage
        self._require_same()
        settle(storage, self.location, storage.directories(self.location))
        sign = f"{TRASH_PREFIX}{first.manifest.entry}-{uuid.uuid4().hex[:8]}{UNDO}"
        storage.mkdir(join(self.location, sign))
        try:
            storage.write_small(join(self.location, sign, MANIFEST), self._manifest_of_result(first).encode())
            self.passed("opened")
            mutex.check()
            lease.beat()
            self._require_same()
            undo = self.plan(kept, own_txn=lease.txn_id, own_lock=lease.lock_id)
            if (undo.manifest, undo.away) != (first.manifest, first.away):
                raise _changed(self.location)
            self._move(kept, undo, sign, mutex, lease)
            self._remove_empty(kept)
        except BaseException:
            with suppress(CompactorError, OSError):  # the next Cleaner or restore does it
                settle_undo(storage, self.location, sign)
            raise
        settle_undo(storage, self.location, sign)
        self.passed("taken")
        _log.info("compaction.undone", entry=undo.manifest.entry, result=undo.away, directories=list(undo.back))
        return undo

    def _move(self, kept: Kept, undo: Undo, sign: str, mutex: Mutex, lease: ExclusiveLock) -> None:
        """Everything back, then the result out of sight. What is refused on the way is put back."""
        moved: list[str] = []
        try:
            for name in undo.back:
                lease.beat()
                self.storage.rename_noreplace(join(self.location, kept.name, name), join(self.location, name))
                moved.append(name)
                self.passed("moved")
            if not undo.is_before(self.storage.list_tree(self.location)):
                raise _changed(self.location)
            self._require_same()
            self._require_unwritten(undo, lease.txn_id, lease.lock_id)
            mutex.check()
            lease.beat()
            self._take_away(undo, sign)
        except (RefusedError, FileNotFoundError, FileExistsError) as error:
            self._put_back(kept, moved, mutex)
            if isinstance(error, RefusedError):
                raise
            raise RefusedError(
                Reason.INPUT_CHANGED, f"{error.filename or error} changed during the restore: everything was put back"
            ) from None

    def _take_away(self, undo: Undo, sign: str) -> None:
        """Take the result out of sight; back at once if what it replaced isn't all there."""
        here, aside = join(self.location, undo.away), join(self.location, sign, undo.away)
        try:
            self.storage.rename_noreplace(here, aside)
        except OutcomeUnknownError:
            if self.storage.exists(here) or not self.storage.exists(aside):
                raise
        there = files_of(self.storage.list_tree(self.location))
        if missing := sorted(
            one.name for one in undo.manifest.directories if one.replaced and there.get(one.name) != dict(one.files)
        ):
            self.storage.rename_noreplace(aside, here)
            raise RefusedError(
                Reason.INPUT_CHANGED, f"{missing[0]} vanished during the restore: {undo.away} is back in its place"
            )

    def _put_back(self, kept: Kept, moved: list[str], mutex: Mutex) -> None:
        """Move what was moved into quarantine again; beside the result no reader reads it, here or there."""
        try:
            mutex.check()
            for name in reversed(moved):
                self.storage.rename_noreplace(join(self.location, name), join(self.location, kept.name, name))
        except (CompactorError, OSError) as error:
            _log.warning("restore.not_put_back", error=str(error), detail="a second run goes on")

    def _manifest_of_result(self, undo: Undo) -> QuarantineManifest:
        manifest, now_ms = undo.manifest, self.services.now_ms()
        directories = tuple(KeptDirectory(one.name, one.files, replaced=False) for one in manifest.result)
        return QuarantineManifest(
            entry=manifest.entry,
            what=manifest.what,
            tbl_id=manifest.tbl_id,
            part_id=manifest.part_id,
            kept_ms=now_ms,
            until_ms=now_ms + manifest.until_ms - manifest.kept_ms,
            directories=directories,
            read_before=manifest.read_before,
            taken_back=True,
        )

    # What must hold

    def _require_renames(self) -> None:
        if self.storage.uploads is not None:
            raise RefusedError(Reason.UNSUPPORTED_STORE, f"{self.location} is in a store that can't rename directories")

    def _inside(self, kept: Kept) -> Listing:
        try:
            return self.storage.list_tree(join(self.location, kept.name))
        except RefusedError as error:
            if error.reason is not Reason.LOCATION_MISSING:
                raise
            raise RefusedError(Reason.NOT_RESTORABLE, f"{kept.name} isn't there any more") from None

    def _sight(self) -> ReadSnapshot:
        services = self.services
        txns = services.transactions.valid_txns()
        write_ids = services.transactions.valid_write_ids(self.table.full_name, txns)
        with_originals = services.settings.readers.read_originals(insert_only=self.table.insert_only)
        return ReadSnapshot(services.layout, write_ids, txns, with_originals=with_originals)

    def _aborted(
        self, undo: Undo, listing: Listing, inside: Listing, sight: ReadSnapshot
    ) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        replaced = {one.name for one in undo.manifest.directories if one.replaced}
        for place, listed in (
            (join(self.location, undo.kept), self._listed(inside)),
            (self.location, self._listed(listing)),
        ):
            for one in listed:
                if one.name in replaced:
                    found[one.name] = aborted_in(
                        self.storage, place, one, sight.write_ids, insert_only=self.table.insert_only
                    )
        return found

    def _listed(self, listing: Listing) -> tuple[ListedDir, ...]:
        return children_of(listing, self.services.layout).acid

    def _require_quiet(self) -> None:
        """Refuse while an entry of the table or partition is in the queue."""
        queue = self.services.queue
        for entity in dict.fromkeys((self.entity, self.entity.whole_table())):
            for entry in queue.entries(*_ALIVE, entity=entity):
                raise RefusedError(
                    Reason.ALREADY_QUEUED,
                    f"compaction {entry.id} of {entity} is {entry.state.value}: wait, or cancel it",
                )
        for foreign in queue.foreign():
            if foreign.entity in {self.entity, self.entity.whole_table()}:
                raise RefusedError(
                    Reason.ALREADY_QUEUED, f"compaction {foreign.id} of {foreign.entity} is in the queue"
                )

    def _require_unwritten(self, undo: Undo, own_txn: int | None, own_lock: int | None) -> None:
        if written := self.services.cleaning.written_above(self.entity, undo.covered, own_txn, own_lock):
            raise RefusedError(Reason.NOT_RESTORABLE, f"{self.entity} was or is being written to: {written[0]}")

    def _require_same(self) -> None:
        """Refuse when the table or partition was dropped, re-created or moved, or another owner shares its place."""
        found = self.services.catalog.facts_for([self.entity]).get(self.entity)
        if found is None or found[0].tbl_id != self.table.tbl_id or CatalogPlace.of(*found).location != self.location:
            raise RefusedError(Reason.INPUT_CHANGED, f"{self.entity} was dropped, re-created or moved just now")
        self.services.places.require_alone(self.location, *found, last_look=True)


def _changed(location: str) -> RefusedError:
    return RefusedError(Reason.INPUT_CHANGED, f"{location} changed just now: try again")
