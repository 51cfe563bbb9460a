"""
A driver whose every change of the store is asked for first: no rename, write or deletion gets past it.

A listing is asked for too: what it finds is compacted, or judged and removed. Other reading is as it was. Whether a place may be changed is the caller's rule (`metastore.places`); this is only where it is asked. Tasks on executors are sent the bare
driver: they write below a staging directory that was made through this one.
Source: docs/storage.md.
"""

from collections.abc import Callable
from typing import Any, Final

from compactor.acid.listing import Listing
from compactor.storage.base import Prepared, Storage, Uploads

_CHANGED: Final = {
    "create": (0,),
    "mkdir": (0,),
    "rename_noreplace": (0, 1),
    "delete_file": (0,),
    "delete_tree": (0,),
    "withdraw": (0, 1),
    "link_or_copy": (1,),
    "write_small": (0,),
    "adopt": (1,),
}
"""Calls that change something, and which of their arguments are the places that are changed."""


class Guarded:
    """
    A `Storage`.

    Args:
        may_change: raises where nothing may be changed.
        may_list: raises where a listing would show what belongs to another.
    """

    def __init__(self, driver: Storage, may_change: Callable[[str], None], may_list: Callable[[str], None]) -> None:
        self._driver = driver
        self._may_change = may_change
        self._may_list = may_list

    def __reduce__(self) -> tuple[Any, ...]:
        return _bare, (self._driver,)

    @property
    def uploads(self) -> Uploads | None:
        """See `Storage.uploads`."""
        found = self._driver.uploads
        return None if found is None else _GuardedUploads(found, self._may_change)

    def list_tree(self, location: str) -> Listing:
        """See `Storage.list_tree`."""
        self._may_list(location)
        return self._driver.list_tree(location)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._driver, name)
        if name not in _CHANGED:
            return found
        places, may_change = _CHANGED[name], self._may_change

        def asked(*arguments: Any) -> Any:
            for index in places:
                may_change(arguments[index])
            return found(*arguments)

        return asked


class _GuardedUploads:
    """Publishing without renaming."""

    def __init__(self, uploads: Uploads, may_change: Callable[[str], None]) -> None:
        self._uploads = uploads
        self._may_change = may_change

    def prepare(self, source: str, target: str, owner: str) -> Prepared:
        """See `Uploads.prepare`."""
        self._may_change(target)
        return self._uploads.prepare(source, target, owner)

    def owner_of(self, location: str) -> str | None:
        """See `Uploads.owner_of`."""
        return self._uploads.owner_of(location)


def _bare(driver: Storage) -> Storage:
    return driver
