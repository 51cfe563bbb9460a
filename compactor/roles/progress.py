"""
When a role last got on: what tells a long cycle from one that is stuck.

The role says so after each thing that it has done (a partition judged, an entry cleaned, a claim cleared up), from any of its threads; its loop asks. A cycle of hours
that gets on is no reason for a restart, which would end every running compaction and meet the same again; one that waits in a single call is.
Source: docs/operations.md, Watching.
"""

import time
from collections.abc import Callable


class Progress:
    """
    Of one role.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = clock()

    def made(self) -> None:
        """Something was done just now, with whatever outcome."""
        self._at = self._clock()

    def age(self) -> float:
        """Seconds since then."""
        return self._clock() - self._at
