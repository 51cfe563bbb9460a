"""
Removes directories of a partition in two steps: first out of every reader's sight, then for good.

What is removed moves into a hidden directory inside the partition. The name of this directory tells how far the removal
got, so that the Cleaner after a crash knows what to do:

    .trash-compactor-<tag>-<token>           moved, not yet compared: is put back
    .trash-compactor-<tag>-<token>-back      is being put back: nothing more can be moved into it
    .trash-compactor-<tag>-<token>-delete    compared and decided: is deleted
    .trash-compactor-<tag>-<token>-recycle   decided, for a source of replication (see below)
    .trash-compactor-<tag>-<token>-kept      quarantine: stays until its manifest says so (`manifest`, `quarantine`)
    .trash-compactor-<tag>-<token>-undo      for the result of a compaction, from a restore (`restore`): becomes
                                             quarantine, or goes where nothing was moved into it

The files of a source of replication go to Hive's change management, then the directory is deleted. Knows names and
files; the Cleaner decides what may be removed, and why.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from compactor.acid.listing import FileEntry
from compactor.acid.names import STAGING_PREFIX, TRASH_PREFIX, MalformedNameError, parse_dir
from compactor.engine.change_management import change_management
from compactor.errors import OwnershipLostError, RefusedError, RetryableError
from compactor.log import get_logger
from compactor.reasons import Reason
from compactor.roles import steps
from compactor.roles.cleaner.quarantine.manifest import MANIFEST
from compactor.storage.base import Storage
from compactor.storage.location import join

_log = get_logger(__name__)
DECIDED = "-delete"
RECYCLED = "-recycle"
BACK = "-back"
KEPT = "-kept"
UNDO = "-undo"
_NAME: Final = re.compile(
    rf"{re.escape(TRASH_PREFIX)}(?:(?P<tag>[0-9]+|aborted|gone)-[0-9a-f]{{8}}|(?:base|delta|delete_delta)_[0-9_v]+)"
    rf"(?P<word>{BACK}|{DECIDED}|{RECYCLED}|{KEPT}|{UNDO})?"
)
"""Exactly what is given here and by the staging directory. What is called otherwise was renamed by hand or is another's: its rows may have been rolled back and forgotten."""
_STAGING: Final = re.compile(rf"{re.escape(STAGING_PREFIX)}(?P<entry>[0-9]+)-[0-9a-z]+")


@dataclass(frozen=True, slots=True)
class Removal:
    """
    A directory with all its files, or one file, at the top level of a partition, that is to go.

    Args:
        name: first part of the path.
        files: what is below it (paths relative to the partition), or the file itself.
        whole_partition: it is a table's or partition's own directory; the hidden directories in it weren't looked into
            and aren't compared.
    """

    name: str
    files: tuple[FileEntry, ...]
    whole_partition: bool = False

    @property
    def bytes(self) -> int:
        return sum(file.length for file in self.files)


