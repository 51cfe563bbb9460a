"""
Compactions that were given back because something they need is away or broke down: when such an entry is tried again, and when anything is.

Shared by the workers of a process, and forgotten with it; what is counted for longer is in `breakdowns`. What is away may be needed by all (Spark, the metastore):
after each one in a row nothing is claimed for a while, twice as long each time. Where it is known to be one store, only what lies there waits, each of its entries
and, as soon as they are known, all together: one after the other finds out whether it is back. The entry itself is left alone for longer, and gets its next turn by
`rotation`. One that a step failed for again and again is given up. That something can't be reached is no fault of the entry's, and never counted.

Knows, too, which attempts ended and can't be undone yet (`settling`).
Source: docs/operations.md.
"""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from compactor.engine.submit import SessionEndedError
from compactor.errors import RefusedError, UnreachableError
from compactor.metastore.model import QueueEntry
from compactor.reasons import Reason
from compactor.roles.breakdowns import ATTEMPTS
from compactor.roles.rotation import Rotation

FIRST_SECONDS = 5.0
LONGEST_SECONDS = 320.0
_KEPT_SECONDS = 24 * 3600.0
"""An entry that didn't come back for so long is somebody else's, or gone."""
_FORGET_SECONDS = 60.0
Take = Callable[[frozenset[int], frozenset[int] | None], QueueEntry | None]


@dataclass(slots=True)
class _Aside:
    until: float
    tried: int
    times: int = 0
    broke_down: int = 0
    store: str | None = None
    reason: Reason | None = None
    since: float = 0.0


@dataclass(slots=True)
class _Store:
    until: float = 0.0
    times: int = 0


