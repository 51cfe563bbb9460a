"""
All delete events of a bucket, one window of ascending keys after the other.

Only one window is in memory and nothing on disk, however many events there are. Each window is a pass over the stripes
whose statistics admit its keys; the pass keeps the smallest keys that it meets.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from compactor.acid.row_id import RowKey
from compactor.handles import RandomReader
from compactor.orc.events.deletes import DeleteEvents, Seen, read_events
from compactor.orc.events.event_share import EVERYTHING, Share
from compactor.orc.format.key_columns import KeyColumns
from compactor.orc.format.tail import Tail


def event_windows(
    sources: Callable[[], Iterable[tuple[RandomReader, Tail]]],
    most: int,
    *,
    aborted: npt.NDArray[np.int64],
    share: Share = EVERYTHING,
    seen: Seen | None = None,
) -> Iterator[DeleteEvents]:
    """
    The valid events of some delete files, one per key, in windows of ascending keys; at least one window, which may be
    empty.

    Args:
        sources: called once for each window.
        most: events in a window; about half as many again are held in memory while a window is collected.
        seen: as in `read_events`; before the last window, called with each event of the share, of some files twice.

    Raises:
        CorruptFileError: as `DeleteEvents.load`.
    """
    while True:
        smallest = _Smallest(share, most)
        for keys in read_events(sources(), aborted=aborted, share=smallest.wanted, seen=seen):
            smallest.add(keys)
        window = smallest.finish()
        yield window
        if len(window) < most:
            return
        end = _last_key(window)
        share = replace(share, first=RowKey(end.write_id, end.bucket, end.row_id + 1))


class _Smallest:
    """Keeps the `most` smallest of the events that are added."""

    def __init__(self, share: Share, most: int) -> None:
        self._share = share
        self._most = most
        self._parts: list[KeyColumns] = []
        self._count = 0

    def wanted(self) -> Share:
        """The share that may still hold one of the smallest events; it shrinks as events are added."""
        return self._share

    def add(self, keys: KeyColumns) -> None:
        self._parts.append(keys)
        self._count += len(keys)
        if self._count > self._most + max(self._most // 2, 1):
            self.finish()

    def finish(self) -> DeleteEvents:
        """The events that are left."""
        events = DeleteEvents.of(KeyColumns.concat(self._parts))
        if len(events) >= self._most:
            events = events.part(slice(0, self._most))
            self._share = replace(self._share, last=_last_key(events))
        self._parts = [events.keys(slice(None))]
        self._count = len(events)
        return events


def _last_key(events: DeleteEvents) -> RowKey:
    return events.keys(slice(-1, None)).key(0)
