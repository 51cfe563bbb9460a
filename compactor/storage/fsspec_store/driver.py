"""
The driver for object stores that fsspec knows: Azure (`abfs:`, `abfss:`), Google (`gs:`), Alibaba (`oss:`), each with
its own package.

Only tested with fsspec's own file system in memory. So the driver uses as few calls as possible: list, read a range,
write a whole object, copy an object, delete. Nothing can be prepared under a final name: the store copies a result into
place, file by file. A paused worker is fenced off because the source of its copies is gone. Bytes that are put together
pass through this process. Credentials come from where each package looks for them.
Source: docs/storage.md; fsspec's AbstractFileSystem.
"""

import importlib
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from compactor.acid.listing import FileEntry, Listing
from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.storage.base import Contents, Promises
from compactor.storage.fsspec_store.files import FsspecReader, FsspecWriter, said
from compactor.storage.location import LocationParts, join, parent, split
from compactor.storage.object_store import ObjectStorage, changed, files_and_directories, missing, taken
from compactor.storage.registry import StorageOptions

_MARKER: Final = ".compactor-directory"
_TIMES: Final = ("mtime", "last_modified", "LastModified", "updated", "created")


class FsspecStorage(ObjectStorage):
    """
    A `Storage` on one bucket or container.

    Args:
        parts: of any location in it; for Azure the authority is `container@account`.
    """

    side_by_side: Final = 8

    def __init__(self, parts: LocationParts, _options: StorageOptions) -> None:
        super().__init__(parts)
        self._bucket, _, account = parts.authority.partition("@")
        named = {"account_name": account.split(".", 1)[0]} if account else {}
        try:
            fsspec = importlib.import_module("fsspec")
            self._fs: Any = fsspec.filesystem(parts.scheme, use_listings_cache=False, **named)
        except (ImportError, ValueError) as error:
            raise RefusedError(
                Reason.UNSUPPORTED_STORE,
                f"{parts.scheme}: locations need compactor[fsspec] and the store's own package: {error}",
            ) from None
        self._completed: dict[str, str] = {}

    # Looking

    def list_tree(self, location: str) -> Listing:
        path = self._path(location)
        with said("list", location):
            found = self._fs.find(path, detail=True)
        keys = ((name.lstrip("/"), info) for name, info in found.items())
        below = ((key.removeprefix(f"{path}/"), info) for key, info in keys if key.startswith(f"{path}/"))
        entries = [FileEntry(_marker_or_file(key), int(info.get("size") or 0), _mtime_ms(info)) for key, info in below]
        if not entries:
            raise RefusedError(Reason.LOCATION_MISSING, f"directory {location!r} doesn't exist")
        files, directories = files_and_directories(entries, location)
        return self.listing(location, files, directories)

    def directories(self, location: str) -> tuple[str, ...]:
        try:
            return tuple(name for name in self.list_tree(location).directories if "/" not in name)
        except RefusedError as error:
            if error.reason is Reason.LOCATION_MISSING:
                return ()
            raise

    def stat(self, location: str) -> FileEntry | None:
        path = self._path(location)
        with said("look at", location):
            if self._fs.isfile(path):
                info = self._fs.info(path)
                return FileEntry(location, int(info["size"]), _mtime_ms(info))
            found = self._fs.find(path, detail=True, maxdepth=None)
        if not found:
            return None
        return FileEntry(location, 0, max(_mtime_ms(info) for info in found.values()))

    # Reading and writing

    def open_read(self, location: str) -> FsspecReader:
        path = self._path(location)
        with said("read", location):
            if not self._fs.isfile(path):
                raise missing(location)
            return FsspecReader(self._fs, path, location, int(self._fs.info(path)["size"]))

    def create(self, location: str) -> FsspecWriter:
        self._require_free(location)
        return FsspecWriter(self._fs, self._path(location), location)

    def mkdir(self, location: str) -> None:
        self._require_free(location)
        with said("make directory", location):
            self._fs.pipe_file(f"{self._path(location)}/{_MARKER}", b"")

    def link_or_copy(self, source: str, target: str) -> None:
        self._require_free(target)
        self.copy(source, target)

    def copy(self, source: str, target: str) -> None:
        """
        Let the store copy an object. Raises FileNotFoundError (no source) and FileExistsError (the target exists).
        """
        if self.exists(target):
            raise taken(target)
        with said("copy", source):
            if not self._fs.isfile(self._path(source)):
                raise missing(source)
            self._fs.cp_file(self._path(source), self._path(target))

    # Publishing

    def prepare(self, source: str, target: str, owner: str, records: str) -> "FsspecCopy":  # noqa: ARG002 - see below
        """See `Uploads.prepare`. Nothing is under way before the copy, which needs its source: nothing is noted."""
        self._require(source)
        return FsspecCopy(self, source, target, owner)

    def owner_of(self, location: str) -> str | None:
        """
        See `Uploads.owner_of`. Only the process that completed the file knows its owner; all others get an empty
        answer.
        """
        return self._completed.get(self._path(location), "") if self.exists(location) else None

    def completed(self, location: str, owner: str) -> None:
        """Record the owner of a completed file."""
        self._completed[self._path(location)] = owner

    # Removing

    def delete_file(self, location: str) -> None:
        path = self._path(location)
        with said("delete", location):
            there = self._fs.isfile(path)
        if there and self._delete([path], location):
            self._keep_directory(parent(location))

    def withdraw(self, location: str, aside: str) -> bool:  # noqa: ARG002 - nothing can be laid aside here
        path = self._path(location)
        if path == self._bucket:
            raise RefusedError(Reason.UNKNOWN_NAME, f"{location} is a whole bucket: that isn't removed")
        with said("delete", location):
            found = list(self._fs.find(path))
        if not self._delete(found, location):
            return False
        self._keep_directory(parent(location))
        return True

    def contents(self, location: str) -> Contents:
        path = self._path(location)
        with said("list", location):
            found = self._fs.find(path, detail=True)
        keys = ((name.lstrip("/"), info) for name, info in found.items())
        entries = [
            FileEntry(key.removeprefix(f"{path}/"), int(info.get("size") or 0), _mtime_ms(info))
            for key, info in keys
            if key.startswith(f"{path}/")
        ]
        markers = {entry for entry in entries if _marker_or_file(entry.path) != entry.path}
        return Contents(tuple(sorted(set(entries) - markers)), tuple(sorted(markers)))

    def delete_listed(self, location: str, listed: Contents, still: Callable[[], None]) -> None:
        still()
        for entry in sorted(listed.files):
            now = self.stat(join(location, entry.path))
            if now is None or (now.length, now.mtime_ms) != (entry.length, entry.mtime_ms):
                raise changed(location, entry.path, "is missing" if now is None else "was replaced")
            self._delete([self._path(join(location, entry.path))], location)
        for top in sorted({marker.path.split("/", 1)[0] for marker in listed.markers}):
            if not self.contents(join(location, top)).files:
                still()
                markers = [marker.path for marker in listed.markers if marker.path.startswith(f"{top}/")]
                self._delete([self._path(join(location, marker)) for marker in markers], location)

    def promises(self, location: str) -> Promises:  # noqa: ARG002 - nothing to be tried: no condition is sent
        """See `Uploads.promises`."""
        return Promises(missed=("delete-if-match",))

    def _delete(self, paths: list[str], location: str) -> bool:
        with said("delete", location):
            for path in paths:
                try:
                    self._fs.rm_file(path)
                except FileNotFoundError:
                    continue
        return bool(paths)

    def _keep_directory(self, location: str) -> None:
        if not self.exists(location):
            with said("make directory", location):
                self._fs.pipe_file(f"{self._path(location)}/{_MARKER}", b"")

    def _is_directory(self, location: str) -> bool:
        path = self._path(location)
        if path == self._bucket:
            return True
        with said("list", location):
            return any(name.lstrip("/").startswith(f"{path}/") for name in self._fs.find(path))

    def _path(self, location: str) -> str:
        return f"{self._bucket}/{split(location).path.strip('/')}".rstrip("/")


class FsspecCopy:
    """A `PreparedFile` that does all its work when it is completed."""

    def __init__(self, storage: FsspecStorage, source: str, target: str, owner: str) -> None:
        self._storage = storage
        self._source = source
        self._owner = owner
        self.target: Final = target

    def complete(self) -> None:
        """
        See `PreparedFile.complete`. A file that another process makes between the check and the copy could be replaced.
        """
        self._storage.copy(self._source, self.target)
        self._storage.completed(self.target, self._owner)

    def abort(self) -> None:
        """Does nothing: nothing was begun."""


def _marker_or_file(path: str) -> str:
    """An object's path. The driver's own marker becomes its directory's path with a slash at the end."""
    return path.removesuffix(_MARKER) if path == _MARKER or path.endswith(f"/{_MARKER}") else path


def _mtime_ms(info: Any) -> int:
    """When an object was written, in milliseconds. Packages report a number of seconds, a time, or a time's text."""
    value = next((info[name] for name in _TIMES if info.get(name)), 0)
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return round((value.timestamp() if isinstance(value, datetime) else float(value)) * 1000)
