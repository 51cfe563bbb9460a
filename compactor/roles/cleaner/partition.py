"""
Removes from one partition what the resolved state says is replaced or aborted, and nothing else.

A sweep first finishes removals that a crash cut off, and works from a listing made after that. It moves directories out
of sight, compares them with what it decided on, and only then deletes them. What no rule explains stays where it is.
After that it says whether the directory is clear of aborted writes (`cleared`), and removes what is old of evidence and
of quarantine.
Source: docs/operations.md.
"""

import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass

from compactor.acid.listing import FileEntry, Listing
from compactor.acid.snapshot import AcidState, ListedDir, ReadSnapshot
from compactor.durations import DAY_MS
from compactor.engine.aborted_rows import aborted_with_rows
from compactor.engine.change_management import change_management
from compactor.errors import RefusedError
from compactor.log import get_logger
from compactor.metastore.model import QueueEntry, TableFacts
from compactor.planning.observed import Seen, only_seen, replaced_then
from compactor.reasons import Reason
from compactor.roles import steps
from compactor.roles.cleaner.cleared import Cleared, Judged
from compactor.roles.cleaner.evidence import Evidence, evidence_in
from compactor.roles.cleaner.quarantine.contents import of_partition
from compactor.roles.cleaner.quarantine.kept import hours_for, remove_overdue
from compactor.roles.cleaner.trash import Removal, is_quarantine, remove_hidden, settle, staged_for
from compactor.roles.cleaner.trash_in_place import trash_for
from compactor.roles.fence import attempt_is_over
from compactor.roles.replication import is_source
from compactor.roles.services import Services
from compactor.roles.unreachable import require_removed
from compactor.storage.base import Storage

_log = get_logger(__name__)
_NOTHING = Listing((), ())


@dataclass(frozen=True, slots=True)
class Swept:
    """
    The result of sweeping one partition.

    Args:
        removed: directories and files that are gone from their names.
        state: as found after that.
        left: names that should have gone and are still there.
        evidence: of compactions whose verification refused, still kept.
        there: whether each listing found the directory.
        cleared: None when the directory wasn't there, or names are left.
    """

    removed: tuple[Removal, ...]
    state: AcidState
    left: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    there: bool
    cleared: Cleared | None


