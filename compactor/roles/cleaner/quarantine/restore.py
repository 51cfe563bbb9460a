"""
Undoes a compaction from quarantine: moves back what it replaced, then takes its result out of sight.

A restore holds Hive's mutex of the Cleaner and an exclusive lock on the table or partition. Before anything is decided
it makes the directory for the result, `.trash-compactor-<entry>-<x>-undo`: a Cleaner that comes after a stopped restore
takes it away (`trash.settle_undo`), and the last rename finds no target. Every state between two renames is one that
readers read alike (`undo`). Cut off anywhere, a second run goes on.
Source: docs/operations.md, Restore.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from compactor.acid.children import children_of
from compactor.acid.listing import Listing
from compactor.acid.names import TRASH_PREFIX
from compactor.acid.snapshot import ListedDir
from compactor.engine.aborted_rows import aborted_in
from compactor.engine.reading import PartitionReading, ReadSnapshot
from compactor.errors import CompactorError, OwnershipLostError, RefusedError
from compactor.log import get_logger
from compactor.metastore.model import Entity, PartitionFacts, QueueState, TableFacts
from compactor.metastore.txn.mutex import Mutex
from compactor.orc.digests.digest import Digest
from compactor.planning.facts import TableSpec
from compactor.reasons import Reason
from compactor.roles.cleaner.quarantine.kept import Kept, kept_in
from compactor.roles.cleaner.quarantine.manifest import MANIFEST, KeptDirectory, Manifest
from compactor.roles.cleaner.quarantine.sight import Sight
from compactor.roles.cleaner.quarantine.undo import Undo, require_none_aborted, undo_of
from compactor.roles.cleaner.trash import UNDO, remove_hidden, settle, settle_undo
from compactor.roles.services import Services
from compactor.storage.base import ReadHandle, Storage
from compactor.storage.forwarding import Answer, ForwardingStorage
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

    def settle(self) -> None:
        """
        Finish what was cut off: removals, and a restore that had taken the result away.

        Raises:
            MutexHeldError: a Cleaner is at work.
        """
        storage, names = self.storage, self.storage.directories(self.location)
        if not any(name.startswith(TRASH_PREFIX) for name in names):
            return
        with self.services.database.mutex("Cleaner", wait_seconds=_MUTEX_SECONDS):
            self.services.places.require_alone(self.location, self.table, self.partition, last_look=True)
            settle(storage, self.location, names)
            there = storage.directories(self.location)
            for kept in self.kept():
                result = kept.manifest.result if kept.manifest is not None else ()
                if result and not any(one.name in there for one in result):
                    self._remove_empty(kept)

    def _remove_empty(self, kept: Kept) -> None:
        """Remove a quarantine directory from which everything went back."""
        left = self.storage.list_tree(join(self.location, kept.name))
        if not left.directories and all(file.path == MANIFEST for file in left.files):
            remove_hidden(self.storage, self.location, [kept.name])

    def plan(self, kept: Kept, *, own_txn: int | None = None, own_lock: int | None = None) -> Undo:
        """
        Decide how a compaction is undone; changes nothing.

        Args:
            own_txn, own_lock: of a restore that is at work.

        Raises:
            RefusedError: it can't be undone, or not now, with the reason.
        """
        if kept.manifest is None:
            raise RefusedError(Reason.NOT_RESTORABLE, f"{kept.name} has no readable {MANIFEST}")
        if self.storage.uploads is not None:
            raise RefusedError(Reason.UNSUPPORTED_STORE, f"{self.location} is in a store that can't rename directories")
        if kept.manifest.tbl_id != self.table.tbl_id:
            raise RefusedError(Reason.NOT_RESTORABLE, f"{kept.name} is of another table of this name")
        self._require_quiet()
        inside = self.storage.list_tree(join(self.location, kept.name))
        listing = self.storage.list_tree(self.location)
        sight = self._sight()
        undo = undo_of(kept.name, kept.manifest, listing, inside, sight)
        require_none_aborted(undo, self._aborted(undo, listing, inside, sight))
        if self.table.insert_only and not kept.manifest.first_look:
            why = "another Cleaner may have removed a part before, and rows without ROW__ID can't be compared"
            raise RefusedError(Reason.NOT_RESTORABLE, f"what {undo.away} replaced may be incomplete: {why}")
        if written := self.services.cleaning.written_above(self.entity, undo.covered, own_txn, own_lock):
            raise RefusedError(Reason.NOT_RESTORABLE, f"{self.entity} was or is being written to: {written[0]}")
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
        self._prove(first)
        with self.services.database.mutex("Cleaner", wait_seconds=_MUTEX_SECONDS) as mutex, self._alone() as lease:
            return self._run(kept, first, mutex, lease)

    def _run(self, kept: Kept, first: Undo, mutex: Mutex, lease: "_Lease") -> Undo:
        storage = self.storage
        settle(storage, self.location, storage.directories(self.location))
        sign = f"{TRASH_PREFIX}{first.manifest.entry}-{uuid.uuid4().hex[:8]}{UNDO}"
        storage.mkdir(join(self.location, sign))
        moved: list[str] = []
        try:
            storage.write_small(join(self.location, sign, MANIFEST), self._manifest_of_result(first).encode())
            self.passed("opened")

            def checked() -> Undo:
                mutex.check()
                lease.beat()
                self._require_same()
                return self.plan(kept, own_txn=lease.txn_id, own_lock=lease.lock_id)

            undo = checked()
            if (undo.manifest, undo.away) != (first.manifest, first.away):
                raise RefusedError(Reason.INPUT_CHANGED, f"{self.location} changed just now: try again")
            for name in undo.back:
                lease.beat()
                storage.rename_noreplace(join(self.location, kept.name, name), join(self.location, name))
                moved.append(name)
                self.passed("moved")
            if checked().back:
                raise RefusedError(Reason.INPUT_CHANGED, f"{self.location} changed just now: try again")
            self._take_away(undo, sign)
        except (RefusedError, FileNotFoundError, FileExistsError) as error:
            self._put_back(kept, moved, mutex)
            if isinstance(error, RefusedError):
                raise
            raise RefusedError(
                Reason.INPUT_CHANGED, f"{error.filename or error} changed during the restore: everything was put back"
            ) from None
        finally:
            settle_undo(storage, self.location, sign)
        self.passed("taken")
        self._remove_empty(kept)
        _log.info("compaction.undone", entry=undo.manifest.entry, result=undo.away, directories=list(undo.back))
        return undo

    def _take_away(self, undo: Undo, sign: str) -> None:
        """Take the result out of sight; back at once if what it replaced isn't all there."""
        here, aside = join(self.location, undo.away), join(self.location, sign, undo.away)
        self.storage.rename_noreplace(here, aside)
        there = set(self.storage.directories(self.location)) | {
            file.path for file in self.storage.list_tree(self.location).files if "/" not in file.path
        }
        if missing := sorted(one.name for one in undo.manifest.directories if one.replaced and one.name not in there):
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
        except (CompactorError, FileNotFoundError, FileExistsError) as error:
            _log.warning("restore.not_put_back", error=str(error), detail="a second run goes on")

    def _manifest_of_result(self, undo: Undo) -> Manifest:
        manifest, now_ms = undo.manifest, self.services.now_ms()
        directories = tuple(KeptDirectory(one.name, one.files, replaced=False) for one in manifest.result)
        return Manifest(
            entry=manifest.entry,
            what=manifest.what,
            tbl_id=manifest.tbl_id,
            kept_ms=now_ms,
            until_ms=now_ms + manifest.until_ms - manifest.kept_ms,
            directories=directories,
            taken_back=True,
        )

    # What must hold

    def _sight(self) -> Sight:
        services = self.services
        txns = services.transactions.valid_txns()
        write_ids = services.transactions.valid_write_ids(self.table.full_name, txns)
        return Sight(write_ids, txns if services.hive_4 else None, services.layout)

    def _aborted(self, undo: Undo, listing: Listing, inside: Listing, sight: Sight) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for place, listed in (
            (join(self.location, undo.kept), self._listed(inside)),
            (self.location, self._listed(listing)),
        ):
            for one in listed:
                if one.name in {kept.name for kept in undo.manifest.directories if kept.replaced}:
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

    def _require_same(self) -> None:
        """Refuse when the table or partition was dropped, re-created or moved, or another owner shares its place."""
        found = self.services.catalog.facts_for([self.entity]).get(self.entity)
        if found is None or found[0].tbl_id != self.table.tbl_id or _location(found) != self.location:
            raise RefusedError(Reason.INPUT_CHANGED, f"{self.entity} was dropped, re-created or moved just now")
        self.services.places.require_alone(self.location, *found, last_look=True)

    def _prove(self, undo: Undo) -> None:
        """
        Read the partition as it is and as it would be, and compare the rows.

        Raises:
            RefusedError: NOT_RESTORABLE: they differ, because a part of what was replaced had gone before.
        """
        if self.table.insert_only:
            return
        now = self._digest(self.storage)
        if now != self._digest(_Restored(self.storage, self.location, undo)):
            raise RefusedError(
                Reason.NOT_RESTORABLE, f"what {undo.away} replaced holds other rows than it: see `compactor verify`"
            )

    def _digest(self, storage: Storage) -> Digest:
        table, sight = self.table, self._sight()
        spec = TableSpec(
            str(self.entity),
            tuple((column.name, column.type) for column in table.columns),
            insert_only=False,
            buckets=table.buckets,
            parameters=dict(table.parameters),
        )
        snapshot = ReadSnapshot(sight.layout, sight.write_ids, sight.txns)
        with PartitionReading(storage, self.location, spec, snapshot) as reading:
            return reading.digest()

    @contextmanager
    def _alone(self) -> Iterator["_Lease"]:
        """Hold an exclusive lock, on Hive 4 within a transaction."""
        services, identity = self.services, self.services.identity
        txn_id = services.transactions.open_compaction(identity.user, identity.host) if services.hive_4 else 0
        try:
            lock_id = services.locks.acquire_exclusive(self.entity, txn_id, identity.user, identity.host)
            beat = (
                (lambda: services.transactions.heartbeat(txn_id))
                if txn_id
                else (lambda: services.locks.heartbeat(lock_id))
            )
            try:
                yield _Lease(txn_id, lock_id, beat)
            finally:
                if not txn_id:
                    services.locks.release(lock_id)
        finally:
            if txn_id:
                services.transactions.end_empty(txn_id)


