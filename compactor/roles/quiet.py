"""
What the Initiator listed and left alone: until something changes, listing it again would tell nothing new.

Knows fingerprints, not partitions: of each it keeps one number, so that a hundred thousand of them cost some ten megabytes.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from compactor.reasons import Reason

RELIST_MS = 24 * 3_600_000
"""Whatever nobody told us of is seen after a day."""


class _Left(NamedTuple):
    listed_ms: int
    reason: Reason


@dataclass(slots=True)
class Quiet:
    """
    The memory of one Initiator. A fingerprint is Python's 64-bit hash of all that a judgement depends on besides the files themselves.

    That two of a hundred thousand fall together is one chance in billions, and costs a listing that comes a day late.
    """

    _left: dict[int, _Left] = field(default_factory=dict)
    _next: dict[int, _Left] = field(default_factory=dict)
    _same: dict[_Left, _Left] = field(default_factory=dict)
    _goes_on: bool = False

    def begin(self, now_ms: int, *, everything: bool) -> None:
        """
        A cycle begins; what a look at everything doesn't meet is forgotten when it ends, in this cycle or, after `go_on`, in a later one.

        What an earlier look that was never ended has met is still known, for its day.
        """
        if everything or not self._goes_on:
            known = self._left if self._next is self._left else self._left | self._next
            self._left = {fingerprint: left for fingerprint, left in known.items() if now_ms - left.listed_ms <= RELIST_MS} if everything else known
            self._next = {} if everything else self._left
        self._goes_on = False
        self._same = {}

    def go_on(self) -> None:
        """The cycle ended before the look did: the next one continues it, unless it begins with everything."""
        self._goes_on = True

    def end(self) -> None:
        """All of it was looked at."""
        self._left = self._next

    def reason(self, fingerprint: int, now_ms: int) -> Reason | None:
        """Why it was left alone; None when it has to be listed."""
        left = self._next.get(fingerprint) or self._left.get(fingerprint)
        if left is None or now_ms - left.listed_ms > RELIST_MS:
            return None
        self._next[fingerprint] = left
        return left.reason

    def leave(self, fingerprint: int, now_ms: int, reason: Reason) -> None:
        """It was listed now, and left alone."""
        left = _Left(now_ms, reason)
        self._next[fingerprint] = self._same.setdefault(left, left)