class Sweep:
    """
    One visit to one partition; only for the holder of the Cleaner's mutex.

    Args:
        table: from the catalog. When the partition's directory is missing, the table's or the one above must be there.
        tag: for the name of the trash directory: the entry's id, or `aborted`.
        about: passed to the steps; a queue entry: what is removed may have been replaced by its compaction.
        still_right: called before and after the move; raises when the table isn't the same any more, or another daemon
            is the Cleaner.
        part_id: of the partition, when that is known.
        seen: what lay there when the entry was first observed (Hive 3.1): nothing else replaces anything. None: all does.
    """

    def __init__(
        self,
        services: Services,
        table: TableFacts,
        location: str,
        judged: Judged,
        *,
        tag: str | int,
        about: object,
        still_right: Callable[[], None],
        part_id: int | None = None,
        seen: Seen | None = None,
    ) -> None:
        self._seen = seen
        self._services = services
        self._table = table
        self._location = location
        self._judged = judged
        with_originals = services.settings.readers.read_originals(insert_only=table.insert_only)
        self._sees = ReadSnapshot(services.layout, judged.write_ids, judged.txns, with_originals=with_originals)
        self._storage: Storage = services.storage(location)
        self._tag = tag
        self._about = about
        self._still_right = still_right
        self._part_id = part_id
        # files go to Hive's change management; no quarantine then, for a replica looks for them there
        self._recycled = is_source(table.database_parameters)
        self._there = True

    def run(self, wanted: Callable[[AcidState], tuple[ListedDir, ...]], *, originals: bool) -> Swept:
        """
        Remove the directories that `wanted` names, and with `originals` the original files that a base has replaced.

        Raises:
            RefusedError: a directory is not as it was decided on (everything was put back), the directory can't be
                understood, or Hive's change management takes no files from it.
            UnreachableError: the directory is missing, and so is the one above: its content isn't known.
        """

        def removals_in(listing: Listing, state: AcidState) -> tuple[Removal, ...]:
            directories, files = self._removable(listing, state)
            chosen = tuple(listed for listed in wanted(state) if listed.name in directories)
            return removals_for(listing, chosen, tuple(files) if originals else ())

        listed_ms = self._services.now_ms()
        listing = self._tidied()
        state = self._sees.resolve(listing)
        if not removals_in(listing, state):
            self._passed(steps.CLEANER_LISTED)
            return self._swept((), listing, state, (), listed_ms)
        if self._recycled:
            change_management().require(self._location)  # before anything is moved: a replica finds it where it is
        hours = 0.0 if self._recycled else hours_for(self._services, self._table)
        trash = trash_for(self._storage, self._location, self._tag, still=self._still_right, recycled=self._recycled)
        trash.open()
        try:
            # Checked with the trash in place: the next Cleaner finds the trash and takes it away, and then nothing that
            # is decided from here on can be carried out.
            self._still_right()
            listing = self._list()
            state = self._sees.resolve(listing)
            self._passed(steps.CLEANER_LISTED)
            removals = removals_in(listing, state)
            manifest = self._manifest(listing, removals, hours) if hours else None
        except Exception:
            trash.put_back()
            raise
        closed = isinstance(self._about, QueueEntry)
        trash.carry_out(removals, manifest, still=self._still_right, passed=self._passed, closed=closed)
        listing = self._list()
        after = self._sees.resolve(listing)
        left = removals_in(listing, after)
        return self._swept(removals, listing, after, tuple(removal.name for removal in left), listed_ms)

    def _passed(self, step: str) -> None:
        self._services.steps.enter(step, self._about)

    def _swept(
        self, removed: tuple[Removal, ...], listing: Listing, state: AcidState, left: tuple[str, ...], listed_ms: int
    ) -> Swept:
        cleared = None
        names = [name for name in listing.directories if "/" not in name]
        if any(is_quarantine(name) for name in names):
            remove_overdue(self._storage, self._location, names, self._services.now_ms())
        if self._there and not left:
            # Replaced rows count too: a reader that began before the replacement reads them still, and may ask only
            # later which ids are aborted.
            held = aborted_with_rows(
                self._storage, self._location, state, self._judged.write_ids, insert_only=self._table.insert_only
            )
            cleared = Cleared(self._location, self._judged, listed_ms, held)
        return Swept(removed, state, left, self._evidence(listing), self._there, cleared)

    def _removable(self, listing: Listing, state: AcidState) -> tuple[frozenset[str], Collection[FileEntry]]:
        """
        Directories and original files that no reader can need any more. What is aborted as a whole no reader needs; what
        is replaced, only those who find what replaced it (`planning.observed`).
        """
        aborted = frozenset(listed.name for listed in state.aborted)
        if self._seen is None:
            return aborted.union(listed.name for listed in state.obsolete), state.obsolete_originals
        then: AcidState | None = None
        with contextlib.suppress(RefusedError):  # what replaces a part of it appeared later
            then = self._sees.resolve(only_seen(listing, self._seen))
        directories, files = replaced_then(state, then)
        return aborted | directories, files

    def _evidence(self, listing: Listing) -> tuple[Evidence, ...]:
        """The evidence that is still kept. Evidence that is old enough is removed now, after all else went well."""
        found = evidence_in(self._storage, self._location, listing)
        if not found:
            return ()
        now_ms, age_ms = self._services.now_ms(), self._services.settings.cleaner.keep_evidence_days * DAY_MS
        old = {one.name for one in found if one.is_older(now_ms, age_ms)}
        if old:
            _log.info("evidence.removed", directories=remove_hidden(self._storage, self._location, sorted(old)))
        return tuple(one for one in found if one.name not in old)

    def _list(self) -> Listing:
        try:
            return self._storage.list_tree(self._location)
        except RefusedError as error:
            if error.reason is not Reason.LOCATION_MISSING:
                raise
            # A file system that isn't mounted looks like a warehouse without tables.
            require_removed(self._storage, self._location, self._table.location)
            self._there = False
            return _NOTHING

    def _tidied(self) -> Listing:
        """
        A listing, made after removals that were cut off were finished and staging directories of ended attempts
        removed.
        """
        listing = self._list()
        stale = self._stale_staging(listing)
        if stale:
            _log.info("staging.removed", directories=remove_hidden(self._storage, self._location, stale))
        if settle(self._storage, self._location, [name for name in listing.directories if "/" not in name]) or stale:
            listing = self._list()
        return listing

    def _stale_staging(self, listing: Listing) -> list[str]:
        """
        Staging directories whose attempt can't commit any more.

        They must go before the attempt's component is forgotten: a worker that was only asleep could publish under a
        transaction that the metastore no longer knows as aborted.
        """
        staged = {name: number for name in listing.directories if (number := staged_for(name)) is not None}
        return [name for name, number in staged.items() if attempt_is_over(self._services, number)]

    def _manifest(self, listing: Listing, removals: tuple[Removal, ...], hours: float) -> bytes:
        return of_partition(
            self._services,
            self._table,
            self._location,
            sees=self._sees,
            listing=listing,
            removals=removals,
            entry=self._about if isinstance(self._about, QueueEntry) else None,
            part_id=self._part_id,
            hours=hours,
        )


def removals_for(
    listing: Listing, directories: tuple[ListedDir, ...], originals: tuple[FileEntry, ...]
) -> tuple[Removal, ...]:
    """
    What to move: whole ACID directories, original files at the top level, and directories that hold nothing but
    original files.

    A directory with anything else in it stays, and the log says so.
    """
    removals = [Removal(directory.name, directory.files) for directory in directories]
    groups: dict[str, set[FileEntry]] = {}
    for entry in originals:
        groups.setdefault(entry.path.split("/", 1)[0], set()).add(entry)
    for name, files in sorted(groups.items()):
        there = {entry for entry in listing.files if entry.path == name or entry.path.startswith(f"{name}/")}
        if there == files:
            removals.append(Removal(name, tuple(sorted(files))))
        else:
            _log.warning("directory.kept", directory=name, why="it holds more than replaced original files")
    return tuple(removals)
