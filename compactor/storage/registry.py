"""
Finds the driver that serves a location.

All threads of a process share one driver for each scheme and authority. `configure` says how stores are reached: the
daemon passes its settings, and a task on an executor passes the same value, which is sent with the task. When a
driver's package isn't installed, its first use is refused with the package's name.

`StorageOptions` holds the settings of all drivers in one value, small enough to be sent with a task. It holds no
secrets: these are in files, in the environment, or with the machine.
"""

import os
import threading
from dataclasses import dataclass, field, replace
from typing import Final, Self

from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.settings import Settings
from compactor.settings.stores import S3, Hdfs
from compactor.storage.base import Storage
from compactor.storage.circuit_breaker import CircuitBreaker
from compactor.storage.local_fs.beneath import RootOf
from compactor.storage.local_fs.driver import LocalStorage
from compactor.storage.location import LocationParts, is_at_or_inside, local_path, place_of, split


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """
    The settings' section of each driver that has one.

    Args:
        root: path of the directory at or above all local places of a compaction; see `RootOf`.
    """

    hdfs: Hdfs = field(default_factory=Hdfs)
    s3: S3 = field(default_factory=S3)
    root: str | None = None

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The options in the settings."""
        return cls(hdfs=settings.hdfs, s3=settings.s3)

    def beneath(self, root: str | None) -> "StorageOptions":
        """The same options for a compaction below another root."""
        return self if root == self.root else replace(self, root=root)

    def root_of(self, location: str) -> str | None:
        """The `RootOf` of a compaction: `root` for a location at or inside it, else None."""
        return self.root if self.root is not None and is_at_or_inside(place_of(location), place_of(self.root)) else None

    def as_user(self, user: str) -> "StorageOptions":
        """The same options for another user of HDFS. Unchanged where `hdfs.user` isn't set."""
        return replace(self, hdfs=self.hdfs.model_copy(update={"user": user})) if self.hdfs.user is not None else self


_HDFS: Final = ("hdfs", "viewfs")
_S3: Final = ("s3", "s3a", "s3n")
_ONLY_READ: Final = ("abfs", "abfss", "gs")
"""Schemes of stores on which nothing is changed."""
_REMOTE: Final = (*_HDFS, *_S3, *_ONLY_READ)


def _driver(parts: LocationParts, options: StorageOptions) -> Storage:
    """The driver of a store on other machines, imported when a location first needs it."""
    if parts.scheme in _HDFS:
        from compactor.storage.hdfs.driver import HdfsStorage  # noqa: PLC0415

        return HdfsStorage(parts, options)
    if parts.scheme in _S3:
        from compactor.storage.s3_store.driver import S3Storage  # noqa: PLC0415

        return S3Storage(parts, options)
    from compactor.storage.fsspec_store.driver import FsspecStorage  # noqa: PLC0415

    return FsspecStorage(parts, options)


class _Registry:
    """The drivers of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.options = StorageOptions()
        self._made: dict[tuple[int, str, str], Storage] = {}

    def configure(self, options: StorageOptions) -> None:
        with self._lock:
            if options.beneath(None) != self.options.beneath(None):
                self._made.clear()
            self.options = options

    def driver(self, parts: LocationParts) -> Storage:
        key = (os.getpid(), parts.scheme, parts.authority)  # a connection can't be used on both sides of a fork
        with self._lock:
            if key not in self._made:
                driver = _driver(parts, self.options)
                self._made[key] = CircuitBreaker(driver, f"{parts.scheme}://{parts.authority}")
            return self._made[key]


_REGISTRY: Final = _Registry()


def configure(options: StorageOptions | Settings) -> None:
    """Set how stores are reached from now on, in this process. The same value again changes nothing."""
    _REGISTRY.configure(StorageOptions.of(options) if isinstance(options, Settings) else options)


def configured() -> StorageOptions:
    """The options that `configure` was given last; can be pickled, for tasks."""
    return _REGISTRY.options


def only_read(location: str) -> RefusedError:
    """The error for a change on a store that is only read."""
    return RefusedError(
        Reason.UNSUPPORTED_STORE,
        f"{location}: nothing is compacted or removed on this store, where what that rests on was never tried; tables on it can be looked at (docs/storage.md)",
    )


def require_changeable(location: str) -> None:
    """Raise RefusedError (UNSUPPORTED_STORE) for a location on a store that is only read."""
    if split(location).scheme in _ONLY_READ:
        raise only_read(location)


def storage_for(location: str, root_of: RootOf | None = None) -> Storage:
    """
    The driver for a location. `file:` locations and plain paths are local.

    Args:
        root_of: for local locations, the trusted root; None: as configured.

    Raises:
        RefusedError: UNSUPPORTED_STORE (a scheme that no driver serves, one whose package isn't installed, a relative
            path).
        UnreachableError: the store's client can't be made ready.
    """
    parts = split(location)
    if parts.scheme in {"", "file"}:
        if parts.authority:
            local_path(location)
        return LocalStorage(root_of or _REGISTRY.options.root_of)
    if parts.scheme not in _REMOTE:
        known = ", ".join(f"{scheme}:" for scheme in ("file", *_REMOTE))
        raise RefusedError(
            Reason.UNSUPPORTED_STORE,
            f"location {location!r} is on a store that isn't supported; supported are plain paths and {known}",
        )
    return _REGISTRY.driver(parts)
