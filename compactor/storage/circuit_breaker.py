"""
Stops calls to a store that is unreachable (circuit breaker).

A client may take minutes for each call to find out that a store doesn't answer. A role that looks at thousands of
directories would then be busy for days, and every thread of the process would wait in turn. So when a call took seconds
to learn that the store can't be reached, further calls fail at once with what it learned. After a pause as long as that
call took (5 seconds to a minute), the next caller tries the store. While its call waits, all others still fail at once.
Any answer closes the circuit.

Only calls about names open and close the circuit, because a store answers these from its memory. When a call about the
bytes of one file fails, that file alone may be the reason.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from compactor.errors import RefusedError, RetryableError, UnreachableError
from compactor.log import get_logger
from compactor.storage.base import Storage
from compactor.storage.forwarding import Answer, ForwardingStorage

_log = get_logger(__name__)
_SLOW: Final = 5.0
"""Seconds. A call that fails sooner doesn't open the circuit."""
_LONGEST: Final = 60.0


class Unreachable:
    """
    The circuit's state for one store. Safe in any number of threads.

    Args:
        store: the store's name in messages: scheme and authority.
        clock: returns seconds.
    """

    def __init__(self, store: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.store: Final = store
        self._clock = clock
        self._lock = threading.Lock()
        self._why: str | None = None
        self._since = 0.0
        self._next = 0.0
        self._heard = clock()
        self._asking: object | None = None

    def ask(self, call: Callable[[], Answer]) -> Answer:
        """
        Make a call that may open or close the circuit; returns the store's answer.

        Raises:
            UnreachableError: with its `store`: the store doesn't answer, or the circuit is open.
        """
        turn = self._turn()
        began = self._clock()
        try:
            answer = call()
        except UnreachableError as error:
            error.store = self.store
            self._failed(str(error), began, turn)
            raise
        except (OSError, RefusedError, RetryableError):
            self._answered()
            raise
        finally:
            self._over(turn)
        self._answered()
        return answer

    def require_there(self) -> None:
        """Raises UnreachableError while the circuit is open and the next try isn't due or is under way."""
        if self._why is not None:
            with self._lock:
                self._refuse_while_away()

    def _turn(self) -> object | None:
        """Token of the caller that tries the store for all others; None while the store is reachable."""
        if self._why is None:
            return None
        with self._lock:
            self._refuse_while_away()
            if self._why is None:
                return None
            self._asking = object()
            return self._asking

    def _refuse_while_away(self) -> None:
        if self._why is None:
            return
        now = self._clock()
        if self._asking is not None or now < self._next:
            when = "it is being asked" if self._asking is not None else f"asked again in {self._next - now:.0f} s"
            raise UnreachableError(
                f"{self.store} is away since {now - self._since:.0f} s; {when}; the latest: {self._why}",
                store=self.store,
            )

    def _failed(self, why: str, began: float, turn: object | None) -> None:
        with self._lock:
            now = self._clock()
            took = now - began
            if self._heard > began or (took < _SLOW and turn is None):
                return
            if self._why is None:
                self._since = began
                _log.warning(
                    "circuit_breaker.opened",
                    store=self.store,
                    seconds=round(min(took, _LONGEST)),
                    error=why,
                )
            self._why = why
            self._next = now + min(max(took, _SLOW), _LONGEST)

    def _answered(self) -> None:
        self._heard = self._clock()
        if self._why is None:
            return
        with self._lock:
            if self._why is not None:
                _log.info("circuit_breaker.closed", store=self.store, seconds=round(self._clock() - self._since))
            self._why = None

    def _over(self, turn: object | None) -> None:
        if turn is not None:
            with self._lock:
                if self._asking is turn:
                    self._asking = None


class CircuitBreaker(ForwardingStorage):
    """A `Storage` whose calls fail at once while the store is unreachable."""

    def __init__(self, driver: Storage, store: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(driver)
        self._away = Unreachable(store, clock)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self._driver, self._away.store)

    def _call(self, call: Callable[[], Answer], *changed: str, of_content: bool = False) -> Answer:  # noqa: ARG002
        if not of_content:
            return self._away.ask(call)
        self._away.require_there()
        try:
            return call()
        except UnreachableError as error:
            error.store = self._away.store
            raise
