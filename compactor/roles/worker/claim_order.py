"""
The order in which a worker looks for its next entry: new entries and retries alternate.

Claims take the most urgent entry first. By that rule alone, a few old entries that are given back each time would be all
that is ever claimed; put last, they would never be tried again. So of two claims one is for entries that were never
given back, the most urgent first. The other is for entries that were given back and whose time has come. These are tried
round-robin: none gets a second try before all others had theirs. However many entries there are of one kind, the other
kind gets every second claim.

Pure. Source: docs/operations.md.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueLook:
    """
    What one query of the queue is restricted to.

    Args:
        without: ids of entries to leave out.
        among: ids of entries to choose from; None: all others.
        round_over: the round that is over if this query finds an entry; None: no round is.
    """

    without: frozenset[int] = frozenset()
    among: frozenset[int] | None = None
    round_over: int | None = None


@dataclass(slots=True)
class _Turns:
    """The turns of one compaction pool."""

    again: bool = False
    began: int = 0


class ClaimOrder:
    """The claim order of all workers of a process, which call it one at a time."""

    def __init__(self) -> None:
        self._count = 0
        self._turns: dict[str | None, _Turns] = {}

    def number(self) -> int:
        """The number of a try; greater than all before."""
        self._count += 1
        return self._count

    def looks(self, pool: str | None, waiting: Collection[int], due: Mapping[int, int]) -> tuple[QueueLook, ...]:
        """
        The queries to make one after the other, until one finds an entry.

        Args:
            waiting: entries that were given back and whose time hasn't come.
            due: entries that were given back and whose time has come, each with the number of its latest try.
        """
        turns = self._turns.setdefault(pool, _Turns())
        new = QueueLook(without=frozenset(waiting) | due.keys())
        if not due:
            return (new,)
        untried = frozenset(number for number, tried in due.items() if tried < turns.began)
        again = [QueueLook(among=untried)] if untried else []
        if len(untried) < len(due):
            again.append(QueueLook(among=frozenset(due), round_over=turns.began))
        return (*again, new) if turns.again else (new, *again)

    def found(self, pool: str | None, look: QueueLook) -> int:
        """Record that this query found an entry; returns the number of the try that begins."""
        turns = self._turns.setdefault(pool, _Turns())
        turns.again = look.among is None
        number = self.number()
        # otherwise another worker has begun the round meanwhile
        if look.round_over is not None and look.round_over == turns.began:
            turns.began = number
        return number
