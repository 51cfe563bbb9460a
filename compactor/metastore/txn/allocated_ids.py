"""
Remembers how far transaction ids were handed out some time ago: at or below that id a missing row won't come any more.

Hive 4 takes ids from a sequence and tells by the age of the row above whether a missing row may still come. But Hive
also forgets committed rows as soon as a later one is a second old, and then all forgotten ids below a young row look
like a gap. What this process saw before needs no clock but its own.
Source: docs/metastore.md; Hive's OpenTxnsFunction, AcidTxnCleanerService.
"""

import threading
from collections import deque
from typing import Final

OPENING_MS: Final = 1000
"""
The time that the opener of a transaction has from taking the lock to committing the row
(`metastore.txn.opentxn.timeout`).
"""

SETTLED_MS: Final = 2 * OPENING_MS
"""
From this age on a row vouches for every id below it.

Hive uses OPENING_MS; but the row may itself have needed nearly that long to appear, and then an id below it can be
younger than OPENING_MS.
"""

_SETTLED_SECONDS: Final = SETTLED_MS / 1000
_APART_SECONDS: Final = 0.2


class HandedOut:
    """
    The highest transaction ids that a process saw in one database.

    Times are of the process's monotonic clock, in seconds; a pause anywhere only makes the answers more careful.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._settled = 0
        self._settled_at: float | None = None
        self._latest: deque[tuple[float, int]] = deque()

    def note(self, high: int, began: float, ended: float) -> None:
        """
        Remember the highest id that a read of the database showed.

        When the id is lower than that of an earlier read, the database isn't what it was, and everything is forgotten.
        """
        with self._lock:
            before, highest = self._latest[-1] if self._latest else (self._settled_at, self._settled)
            if high < highest:
                if before is not None and began > before:
                    self.forget()
            elif not self._latest or ended >= self._latest[-1][0] + _APART_SECONDS:
                self._latest.append((ended, high))

    def settle(self, high: int, at: float) -> None:
        """
        Remember that no transaction was being opened when ids up to `high` were handed out: each has its row or never
        will.
        """
        with self._lock:
            self._settled, self._settled_at = high, at
            self._latest.clear()

    def settled(self, began: float) -> int:
        """
        The highest id that is settled for a read that began at `began`; 0 when nothing is known.

        That id, and every id below it, has its row by now or never will.
        """
        with self._lock:
            while self._latest and self._latest[0][0] + _SETTLED_SECONDS <= began:
                self._settled_at, self._settled = self._latest.popleft()
            return self._settled

    def age(self, began: float) -> float | None:
        """Seconds since the read on which `settled` relies; None when there is none."""
        self.settled(began)
        with self._lock:
            return None if self._settled_at is None else began - self._settled_at

    def forget(self) -> None:
        """Forget everything: another server may answer from now on."""
        with self._lock:
            self._settled, self._settled_at = 0, None
            self._latest.clear()
