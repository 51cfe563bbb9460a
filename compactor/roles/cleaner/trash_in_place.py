"""
Removes directories on stores that can't rename: what is to go stays where it is, is compared once more directly before,
and then deleted in place.

A hidden directory inside the partition is the sign of a removal:

    .trash-compactor-<tag>-<token>           empty; a Cleaner that misses its sign has a successor, and removes nothing
    .trash-compactor-<tag>-<token>-kept      quarantine: copies made by the store

Only what was listed and compared is deleted, by key and version. Before each batch the driver compares it again, and the
caller asks the metastore again, since names come back: a table that is dropped and re-created counts its write ids from
1, and lays its files where the old ones were. Between that answer and the deletion there is a moment in which the
process may be stopped. A rename would do both in one step, and these stores have none. Then a store that deletes
conditionally (`delete-if-match`) still deletes nothing but objects with the content that was compared.
Source: docs/storage.md.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from compactor.acid.listing import FileEntry
from compactor.acid.names import is_hidden, looks_acid
from compactor.engine.staging.directory import at_once
from compactor.errors import CompactorError, OwnershipLostError, RefusedError
from compactor.reasons import Reason
from compactor.roles.cleaner.quarantine.manifest import MANIFEST
from compactor.roles.cleaner.trash import KEPT, Removal, Trash
from compactor.storage.base import Contents, Storage, Uploads
from compactor.storage.location import join, parent
from compactor.storage.object_store import require_promises


class TrashInPlace(Trash):
    """
    A `Trash` into which nothing is moved: its directory is the sign.

    Args:
        uploads: the store's.
        still: raises when nothing more may be removed; called before each batch.
    """

    def __init__(
        self, storage: Storage, uploads: Uploads, location: str, tag: str | int, still: Callable[[], None]
    ) -> None:
        super().__init__(storage, location, tag)
        self._uploads = uploads
        self._still = still
        self._removals: list[Removal] = []
        self._seen: dict[str, Contents] = {}

    def open(self) -> None:
        """
        Make the sign. The next Cleaner takes it away.

        Raises:
            RefusedError: UNSUPPORTED_STORE, the store breaks a promise.
        """
        require_promises(self._uploads, self._location)
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
            seen = self._look(removal)
            if difference := sorted(set(_visible(removal, seen.files)) ^ set(removal.files)):
                word = "is missing or changed" if difference[0] in removal.files else "appeared or changed"
                raise RefusedError(
                    Reason.INPUT_CHANGED, f"{difference[0].path} {word} while it was being removed; nothing was removed"
                )
            self._seen.setdefault(removal.name, seen)

    def require_closed(self) -> None:
        """Does nothing: on such a store a file isn't there before it is complete."""

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
        """
        Delete what was compared, and then the sign.

        Raises:
            RefusedError: INPUT_CHANGED, a file isn't the one that was compared: it stays, and the rest with it.
            CompactorError: `still` says that nothing more may be removed.
        """
        whole = [self._seen[removal.name] for removal in self._removals if _goes_whole(removal)]
        originals = [file for removal in self._removals if not _goes_whole(removal) for file in removal.files]
        listed = Contents(
            (*chain.from_iterable(seen.files for seen in whole), *originals),
            tuple(chain.from_iterable(seen.markers for seen in whole)),
            tuple(chain.from_iterable(seen.uploads for seen in whole)),
        )
        self._uploads.delete_listed(self._location, listed, self._still)
        # a directory of original files stays, empty: its name may be used again at any time
        for directory in sorted({parent(join(self._location, file.path)) for file in originals}):
            with contextlib.suppress(FileExistsError):
                self._storage.mkdir(directory)
        self._storage.delete_tree(self._path())

    def keep(self, manifest: bytes) -> None:
        """
        Have the store copy everything aside, then write the manifest, which says that all of it is there, then delete.

        A copy that was cut off has no manifest, and everything is in its place still; after an error the copy goes.
        """
        self.decide()
        files = [
            (join(self._location, file.path), join(self._location, self.name + KEPT, file.path))
            for removal in self._removals
            for file in removal.files
        ]
        kept = join(self._location, self.name + KEPT)
        self._storage.mkdir(kept)
        try:
            made = {self._location, kept}
            for _, target in files:
                self._make(parent(target), made)
            at_once(self._storage.side_by_side, [partial(self._storage.link_or_copy, *pair) for pair in files])
            self._storage.write_small(join(kept, MANIFEST), manifest)
            self.decide()
        except Exception:
            with contextlib.suppress(CompactorError, OSError):
                self._storage.delete_tree(kept)
            raise
        self.delete()

    def _look(self, removal: Removal) -> Contents:
        """
        What lies in a directory now, with paths relative to the partition.

        Raises:
            FileNotFoundError: the directory or file isn't there.
        """
        location = join(self._location, removal.name)
        if _is_file(removal):
            entry = self._storage.stat(location)
            if entry is None:
                raise FileNotFoundError(2, "not there", removal.name)
            return Contents((replace(entry, path=removal.name),))
        found = self._uploads.contents(location)
        if not (found.files or found.markers):
            raise FileNotFoundError(2, "not there", removal.name)
        return Contents(
            tuple(replace(file, path=f"{removal.name}/{file.path}") for file in found.files),
            tuple(replace(marker, path=f"{removal.name}/{marker.path}") for marker in found.markers),
            tuple((f"{removal.name}/{path}", upload_id) for path, upload_id in found.uploads),
        )

    def _make(self, directory: str, made: set[str]) -> None:
        if directory not in made:
            self._make(parent(directory), made)
            self._storage.mkdir(directory)
            made.add(directory)


def _is_file(removal: Removal) -> bool:
    return [file.path for file in removal.files] == [removal.name]


def _goes_whole(removal: Removal) -> bool:
    """Whether the directory goes too: one of a write id, or a dropped table's or partition's."""
    return not _is_file(removal) and (looks_acid(removal.name) or removal.whole_partition)


def _visible(removal: Removal, files: Iterable[FileEntry]) -> Iterator[FileEntry]:
    """The files that a listing of a removed directory shows: of a whole partition none in hidden directories."""
    for file in files:
        parts = file.path.split("/")
        if not (removal.whole_partition and len(parts) > 2 and is_hidden(parts[1])):
            yield file


def trash_for(
    storage: Storage, location: str, tag: str | int, *, still: Callable[[], None], recycled: bool = False
) -> Trash:
    """
    A new removal: by renames or, on a store that can't rename, in place.

    Args:
        storage, location: the partition.
        tag: what the removal is for: the queue entry's id, or `aborted`.
        still: raises when nothing more may be removed; asked again and again where files are deleted in place.
        recycled: the files go to Hive's change management, which is on HDFS only.
    """
    uploads = storage.uploads
    if uploads is None:
        return Trash(storage, location, tag, recycled=recycled)
    return TrashInPlace(storage, uploads, location, tag, still)
