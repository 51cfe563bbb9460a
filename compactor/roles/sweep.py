"""
Removing from one partition what the resolved state says is replaced or aborted, and nothing else.

Begins by bringing to an end what a crash cut off; works from a listing made after that; moves out of sight, compares, and only then deletes. What no rule explains
stays where it is.
"""

from collections.abc import Callable
from dataclasses import dataclass

from compactor.acid.listing import FileEntry, Listing
from compactor.acid.names import STAGING_PREFIX
from compactor.acid.snapshot import AcidState, ListedDir
from compactor.errors import RefusedError
from compactor.log import get_logger
from compactor.metastore.model import QueueState
from compactor.metastore.transactions import TxnState
from compactor.reasons import Reason
from compactor.roles import steps
from compactor.roles.absence import require_removed
from compactor.roles.evidence import Evidence, evidence_in
from compactor.roles.removing import trash_for
from compactor.roles.services import Services
from compactor.roles.trash import Removal, Trash, remove_hidden, settle, visibility_txn
from compactor.roles.trash_in_place import TrashInPlace
from compactor.storage.base import Storage

_log = get_logger(__name__)
Resolve = Callable[[Listing], AcidState]
_NOTHING = Listing((), ())
_DAY_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Swept:
    """
    What became of one partition.

    Args:
        removed: directories and files that are gone from their names.
        state: as found after that.
        left: names that should have gone and are still there.
        evidence: of compactions whose verification refused, still kept.
    """

    removed: tuple[Removal, ...]
    state: AcidState
    left: tuple[str, ...]
    evidence: tuple[Evidence, ...] = ()


class Sweep:
    """
    One visit to one partition; only for the holder of the Cleaner's mutex.

    Args:
        tag: for the name of the trash directory: the entry's id, or `aborted`.
        about: what the steps are told.
        still_right: asked before and after the move; raises when the table isn't the same any more, or somebody else is the Cleaner.
        table_location: of the table in the catalog. Where the partition's directory is missing, this or the one above must be there.
    """

    def __init__(
        self, services: Services, location: str, tag: str | int, about: object, still_right: Callable[[], None], *, table_location: str | None
    ) -> None:
        self._services = services
        self._location = location
        self._table_location = table_location
        self._storage: Storage = services.storage(location)
        self._tag = tag
        self._about = about
        self._still_right = still_right

    def run(self, resolve: Resolve, wanted: Callable[[AcidState], tuple[ListedDir, ...]], *, originals: bool) -> Swept:
        """
        Remove the directories that `wanted` names, and with `originals` the original files that a base has replaced.

        Raises:
            RefusedError: something is not as it was decided on (it was put back), or the directory can't be understood.
            UnreachableError: the directory is missing, and so is the one above: what is in it isn't known.
        """

        def removals_in(listing: Listing, state: AcidState) -> tuple[Removal, ...]:
            return removals_for(listing, wanted(state), state.obsolete_originals if originals else ())

        listing = self._tidied()
        state = resolve(listing)
        if not removals_in(listing, state):
            self._services.steps.enter(steps.CLEANER_LISTED, self._about)
            return Swept((), state, (), self._evidence(listing))
        trash = trash_for(self._storage, self._location, self._tag)
        trash.open()
        try:
            # Asked with the trash in place: whoever is the Cleaner after us finds it, and what we decide from here on can't be carried out any more.
            self._still_right()
            listing = self._list()
            state = resolve(listing)
            self._services.steps.enter(steps.CLEANER_LISTED, self._about)
            removals = removals_in(listing, state)
        except Exception:
            trash.put_back()
            raise
        self._remove(trash, removals)
        listing = self._list()
        after = resolve(listing)
        left = removals_for(listing, wanted(after), after.obsolete_originals if originals else ())
        return Swept(removals, after, tuple(removal.name for removal in left), self._evidence(listing))

    def _evidence(self, listing: Listing) -> tuple[Evidence, ...]:
        """What is still kept; what was kept for long enough goes now, after all else went well."""
        found = evidence_in(self._storage, self._location, listing)
        if not found:
            return ()
        now_ms, age_ms = self._services.now_ms(), self._services.settings.cleaner.keep_evidence_days * _DAY_MS
        old = {one.name for one in found if one.is_older(now_ms, age_ms)}
        if old:
            _log.info("removed evidence that was kept for long enough", directories=remove_hidden(self._storage, self._location, sorted(old)))
        return tuple(one for one in found if one.name not in old)

    def _list(self) -> Listing:
        try:
            return self._storage.list_tree(self._location)
        except RefusedError as error:
            if error.reason is not Reason.LOCATION_MISSING:
                raise
            # a file system that isn't mounted looks like a warehouse without tables
            require_removed(self._storage, self._location, self._table_location)
            return _NOTHING

    def _tidied(self) -> Listing:
        """A listing after cut-off removals were settled and staging directories of attempts that are over were removed."""
        listing = self._list()
        stale = self._stale_staging(listing) + self._stale_uploads()
        if stale:
            _log.info("removed staging directories of attempts that are over", directories=remove_hidden(self._storage, self._location, stale))
        if settle(self._storage, self._location, listing) or stale:
            listing = self._list()
        return listing

    def _stale_staging(self, listing: Listing) -> list[str]:
        """
        Staging directories whose attempt can't commit any more.

        They must go before the attempt's component is forgotten: a worker that was only asleep could publish under a transaction that nobody remembers as aborted.
        """
        stale = []
        for name in sorted({*listing.directories, *self._storage.pending(self._location)}):
            number = name.removeprefix(STAGING_PREFIX).split("-", 1)[0]
            if "/" in name or not name.startswith(STAGING_PREFIX) or not number.isdecimal():
                continue
            entry = self._services.queue.entry(int(number))
            alive = entry is not None and entry.state is QueueState.WORKING
            if alive and entry is not None and entry.txn_id is not None and self._services.hive_4:
                alive = self._services.transactions.state(entry.txn_id) is TxnState.OPEN
            if not alive:
                stale.append(name)
        return stale

    def _stale_uploads(self) -> list[str]:
        """Directories of aborted compactions into which something is still on its way: a worker that was only asleep could complete it."""
        aborted = []
        for name in self._storage.pending(self._location):
            txn_id = visibility_txn(name)
            if txn_id and self._services.transactions.state(txn_id) is TxnState.ABORTED:
                aborted.append(name)
        return aborted

    def _remove(self, trash: Trash | TrashInPlace, removals: tuple[Removal, ...]) -> None:
        try:
            trash.take(removals)
            self._services.steps.enter(steps.CLEANER_TRASHED, self._about)
            trash.check()
            self._still_right()
            self._services.steps.enter(steps.CLEANER_COMPARED, self._about)
        except FileNotFoundError as error:
            trash.put_back()
            raise RefusedError(Reason.INPUT_CHANGED, f"{error.filename or error} vanished while it was being removed; everything else was put back") from None
        except Exception:
            trash.put_back()
            raise
        if self._services.settings.cleaner.quarantine:
            trash.keep()
            return
        trash.decide()
        trash.delete()
        self._services.steps.enter(steps.CLEANER_DELETED, self._about)


def removals_for(listing: Listing, directories: tuple[ListedDir, ...], originals: tuple[FileEntry, ...]) -> tuple[Removal, ...]:
    """
    What to move: whole ACID directories, original files at the top level, and directories that hold nothing but original files.

    A directory with anything else in it is left, with a line in the log.
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
            _log.warning("holds more than replaced original files: left alone", directory=name)
    return tuple(removals)
