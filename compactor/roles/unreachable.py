"""
Stores that can't be reached, and directories that are missing.

`AwayStores` remembers for one role which stores it found unreachable in a cycle. Nothing else on such a store is tried
in that cycle, and in the next cycle the store comes last: one call to an unreachable store may take minutes, and a
thousand partitions may lie on it; partitions on other stores must get their turn. (`storage.circuit_breaker` makes
further calls fail at once; this module is about turns.) A finding is kept for one more cycle and no longer. Only errors
that name their store count (`UnreachableError.store`). A single file may be at fault instead of the store, so what was
skipped must be the first of its store the next time.

`require_removed` tells a directory that was removed from one whose file system isn't mounted. The missing directory
can't tell, so it asks for a directory above that is never removed together with it: for a partition the table's
directory, otherwise the next one up. When that directory is there, the missing one was removed: an unmounted file
system hides both, and leaves at most its empty mount point. When it is missing too, nothing is known. Nothing is known
either when it is empty on a file system that has mount points, since it may be one: directly above a table lies its
database's directory.
Source: docs/operations.md.
"""

import threading

from compactor.errors import RefusedError, UnreachableError
from compactor.storage.base import Storage
from compactor.storage.location import parent, split
from compactor.words import one_line


def above(location: str, table_location: str | None) -> str:
    """
    The directory that shows whether a missing one was removed. Hive removes empty directories between a table's and its
    partition's.
    """
    if table_location is not None and location.startswith(table_location.rstrip("/") + "/"):
        return table_location
    return parent(location)


def require_removed(storage: Storage, location: str, table_location: str | None) -> None:
    """
    Make sure that a directory is either there, or known to have been removed.

    Raises:
        UnreachableError: the directory is missing, and the one above is missing too or may be an empty mount point: the
            content of the directory isn't known.
    """
    if storage.exists(location):
        return
    witness = above(location, table_location)
    if not storage.exists(witness):
        raise _unmounted(witness, f"{location} is missing, and so is {witness}")
    if storage.mounts and not storage.directories(witness):
        raise _unmounted(witness, f"{location} is missing, and {witness} is empty, as a mount point would be")


def _unmounted(witness: str, found: str) -> UnreachableError:
    """The error names the witness as its store: other stores have nothing to do with it."""
    return UnreachableError(f"{found}: is the file system mounted?", store=witness)


class StoreAwayError(UnreachableError):
    """Not tried: another call has just found the same store unreachable."""


class AwayStores:
    """The stores that one role found unreachable in this cycle and the one before. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._before: frozenset[str] = frozenset()
        self._found: dict[str, str] = {}

    def begin(self) -> None:
        """Begin a cycle: every store may be tried once more."""
        with self._lock:
            self._before, self._found = frozenset(self._found), {}

    def note(self, error: BaseException) -> None:
        """Record a failure. Only an unreachable store that the error names counts."""
        if isinstance(error, UnreachableError) and error.store is not None and not isinstance(error, StoreAwayError):
            with self._lock:
                self._found.setdefault(_store_of(error.store), one_line(error))

    def check(self, location: str) -> None:
        """
        Check before the first call to a location.

        Raises:
            StoreAwayError: its store was found unreachable in this cycle.
        """
        with self._lock:
            if not self._found:
                return
            why = self._found.get(store := _store_of(location))
        if why is not None:
            raise StoreAwayError(f"{store} is away: {why}", store=store)

    def is_doubtful(self, location: str) -> bool:
        """Whether its store was found unreachable in the cycle before, or in this one: other stores come first."""
        with self._lock:
            if not (self._before or self._found):
                return False
            store = _store_of(location)
            return store in self._before or store in self._found


def news(error: BaseException) -> str:
    """
    What is new in an error: for an unreachable store only its name, since each message has another time since when it
    is unreachable.
    """
    return error.store if isinstance(error, UnreachableError) and error.store is not None else str(error)


def _store_of(location: str) -> str:
    """
    Scheme and authority. Text that is no location is returned as it is, and so has no store in common with any other.
    """
    try:
        parts = split(location)
    except RefusedError:
        return location
    return f"{parts.scheme}://{parts.authority}"
