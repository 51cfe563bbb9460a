"""
Reads a partition as it is, and as it will be after a restore, and compares the rows.

Source: docs/operations.md, Restore.
"""

from collections.abc import Callable

from compactor.acid.columns import ColumnRule
from compactor.acid.listing import Listing
from compactor.acid.snapshot import ReadSnapshot
from compactor.engine.reading import PartitionReading
from compactor.engine.request import spec_of
from compactor.errors import OwnershipLostError, RefusedError
from compactor.metastore.model import Entity, TableFacts
from compactor.orc.digests.digest import Digest
from compactor.reasons import Reason
from compactor.roles.cleaner.quarantine.undo import Undo
from compactor.storage.base import Storage
from compactor.storage.forwarding import Answer, ForwardingStorage
from compactor.storage.handles import ReadHandle
from compactor.storage.location import join


def require_same_rows(
    storage: Storage,
    location: str,
    entity: Entity,
    table: TableFacts,
    rule: ColumnRule,
    *,
    undo: Undo,
    sight: ReadSnapshot,
) -> None:
    """
    Compare the rows of a full ACID table or partition before and after a restore that wasn't made yet.

    Args:
        rule: how the table's readers find its columns in a file.

    Raises:
        RefusedError: NOT_RESTORABLE: they differ, because a part of what was replaced had gone before. Others as of
            `PartitionReading`.
    """
    spec = spec_of(entity, table, rule)

    def digest(of: Storage) -> Digest:
        with PartitionReading(of, location, spec, sight) as reading:
            return reading.digest()

    if digest(storage) != digest(_Restored(storage, location, undo)):
        raise RefusedError(
            Reason.NOT_RESTORABLE, f"what {undo.away} replaced holds other rows than it: see `compactor verify`"
        )


class _Restored(ForwardingStorage):
    """A partition as it will be after a restore, for reading only."""

    def __init__(self, driver: Storage, location: str, undo: Undo) -> None:
        super().__init__(driver)
        self._location = location
        self._undo = undo

    def _call(self, call: Callable[[], Answer], *changed: str, of_content: bool = False) -> Answer:  # noqa: ARG002
        if changed:
            raise OwnershipLostError("a view of a restore changes nothing")
        return call()

    def list_tree(self, location: str) -> Listing:
        """See `Storage.list_tree`."""
        return self._undo.after if location == self._location else super().list_tree(location)

    def open_read(self, location: str) -> ReadHandle:
        """See `Storage.open_read`."""
        path = location.removeprefix(self._location.rstrip("/") + "/")
        if path.split("/", 1)[0] in self._undo.back:
            location = join(self._location, self._undo.kept, path)
        return super().open_read(location)
