"""
Finds what attempts and statements that are over have left in a table's or partition's directory, and proves it.

An orphan is a directory that no reader reads and no process will take: staging of an attempt that is over, evidence,
trash that only waits to be deleted, quarantine whose time is over, and what statements of Hive's staged. Hive's
statements hold a lock or an open transaction on the table from before their first file to their end, or were rolled
back, and then their tasks end within `cleaner.late_writer_hours`: where there is none of these, theirs are over. What isn't proven is named with the reason, and never removed. Ages are those of the newest file,
by the store's clock, against the database clock.
Source: docs/operations.md, Orphans.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from compactor.acid.listing import FileEntry
from compactor.acid.names import TRASH_PREFIX, is_hidden
from compactor.engine.staging.directory import EVIDENCE_PREFIX
from compactor.errors import RefusedError
from compactor.log import get_logger
from compactor.metastore.model import Entity, PartitionFacts, TableFacts, duration
from compactor.roles.cleaner.quarantine.kept import read_manifest
from compactor.roles.cleaner.quarantine.manifest import MANIFEST
from compactor.roles.cleaner.trash import DECIDED, is_quarantine, is_trash, remove_hidden, staged_for
from compactor.roles.fence import attempt_is_over
from compactor.roles.services import Services
from compactor.storage.base import Storage
from compactor.storage.location import join

_log = get_logger(__name__)
_HIVES: Final = ("_tmp_", ".hive-staging", "-tmp.")


@dataclass(frozen=True, slots=True)
class Orphan:
    """
    A leftover, or what looks like one.

    Args:
        age_ms: of its newest file; None where that isn't known.
        proven: whether it may be removed once it is old enough.
        why: what proves it, or why it isn't proven.
    """

    location: str
    name: str
    kind: str
    bytes: int
    age_ms: int | None
    proven: bool
    why: str

    @property
    def path(self) -> str:
        return join(self.location, self.name)

    def is_due(self, older_than_ms: int) -> bool:
        """Whether it is proven and older than that."""
        return self.proven and self.age_ms is not None and self.age_ms >= older_than_ms


@dataclass(frozen=True, slots=True)
class Leftovers:
    """
    The directory of a table or partition; without `partition`, a partitioned table's own directory, too.

    Args:
        only_quarantine: look at nothing else, and let it go before its time.
    """

    services: Services
    table: TableFacts
    partition: PartitionFacts | None
    location: str
    only_quarantine: bool = False

    def find(self) -> tuple[Orphan, ...]:
        """
        What looks left over there, by name.

        Raises:
            UnreachableError, RetryableError: metastore or store don't answer.
        """
        found = [self._judged(name) for name in self._storage.directories(self.location)]
        return tuple(orphan for orphan in found if orphan is not None)

    def remove(self, orphan: Orphan, older_than_ms: int) -> bool:
        """
        Remove an orphan that is still proven and old enough; only for the holder of the Cleaner's mutex.

        Raises:
            RefusedError: another owner has a share in the place.
        """
        self.services.places.require_alone(self.location, self.table, self.partition, last_look=True)
        now = self._judged(orphan.name)
        if now is None or not now.is_due(older_than_ms):
            return False
        remove_hidden(self._storage, self.location, [orphan.name])
        _log.info("orphan.removed", directory=orphan.path, bytes=now.bytes, why=now.why)
        return True

    @property
    def _storage(self) -> Storage:
        return self.services.storage(self.location)

    def _judged(self, name: str) -> Orphan | None:
        """What this name is; None of what isn't a leftover."""
        kind = _kind(name)
        if kind is None or (self.only_quarantine and kind != "quarantine"):
            return None
        try:
            files = list(_everything(self._storage, join(self.location, name)))
            entry = self._storage.stat(join(self.location, name))
        except RefusedError as refusal:
            return Orphan(self.location, name, kind, 0, None, proven=False, why=refusal.message)
        if entry is None:
            return None
        newest = max((entry.mtime_ms, *(file.mtime_ms for file in files)))
        age_ms = max(0, self.services.now_ms() - newest) if newest else None
        proven, why = self._proof(name, kind)
        return Orphan(self.location, name, kind, sum(file.length for file in files), age_ms, proven=proven, why=why)

    def _proof(self, name: str, kind: str) -> tuple[bool, str]:
        match kind:
            case "staging":
                return self._staging(name)
            case "evidence":
                return True, "nothing reads it or publishes from it"
            case "quarantine":
                return self._quarantine(name)
            case "trash":
                return self._trash(name)
            case _:
                return self._hives()

    def _staging(self, name: str) -> tuple[bool, str]:
        number = staged_for(name)
        if number is None:
            return False, "the daemon gives no such name"
        if attempt_is_over(self.services, number):
            return True, f"no attempt of compaction {number} is at work"
        return False, f"compaction {number} is being worked on"

    def _quarantine(self, name: str) -> tuple[bool, str]:
        manifest = read_manifest(self._storage, self.location, name)
        if manifest is None:
            return False, f"it has no readable {MANIFEST}"
        left_ms = manifest.until_ms - self.services.now_ms()
        if left_ms <= 0:
            return True, "its time is over"
        if self.only_quarantine:
            return True, f"its time is over in {duration(left_ms)}, for which --quarantine doesn't wait"
        return False, "its time isn't over"

    @staticmethod
    def _trash(name: str) -> tuple[bool, str]:
        if not is_trash(name):
            return False, "the Cleaner gives no such name: its rows may be needed"
        if name.endswith(DECIDED):
            return True, "the Cleaner has decided to delete it"
        return False, "the next cleaning of the place settles it"

    def _hives(self) -> tuple[bool, str]:
        """
        By the whole table: a dynamic insert stages in the table's directory what it writes to partitions. An aborted
        compaction of Hive's counts, for its job stages in `_tmp_…`; one of ours stages under a name of its own.
        """
        entity = Entity(self.table.database, self.table.name)
        for blocker in self.services.cleaning.writing(entity):
            return False, blocker.sentence
        for lock in self.services.locks.held(entity):
            return False, str(lock)
        late_ms = self.services.settings.cleaner.late_ms
        for component, _ in self.services.aborts.may_write(entity, late_ms):
            if component.operation == "c" and component.is_ours:
                continue
            return False, f"transaction {component.txn_id} was rolled back, and its tasks may still be running"
        return True, f"no transaction or lock of a statement is on {entity}"


def _kind(name: str) -> str | None:
    if name.startswith(TRASH_PREFIX):
        return "quarantine" if is_quarantine(name) else "trash"
    if name.startswith(EVIDENCE_PREFIX):
        return "evidence"
    if staged_for(name) is not None:
        return "staging"
    return "hive" if name.startswith(_HIVES) else None


def _everything(storage: Storage, location: str) -> Iterator[FileEntry]:
    """Every file below a directory, also below hidden directories."""
    listing = storage.list_tree(location)
    yield from listing.files
    for directory in listing.directories:
        if "/" not in directory and is_hidden(directory):
            yield from _everything(storage, join(location, directory))
