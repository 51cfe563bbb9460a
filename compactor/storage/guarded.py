"""
Wraps a driver so that each change of the store is checked first: no rename, write or deletion passes unchecked.

The caller's rule (`metastore.locations.places`) decides whether a place may be changed; this module only applies it.
Tasks on executors use the bare driver: they write below a staging directory that was made through the guarded one.
Source: docs/storage.md.
"""

from collections.abc import Callable

from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.storage.base import Contents, PreparedFile, Promises, Storage, Uploads
from compactor.storage.forwarding import Answer, ForwardingStorage


class Guarded(ForwardingStorage):
    """
    A `Storage` whose changes are checked.

    Args:
        may_change: raises RefusedError for a location that may not be changed.
        refused: called for each refusal, and for each call that was refused for a symbolic link on its way.
    """

    def __init__(self, driver: Storage, may_change: Callable[[str], None], refused: Callable[[], None]) -> None:
        super().__init__(driver)
        self._may_change = may_change
        self._refused = refused

    @property
    def uploads(self) -> Uploads | None:
        found = self._driver.uploads
        return None if found is None else _GuardedUploads(found, self._ask)

    def _call(self, call: Callable[[], Answer], *changed: str, of_content: bool = False) -> Answer:  # noqa: ARG002
        for location in changed:
            self._ask(location)
        try:
            return call()
        except RefusedError as error:
            if error.reason is Reason.UNSAFE_LOCATION:
                self._refused()
            raise

    def _ask(self, location: str) -> None:
        try:
            self._may_change(location)
        except RefusedError:
            self._refused()
            raise


class _GuardedUploads(Uploads):
    """`Uploads` whose changes are checked."""

    def __init__(self, uploads: Uploads, may_change: Callable[[str], None]) -> None:
        self._uploads = uploads
        self._may_change = may_change

    def prepare(self, source: str, target: str, owner: str, records: str) -> PreparedFile:
        self._may_change(target)
        self._may_change(records)
        return self._uploads.prepare(source, target, owner, records)

    def owner_of(self, location: str) -> str | None:
        return self._uploads.owner_of(location)

    def contents(self, location: str) -> Contents:
        return self._uploads.contents(location)

    def delete_listed(self, location: str, listed: Contents, still: Callable[[], None]) -> None:
        self._may_change(location)
        self._uploads.delete_listed(location, listed, still)

    def promises(self, location: str) -> Promises:
        self._may_change(location)
        return self._uploads.promises(location)
