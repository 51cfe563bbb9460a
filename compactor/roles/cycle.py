"""
Whether a role makes progress: when it last finished a piece of work, and whether it got its turn.

`Progress` tells a long cycle from one that is stuck. The role reports each thing that it has done (a partition judged,
an entry cleaned, a claim cleared up), from any of its threads; its loop reads the age. A cycle that takes hours but
makes progress is no reason for a restart: a restart would end every running compaction and meet the same cycle again. A
cycle that waits in a single call is.

`Cycle` is what a cycle did: a sentence for people, and what its loop has to know. A standby is alive, and its
cycles end without an error, but they do no work: counted as progress, they would hide that all cycles of the leader
fail.
Source: docs/operations.md, Watching.
"""

import time
from collections.abc import Callable
from typing import Self


class Cycle(str):
    """
    The sentence of a cycle.

    Args:
        turn: whether it was this daemon's turn: else another daemon leads or holds the mutex, or the leader is unknown.
        again: the next cycle begins at once.
        told: another component has logged the sentence, once for all roles.
    """

    __slots__ = ("again", "told", "turn")
    turn: bool
    again: bool
    told: bool

    def __new__(cls, sentence: str, *, turn: bool = True, again: bool = False, told: bool = False) -> Self:
        made = super().__new__(cls, sentence)
        made.turn, made.again, made.told = turn, again, told
        return made


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
