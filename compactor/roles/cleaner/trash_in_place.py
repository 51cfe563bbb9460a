"""
Removes directories on stores that can't rename: what is to go stays where it is, is compared once more directly before,
and then deleted in place.

A hidden directory inside the partition is the sign of a removal:

    .trash-compactor-<tag>-<token>           empty; a Cleaner that misses its sign has a successor, and removes nothing
    .trash-compactor-<tag>-<token>-kept      quarantine: copies made by the store

Between the last comparison and the deletion there is a moment in which the process may be stopped; then it deletes what
was compared before it was stopped. A rename would do both in one step, and these stores have none. What the process
deletes is replaced or aborted all the same: directories of a write id or transaction are never used again. In other
directories, which hold original files, it deletes by name the files that were compared; the directory stays, empty.
"""

import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from compactor.acid.listing import FileEntry
from compactor.acid.names import TRASH_PREFIX, looks_acid
from compactor.errors import OwnershipLostError, RefusedError
from compactor.reasons import Reason
from compactor.roles.cleaner.quarantine.manifest import MANIFEST
from compactor.roles.cleaner.trash import KEPT, Removal, Trash, put_back
from compactor.storage.base import Storage
from compactor.storage.location import join, parent

Item = TypeVar("Item")


class TrashInPlace:
    """Does what a `Trash` does, with the same calls in the same order."""

    def __init__(self, storage: Storage, location: str, tag: str | int) -> None:
        self._storage = storage
        self._location = location
        self.name = f"{TRASH_PREFIX}{tag}-{uuid.uuid4().hex[:8]}"
        self._removals: list[Removal] = []

    def open(self) -> None:
        """Make the sign. The next Cleaner takes it away."""
        self._storage.mkdir(self._path())

    def take(self, removals: Sequence[Removal]) -> None:
        """Remember what is to go."""
        self._removals += removals

    def check(self) -> None:
        """
        Compare what is there with what was decided on.

        Raises:
            RefusedError: INPUT_CHANGED, naming the first difference.
            FileNotFoundError: a file or directory has vanished.
        """
        for removal in self._removals:
            found = set(self._found(removal))
            if difference := sorted(found ^ set(removal.files)):
                word = "appeared or changed" if difference[0] in found else "is missing or changed"
                raise RefusedError(
                    Reason.INPUT_CHANGED, f"{difference[0].path} {word} while it was being removed; nothing was removed"
                )

    def put_back(self) -> None:
        """Take the sign away; nothing was moved."""
        put_back(self._storage, self._location, self.name)

    def decide(self) -> None:
        """
        Compare for the last time. Raises RefusedError as `check`; OwnershipLostError: the next Cleaner has taken the
        sign away.
        """
        try:
            self.check()
        except FileNotFoundError as error:
            raise RefusedError(
                Reason.INPUT_CHANGED, f"{error.filename} vanished while it was being removed; nothing was removed"
            ) from None
        if not self._storage.exists(self._path()):
            raise OwnershipLostError(f"{self.name} was settled by another Cleaner")

    def delete(self) -> None:
        """Delete what was compared, and then the sign."""
        self._side_by_side(self._delete_one, self._removals)
        self._storage.delete_tree(self._path())

    def keep(self, manifest: bytes) -> None:
        """Have the store copy everything aside, beside its manifest, then delete it."""
        self.decide()
        files = [
            (file.path, join(self._location, self.name + KEPT, file.path))
            for removal in self._removals
            for file in removal.files
        ]
        kept = join(self._location, self.name + KEPT)
        self._storage.mkdir(kept)
        self._storage.write_small(join(kept, MANIFEST), manifest)
        made = {self._location, kept}
        for _, target in files:
            self._make(parent(target), made)
        self._side_by_side(lambda item: self._storage.link_or_copy(join(self._location, item[0]), item[1]), files)
        self.decide()
        self.delete()

    def _found(self, removal: Removal) -> list[FileEntry]:
        location = join(self._location, removal.name)
        if [file.path for file in removal.files] == [removal.name]:
            entry = self._storage.stat(location)
            if entry is None:
                raise FileNotFoundError(2, "not there", removal.name)
            return [replace(entry, path=removal.name)]
        try:
            listing = self._storage.list_tree(location)
        except RefusedError as error:
            if error.reason is Reason.LOCATION_MISSING:
                raise FileNotFoundError(2, "not there", removal.name) from None
            raise
        return [replace(file, path=f"{removal.name}/{file.path}") for file in listing.files]

    def _delete_one(self, removal: Removal) -> None:
        location = join(self._location, removal.name)
        if [file.path for file in removal.files] == [removal.name]:
            self._storage.delete_file(location)
        elif looks_acid(removal.name) or removal.whole_partition:
            self._storage.delete_tree(location)
        # original files: the directory's name may be used again at any time, and files newer than the comparison stay
        else:
            for file in removal.files:
                self._storage.delete_file(join(self._location, file.path))

    def _make(self, directory: str, made: set[str]) -> None:
        if directory not in made:
            self._make(parent(directory), made)
            self._storage.mkdir(directory)
            made.add(directory)

    def _side_by_side(self, work: Callable[[Item], None], items: Sequence[Item]) -> None:
        with ThreadPoolExecutor(self._storage.side_by_side, thread_name_prefix="removing") as pool:
            list(pool.map(work, items))

    def _path(self) -> str:
        return join(self._location, self.name)


def trash_for(storage: Storage, location: str, tag: str | int, *, recycled: bool = False) -> Trash | TrashInPlace:
    """
    A new removal: by renames or, on a store that can't rename, in place.

    Args:
        storage, location: the partition.
        tag: what the removal is for: the queue entry's id, or `aborted`.
        recycled: the files go to Hive's change management, which is on HDFS only.
    """
    return (
        Trash(storage, location, tag, recycled=recycled)
        if storage.uploads is None
        else TrashInPlace(storage, location, tag)
    )
