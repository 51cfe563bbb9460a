"""
What follows a part: a compaction that was too large for one goes back into the queue until all of it is done.

Remembered by the worker that did the part, for as long as its process lives. Nothing depends on it: whatever is left is found by the Initiator, by its thresholds,
or asked for again by whoever wanted it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from compactor.errors import CompactorError
from compactor.log import get_logger
from compactor.metastore.model import QueueEntry, QueueState
from compactor.metastore.queue import Queue
from compactor.planning.document import Parts

_log = get_logger(__name__)
_FORGET_SECONDS: Final = 24 * 3600.0
"""A next part that couldn't be queued for so long is forgotten: the Initiator has looked many times since."""


@dataclass(frozen=True, slots=True)
class _Next:
    after: QueueEntry
    parts: Parts
    since: float


class Continuing:
    """The next parts of one worker's compactions."""

    def __init__(self, queue: Queue, clock: Callable[[], float] = time.monotonic) -> None:
        self._queue = queue
        self._clock = clock
        self._next: list[_Next] = []

    def remember(self, after: QueueEntry, parts: Parts | None) -> None:
        """A compaction is done, and was a part of a larger one unless `parts` is None."""
        if parts is not None and parts.total > 1:
            self._next.append(_Next(after, parts, self._clock()))

    def go_on(self) -> list[str]:
        """Queue what can be queued by now; returns what was. What can't be asked now is asked later."""
        queued = []
        for one in list(self._next):
            try:
                sentence, settled = self._try(one)
            except CompactorError as error:
                _log.debug("the next part can't be queued yet", entity=str(one.after.entity), why=str(error))
                continue
            if settled or self._clock() - one.since > _FORGET_SECONDS:
                self._next.remove(one)
            if sentence:
                _log.info("next part queued", after=one.after.id, answer=sentence)
                queued.append(sentence)
        return queued

    def _try(self, one: _Next) -> tuple[str, bool]:
        """What was queued, and whether there is nothing more to do about it."""
        after = one.after
        if one.parts.wait and (now := self._queue.entry(after.id)) is not None and now.state is QueueState.READY_FOR_CLEANING:
            return "", False
        answer = self._queue.enqueue(
            after.entity,
            after.kind,
            pool=after.pool,
            properties=after.properties,
            run_as=after.run_as,
            initiator_id=after.initiator_id,
            initiator_version=after.initiator_version,
        )
        if answer.accepted:
            return answer.message, True
        return "", answer.state is not QueueState.READY_FOR_CLEANING