class Trash:
    """
    The trash directory of one removal in one partition.

    Args:
        storage, location: the partition.
        tag: what the removal is for: the queue entry's id, or `aborted`.
        recycled: its files are handed to Hive's change management before they are deleted.
    """

    def __init__(self, storage: Storage, location: str, tag: str | int, *, recycled: bool = False) -> None:
        self._storage = storage
        self._decided = RECYCLED if recycled else DECIDED
        self._location = location
        self.name = f"{TRASH_PREFIX}{tag}-{uuid.uuid4().hex[:8]}"
        self._moved: list[Removal] = []

    def open(self) -> None:
        """
        Make the directory, before anything is decided on: the next Cleaner takes it away, and with it the place that a
        late move would need.
        """
        self._storage.mkdir(self._path())
        self._storage.sync_directory(self._location)  # where that is refused, no move would ever be durable

    def take(self, removals: Sequence[Removal]) -> None:
        """
        Move everything out of sight.

        Raises:
            FileNotFoundError: a file or directory has vanished meanwhile, or the trash itself has, taken away by the
                next Cleaner.
            CompactorError: a move failed; what was moved before is still in the trash (`put_back`).
        """
        for removal in removals:
            self._moved.append(removal)
            self._storage.rename_noreplace(join(self._location, removal.name), self._path(removal.name))

    def check(self) -> None:
        """
        Compare what was moved with what was decided on.

        Raises:
            RefusedError: INPUT_CHANGED, naming the first difference.
        """
        listing = self._storage.list_tree(self._path())
        whole = {removal.name for removal in self._moved if removal.whole_partition}
        found = {file for file in listing.files if file.path.split("/", 1)[0] not in whole}
        for name in whole & set(listing.directories):  # its own name may be a hidden one, which no listing looks into
            inside = self._storage.list_tree(self._path(name)).files
            found |= {replace(file, path=f"{name}/{file.path}") for file in inside}
        wanted = {file for removal in self._moved for file in removal.files}
        names = {removal.name for removal in self._moved}
        strangers = {path.split("/", 1)[0] for path in (*listing.directories, *(file.path for file in found))} - names
        if difference := sorted(found ^ wanted):
            word = "appeared or changed" if difference[0] in found else "is missing or changed"
            raise RefusedError(
                Reason.INPUT_CHANGED, f"{difference[0].path} {word} while it was being removed; everything was put back"
            )
        if strangers:
            raise RefusedError(
                Reason.INPUT_CHANGED,
                f"{min(strangers)} is in {self.name}, and the Cleaner didn't put it there; everything was put back",
            )

    def require_closed(self) -> None:
        """
        Raise unless all that was moved is complete: a file that is still being written may hold rows that no compaction
        has read.

        Raises:
            RefusedError: OPEN_FILE, naming the first one.
        """
        paths = [file.path for removal in self._moved for file in removal.files]
        if growing := self._storage.open_files(self._path(), paths):
            raise RefusedError(
                Reason.OPEN_FILE,
                f"{growing[0]} is still open for writing, so it isn't removed; everything was put back",
            )

    def put_back(self) -> None:
        """Undo `take`, as far as names are still free."""
        put_back(self._storage, self._location, self.name)

    def keep(self, manifest: bytes) -> None:
        """
        Leave the trash where it is, marked as quarantine, with its manifest. Raises OwnershipLostError: another Cleaner
        has settled it.
        """
        try:
            self._storage.write_small(self._path(MANIFEST), manifest)
        except FileNotFoundError:
            raise OwnershipLostError(f"{self.name} was settled by another Cleaner") from None
        self._become(KEPT)

    def decide(self) -> None:
        """
        Decide to delete: from here on the trash is deleted, even after a crash. Raises OwnershipLostError: another
        Cleaner has settled it.
        """
        self._become(self._decided)

    def _become(self, word: str) -> None:
        try:
            self._storage.rename_noreplace(self._path(), join(self._location, self.name + word))
        except FileNotFoundError:
            raise OwnershipLostError(f"{self.name} was settled by another Cleaner") from None

    def carry_out(
        self,
        removals: Sequence[Removal],
        manifest: bytes | None,
        *,
        still: Callable[[], None],
        passed: Callable[[str], None],
        closed: bool,
    ) -> None:
        """
        Move everything out of sight, compare it, and delete it for good, or keep it. What is refused is put back.

        Args:
            manifest: of what is kept as quarantine; None: it is deleted.
            still: raises when nothing more may be removed.
            passed: told of each step of the Cleaner.
            closed: refuse a file that is still being written.
        """
        try:
            self.take(removals)
            passed(steps.CLEANER_TRASHED)
            self.check()
            if closed:
                self.require_closed()
            still()
            passed(steps.CLEANER_COMPARED)
        except FileNotFoundError as error:
            self.put_back()
            raise RefusedError(
                Reason.INPUT_CHANGED,
                f"{error.filename or error} vanished while it was being removed; everything else was put back",
            ) from None
        except Exception:
            self.put_back()
            raise
        if manifest is not None:
            self.keep(manifest)
            return
        self.decide()
        self.delete()
        passed(steps.CLEANER_DELETED)

    def delete(self) -> None:
        """Delete what was decided on."""
        _finish(self._storage, self._location, self.name + self._decided)

    def _path(self, *parts: str) -> str:
        return join(self._location, self.name, *parts)


def settle(storage: Storage, location: str, names: Iterable[str], tag: str | int = "") -> int:
    """
    Finish removals that were cut off: decided ones are deleted, others put back. Only for the holder of the Cleaner's
    mutex.

    Args:
        names: of what lies directly in the location.
        tag: only removals with this tag; empty: all.

    Returns how many there were; if any, the listing that the names are from is out of date.

    Raises:
        RetryableError: a removal isn't settled: a rename that another process had sent may have arrived only now. Until
            then it isn't known what the location holds.
        RefusedError: INPUT_CHANGED; it can't be settled, since a name is taken.
    """
    found = dict(_cut_off(names, tag))
    for name, word in sorted(found.items()):
        if word in {DECIDED, RECYCLED}:
            _finish(storage, location, name)
        elif word == UNDO:
            settle_undo(storage, location, name)
        else:
            put_back(storage, location, name)
        _log.info("removal.settled", directory=name)
    if not found or storage.uploads is not None:  # where nothing is moved, what is left over hides nothing
        return len(found)
    left = {name for name, _ in _cut_off(storage.directories(location), tag)}
    if stuck := sorted(left & found.keys()):
        raise RefusedError(
            Reason.INPUT_CHANGED,
            f"what is in {join(location, stuck[0])} was to be removed and can't be put back (trash.not_put_back in the log): look at it by hand",
        )
    if left:
        raise RetryableError(f"the removal {min(left)} in {location} was cut off, and isn't put back or finished yet")
    return len(found)