@dataclass(frozen=True, slots=True)
class _Lease:
    """An exclusive lock; `beat` renews it, and raises OwnershipLostError when it is gone. `txn_id` is 0 on 3.1."""

    txn_id: int
    lock_id: int
    beat: Callable[[], None]


class _Restored(ForwardingStorage):
    """A partition as it will be after a restore, for reading only."""

    def __init__(self, driver: Storage, location: str, undo: Undo) -> None:
        super().__init__(driver)
        self._location = location
        self._undo = undo

    def _call(self, call: Callable[[], Answer], *changed: str, of_content: bool = False) -> Answer:  # noqa: ARG002
        if changed:
            raise OwnershipLostError("a view of a restore changes nothing")
        return call()

    def list_tree(self, location: str) -> Listing:
        """See `Storage.list_tree`."""
        return self._undo.after if location == self._location else super().list_tree(location)

    def open_read(self, location: str) -> ReadHandle:
        """See `Storage.open_read`."""
        path = location.removeprefix(self._location.rstrip("/") + "/")
        if path.split("/", 1)[0] in self._undo.back:
            location = join(self._location, self._undo.kept, path)
        return super().open_read(location)


def _location(facts: tuple[TableFacts, PartitionFacts | None]) -> str | None:
    return facts[1].location if facts[1] else facts[0].location
