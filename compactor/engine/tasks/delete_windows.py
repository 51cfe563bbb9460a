"""
Reads the delete events of one bucket for a task: those between two keys, or all of them in windows.

Neither takes more memory than the plan allows: planning cuts chunks small enough for their events, and the events of a
chunk that can't be cut go to disk.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from compactor.acid.row_id import RowKey
from compactor.engine.delete_files import DeleteFiles
from compactor.engine.inputs import open_input
from compactor.orc.events.deletes import DeleteEvents
from compactor.orc.events.event_share import Share
from compactor.orc.format.key_columns import KeyColumns
from compactor.orc.format.tail import read_tail
from compactor.orc.rows import StripeSource
from compactor.planning.document import InputFile
from compactor.storage.base import Storage

Span = tuple[RowKey, RowKey]
"""Two keys, both included."""


class BucketEvents:
    """
    The valid delete events of one bucket.

    Args:
        files: the delete files that may hold events of the bucket.
        aborted: write ids whose events don't count.
        bucket: the decoded bucket number.
        most: events that may be in memory.
    """

    def __init__(  # noqa: PLR0917 - the sources of the events, and a limit
        self,
        storage: Storage,
        location: str,
        files: Sequence[InputFile],
        aborted: npt.NDArray[np.int64],
        bucket: int,
        most: int,
    ) -> None:
        self._storage = storage
        self._location = location
        self._files = files
        self._aborted = aborted
        self._bucket = bucket
        self._most = most

    def within(self, span: Span | None) -> DeleteEvents:
        """The events between two keys; None: all events."""
        first, last = span or (None, None)
        return self._read.load(Share(self._bucket, first, last), self._most)

    def windows(self) -> Iterator[DeleteEvents]:
        """All events in ascending order, at most the allowed number at a time."""
        return self._read.windows(Share(self._bucket), self._most)

    @cached_property
    def _read(self) -> DeleteFiles:
        tails = []
        for file in self._files:
            with open_input(self._storage, self._location, file.path) as reader:
                tails.append((file.path, read_tail(reader, file.logical_length)))
        return DeleteFiles(self._storage, self._location, tails, self._aborted)


class Written:
    """
    The events to write into a file; counts them in `count`.

    Args:
        without: leave out events about rows of this write id; None: leave out none.
    """

    def __init__(self, events: BucketEvents, without: int | None) -> None:
        self._events = events
        self._without = without
        self.count = 0

    def blocks(self, rows: int) -> Iterator[KeyColumns]:
        """As `DeleteEvents.blocks`."""
        for window in self._events.windows():
            events = window if self._without is None else window.select(np.asarray(window.write_id) != self._without)
            self.count += len(events)
            yield from events.blocks(rows)


def spanning(sources: Sequence[StripeSource]) -> Span | None:
    """The first and the last key that rows of some stripes may have; None when their statistics are missing."""
    spans = [span for source in sources if (span := source.key_range()) is not None]
    return (
        (min(first for first, _ in spans), max(last for _, last in spans))
        if spans and len(spans) == len(sources)
        else None
    )