def undecided(names: Iterable[str]) -> list[str]:
    """The names of trash directories whose content is put back, or goes on to be compared by a Cleaner at work."""
    return [name for name in names if (ours := _NAME.fullmatch(name)) is not None and ours["word"] in {None, BACK}]


def _cut_off(names: Iterable[str], tag: str | int) -> Iterator[tuple[str, str | None]]:
    """The names of trash directories that the holder of the mutex has to settle, and the word at their end."""
    for name in names:
        if not name.startswith(TRASH_PREFIX):
            continue
        ours = _NAME.fullmatch(name)
        if ours is None:
            _log.warning("directory.kept", directory=name, why="the Cleaner gives no such name")
        elif ours["word"] != KEPT and (not tag or ours["tag"] == str(tag)):
            yield name, ours["word"]


def _finish(storage: Storage, location: str, name: str) -> None:
    """Delete a decided directory; may be cut off and begun again."""
    if name.endswith(RECYCLED):
        moved = change_management().recycle(join(location, name), location)
        _log.info("files.recycled", directory=location, files=moved)
    storage.delete_tree(join(location, name))


def settle_undo(storage: Storage, location: str, name: str) -> None:
    """
    End a restore that was cut off: what it took away becomes quarantine. It never comes back: by now compactions may
    have read what it had replaced.

    The directory gets another name first: a restore that was stopped before it moved anything can't do it any more.
    """
    kept = join(location, name.removesuffix(UNDO) + KEPT)
    try:
        storage.rename_noreplace(join(location, name), kept)
    except FileNotFoundError:
        return
    if not storage.directories(kept):
        storage.delete_tree(kept)


def put_back(storage: Storage, location: str, name: str) -> None:
    """
    Move the content of an undecided trash directory back. What can't be moved (its name is taken) stays in it, and the
    log says so.

    The directory gets another name first: a process that was stopped while it moved things into it can neither go on
    nor decide on it.
    """
    if storage.uploads is not None:
        _take_sign_away(storage, join(location, name))
        return
    if not name.endswith(BACK):
        try:
            storage.rename_noreplace(join(location, name), join(location, name + BACK))
        except FileNotFoundError:
            return
        name += BACK
    held = join(location, name)
    try:
        listing = storage.list_tree(held)
    except RefusedError as error:
        if error.reason is Reason.LOCATION_MISSING:
            return
        raise
    paths = (*listing.directories, *(file.path for file in listing.files))
    inside = {path for path in paths if "/" not in path} - {MANIFEST}
    stuck = []
    for child in sorted(inside):
        try:
            storage.rename_noreplace(join(held, child), join(location, child))
        except FileExistsError:
            stuck.append(child)
        except FileNotFoundError:
            continue
    rest = storage.list_tree(held)
    if stuck or any(file.path != MANIFEST for file in rest.files):
        _log.error(
            "trash.not_put_back", directory=name, stuck=stuck, why="the name is taken", remedy="look at it by hand"
        )
        return
    storage.delete_tree(held)


def _take_sign_away(storage: Storage, sign: str) -> None:
    """
    Remove the sign of a removal on a store where nothing is moved (`trash_in_place`). A sign is empty; a directory with
    files in it is left for an operator.
    """
    try:
        inside = storage.list_tree(sign).files
    except RefusedError as error:
        if error.reason is Reason.LOCATION_MISSING:
            return
        raise
    if inside:
        _log.error(
            "trash.not_removed",
            directory=sign,
            why="it holds files, but the Cleaner moves none on such a store",
            remedy="look at it by hand",
        )
        return
    storage.delete_tree(sign)


def remove_hidden(storage: Storage, location: str, names: Iterable[str]) -> list[str]:
    """
    Remove directories that hold nothing of the table's (staging, results of aborted compactions), so that nothing can
    be published out of them or into them.
    """
    removed = []
    for name in names:
        target = join(location, f"{TRASH_PREFIX}gone-{uuid.uuid4().hex[:8]}{DECIDED}")
        if storage.withdraw(join(location, name), target):
            removed.append(name)
    return removed


def staging_directories(names: Iterable[str], entry_id: int) -> list[str]:
    """The staging directories of a queue entry, of any attempt, among the names in a partition's directory."""
    return [name for name in names if staged_for(name) == entry_id]


def staged_for(name: str) -> int | None:
    """The queue entry whose staging directory has this name; None of any other name."""
    ours = _STAGING.fullmatch(name)
    return int(ours["entry"]) if ours else None


def is_trash(name: str) -> bool:
    """Whether the Cleaner gives a trash directory such a name."""
    return _NAME.fullmatch(name) is not None


def is_quarantine(name: str) -> bool:
    """Whether the Cleaner gives a quarantine directory such a name."""
    ours = _NAME.fullmatch(name)
    return ours is not None and ours["word"] == KEPT


def visibility_txn(name: str) -> int:
    """The transaction in a directory's name; 0 without one."""
    try:
        parsed = parse_dir(name)
    except MalformedNameError:
        return 0
    return parsed.visibility_txn if parsed else 0
