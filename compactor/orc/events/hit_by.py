"""
Which delete files have events between the keys of which stripes, so that a task opens no others.

Pure. A stripe's bounds hold all of its keys, and all events are looked at; so a file that isn't noted for a stripe has no
event of a row in it.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt

from compactor.acid.row_id import RowKey
from compactor.orc.format.key_columns import KeyColumns, search_keys

_BLOCK: Final = 1 << 10


class HitBy:
    """
    Notes the events of some delete files.

    Args:
        spans: of each stripe the bounds of its keys, both included; None where they aren't known.
        files: number of delete files.
    """

    def __init__(self, spans: Sequence[tuple[RowKey, RowKey] | None], files: int) -> None:
        self._spans = spans
        bounded = [(span[0], span[1], stripe) for stripe, span in enumerate(spans) if span is not None]
        bounded.sort()
        self._order = [stripe for _, _, stripe in bounded]
        self._first = KeyColumns.of([first for first, _, _ in bounded]) if bounded else KeyColumns.concat(())
        reach = list(accumulate((last for _, last, _ in bounded), max))
        self._reach = KeyColumns.of(reach) if reach else KeyColumns.concat(())
        self._hits = np.zeros((files, -(-len(bounded) // 8)), np.uint8)

    def add(self, file: int, events: KeyColumns) -> None:
        """
        Note events of a file, in any order. Of stripes whose bounds overlap, some that lie beside an event may be noted,
        too.
        """
        if not self._order or not len(events):
            return
        if not events.ascending():  # a streaming writer's ascend only inside each transaction
            events = events.select(np.lexsort((events.row_id, events.bucket, events.write_id)))
        start = search_keys(self._reach, events)  # all stripes before end below the event
        stop = search_keys(self._first, events, after=True)  # all stripes from here on begin above it
        inside = start < stop
        size = len(self._order) + 1
        change = np.bincount(start[inside], minlength=size) - np.bincount(stop[inside], minlength=size)
        self._hits[file] |= np.packbits(np.cumsum(change)[:-1] > 0)

    def masks(self) -> list[int | None]:
        """Of each stripe the files that have events between its keys, a bit each; None where its bounds aren't known."""
        masks: list[int | None] = [None] * len(self._spans)
        for start in range(0, len(self._order), _BLOCK):
            part: npt.NDArray[np.uint8] = self._hits[:, start // 8 : (start + _BLOCK) // 8]
            by_stripe = np.packbits(np.unpackbits(part, axis=1).T, axis=1, bitorder="little")
            for stripe, bits in zip(self._order[start : start + _BLOCK], by_stripe, strict=False):
                masks[stripe] = int.from_bytes(bits.tobytes(), "little")
        return masks
