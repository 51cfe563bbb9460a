"""
Whether a role makes progress: when it last finished a piece of work, and whether it got its turn.

`Progress` tells a long cycle from one that is stuck. The role reports each thing that it has done (a partition judged,
an entry cleaned, a claim cleared up), from any of its threads; its loop reads the age. A cycle that takes hours but
makes progress is no reason for a restart: a restart would end every running compaction and meet the same cycle again. A
cycle that waits in a single call is.

`NoTurn` marks the sentence of a cycle in which the role got no turn. A standby is alive, and its cycles end without an
error, but they do no work: counted as progress, they would hide that all cycles of the leader fail.
Source: docs/operations.md, Watching.
"""

import time
from collections.abc import Callable


class NoTurn(str):
    """
    The sentence of a cycle that couldn't begin its work because it wasn't this daemon's turn: another daemon leads or
    holds the mutex, or the leader is unknown.
    """

    __slots__ = ()


class Progress:
    """
    When one role last made progress.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = clock()

    def made(self) -> None:
        """Note that a piece of work was finished just now, with whichever outcome."""
        self._at = self._clock()

    def age(self) -> float:
        """Seconds since the last progress."""
        return self._clock() - self._at
