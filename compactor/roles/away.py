"""
Which stores were found away in one cycle of a role: what else lies there isn't tried again in that cycle, and in the next one it comes last.

One call to a store that is away may take minutes, and a thousand partitions may lie on it; those on other stores must get their turn. (That others fail at once is
`storage.away`'s; here it is about turns.) Knows what was tried, and nothing for longer than one more cycle. Only errors that name their store count
(`UnreachableError.store`). It may be one file's fault, so who was skipped must be first the next time. Source: docs/operations.md.
"""

import threading

from compactor.errors import RefusedError, UnreachableError
from compactor.storage.location import split


class StoreAwayError(UnreachableError):
    """Not tried: something else on the same store has just found it away."""


class AwayStores:
    """Safe in any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._before: frozenset[str] = frozenset()
        self._found: dict[str, str] = {}

    def begin(self) -> None:
        """A cycle begins: everything may be tried once more."""
        with self._lock:
            self._before, self._found = frozenset(self._found), {}

    def note(self, error: BaseException) -> None:
        """Something failed with this; what isn't a store that is away, or doesn't say which, counts for nothing."""
        if isinstance(error, UnreachableError) and error.store is not None and not isinstance(error, StoreAwayError):
            with self._lock:
                self._found.setdefault(_store_of(error.store), " ".join(str(error).split()))

    def check(self, location: str) -> None:
        """
        Before something at this location is tried.

        Raises:
            StoreAwayError: its store was found away in this cycle.
        """
        store = _store_of(location)
        with self._lock:
            why = self._found.get(store)
        if why is not None:
            raise StoreAwayError(f"{store} is away: {why}", store=store)

    def is_doubtful(self, location: str) -> bool:
        """Whether its store was found away in the latest cycle, or in this one: others first."""
        store = _store_of(location)
        with self._lock:
            return store in self._before or store in self._found


def news(error: BaseException) -> str:
    """What an error tells that wasn't told before: of a store that is away its name, for since when it is away is another time in each message."""
    return error.store if isinstance(error, UnreachableError) and error.store is not None else str(error)


def _store_of(location: str) -> str:
    """Scheme and authority; of what is no location, itself: then it has no store in common with anything."""
    try:
        parts = split(location)
    except RefusedError:
        return location
    return f"{parts.scheme}://{parts.authority}"
