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
from compactor.orc.events.deletes import DeleteEvents, read_events
from compactor.orc.events.event_share import EVERYTHING, Share
from compactor.orc.events.keys import DELETE
from compactor.orc.format.key_columns import KeyColumns
from compactor.orc.format.tail import Tail


def event_windows(
    sources: Callable[[], Iterable[tuple[RandomReader, Tail]]],
    most: int,
    *,
    aborted: npt.NDArray[np.int64],
    share: Share = EVERYTHING,
) -> Iterator[DeleteEvents]:
    """
    The valid events of some delete files, one per key, in windows of ascending keys; at least one window, which may be
    empty.

    Args:
        sources: called once for each window.
        most: events in a window; about half as many again are held in memory while a window is collected.

    Raises:
        CorruptFileError: as `DeleteEvents.load`.
    """
    while True:
        smallest = _Smallest(share, most)
        for keys in read_events(sources(), aborted=aborted, share=smallest.wanted):
            smallest.add(keys)
        window = smallest.finish()
        yield window
        if len(window) < most:
            return
        end = _key(window, -1)
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
            self._shrink()

    def finish(self) -> DeleteEvents:
        return self._shrink()

    def _shrink(self) -> DeleteEvents:
        events = DeleteEvents.of(KeyColumns.concat(self._parts))
        if len(events) >= self._most:
            part = slice(0, self._most)
            events = DeleteEvents(events.write_id[part], events.bucket[part], events.row_id[part], events.current[part])
            self._share = replace(self._share, last=_key(events, -1))
        self._parts = [
            KeyColumns(
                np.full(len(events), DELETE, np.int32), events.write_id, events.bucket, events.row_id, events.current
            )
        ]
        self._count = len(events)
        return events


def _key(events: DeleteEvents, position: int) -> RowKey:
    return RowKey(int(events.write_id[position]), int(events.bucket[position]), int(events.row_id[position]))
