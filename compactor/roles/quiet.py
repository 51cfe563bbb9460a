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

    def begin(self, *, everything: bool) -> None:
        """A cycle begins; what one that looks at everything doesn't meet is forgotten when it ends."""
        self._next = {} if everything else self._left
        self._same = {}

    def end(self) -> None:
        self._left = self._next

    def reason(self, fingerprint: int, now_ms: int) -> Reason | None:
        """Why it was left alone; None when it has to be listed."""
        left = self._left.get(fingerprint)
        if left is None or now_ms - left.listed_ms > RELIST_MS:
            return None
        self._next[fingerprint] = left
        return left.reason

    def leave(self, fingerprint: int, now_ms: int, reason: Reason) -> None:
        """It was listed now, and left alone."""
        left = _Left(now_ms, reason)
        self._next[fingerprint] = self._same.setdefault(left, left)
