"""
Why a running compaction must stop: a request, the time-out, or the loss of its transaction or lock. The first reason
holds.
"""

import threading
import time

from compactor.errors import CancelledError, CompactorError


class Cancellation:
    """
    The reason to stop, checked between steps and while waiting for Spark.

    Args:
        seconds: after this time the compaction is cancelled by itself; None: never.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._lock = threading.Lock()
        self._error: CompactorError | None = None
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._seconds = seconds

    def cancel(self, error: CompactorError) -> None:
        """Set the reason; later ones are ignored."""
        with self._lock:
            self._error = self._error or error

    @property
    def error(self) -> CompactorError | None:
        """The reason; None while the work may go on."""
        if self._error is None and self._deadline is not None and time.monotonic() >= self._deadline:
            self.cancel(TimedOutError(f"timed out: not done within {self._seconds:g} s (worker.timeout_hours)"))
        return self._error

    def __call__(self) -> bool:
        return self.error is not None

    def check(self) -> None:
        """
        Raises:
            CompactorError: the reason, when there is one.
        """
        if (error := self.error) is not None:
            raise error


class TimedOutError(CancelledError):
    """The compaction took longer than allowed: it fails, and isn't retried at once."""


class DrainedError(CancelledError):
    """The daemon stops: the entry goes back into the queue."""


class GivesWayError(DrainedError):
    """A statement waits for the attempt's lock (Hive 3.1): the entry goes back into the queue, and waits."""


class CancelRequestedError(CancelledError):
    """An operator asked for it by `compactor cancel`: the entry ends aborted, and isn't retried."""