class Setbacks:
    """
    Safe for concurrent callers.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._rotation = Rotation()
        self._aside: dict[int, _Aside] = {}
        self._stores: dict[str, _Store] = {}
        self._unsettled: dict[object, str] = {}
        self._until = 0.0
        self._why = ""
        self._pauses = 0
        self._compacted: float | None = None
        self._forgot = clock()
        self.in_a_row = 0
        """Entries given back since one was compacted."""

    def may_be_tried_again(self, entry: QueueEntry) -> bool:
        """Whether this entry may go back into the queue after one more breakdown, as far as this process remembers."""
        with self._lock:
            aside = self._aside.get(entry.id)
            return aside is None or aside.broke_down + 1 < ATTEMPTS

    def given_back(self, entry: QueueEntry, error: Exception) -> None:
        """This entry goes back into the queue, for that error."""
        with self._lock:
            now = self.clock()
            aside = self._set_aside(entry, now)
            aside.reason = None
            aside.broke_down += not isinstance(error, UnreachableError | SessionEndedError)
            aside.store = error.store if isinstance(error, UnreachableError) else None
            self.in_a_row += 1
            if aside.store is None:
                self._pauses += now >= self._until  # what was claimed before a pause began, and ends during it, tells nothing new
                self._until = now + pause_after(self._pauses)
            elif now >= (store := self._stores.setdefault(aside.store, _Store())).until:  # nor does what is claimed for the first time meanwhile
                store.times += 1
                store.until = now + pause_after(store.times)
            self._why = f"compaction {entry.id} of {entry.entity} was given back: {' '.join(str(error).split())}"

    def leave(self, entry: QueueEntry, why: Exception) -> int:
        """
        This entry goes back into the queue, since something else comes first, or there is no room for it; nothing else is wrong, and others are claimed.

        Returns how often it went, in a row.
        """
        with self._lock:
            now = self.clock()
            aside = self._set_aside(entry, now)
            aside.store = None
            reason = why.reason if isinstance(why, RefusedError) else None
            if aside.reason is not reason:
                aside.reason, aside.since = reason, now
            if not self.in_a_row:
                self._why = f"compaction {entry.id} of {entry.entity} waits: {' '.join(str(why).split())}"
            return aside.times

    def left_for(self, entry: QueueEntry, reason: Reason) -> float:
        """For how many seconds this entry has been left for this reason and no other, as far as this process remembers."""
        with self._lock:
            aside = self._aside.get(entry.id)
            return 0.0 if aside is None or aside.reason is not reason else self.clock() - aside.since

    def ended(self, entry: QueueEntry, *, compacted: bool) -> None:
        """This entry is done, one way or another; when it was compacted, whatever was away is there, and so is the store that it waited for."""
        with self._lock:
            aside = self._aside.pop(entry.id, None)
            if compacted:
                self._compacted = self.clock()
                self._all_is_well()
                if aside is not None and aside.store is not None:
                    self._stores.pop(aside.store, None)

    def claim(self, pool: str | None, take: Take) -> QueueEntry | None:
        """
        Claim what comes next; None: nothing may be claimed now that waits.

        Args:
            take: claims the oldest entry of the pool without these ids, and among those, None being all.

        Raises:
            CompactorError: what `take` raises.
        """
        with self._lock:
            now = self.clock()
            due = {number: aside.tried for number, aside in self._aside.items() if self._due(aside) <= now}
            looks = self._rotation.looks(pool, self._aside.keys() - due.keys(), due)
        for look in looks:
            if (entry := take(look.without, look.among)) is not None:
                with self._lock:
                    number = self._rotation.found(pool, look)
                    if (aside := self._aside.get(entry.id)) is not None:
                        aside.tried = number
                return entry
        return None

    def pause(self) -> str | None:
        """Why nothing is claimed now; None: claim."""
        with self._lock:
            left = self._until - self.clock()
            return f"{self._why}; next try in {left:.0f} s" if self.in_a_row and left > 0 else None

    def nothing_else(self, still_ours: Callable[[int], bool]) -> str | None:
        """
        Nothing was found besides those: until when they are waited for; None when their time has come, and nothing is in the way when none is left to do.

        Args:
            still_ours: whether an entry waits, or is being tried by another worker of this process; by its id.

        Raises:
            CompactorError: what `still_ours` raises.
        """
        with self._lock:
            now = self.clock()
            left = [until - now for until in map(self._due, self._aside.values()) if until > now]
            if left:
                return f"{self._why}; next try in {min(left):.0f} s"
            before, known = self.in_a_row, list(self._aside)
        gone = list(itertools.takewhile(lambda number: not still_ours(number), known))
        with self._lock:
            for number in gone:
                self._aside.pop(number, None)  # or it would be asked for again and again
            if before and len(gone) == len(known) and self.in_a_row == before:
                self._all_is_well()
        return None

    def kept(self, attempt: object, sentence: str) -> None:
        """An attempt has ended and can't be undone yet."""
        with self._lock:
            self._unsettled[attempt] = sentence

    def settled(self, attempt: object) -> None:
        """Nothing of it is left."""
        with self._lock:
            self._unsettled.pop(attempt, None)

    @property
    def unsettled(self) -> int:
        """Attempts that have ended and can't be undone yet."""
        return len(self._unsettled)

    def waiting_for_stores(self) -> Mapping[str, int]:
        """How many entries were given back because a store is away, by store."""
        with self._lock:
            return Counter(aside.store for aside in self._aside.values() if aside.store is not None)

    def trouble(self) -> str | None:
        """
        What stands in the way of compactions, for /-/ready.

        A store that is away doesn't while others are compacted: its entries are given back now and then, and that is no news. It does when nothing was compacted for as
        long as an entry waits at most.
        """
        with self._lock:
            told = list(self._unsettled.values())
            lately = self._compacted is not None and self.clock() - self._compacted < 2 * LONGEST_SECONDS
            if self.in_a_row and (self._pauses or not lately):
                told.insert(0, f"{self.in_a_row} given back in a row, the latest: {self._why}")
            return "; ".join(told) or None

    def _due(self, aside: _Aside) -> float:
        store = self._stores.get(aside.store) if aside.store is not None else None
        return aside.until if store is None else max(aside.until, store.until)

    def _set_aside(self, entry: QueueEntry, now: float) -> _Aside:
        """Once more; what never came back is forgotten."""
        if now - self._forgot >= _FORGET_SECONDS:
            self._forgot = now
            self._aside = {number: aside for number, aside in self._aside.items() if now - aside.until < _KEPT_SECONDS}
            still = {aside.store for aside in self._aside.values()}
            self._stores = {name: store for name, store in self._stores.items() if name in still}
        aside = self._aside.setdefault(entry.id, _Aside(now, 0))
        aside.tried = self._rotation.number()
        aside.times += 1
        aside.until = now + 2 * pause_after(aside.times)
        return aside

    def _all_is_well(self) -> None:
        self.in_a_row, self._pauses, self._until = 0, 0, 0.0


def pause_after(times: int) -> float:
    """Seconds until the next try, after so many in a row."""
    return float(min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** min(times - 1, 10)))
