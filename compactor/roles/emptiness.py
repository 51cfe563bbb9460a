"""
What the workers of one process know of each other's looks into the queue.

Each asks the database once per `worker.poll_seconds`; where many do, all but one of the questions are idle. So a worker believes another one that has just
found nothing; never its own look, and never for longer than the wait between two looks.
"""

import threading
import time
from typing import Final

_SHARE: Final = 0.8
"""Of the wait between two looks: less than all, or workers that wake a little early would take turns in believing each other for ever."""


class Emptiness:
    """Per compaction pool: who found nothing, and when. Safe in any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str | None, tuple[str, float]] = {}

    def found(self, worker_id: str, pool: str | None) -> None:
        """This worker found nothing for it to take."""
        with self._lock:
            self._seen[pool] = worker_id, time.monotonic()

    def is_known(self, worker_id: str, pool: str | None, poll_seconds: float) -> bool:
        """Whether another worker has just found nothing."""
        with self._lock:
            who, at = self._seen.get(pool, (worker_id, 0.0))
        return who != worker_id and time.monotonic() - at < _SHARE * poll_seconds

    def over(self) -> None:
        """Something was queued by this process: everybody looks again."""
        with self._lock:
            self._seen.clear()
