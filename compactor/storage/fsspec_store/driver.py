"""
The driver for object stores that fsspec knows: Azure (`abfs:`, `abfss:`) and Google (`gs:`), each with its own package.

It only reads. What compacting rests on was never seen on a real one of these stores, and some of it is known to be
otherwise: a copy that the store reports as begun isn't complete, real directories stay when they are emptied, and
fsspec's own questions (isfile, find, walk) answer "not there" to any error. So nothing is asked but `ls`, `info` and
ranges, whose errors are told, and every change is refused.
Source: docs/storage.md; fsspec's AbstractFileSystem.
"""

import importlib
from datetime import datetime
from typing import Any, Final, NoReturn

from compactor.acid.listing import FileEntry, Listing
from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.storage.failures import missing
from compactor.storage.fsspec_store.files import FsspecReader, said
from compactor.storage.location import LocationParts, split
from compactor.storage.object_store import ObjectStorage
from compactor.storage.registry import StorageOptions, only_read

_TIMES: Final = ("mtime", "last_modified", "LastModified", "updated", "created")


class FsspecStorage(ObjectStorage):
    """
    A `Storage` on one bucket or container, for reading.

    Args:
        parts: of any location in it; for Azure the authority is `container@account`.
    """

    side_by_side: Final = 8
    uploads: Final = None

    def __init__(self, parts: LocationParts, _options: StorageOptions) -> None:
        self._parts = parts
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

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self._parts, StorageOptions())

    def list_tree(self, location: str) -> Listing:
        top = self._path(location)

        def children(below: str) -> list[tuple[str, FileEntry | None]]:
            found = self._children(f"{top}/{below}" if below else top, location)
            if not (below or found):
                self._require_directory(location)
            return [
                (name, None if info["type"] == "directory" else FileEntry(name, int(info["size"]), _mtime_ms(info)))
                for name, info in found
            ]

        return self.walked(location, children)

    def directories(self, location: str) -> tuple[str, ...]:
        try:
            children = self._children(self._path(location), location)
        except FileNotFoundError:
            return ()
        return tuple(sorted(name for name, info in children if info["type"] == "directory"))

    def stat(self, location: str) -> FileEntry | None:
        info = self._info(location)
        if info is None:
            return None
        length = 0 if info["type"] == "directory" else int(info["size"])
        return FileEntry(location, length, _mtime_ms(info))

    def open_read(self, location: str) -> FsspecReader:
        info = self._info(location)
        if info is None or info["type"] == "directory":
            raise missing(location)
        return FsspecReader(self._fs, self._path(location), location, int(info["size"]))

    # Every change is refused

    def create(self, location: str) -> NoReturn:
        raise only_read(location)

    def mkdir(self, location: str) -> None:
        raise only_read(location)

    def rename_noreplace(self, source: str, target: str) -> None:  # noqa: ARG002 - nothing is renamed
        raise only_read(target)

    def delete_file(self, location: str) -> None:
        raise only_read(location)

    def delete_tree(self, location: str) -> None:
        raise only_read(location)

    def withdraw(self, location: str, aside: str) -> bool:  # noqa: ARG002 - nothing is laid aside
        raise only_read(location)

    def link_or_copy(self, source: str, target: str) -> None:  # noqa: ARG002 - nothing is copied
        raise only_read(target)

    def adopt(self, source: str, target: str) -> None:  # noqa: ARG002 - nothing is changed
        raise only_read(target)

    def sync_directory(self, location: str) -> None:
        raise only_read(location)

    def _info(self, location: str) -> Any:
        """What the store says of an object or a directory; None when it says that nothing is there."""
        try:
            with said("look at", location):
                return self._fs.info(self._path(location))
        except FileNotFoundError:
            return None

    def _require_directory(self, location: str) -> None:
        info = self._info(location)
        if info is None or info["type"] != "directory":
            raise missing(location)

    def _children(self, path: str, location: str) -> list[tuple[str, Any]]:
        """
        Names and descriptions of what lies directly in a directory, without the object that marks the directory itself.
        """
        with said("list", location):
            found = self._fs.ls(path, detail=True)
        named = ((info["name"].strip("/"), info) for info in found)
        return [(name.removeprefix(f"{path}/"), info) for name, info in named if name.startswith(f"{path}/")]

    def _path(self, location: str) -> str:
        return f"{self._bucket}/{split(location).path.strip('/')}".rstrip("/")


def _mtime_ms(info: Any) -> int:
    """When an object was written, in milliseconds. Packages report a number of seconds, a time, or a time's text."""
    value = next((info[name] for name in _TIMES if info.get(name)), 0)
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return round((value.timestamp() if isinstance(value, datetime) else float(value)) * 1000)
