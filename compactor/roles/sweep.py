"""
Removing from one partition what the resolved state says is replaced or aborted, and nothing else.

Begins by bringing to an end what a crash cut off; works from a listing made after that; moves out of sight, compares, and only then deletes. What no rule explains
stays where it is. And the only place where it is proven that nothing is left of an aborted write (`forgetting.Proof`): from what was listed, never from what
wasn't there.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from compactor.acid.listing import FileEntry, Listing
from compactor.acid.names import STAGING_PREFIX, TRASH_PREFIX
from compactor.acid.snapshot import AcidState, ListedDir, resolve
from compactor.acid.write_ids import CleanerWriteIdList, ValidTxnList
from compactor.engine.aborted_rows import aborted_with_rows, may_hold_aborted
from compactor.engine.change_management import change_management
from compactor.engine.staging import EVIDENCE_PREFIX
from compactor.errors import RefusedError
from compactor.log import get_logger
from compactor.metastore.forgetting import Proof
from compactor.metastore.model import Entity, QueueState, TableFacts
from compactor.metastore.transactions import TxnState
from compactor.reasons import Reason
from compactor.roles import steps
from compactor.roles.absence import require_removed
from compactor.roles.evidence import Evidence, evidence_in
from compactor.roles.removing import trash_for
from compactor.roles.replication import is_source
from compactor.roles.services import Services
from compactor.roles.trash import Removal, Trash, remove_hidden, settle, staged_for, visibility_txn
from compactor.roles.trash_in_place import TrashInPlace
from compactor.storage.base import Storage

_log = get_logger(__name__)
_NOTHING = Listing((), ())
_DAY_MS = 24 * 3_600_000
_OURS = (STAGING_PREFIX, TRASH_PREFIX, EVIDENCE_PREFIX)


@dataclass(frozen=True, slots=True)
class Judged:
    """Under which transactions and write ids directories are decided; nothing that came later is touched, or forgotten."""

    txns: ValidTxnList
    write_ids: CleanerWriteIdList


@dataclass(frozen=True, slots=True)
class Cleared:
    """
    One directory, which was there, and in which nothing is left that should have gone. Only a sweep makes it, or a listing that shows nothing to sweep.

    Args:
        listed_ms: of the database clock, before it was listed.
        held: aborted write ids that lie there among others.
    """

    location: str
    judged: Judged
    listed_ms: int
    held: frozenset[int]


@dataclass(frozen=True, slots=True)
class Swept:
    """
    What became of one partition.

    Args:
        removed: directories and files that are gone from their names.
        state: as found after that.
        left: names that should have gone and are still there.
        evidence: of compactions whose verification refused, still kept.
        there: whether the directory was there at each look.
        cleared: None when it wasn't, or something is left.
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
        table: of the catalog. Where the partition's directory is missing, the table's or the one above must be there.
        tag: for the name of the trash directory: the entry's id, or `aborted`.
        about: what the steps are told.
        still_right: asked before and after the move; raises when the table isn't the same any more, or somebody else is the Cleaner.
    """

    def __init__(
        self, services: Services, table: TableFacts, location: str, judged: Judged, *, tag: str | int, about: object, still_right: Callable[[], None]
    ) -> None:
        self._services = services
        self._table = table
        self._location = location
        self._judged = judged
        self._storage: Storage = services.storage(location)
        self._tag = tag
        self._about = about
        self._still_right = still_right
        self._recycled = is_source(table.database_parameters)  # to Hive's change management; no quarantine then, for a replica looks for it there
        self._there = True

    def run(self, wanted: Callable[[AcidState], tuple[ListedDir, ...]], *, originals: bool) -> Swept:
        """
        Remove the directories that `wanted` names, and with `originals` the original files that a base has replaced.

        Raises:
            RefusedError: something is not as it was decided on (it was put back), the directory can't be understood, or Hive's change management takes no files from it.
            UnreachableError: the directory is missing, and so is the one above: what is in it isn't known.
        """

        def removals_in(listing: Listing, state: AcidState) -> tuple[Removal, ...]:
            return removals_for(listing, wanted(state), state.obsolete_originals if originals else ())

        listed_ms = self._services.now_ms()
        listing = self._tidied()
        state = self._resolve(listing)
        if not removals_in(listing, state):
            self._services.steps.enter(steps.CLEANER_LISTED, self._about)
            return self._swept((), listing, state, (), listed_ms)
        if self._recycled:
            change_management().require(self._location)  # before anything is moved: where it is a replica finds it
        trash = trash_for(self._storage, self._location, self._tag, recycled=self._recycled)
        trash.open()
        try:
            # Asked with the trash in place: whoever is the Cleaner after us finds it, and what we decide from here on can't be carried out any more.
            self._still_right()
            listing = self._list()
            state = self._resolve(listing)
            self._services.steps.enter(steps.CLEANER_LISTED, self._about)
            removals = removals_in(listing, state)
        except Exception:
            trash.put_back()
            raise
        self._remove(trash, removals)
        listing = self._list()
        after = self._resolve(listing)
        left = removals_for(listing, wanted(after), after.obsolete_originals if originals else ())
        return self._swept(removals, listing, after, tuple(removal.name for removal in left), listed_ms)

    def _swept(self, removed: tuple[Removal, ...], listing: Listing, state: AcidState, left: tuple[str, ...], listed_ms: int) -> Swept:
        cleared = None
        if self._there and not left:
            # what is replaced counts too: whoever began before that reads it still, and may ask only later which ids are aborted
            held = aborted_with_rows(self._storage, self._location, state, self._judged.write_ids, insert_only=self._table.insert_only)
            cleared = Cleared(self._location, self._judged, listed_ms, held)
        return Swept(removed, state, left, self._evidence(listing), self._there, cleared)

    def _resolve(self, listing: Listing) -> AcidState:
        return _resolved(self._services, listing, self._judged)

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
            require_removed(self._storage, self._location, self._table.location)
            self._there = False
            return _NOTHING

    def _tidied(self) -> Listing:
        """A listing after cut-off removals were settled and staging directories of attempts that are over were removed."""
        listing = self._list()
        stale = self._stale_staging(listing) + self._stale_uploads()
        if stale:
            _log.info("removed staging directories of attempts that are over", directories=remove_hidden(self._storage, self._location, stale))
        if settle(self._storage, self._location, [name for name in listing.directories if "/" not in name]) or stale:
            listing = self._list()
        return listing

    def _stale_staging(self, listing: Listing) -> list[str]:
        """
        Staging directories whose attempt can't commit any more.

        They must go before the attempt's component is forgotten: a worker that was only asleep could publish under a transaction that nobody remembers as aborted.
        """
        stale = []
        for name in sorted({*listing.directories, *self._storage.pending(self._location)}):
            if (number := staged_for(name)) is None:
                continue
            entry = self._services.queue.entry(number)
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
        if self._services.settings.cleaner.quarantine and not self._recycled:
            trash.keep()
            return
        trash.decide()
        trash.delete()
        self._services.steps.enter(steps.CLEANER_DELETED, self._about)


def clear_listed(services: Services, location: str, listing: Listing, judged: Judged, listed_ms: int) -> Cleared | None:
    """
    A directory in which a listing of its table's shows nothing to sweep: what a sweep would find there, without a call to the store. None: it must be swept.

    It must where a directory of ours lies in it, where a name can't be understood, and where a directory's name admits an aborted transaction or write id: by
    names alone no such row is found, and none is missed. What a base's `_metadata_acid` says isn't read: it matters only for an aborted write id.

    Args:
        listing: of the directory, which was there; of its files nothing is asked.
        listed_ms: of the database clock, before it was listed.
    """
    if any(name.startswith(_OURS) for name in listing.directories):
        return None
    try:
        state = _resolved(services, listing, judged)
    except RefusedError:
        return None
    if state.aborted or may_hold_aborted(state, judged.write_ids):
        return None
    return Cleared(location, judged, listed_ms, frozenset())


def prove(table: TableFacts, partition: str | None, cleared: Collection[Cleared]) -> Proof:
    """
    What was cleared under the same lists, as a proof.

    Args:
        partition: whose one directory it was; None: these are all directories of the table.

    Raises:
        ValueError: nothing was cleared, or under different lists: it proves nothing.
    """
    (judged,) = {id(one.judged): one.judged for one in cleared}.values()
    held = frozenset[int]().union(*(one.held for one in cleared))
    return Proof(
        table=table.entity,
        tbl_id=table.tbl_id,
        partition=partition,
        directories=frozenset(one.location for one in cleared),
        listed_ms=min(one.listed_ms for one in cleared),
        txns=judged.txns,
        gone=frozenset(judged.write_ids.aborted) - held,
    )


def remove_uncommitted(services: Services, table: TableFacts, entity: Entity, location: str, txn_id: int) -> Proof | None:
    """
    Remove what a compaction of a partition published under `_v<txn>`; only when the metastore says that the transaction was aborted.

    Its staging directories must be gone. Returns the proof that nothing of it is left; None when the directory isn't there, which proves nothing, or the
    transaction isn't known as aborted.

    Raises:
        RefusedError: something lies there, and the transaction isn't known as aborted.
    """
    storage, listed_ms = services.storage(location), services.now_ms()
    names = [name for name in storage.directories(location) if visibility_txn(name) == txn_id]
    state = services.transactions.state(txn_id)
    if state is not TxnState.ABORTED:
        if names:
            raise RefusedError(Reason.OWNERSHIP_LOST, f"{names[0]} was written by transaction {txn_id}, which is {state.value}, not aborted: left alone")
        return None
    if names:
        remove_hidden(storage, location, names)
    if not storage.exists(location):
        return None
    txns = ValidTxnList(txn_id, (), (txn_id,))
    return Proof(entity.whole_table(), table.tbl_id, entity.partition, frozenset({location}), listed_ms, txns, gone=frozenset())


def _resolved(services: Services, listing: Listing, judged: Judged) -> AcidState:
    return resolve(listing, judged.write_ids, judged.txns if services.hive_4 else None, services.layout)


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
