"""
When entries that were given back are retried, when anything may be claimed, and when a worker need not query the queue.

`Backoff` is shared by the workers of a process and forgotten with it; counts that must last longer are in `failures`.
An entry is given back because a service or store that it needs is unreachable, or its work broke down:

- What is unreachable may be needed by all entries (Spark, the metastore). After each entry given back in a row, the
  process claims nothing from its compaction pool for a while, twice as long each time. Not from any pool: then one
  whose entries are given back within a moment could begin the next pause before others had looked.
- When one store is known to be unreachable, only entries on that store wait: each by itself and, as soon as they are
  known to lie there, all together. One after the other finds out whether the store is back.
- The entry itself waits longer, and gets its next turn by `claim_order`.
- An entry for which a step fails again and again is given up. An unreachable service or store is never counted: that is
  no fault of the entry's.

`Backoff` also knows which attempts have ended and can't be undone yet (`rollback`).

`SharedLooks` shares the workers' queries of the queue. Each worker asks the database once per `worker.poll_seconds`;
with many workers all but one of the queries are idle. So a worker believes another worker that has just found nothing,
but never its own query, and never for longer than the wait between two queries.
Source: docs/operations.md.
"""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from compactor.errors import RefusedError, UnreachableError
from compactor.metastore.model import QueueEntry
from compactor.reasons import Reason
from compactor.roles.cycle import Clock, Phrase
from compactor.roles.worker.claim_order import ClaimOrder, QueueLook
from compactor.roles.worker.failures import ATTEMPTS
from compactor.spark.submitter import SessionEndedError
from compactor.words import one_line

_SHARE: Final = 0.8
"""
Share of the wait between two queries for which another worker is believed. With the whole wait, workers that wake a
little early would take turns in believing each other for ever.
"""
FIRST_SECONDS = 5.0
LONGEST_SECONDS = 320.0
_KEPT_SECONDS = 24 * 3600.0
"""An entry that didn't come back for so long is another daemon's, or gone."""
_FORGET_SECONDS = 60.0
Take = Callable[[frozenset[int], frozenset[int] | None], QueueEntry | None]
See = Callable[[frozenset[int], frozenset[int] | None], int | None]


