"""
Staying alive: a thread that renews a transaction or a lock, and says so when it no longer can.

Knows nothing of transactions: it is given a function that renews. A renewal that finds the owner gone is final. One that can't reach the database is repeated
soon; when none has succeeded for the time-out, others may have taken ours away, and the work is over too.
"""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from compactor.errors import CompactorError, OwnershipLostError, UnreachableError
from compactor.log import get_logger

_log = get_logger(__name__)
_RETRY_SECONDS = 5.0


class Heartbeat:
    """
    Renews while inside the `with` block.

    Args:
        beat: renews once; raises OwnershipLostError when there is nothing left to renew.
        interval: seconds between renewals.
        timeout: seconds after which others take away what wasn't renewed.
        lost: called once, from the thread, with the reason why it is over.
        what: for log lines: `transaction 12`, `lock 7`.
    """

    def __init__(self, beat: Callable[[], None], interval: float, timeout: float, lost: Callable[[CompactorError], None], what: str) -> None:
        self._beat = beat
        self._interval = interval
        self._timeout = timeout
        self._lost = lost
        self._what = what
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"heartbeat of {what}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """No renewal begins after this; one that is under way may end later (it can do no harm)."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=_RETRY_SECONDS)

    def _run(self) -> None:
        last = time.monotonic()
        pause = self._interval
        while not self._stop.wait(pause):
            began = time.monotonic()
            try:
                self._beat()
            except OwnershipLostError as error:
                self._end(error)
                return
            except Exception as error:
                silent = time.monotonic() - last
                _log.warning("heartbeat failed", what=self._what, error=str(error), silent_seconds=round(silent, 1))
                if silent >= self._timeout:
                    self._end(UnreachableError(f"no heartbeat of {self._what} reached the metastore for {silent:.0f} s; last error: {error}"))
                    return
                pause = min(_RETRY_SECONDS, self._interval)
            else:
                last, pause = began, self._interval

    def _end(self, error: CompactorError) -> None:
        if not self._stop.is_set():
            self._lost(error)
