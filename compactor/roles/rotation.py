"""
In which order a worker looks for its next entry: those that were never given back and those that were, by turns.

Claims take the oldest first. By that rule alone a few old entries that are given back each time would be all that is ever claimed, or, being left for last, would
never be tried again. So of two claims one is for what was never given back, the oldest first; the other for what was and whose time has come, where none gets a second
try before all others had theirs. However many there are of one kind, the others get every second claim. Pure.
Source: docs/operations.md.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """
    What one question to the queue is restricted to.

    Args:
        without: ids of entries to leave.
        among: ids of entries that are meant; None: all others.
        round_over: the round that is over if this finds something; None: none is.
    """

    without: frozenset[int] = frozenset()
    among: frozenset[int] | None = None
    round_over: int | None = None


@dataclass(slots=True)
class _Turns:
    """Of one compaction pool."""

    again: bool = False
    began: int = 0


class Rotation:
    """For all workers of a process, who call it one at a time."""

    def __init__(self) -> None:
        self._count = 0
        self._turns: dict[str | None, _Turns] = {}

    def number(self) -> int:
        """Of a try; greater than all before."""
        self._count += 1
        return self._count

    def looks(self, pool: str | None, waiting: Collection[int], due: Mapping[int, int]) -> tuple[Look, ...]:
        """
        One after the other, until one finds something.

        Args:
            waiting: entries that were given back and whose time hasn't come.
            due: those whose time has come, each with the number of its latest try.
        """
        turns = self._turns.setdefault(pool, _Turns())
        new = Look(without=frozenset(waiting) | due.keys())
        if not due:
            return (new,)
        untried = frozenset(number for number, tried in due.items() if tried < turns.began)
        again = [Look(among=untried)] if untried else []
        if len(untried) < len(due):
            again.append(Look(among=frozenset(due), round_over=turns.began))
        return (*again, new) if turns.again else (new, *again)

    def found(self, pool: str | None, look: Look) -> int:
        """This look found something; returns the number of the try that begins."""
        turns = self._turns.setdefault(pool, _Turns())
        turns.again = look.among is None
        number = self.number()
        if look.round_over is not None and look.round_over == turns.began:  # otherwise another worker has begun the round meanwhile
            turns.began = number
        return number
