"""
What drivers of object stores share.

Directories can't be renamed, so files are published one by one, and removed files are deleted in place.
Source: docs/storage.md.

An object store has no directories: a directory exists when the key of an object begins with its name and a slash.
Hadoop's clients mark an empty directory with an object of no bytes, named `<directory>/` (S3A) or
`<directory>_$folder$` (s3n, EMR). Such markers count as directories here, never as files. The functions for this are
pure: they know keys and ask no store.
Source: Hadoop's S3AFileSystem, "Directory markers".
"""

import getpass
from collections.abc import Iterable
from typing import Final

from compactor.acid.listing import FileEntry
from compactor.acid.names import is_hidden
from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.storage.base import Contents, Room, Uploads
from compactor.storage.failures import missing
from compactor.storage.small_files import SmallFiles

FOLDER_SUFFIX: Final = "_$folder$"
UPLOADS: Final = "noted"
"""Name of the directory of notes; see `Uploads.prepare`. SeaweedFS lists nothing below a directory `.uploads`."""


def files_and_directories(entries: Iterable[FileEntry], location: str) -> tuple[tuple[FileEntry, ...], tuple[str, ...]]:
    """
    Files and directories of a listing, as `Listing` has them, from all keys below a location.

    Args:
        entries: paths relative to the location. A marker's path ends with `/` (the path of the location's own is
            empty).

    Raises:
        RefusedError: UNKNOWN_NAME (a key with an empty part, which no file system could show).
    """
    files: list[FileEntry] = []
    directories: set[str] = set()
    for entry in entries:
        path, is_marker = marked(entry.path, entry.length)
        if not path:
            continue
        parts = path.split("/")
        if is_hidden(parts[0]) and (len(parts) > 1 or is_marker):
            directories.add(parts[0])
            continue
        if not all(parts):
            raise RefusedError(
                Reason.UNKNOWN_NAME, f"'{location}/{entry.path}' has an empty part in its name: move it away"
            )
        directories.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
        if is_marker:
            directories.add(path)
        else:
            files.append(entry)
    return tuple(sorted(files)), tuple(sorted(directories))


def marked(path: str, length: int) -> tuple[str, bool]:
    """The path that a key stands for, and whether the key is a directory's marker."""
    if path.endswith("/"):
        return path.removesuffix("/"), True
    if length == 0 and path.endswith(FOLDER_SUFFIX):
        return path.removesuffix(FOLDER_SUFFIX), True
    return path, path == ""


class ObjectStorage(SmallFiles):
    """The part of a driver that all object stores share."""

    links: Final = False
    mounts: Final = False

    def room(self, location: str) -> Room:
        """Returns no limit: an object store reports none."""
        self._require(location)
        return Room(None, None, "nothing")

    def owner(self, location: str) -> str:
        """The user of this process, as S3A reports it: objects belong to accounts, not to users."""
        self._require(location)
        return getpass.getuser()

    def _require(self, location: str) -> None:
        if not self.exists(location):
            raise missing(location)


def require_promises(uploads: Uploads, location: str) -> None:
    """
    Raise unless the store keeps what publishing and cleaning rest on.

    Raises:
        RefusedError: UNSUPPORTED_STORE, with each promise that it breaks.
    """
    if broken := uploads.promises(location).broken:
        raise RefusedError(
            Reason.UNSUPPORTED_STORE,
            f"{location}: this store breaks what compacting on it rests on (docs/storage.md): {'; '.join(broken)}",
        )


def apart(entries: Iterable[FileEntry]) -> Contents:
    """Files and markers, of all keys below a directory (paths relative to it)."""
    files: list[FileEntry] = []
    markers: list[FileEntry] = []
    for entry in entries:
        (markers if marked(entry.path, entry.length)[1] else files).append(entry)
    return Contents(tuple(sorted(files)), tuple(sorted(markers)))


def changed(location: str, path: str, word: str) -> RefusedError:
    """The error for a listed file that isn't to be removed any more."""
    return RefusedError(
        Reason.INPUT_CHANGED, f"{location}/{path} {word} while it was being removed: it stays, and the rest with it"
    )
