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
from dataclasses import dataclass
from typing import Final

from compactor.metastore.partition_names import FoldedEntity
from compactor.shared import Freshness

Place = tuple[str, str, str | None]
"""Database, table and pool of an entry."""

SIZE: Final = 2000
"""Entries read at once."""
_FRESHNESS: Final = Freshness(1.0, times=10)
"""
After that time the queue is read again: another process may have given back an entry that comes first. A long queue
takes a server long, and all claims wait meanwhile.
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """
    What one look at the queue found.

    Args:
        waiting: at most `SIZE` entries by id, the most urgent first.
        at_work: where other entries are worked on: a second one would be compacted in vain.
    """

    waiting: Collection[tuple[int, Place, FoldedEntity]]
    at_work: Collection[FoldedEntity]


class QueueWindow:
    """
    The most urgent waiting entries of one pool; any number of threads may use it.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[Place, FoldedEntity]] = {}
        self._at_work: set[FoldedEntity] = set()
        self._given: dict[int, FoldedEntity] = {}
        self._read_again = 0.0

    def give(self, read: Callable[[], Reading], fits: Callable[[int, Place], bool]) -> tuple[int | None, bool]:
        """
        The first entry that fits, of whose table or partition no other is worked on, and that no other worker has been
        given, until `done`; and whether there may be more entries that weren't read. None is always the answer of a new
        reading. Of one table or partition a reading gives one entry.
        """
        with self._lock:
            fresh = more = False
            while True:
                current = self._waiting.items() if fresh or self._clock() < self._read_again else ()
                for number, (place, entity) in current:
                    if entity not in self._at_work and fits(number, place):
                        del self._waiting[number]
                        self._given[number] = entity
                        self._at_work.add(entity)
                        return number, True
                if fresh:
                    return None, more
                began = self._clock()
                found = read()
                fresh, more = True, len(found.waiting) >= SIZE
                self._at_work = {*found.at_work, *self._given.values()}
                self._waiting = {
                    number: (place, entity) for number, place, entity in found.waiting if number not in self._given
                }
                now = self._clock()
                self._read_again = now + _FRESHNESS.seconds(now - began)

    def done(self, numbers: Collection[int]) -> None:
        """The claims of these entries have been committed, or have come to nothing."""
        with self._lock:
            for number in numbers:
                self._given.pop(number, None)

    def forget(self) -> None:
        """Read the queue again at the next claim: an entry was given back."""
        with self._lock:
            self._read_again = 0.0
