"""
The driver for object stores that fsspec knows: Azure (`abfs:`, `abfss:`), Google (`gs:`), Alibaba (`oss:`), each with its own package.

Only tested with fsspec's own file system in memory. So it asks for as little as can be: list, read a range, write a whole object, copy one, delete. Nothing can be
prepared under a final name: a result is written in place, file by file, by the store's copying; what fences a paused worker is that the source is gone. Bytes that
are put together here pass through us. Credentials come from where each package looks for them.
Source: docs/storage.md; fsspec's AbstractFileSystem.
"""

import importlib
from datetime import datetime
from typing import Any, Final

from compactor.acid.listing import FileEntry, Listing
from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.storage.fsspec_files import FsspecReader, FsspecWriter, said
from compactor.storage.location import Parts, parent, split
from compactor.storage.object_storage import ObjectStorage, missing, taken
from compactor.storage.objects import files_and_directories
from compactor.storage.options import StorageOptions

_MARKER: Final = ".compactor-directory"
_TIMES: Final = ("mtime", "last_modified", "LastModified", "updated", "created")


class FsspecStorage(ObjectStorage):
    """
    A `Storage` on one bucket or container.

    Args:
        parts: of a location in it; for Azure the authority is `container@account`.
    """

    side_by_side: Final = 8

    def __init__(self, parts: Parts, _options: StorageOptions) -> None:
        super().__init__(parts)
        self._bucket, _, account = parts.authority.partition("@")
        named = {"account_name": account.split(".", 1)[0]} if account else {}
        try:
            fsspec = importlib.import_module("fsspec")
            self._fs: Any = fsspec.filesystem(parts.scheme, use_listings_cache=False, **named)
        except (ImportError, ValueError) as error:
            raise RefusedError(Reason.UNSUPPORTED_STORE, f"{parts.scheme}: locations need compactor[fsspec] and the store's own package: {error}") from None
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

    def pending(self, location: str) -> tuple[str, ...]:  # noqa: ARG002 - nothing is prepared unseen
        """See `Storage.pending`."""
        return ()

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
        """Have the store copy an object; FileNotFoundError, FileExistsError."""
        if self.exists(target):
            raise taken(target)
        with said("copy", source):
            if not self._fs.isfile(self._path(source)):
                raise missing(source)
            self._fs.cp_file(self._path(source), self._path(target))

    # Publishing

    def prepare(self, source: str, target: str, owner: str) -> "FsspecCopy":
        self._require(source)
        return FsspecCopy(self, source, target, owner)

    def owner_of(self, location: str) -> str | None:
        """Known only to whoever completed it; for everybody else it was made otherwise."""
        return self._completed.get(self._path(location), "") if self.exists(location) else None

    def completed(self, location: str, owner: str) -> None:
        """Remember who completed a file."""
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
    """A `Prepared` that does all its work when it is completed."""

    def __init__(self, storage: FsspecStorage, source: str, target: str, owner: str) -> None:
        self._storage = storage
        self._source = source
        self._owner = owner
        self.target: Final = target

    def complete(self) -> None:
        """See `Prepared.complete`; between looking and copying somebody else's file could be replaced."""
        self._storage.copy(self._source, self.target)
        self._storage.completed(self.target, self._owner)

    def abort(self) -> None:
        """Nothing was begun."""


def _marker_or_file(path: str) -> str:
    """Our own marker is its directory's."""
    return path.removesuffix(_MARKER) if path == _MARKER or path.endswith(f"/{_MARKER}") else path


def _mtime_ms(info: Any) -> int:
    """When an object was written, as its package says it: a number of seconds, a time, or its text."""
    value = next((info[name] for name in _TIMES if info.get(name)), 0)
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return round((value.timestamp() if isinstance(value, datetime) else float(value)) * 1000)
