"""Asks once for many what takes long to answer, such as the list of transactions where 100,000 are open."""

import math
import time
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Freshness(NamedTuple):
    """
    How old an answer may be.

    Args:
        least: seconds, however quickly the answer came.
        times: so many times as long as asking took, where that is longer: asking then takes one part of the time in so
            many.
        most: seconds, however long asking took.
    """

    least: float = 0.0
    times: float = 0.0
    most: float = math.inf

    def seconds(self, took: float) -> float:
        """For how many seconds an answer serves, by the seconds that asking took."""
        return min(self.most, max(self.least, self.times * took))


_USUAL = Freshness(5.0, times=20)


class Shared(Generic[T]):
    """
    One answer for all calls of `get` while it is fresh enough. For one thread at a time.

    Args:
        ask: may raise; then the next `get` asks again.
        clock: seconds.
    """

    def __init__(self, ask: Callable[[], T], clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._held: tuple[T, float, float] | None = None

    def get(self, freshness: Freshness = _USUAL) -> T:
        """The answer, counted from when it came: asking may take longer than the answer serves."""
        began = self._clock()
        if self._held is not None:
            answer, came, took = self._held
            if began - came < freshness.seconds(took):
                return answer
        answer = self._ask()
        came = self._clock()
        self._held = answer, came, came - began
        return answer

    def forget(self) -> None:
        """Makes the next `get` ask again."""
        self._held = None
