"""
Queues follow-ups: a compaction that is too large for one attempt is done in parts, and goes back into the queue after
each part until all of it is done.

The transaction that commits a part also notes its follow-up with the part's entry
(`metastore.compaction_queue.follow_ups`), so a worker's death afterwards loses no follow-up. The worker that did the
part queues the follow-up at once. The Housekeeper finds the follow-ups of parts whose workers died or are gone.
"""

import time
from typing import Final

from compactor.errors import CompactorError, OutcomeUnknownError, RetryableError, UnreachableError
from compactor.log import get_logger
from compactor.metastore.compaction_queue.follow_ups import FollowUp
from compactor.metastore.compaction_queue.queue import Queue
from compactor.planning.document import PlanParts
from compactor.roles.cycle import Clock

_log = get_logger(__name__)
_HISTORY_SECONDS: Final = 600.0
"""
How often the whole history is searched, for entries that were cleaned while no process ran that had seen them wait.
"""


def follow_up_of(parts: PlanParts | None) -> FollowUp | None:
    """The follow-up that the commit of this part notes; None if nothing follows."""
    if parts is None or parts.total < 2:
        return None
    return FollowUp.WHEN_CLEANED if parts.wait else FollowUp.NOW


class FollowUps:
    """The entries that may have a follow-up, as far as one thread knows of them."""

    def __init__(self, queue: Queue, clock: Clock = time.monotonic) -> None:
        self._queue = queue
        self._clock = clock
        self._after: set[int] = set()
        self._said: dict[int, str] = {}
        self._looked: float | None = None

    def remember(self, entry_id: int) -> None:
        """Remember a committed compaction, which may be a part of a larger one."""
        self._after.add(entry_id)

    def find(self) -> None:
        """
        Remember all entries whose follow-up is noted in the metastore, whichever worker did the parts.

        Raises:
            CompactorError: the metastore can't be asked.
        """
        now = self._clock()
        history = self._looked is None or now - self._looked >= _HISTORY_SECONDS
        self._after.update(entry.id for entry in self._queue.follow_ups.noted(history=history))
        if history:
            self._looked = now

    def go_on(self) -> list[str]:
        """
        Queue the follow-ups that can be queued by now; returns the queue's answers. The others are tried again later.
        """
        queued = []
        for entry_id in sorted(self._after):
            try:
                answer, settled = self._queue.follow_ups.ask(entry_id)
            except CompactorError as error:
                passes = isinstance(error, UnreachableError | RetryableError | OutcomeUnknownError)
                (_log.debug if passes or self._said.get(entry_id) == str(error) else _log.warning)(
                    "follow_up.not_queued", after=entry_id, error=str(error)
                )
                self._said[entry_id] = str(error)
                continue
            waits = "" if settled or answer is None else answer.message
            if waits and self._said.get(entry_id) != waits:
                _log.info("follow_up.postponed", after=entry_id, why=waits)
            self._said[entry_id] = waits
            if settled:
                self._after.remove(entry_id)
                del self._said[entry_id]
            if answer is not None and answer.accepted:
                _log.info("follow_up.queued", after=entry_id, answer=answer.message)
                queued.append(answer.message)
        return queued
