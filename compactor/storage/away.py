"""
A store that is away isn't asked again and again: a call that failed slowly is the last for a while, and then one caller tries for all.

A client may take minutes to find out that nobody answers, for each call: a role that looks at thousands of directories would be at it for days, and every thread of
the process would wait in turn. So after a call that took seconds to learn that the store can't be reached, others fail at once with what it learned; once as much
time has gone by as it took, a minute at most, the next caller asks, and as long as that one waits the others still fail at once. Any answer ends it.

Only calls about names count, which a store answers from its memory: where the bytes of one file are, something may be wrong with that file alone.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from compactor.errors import RefusedError, RetryableError, UnreachableError
from compactor.log import get_logger

_log = get_logger(__name__)
_SLOW: Final = 5.0
"""Seconds; what fails sooner may be asked as often as one likes."""
_LONGEST: Final = 60.0
_ASKED: Final = frozenset(
    {"list_tree", "directories", "pending", "withdraw", "stat", "exists", "mkdir", "rename_noreplace", "delete_file", "delete_tree", "owner", "room", "adopt"}
)
_REFUSED: Final = _ASKED | {"open_read", "create", "link_or_copy", "read_small", "write_small", "sync_directory"}


class Away:
    """
    What is known of one store. Safe in any number of threads.

    Args:
        store: as it is called in messages: scheme and authority.
        clock: seconds.
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

    def ask(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """
        What the store answers.

        Raises:
            UnreachableError: with its `store`: it doesn't answer, or didn't just now.
        """
        turn = self._turn()
        began = self._clock()
        try:
            answer = call(*arguments, **named)
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
        """Raises UnreachableError while it is known to be away, and not yet to be asked again."""
        if self._why is not None:
            with self._lock:
                self._refuse_while_away()

    def _turn(self) -> object | None:
        """Of the one that asks for all; None while the store is there."""
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
            raise UnreachableError(f"{self.store} is away since {now - self._since:.0f} s; {when}; the latest: {self._why}", store=self.store)

    def _failed(self, why: str, began: float, turn: object | None) -> None:
        with self._lock:
            now = self._clock()
            took = now - began
            if self._heard > began or (took < _SLOW and turn is None):
                return
            if self._why is None:
                self._since = began
                _log.warning("a store is away: it isn't asked for a while", store=self.store, seconds=round(min(took, _LONGEST)), why=why)
            self._why = why
            self._next = now + min(max(took, _SLOW), _LONGEST)

    def _answered(self) -> None:
        self._heard = self._clock()
        if self._why is None:
            return
        with self._lock:
            if self._why is not None:
                _log.info("a store is back", store=self.store, seconds=round(self._clock() - self._since))
            self._why = None

    def _over(self, turn: object | None) -> None:
        if turn is not None:
            with self._lock:
                if self._asking is turn:
                    self._asking = None


class Patient:
    """A driver, with calls that fail at once while its store is away; everything else of it as it is."""

    def __init__(self, driver: Any, store: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._driver = driver
        self._away = Away(store, clock)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self._driver, self._away.store)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._driver, name)
        if name not in _REFUSED:
            return found
        away = self._away

        def asked(*arguments: Any, **named: Any) -> Any:
            return away.ask(found, *arguments, **named)

        def there(*arguments: Any, **named: Any) -> Any:
            away.require_there()
            try:
                return found(*arguments, **named)
            except UnreachableError as error:
                error.store = away.store
                raise

        call = asked if name in _ASKED else there
        self.__dict__[name] = call
        return call
