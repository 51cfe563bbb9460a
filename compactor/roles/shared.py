"""What takes the metastore long to tell, told once for many: the list of transactions, where 100,000 are open."""

import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from compactor.roles.cycle import Clock

T = TypeVar("T")

_FRESH_SECONDS: Final = 5.0
"""So long an answer serves, however quickly it came."""
_SHARE: Final = 20
"""Of the time, one part in so many goes to asking at most."""


class Shared(Generic[T]):
    """
    One answer for all calls of `get` within some seconds, or within longer where asking takes long. For one thread.

    Args:
        ask: may raise; then the next one asks again.
    """

    def __init__(self, ask: Callable[[], T], clock: Clock = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._held: tuple[T, float] | None = None

    def get(self) -> T:
        """The answer, not older than it may be."""
        began = self._clock()
        if self._held is None or began >= self._held[1]:
            answer = self._ask()
            self._held = answer, began + max(_FRESH_SECONDS, _SHARE * (self._clock() - began))
        return self._held[0]

    def forget(self) -> None:
        """The next `get` asks again."""
        self._held = None
