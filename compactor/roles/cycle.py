"""
Whether a role makes progress: when it last finished a piece of work, and whether it got its turn.

`Progress` tells a long cycle from one that is stuck. The role reports each thing that it has done (a partition judged,
an entry cleaned, a claim cleared up), from any of its threads; its loop reads the age. A cycle that takes hours but
makes progress is no reason for a restart: a restart would end every running compaction and meet the same cycle again. A
cycle that waits in a single call is.

`Cycle` is what a cycle did, as a value: a sentence for people, and what its loop has to know. A standby is alive, and its
cycles end without an error, but they do no work: counted as progress, they would hide that all cycles of the leader
fail. The same holds for a role that may begin nothing.
Source: docs/operations.md, Watching.
"""

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Self

Clock = Callable[[], float]
"""Seconds; only differences between its answers mean anything."""


class Did(Enum):
    """What became of a cycle that ended without an error."""

    WORKED = auto()
    """The role had its turn, and did what there was to do."""
    IDLE = auto()
    """There was nothing to do."""
    STANDBY = auto()
    """It wasn't this daemon's turn: another daemon leads or holds the mutex, or the leader is unknown."""
    HELD = auto()
    """Nothing may begin now: paused, drained, a service unreachable, the control state unknown."""


class Phrase(NamedTuple):
    """
    A sentence, or a part of one.

    Args:
        about: equal for as long as the phrase tells the same, whatever lengths of time it counts; None: it counts none.
    """

    text: str
    about: Hashable = None

    @property
    def news(self) -> Hashable:
        """What differs between two phrases where there is something new to tell."""
        return self.text if self.about is None else self.about

    def after(self, words: str) -> "Phrase":
        """The same behind other words."""
        return Phrase(f"{words}{self.text}", None if self.about is None else (words, self.about))

    @classmethod
    def joined(cls, phrases: Sequence["Phrase"], between: str) -> "Phrase":
        """One phrase of several."""
        return cls(between.join(phrase.text for phrase in phrases), tuple(phrase.news for phrase in phrases))


@dataclass(frozen=True, slots=True)
class Cycle:
    """
    What a cycle did; nothing is decided by its sentence.

    Args:
        again: the next cycle begins at once.
        told: another component has logged the sentence, once for all roles.
    """

    phrase: Phrase
    did: Did
    again: bool = False
    told: bool = False

    @classmethod
    def worked(cls, said: str | Phrase, *, again: bool = False) -> Self:
        return cls(_phrase(said), Did.WORKED, again=again)

    @classmethod
    def idle(cls, said: str, *, again: bool = False) -> Self:
        return cls(Phrase(said), Did.IDLE, again=again)

    @classmethod
    def standby(cls, said: str, *, again: bool = False, told: bool = False) -> Self:
        return cls(Phrase(said), Did.STANDBY, again=again, told=told)

    @classmethod
    def held(cls, said: str | Phrase, *, again: bool = False, told: bool = False) -> Self:
        return cls(_phrase(said), Did.HELD, again=again, told=told)

    @property
    def sentence(self) -> str:
        return self.phrase.text

    @property
    def has_turn(self) -> bool:
        """Whether the role got on: else the cycle doesn't count as a completed one."""
        return self.did in {Did.WORKED, Did.IDLE}


def _phrase(said: str | Phrase) -> Phrase:
    return said if isinstance(said, Phrase) else Phrase(said)


class Progress:
    """When one role last made progress."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._at = clock()

    def made(self) -> None:
        """Note that a piece of work was finished just now, with whichever outcome."""
        self._at = self._clock()

    def age(self) -> float:
        """Seconds since the last progress."""
        return self._clock() - self._at
