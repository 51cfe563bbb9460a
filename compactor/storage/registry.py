"""
Which driver serves a location.

One driver for each scheme and authority is shared by all threads of a process. How a store is reached comes from `configure`: the daemon calls it with its
settings, and what runs on executors is sent the same value with its task. A driver whose package isn't installed is named when it is first needed.
"""

import importlib
import os
import threading
from typing import Any, Final, cast

from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.settings import Settings
from compactor.storage.away import Patient
from compactor.storage.base import Storage
from compactor.storage.beneath import RootOf
from compactor.storage.local import LocalStorage
from compactor.storage.location import Parts, local_path, split
from compactor.storage.options import StorageOptions

_DRIVERS: Final = {
    "hdfs": "compactor.storage.hdfs:HdfsStorage",
    "viewfs": "compactor.storage.hdfs:HdfsStorage",
    "s3": "compactor.storage.s3:S3Storage",
    "s3a": "compactor.storage.s3:S3Storage",
    "s3n": "compactor.storage.s3:S3Storage",
    "abfs": "compactor.storage.fsspec_objects:FsspecStorage",
    "abfss": "compactor.storage.fsspec_objects:FsspecStorage",
    "gs": "compactor.storage.fsspec_objects:FsspecStorage",
    "oss": "compactor.storage.fsspec_objects:FsspecStorage",
}
"""Scheme → module and class; made as `Class(parts, options)`. The module is imported when a location asks for it."""


class _Registry:
    """The drivers of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._options = StorageOptions()
        self._made: dict[tuple[int, str, str], Storage] = {}

    @property
    def options(self) -> StorageOptions:
        return self._options

    def configure(self, options: StorageOptions) -> None:
        with self._lock:
            if options.beneath(None) != self._options.beneath(None):
                self._made.clear()
            self._options = options

    def driver(self, parts: Parts) -> Storage:
        key = (os.getpid(), parts.scheme, parts.authority)  # a connection can't be used on both sides of a fork
        with self._lock:
            if key not in self._made:
                module, _, name = _DRIVERS[parts.scheme].partition(":")
                made: Any = getattr(importlib.import_module(module), name)(parts, self._options)
                self._made[key] = cast("Storage", Patient(made, f"{parts.scheme}://{parts.authority}"))
            return self._made[key]


_REGISTRY: Final = _Registry()


def configure(options: StorageOptions | Settings) -> None:
    """Say how stores are reached from now on, in this process; the same value again changes nothing."""
    _REGISTRY.configure(StorageOptions.of(options) if isinstance(options, Settings) else options)


def configured() -> StorageOptions:
    """What `configure` was told last; can be pickled, for tasks."""
    return _REGISTRY.options


def storage_for(location: str, root_of: RootOf | None = None) -> Storage:
    """
    The driver for a location: `file:` and plain paths are local.

    Args:
        root_of: for local ones, what is trusted on the way; None: as `configure` was told.

    Raises:
        RefusedError: UNSUPPORTED_STORE (a scheme that no driver serves, one whose package isn't installed, a relative path).
        UnreachableError: the store's client can't be made ready.
    """
    parts = split(location)
    if parts.scheme in {"", "file"}:
        if parts.authority:
            local_path(location)
        return LocalStorage(root_of or _REGISTRY.options.root_of)
    if parts.scheme not in _DRIVERS:
        known = ", ".join(f"{scheme}:" for scheme in ("file", *_DRIVERS))
        raise RefusedError(Reason.UNSUPPORTED_STORE, f"location {location!r} is on a store that isn't supported; supported are plain paths and {known}")
    return _REGISTRY.driver(parts)
