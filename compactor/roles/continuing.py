"""
What follows a part: a compaction that was too large for one goes back into the queue until all of it is done.

That something follows is noted with the part's entry, by the same transaction that commits it (`metastore.rests`): whoever dies afterwards, somebody asks for it. The
worker that did the part does at once; the Housekeeper finds what is left of the dead, and of those who have no worker any more.
"""

import time
from collections.abc import Callable
from typing import Final

from compactor.errors import CompactorError, OutcomeUnknownError, RetryableError, UnreachableError
from compactor.log import get_logger
from compactor.metastore.queue import Queue
from compactor.metastore.rests import Rest
from compactor.planning.document import Parts

_log = get_logger(__name__)
_HISTORY_SECONDS: Final = 600.0
"""So often the whole history is looked through: for what was cleaned while nobody was there who had seen it wait."""


def rest_of(parts: Parts | None) -> Rest | None:
    """What the commit of this part notes; None: nothing follows."""
    if parts is None or parts.total < 2:
        return None
    return Rest.WHEN_CLEANED if parts.wait else Rest.NOW


class Continuing:
    """
    The entries that a rest may follow, as far as one thread knows of them.

    Args:
        clock: seconds.
    """

    def __init__(self, queue: Queue, clock: Callable[[], float] = time.monotonic) -> None:
        self._queue = queue
        self._clock = clock
        self._after: set[int] = set()
        self._said: dict[int, str] = {}
        self._looked: float | None = None

    def remember(self, entry_id: int) -> None:
        """A compaction is committed, and may be a part of a larger one."""
        self._after.add(entry_id)

    def find(self) -> None:
        """
        Remember all that are noted in the metastore, whoever did the parts.

        Raises:
            CompactorError: it can't be asked.
        """
        now = self._clock()
        history = self._looked is None or now - self._looked >= _HISTORY_SECONDS
        self._after.update(entry.id for entry in self._queue.rests.noted(history=history))
        if history:
            self._looked = now

    def go_on(self) -> list[str]:
        """Queue what can be queued by now; returns what was. What can't be asked now is asked later."""
        queued = []
        for entry_id in sorted(self._after):
            try:
                answer, settled = self._queue.rests.ask(entry_id)
            except CompactorError as error:
                passes = isinstance(error, UnreachableError | RetryableError | OutcomeUnknownError)
                (_log.debug if passes or self._said.get(entry_id) == str(error) else _log.warning)(
                    "the next part can't be queued yet", after=entry_id, why=str(error)
                )
                self._said[entry_id] = str(error)
                continue
            waits = "" if settled or answer is None else answer.message
            if waits and self._said.get(entry_id) != waits:
                _log.info("the next part waits", after=entry_id, why=waits)
            self._said[entry_id] = waits
            if settled:
                self._after.remove(entry_id)
                del self._said[entry_id]
            if answer is not None and answer.accepted:
                _log.info("next part queued", after=entry_id, answer=answer.message)
                queued.append(answer.message)
        return queued