class SharedLooks:
    """Which worker found nothing, and when, per compaction pool. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str | None, tuple[str, float]] = {}

    def found(self, worker_id: str, pool: str | None) -> None:
        """Record that this worker found no entry to claim."""
        with self._lock:
            self._seen[pool] = worker_id, time.monotonic()

    def is_known(self, worker_id: str, pool: str | None, poll_seconds: float) -> bool:
        """Whether another worker has just found no entry to claim."""
        with self._lock:
            who, at = self._seen.get(pool, (worker_id, 0.0))
        return who != worker_id and time.monotonic() - at < _SHARE * poll_seconds

    def over(self) -> None:
        """Forget what was found, since this process has queued an entry: every worker queries again."""
        with self._lock:
            self._seen.clear()


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
class _Pause:
    """
    The wait after a service or store was found unreachable. An entry that was claimed before it, and ends during it,
    tells nothing new.
    """

    until: float = 0.0
    times: int = 0

    def found_away(self, now: float) -> bool:
        """Begin, or go on for longer; returns whether that is news."""
        if news := now >= self.until:
            self.times += 1
            self.until = now + pause_after(self.times)
        return news


class Backoff:
    """Decides for one process what may be claimed, and when. Thread-safe."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._claim_order = ClaimOrder()
        self._aside: dict[int, _Aside] = {}
        self._stores: dict[str, _Pause] = {}
        self._pools: dict[str | None, _Pause] = {}
        self._spark = _Pause()
        self._pending: dict[object, str] = {}
        self._why = ""
        self._compacted: float | None = None
        self._forgot = clock()
        self.in_a_row = 0
        """Entries given back, and failed starts of Spark, since one was compacted."""

    def may_be_tried_again(self, entry: QueueEntry) -> bool:
        """Whether this entry may go back into the queue after one more failure, as far as this process remembers."""
        with self._lock:
            aside = self._aside.get(entry.id)
            return aside is None or aside.broke_down + 1 < ATTEMPTS

    def given_back(self, entry: QueueEntry, error: Exception, pool: str | None = None) -> None:
        """
        Record that this entry goes back into the queue because of this error.

        Args:
            pool: from which it was claimed.
        """
        with self._lock:
            now = self.clock()
            aside = self._set_aside(entry, now)
            aside.reason = None
            aside.broke_down += not isinstance(error, UnreachableError | SessionEndedError)
            aside.store = error.store if isinstance(error, UnreachableError) else None
            self.in_a_row += 1
            pause = (
                self._pools.setdefault(pool, _Pause())
                if aside.store is None
                else self._stores.setdefault(aside.store, _Pause())
            )
            pause.found_away(now)
            self._why = f"compaction {entry.id} of {entry.entity} was given back: {one_line(error)}"

    def leave(self, entry: QueueEntry, why: Exception) -> int:
        """
        Record that this entry goes back into the queue because another entry or a statement comes first, or there is no
        room for it. Nothing else is wrong, and other entries are claimed.

        Returns how many times in a row the entry went back.
        """
        with self._lock:
            now = self.clock()
            aside = self._set_aside(entry, now)
            aside.store = None
            reason = why.reason if isinstance(why, RefusedError) else None
            if aside.reason is not reason:
                aside.reason, aside.since = reason, now
            if not self.in_a_row:
                self._why = f"compaction {entry.id} of {entry.entity} waits: {one_line(why)}"
            return aside.times

    def left_for(self, entry: QueueEntry, reason: Reason) -> float:
        """
        For how many seconds this entry has been left for this reason and no other, as far as this process remembers.
        """
        with self._lock:
            aside = self._aside.get(entry.id)
            return 0.0 if aside is None or aside.reason is not reason else self.clock() - aside.since

    def ended(self, entry: QueueEntry, *, compacted: bool) -> None:
        """
        Record that this entry is done. When it was compacted, what was unreachable is there again, and so is the store
        that the entry waited for.
        """
        with self._lock:
            aside = self._aside.pop(entry.id, None)
            if compacted:
                self._compacted = self.clock()
                self._all_is_well()
                if aside is not None and aside.store is not None:
                    self._stores.pop(aside.store, None)

    def cannot_begin(self, error: UnreachableError) -> bool:
        """
        Record that nothing was claimed, because what every entry needs (Spark) is unreachable. Returns whether a pause
        begins with that: it doesn't where another worker has just found out the same.
        """
        with self._lock:
            if first := self._spark.found_away(self.clock()):
                self.in_a_row += 1
                self._why = one_line(error)
            return first

    def look(self, pool: str | None, see: See) -> int | None:
        """The id of the entry that `claim` would take; no turn is taken."""
        return next((found for look in self._looks(pool) if (found := see(look.without, look.among)) is not None), None)

    def claim(self, pool: str | None, take: Take) -> QueueEntry | None:
        """
        Claim the next entry; None if no entry in the queue may be claimed now.

        Args:
            take: claims the most urgent entry of the pool without the first ids and among the second ones, None being all.

        Raises:
            CompactorError: as `take`.
        """
        for look in self._looks(pool):
            if (entry := take(look.without, look.among)) is not None:
                with self._lock:
                    number = self._claim_order.found(pool, look)
                    if (aside := self._aside.get(entry.id)) is not None:
                        aside.tried = number
                return entry
        return None

    def _looks(self, pool: str | None) -> tuple[QueueLook, ...]:
        with self._lock:
            now = self.clock()
            due = {number: aside.tried for number, aside in self._aside.items() if self._due(aside) <= now}
            return self._claim_order.looks(pool, self._aside.keys() - due.keys(), due)

    def pause(self, pool: str | None) -> Phrase | None:
        """Why nothing is claimed from this pool now; None if entries may be claimed."""
        with self._lock:
            left = max(self._spark.until, self._pools.get(pool, _Pause()).until) - self.clock()
            return next_try(Phrase(self._why), left) if self.in_a_row and left > 0 else None

    def nothing_else(self, still_ours: Callable[[int], bool]) -> Phrase | None:
        """
        After a claim found nothing: how long the entries that were given back still wait; None if the time of all has
        come.

        Then entries that are no longer this process's to try are forgotten. When none is left, the pause is over as
        well.

        Args:
            still_ours: whether an entry waits, or another worker of this process is trying it; by its id.

        Raises:
            CompactorError: as `still_ours`.
        """
        with self._lock:
            now = self.clock()
            left = [until - now for until in map(self._due, self._aside.values()) if until > now]
            if left:
                return next_try(Phrase(self._why), min(left))
            before, known = self.in_a_row, list(self._aside)
        gone = list(itertools.takewhile(lambda number: not still_ours(number), known))
        with self._lock:
            for number in gone:
                self._aside.pop(number, None)  # otherwise it would be asked for again and again
            if before and len(gone) == len(known) and self.in_a_row == before:
                self._all_is_well()
        return None

    def kept(self, attempt: object, sentence: str) -> None:
        """Record that an attempt has ended and can't be undone yet."""
        with self._lock:
            self._pending[attempt] = sentence

    def settled(self, attempt: object) -> None:
        """Record that nothing of the attempt is left."""
        with self._lock:
            self._pending.pop(attempt, None)

    @property
    def pending_rollbacks(self) -> int:
        """Attempts that have ended and can't be undone yet."""
        return len(self._pending)

    def waiting_for_stores(self) -> Mapping[str, int]:
        """How many entries were given back because a store is unreachable, by store."""
        with self._lock:
            return Counter(aside.store for aside in self._aside.values() if aside.store is not None)

    def trouble(self) -> str | None:
        """
        Why this process compacts nothing now; None if nothing stands in the way.

        An unreachable store doesn't count while other entries are compacted: its entries are given back now and then,
        and that is no news. It counts when nothing was compacted for as long as an entry waits at most.
        """
        with self._lock:
            lately = self._compacted is not None and self.clock() - self._compacted < 2 * LONGEST_SECONDS
            if self.in_a_row and (self._pools or self._spark.times or not lately):
                return f"{self.in_a_row} given back in a row, the latest: {self._why}"
            return None

    def unsettled(self) -> tuple[str, ...]:
        """A sentence for each attempt that has ended and can't be undone yet; other entries are compacted meanwhile."""
        with self._lock:
            return tuple(self._pending.values())

    def _due(self, aside: _Aside) -> float:
        store = self._stores.get(aside.store) if aside.store is not None else None
        return aside.until if store is None else max(aside.until, store.until)

    def _set_aside(self, entry: QueueEntry, now: float) -> _Aside:
        """Let the entry wait once more, and forget entries that never came back."""
        if now - self._forgot >= _FORGET_SECONDS:
            self._forgot = now
            self._aside = {number: aside for number, aside in self._aside.items() if now - aside.until < _KEPT_SECONDS}
            still = {aside.store for aside in self._aside.values()}
            self._stores = {name: store for name, store in self._stores.items() if name in still}
        aside = self._aside.setdefault(entry.id, _Aside(now, 0))
        aside.tried = self._claim_order.number()
        aside.times += 1
        aside.until = now + 2 * pause_after(aside.times)
        return aside

    def _all_is_well(self) -> None:
        self.in_a_row, self._spark = 0, _Pause()
        self._pools.clear()


def next_try(why: Phrase, seconds: float) -> Phrase:
    """What a worker waits for, and for how long."""
    return Phrase(f"{why.text}; next try in {max(0.0, seconds):.0f} s", why.news)


def pause_after(times: int) -> float:
    """Seconds until the next try, after this many in a row."""
    return float(min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** min(times - 1, 10)))
