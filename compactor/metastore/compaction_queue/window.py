"""
The most urgent waiting entries of a pool, as one process last read them, for all of its workers.

A claim that asked the queue itself would read past every entry that is ready for cleaning, and all workers would want
the same row. So one reading serves many claims, and each entry goes to one worker. The row that is claimed is guarded
by its state all the same: other processes read the queue, too.
Knows no SQL.
"""

import threading
import time
from collections.abc import Callable, Collection
from typing import Final

Place = tuple[str, str, str | None]
"""Database, table and pool of an entry."""

SIZE: Final = 2000
"""Entries read at once."""
_FRESH_SECONDS: Final = 1.0
"""After that time the queue is read again: another process may have given back an entry that comes first."""
_SHARE: Final = 10
"""Of the time, one part in so many goes to reading: a long queue takes a server long, and all claims wait meanwhile."""


class Window:
    """
    The most urgent waiting entries of one pool; any number of threads may use it.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[int, Place] = {}
        self._given: set[int] = set()
        self._read_again = 0.0

    def give(
        self, read: Callable[[], Collection[tuple[int, Place]]], fits: Callable[[int, Place], bool]
    ) -> tuple[int | None, bool]:
        """
        The first entry that fits and that no other worker has been given, until `done`; and whether there may be more
        entries that weren't read. None is always the answer of a new reading.

        Args:
            read: reads at most `SIZE` entries, the most urgent first.
        """
        with self._lock:
            fresh = more = False
            while True:
                for number, place in self._waiting.items() if fresh or self._clock() < self._read_again else ():
                    if fits(number, place):
                        del self._waiting[number]
                        self._given.add(number)
                        return number, True
                if fresh:
                    return None, more
                began = self._clock()
                found = read()
                fresh, more = True, len(found) >= SIZE
                self._waiting = {number: place for number, place in found if number not in self._given}
                now = self._clock()
                self._read_again = now + max(_FRESH_SECONDS, _SHARE * (now - began))

    def done(self, numbers: Collection[int]) -> None:
        """The claims of these entries have been committed, or have come to nothing."""
        with self._lock:
            self._given.difference_update(numbers)

    def forget(self) -> None:
        """Read the queue again at the next claim: an entry was given back."""
        with self._lock:
            self._read_again = 0.0
