"""
What drivers of object stores have in common: no directory can be renamed, so files are published one by one, and what is taken away is deleted where it is.

Source: docs/storage.md.
"""

import errno
import getpass
import os
from abc import abstractmethod
from typing import Final, Self

from compactor.acid.listing import FileEntry
from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.storage.base import Prepared, Room
from compactor.storage.location import Parts, parent
from compactor.storage.small_files import SmallFiles


class ObjectStorage(SmallFiles):
    """
    Part of a `Storage` on one bucket, and of its `Uploads`.

    Args:
        parts: of a location in the bucket.
    """

    links: Final = False
    mounts: Final = False

    def __init__(self, parts: Parts) -> None:
        if not parts.authority:
            raise RefusedError(Reason.UNSUPPORTED_STORE, f"an {parts.scheme}: location names a bucket: {parts.scheme}://bucket{parts.path}")

    @property
    def uploads(self) -> Self:
        """See `Storage.uploads`."""
        return self

    @abstractmethod
    def stat(self, location: str) -> FileEntry | None:
        """See `Storage.stat`."""

    @abstractmethod
    def prepare(self, source: str, target: str, owner: str) -> Prepared:
        """See `Uploads.prepare`."""

    @abstractmethod
    def owner_of(self, location: str) -> str | None:
        """See `Uploads.owner_of`."""

    @abstractmethod
    def withdraw(self, location: str, aside: str) -> bool:
        """See `Storage.withdraw`."""

    @abstractmethod
    def _is_directory(self, location: str) -> bool:
        """Whether anything lies below; the bucket itself always is one."""

    def exists(self, location: str) -> bool:
        """See `Storage.exists`."""
        return self.stat(location) is not None

    def rename_noreplace(self, source: str, target: str) -> None:
        """Refuses."""
        raise RefusedError(Reason.UNSUPPORTED_STORE, f"can't rename {source!r} to {target!r}: an object store can't rename")

    def delete_tree(self, location: str) -> None:
        """See `Storage.delete_tree`."""
        self.withdraw(location, "")

    def room(self, location: str) -> Room:
        """There is no limit that could be asked for."""
        self._require(location)
        return Room(None, None, "nothing")

    def owner(self, location: str) -> str:
        """The user of this process, as S3A says it: objects belong to accounts, not to users."""
        self._require(location)
        return getpass.getuser()

    def adopt(self, source: str, target: str) -> None:
        """Nothing is given: who may read an object is said by its bucket."""
        self._require(source)
        self._require(target)

    def sync_directory(self, location: str) -> None:
        """An object that is there is durable."""

    def _require(self, location: str) -> None:
        if not self.exists(location):
            raise missing(location)

    def _require_free(self, location: str) -> None:
        if self.exists(location):
            raise taken(location)
        if not self._is_directory(parent(location)):
            raise missing(parent(location))


def missing(location: str) -> FileNotFoundError:
    """The error for an object that isn't there."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), location)


def taken(location: str) -> FileExistsError:
    """The error for one that is."""
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), location)
