"""
The delete events of one bucket for a task: those between two keys, or all of them in windows.

Neither takes more memory than the plan allows: planning cuts chunks small enough for their events, and the events of a
chunk that can't be cut go to disk.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from compactor.acid.row_id import RowKey
from compactor.engine.delete_files import DeleteFiles
from compactor.errors import VerificationError
from compactor.orc.events.deletes import DeleteEvents
from compactor.orc.events.event_share import Share
from compactor.orc.format.key_columns import KeyColumns
from compactor.orc.rows import StripeSource

Span = tuple[RowKey, RowKey]
"""Two keys, both included."""


class Written:
    """
    The events to write into a file; counts them in `count`.

    Args:
        bucket: the decoded bucket number.
        without: leave out events about rows of this write id; None: leave out none.
    """

    def __init__(self, events: DeleteFiles, bucket: int, without: int | None) -> None:
        self._events = events
        self._bucket = bucket
        self._without = without
        self.count = 0

    def blocks(self, rows: int) -> Iterator[KeyColumns]:
        """As `DeleteEvents.blocks`."""
        for window in self._events.windows(Share(self._bucket)):
            events = window if self._without is None else window.select(np.asarray(window.write_id) != self._without)
            self.count += len(events)
            yield from events.blocks(rows)


def spanning(sources: Sequence[StripeSource]) -> Span | None:
    """The first and the last key that rows of some stripes may have; None when their statistics are missing."""
    spans = [span for source in sources for span in source.spans()]
    known = [span for span in spans if span is not None]
    if not known or len(known) < len(spans):
        return None
    return min(first for first, _ in known), max(last for _, last in known)


def require_planned(events: DeleteEvents, sources: Sequence[StripeSource], planned: int) -> None:
    """
    Raise unless a task has loaded as many events as were planned: those between the keys of each of its stripes. Planning
    has counted them in all delete files; the task has opened only some of these.

    Args:
        planned: the sum over the stripes; for one without statistics all events of the bucket.

    Raises:
        VerificationError: a delete file was left out, or is another one.
    """
    found = 0
    for span in (span for source in sources for span in source.spans()):
        start, stop = (0, len(events)) if span is None else events.between(*span)
        found += stop - start
    if found != planned:
        raise VerificationError(f"{planned} delete events are between the keys of these rows, {found} were read")
