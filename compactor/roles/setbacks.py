"""
Compactions that were given back because something they need is away or broke down: when such an entry is tried again, and when anything is.

Shared by the workers of a process, and forgotten with it; what is counted for longer is in `breakdowns`. After each one in a row nothing is claimed for a while,
twice as long each time; the entry itself is left alone for longer than that, so that others get their turn. One that a step failed for again and again is given up.
That something can't be reached is no fault of the entry's, and never counted.
Source: docs/operations.md.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from compactor.engine.submit import SessionEndedError
from compactor.errors import UnreachableError
from compactor.metastore.model import QueueEntry
from compactor.roles.breakdowns import ATTEMPTS

FIRST_SECONDS = 5.0
LONGEST_SECONDS = 320.0
_KEPT_SECONDS = 24 * 3600.0
"""An entry that didn't come back for so long is somebody else's, or gone."""


@dataclass(slots=True)
class _Aside:
    until: float
    times: int
    broke_down: int


class Setbacks:
    """
    Safe for concurrent callers.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._aside: dict[int, _Aside] = {}
        self._until = 0.0
        self._why = ""
        self._pauses = 0
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
            now = self._clock()
            self._set_aside(entry, now).broke_down += not isinstance(error, UnreachableError | SessionEndedError)
            self.in_a_row += 1
            self._pauses += now >= self._until  # what was claimed before a pause began, and ends during it, tells nothing new
            self._until = now + _pause(self._pauses)
            self._why = f"compaction {entry.id} of {entry.entity} was given back: {' '.join(str(error).split())}"

    def leave(self, entry: QueueEntry, why: Exception) -> int:
        """
        This entry goes back into the queue, since something else comes first, or there is no room for it; nothing else is wrong, and others are claimed.

        Returns how often it went, in a row.
        """
        with self._lock:
            aside = self._set_aside(entry, self._clock())
            if not self.in_a_row:
                self._why = f"compaction {entry.id} of {entry.entity} waits: {' '.join(str(why).split())}"
            return aside.times

    def ended(self, entry: QueueEntry, *, compacted: bool) -> None:
        """This entry is done, one way or another; when it was compacted, whatever was away is there."""
        with self._lock:
            self._aside.pop(entry.id, None)
            if compacted:
                self._all_is_well()

    def pause(self) -> str | None:
        """Why nothing is claimed now; None: claim."""
        with self._lock:
            left = self._until - self._clock()
            return f"{self._why}; next try in {left:.0f} s" if self.in_a_row and left > 0 else None

    def aside(self) -> frozenset[int]:
        """Entries not to be claimed now."""
        with self._lock:
            now = self._clock()
            return frozenset(number for number, aside in self._aside.items() if aside.until > now)

    def nothing_else(self, still_ours: Callable[[int], bool]) -> str | None:
        """
        Nothing was found besides those: until when they are waited for; None when their time has come, and nothing is in the way when none is left to do.

        Args:
            still_ours: whether an entry waits, or is being tried by another worker of this process; by its id.

        Raises:
            CompactorError: what `still_ours` raises.
        """
        with self._lock:
            left = [aside.until - self._clock() for aside in self._aside.values() if aside.until > self._clock()]
            if left:
                return f"{self._why}; next try in {min(left):.0f} s"
            before, known = self.in_a_row, list(self._aside)
        if before and not any(map(still_ours, known)):
            with self._lock:
                if self.in_a_row == before:
                    self._all_is_well()
        return None

    def trouble(self) -> str | None:
        """What stands in the way of compactions, for /-/ready."""
        with self._lock:
            return f"{self.in_a_row} given back in a row, the latest: {self._why}" if self.in_a_row else None

    def _set_aside(self, entry: QueueEntry, now: float) -> _Aside:
        """Once more; what never came back is forgotten."""
        self._aside = {number: aside for number, aside in self._aside.items() if now - aside.until < _KEPT_SECONDS}
        aside = self._aside.setdefault(entry.id, _Aside(now, 0, 0))
        aside.times += 1
        aside.until = now + 2 * _pause(aside.times)
        return aside

    def _all_is_well(self) -> None:
        self.in_a_row, self._pauses, self._until = 0, 0, 0.0


def _pause(times: int) -> float:
    return float(min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** min(times - 1, 10)))
