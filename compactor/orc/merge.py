"""
Rows of several sources in key order: one source after the other where they don't overlap, merged batch by batch where
they do.

At most one batch of each overlapping source is in memory; a source isn't opened before its first key is due.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from compactor.acid.row_id import RowKey
from compactor.errors import RefusedError
from compactor.orc.format.key_columns import KeyColumns, keys_up_to
from compactor.orc.reading.chunks import ArrowRows, Chunk, PythonRows
from compactor.orc.reading.single_stripe import BATCH_ROWS
from compactor.orc.rows import SourceRows
from compactor.reasons import Reason

_LOWEST = RowKey(-(1 << 63), -(1 << 31), -(1 << 63))


class _Cursor:
    """The unread rest of one source's current chunk."""

    def __init__(self, rows: SourceRows) -> None:
        self.first = rows.first or _LOWEST
        self._chunks: Iterator[Chunk] | None = None
        self._rows = rows
        self.chunk: Chunk | None = None

    def advance(self) -> bool:
        """Load the next chunk; False at the end of the source."""
        if self._chunks is None:
            self._chunks = iter(self._rows)
        self.chunk = next(self._chunks, None)
        return self.chunk is not None

    def take(self, bound: RowKey) -> Chunk | None:
        """Return the rows up to `bound` and remove them from the current chunk; None when there are none."""
        assert self.chunk is not None
        chunk, stop = self.chunk, keys_up_to(self.chunk.keys, bound)
        if stop == 0:
            return None
        self.chunk = chunk.slice(stop, len(chunk)) if stop < len(chunk) else None
        return chunk if self.chunk is None else chunk.slice(0, stop)


def merged(sources: Sequence[SourceRows]) -> Iterator[Chunk]:
    """
    All rows of the sources in key order.

    Raises:
        RefusedError: DUPLICATE_RANGE; two sources have the same key.
    """
    waiting = sorted((_Cursor(rows) for rows in sources), key=lambda cursor: cursor.first)
    active: list[_Cursor] = []
    while waiting or active:
        if not active:
            active = [cursor for cursor in (waiting.pop(0),) if cursor.advance()]
            continue
        bound = min(cursor.chunk.keys.key(-1) for cursor in active if cursor.chunk is not None)
        if waiting and waiting[0].first <= bound:
            cursor = waiting.pop(0)
            if cursor.advance():
                active.append(cursor)
            continue
        parts = [part for cursor in active if (part := cursor.take(bound)) is not None]
        active = [cursor for cursor in active if cursor.chunk is not None or cursor.advance()]
        if len(parts) == 1:
            yield parts[0]
        else:
            yield from _pieces(parts)


def _pieces(parts: Sequence[Chunk]) -> Iterator[Chunk]:
    """
    The parts' rows in key order, in pieces of one time zone each.

    A piece has at most as many rows as one source returns at a time: when a writer flushes a stripe, no rows may be
    left that would start another.
    """
    chunk, order = _interleaved(parts)
    zones = [part.zone for part in parts]
    cuts = {len(chunk), *range(0, len(chunk), BATCH_ROWS)}
    places = np.repeat([zones.index(zone) for zone in zones], [len(part) for part in parts])[order]
    cuts.update((np.flatnonzero(np.diff(places)) + 1).tolist())
    for start, stop in pairwise(sorted(cuts)):
        piece = chunk.slice(start, stop) if stop - start < len(chunk) else chunk
        yield replace(piece, zone=zones[places[start]])


def _interleaved(parts: Sequence[Chunk]) -> tuple[Chunk, npt.NDArray[np.intp]]:
    """All rows in key order, and for each row its position in the concatenated parts."""
    keys = KeyColumns.concat([part.keys for part in parts])
    order = np.lexsort((keys.row_id, keys.bucket, keys.write_id))
    ordered = keys.select(order)
    if not ordered.ascending():
        raise RefusedError(
            Reason.DUPLICATE_RANGE,
            f"the same ROW__ID is in two of the files to be merged, between {tuple(ordered.key(0))} and {tuple(ordered.key(-1))}",
        )
    arrow = [part.rows for part in parts if isinstance(part.rows, ArrowRows)]
    python = [part.rows for part in parts if isinstance(part.rows, PythonRows)]
    rows: ArrowRows | PythonRows = PythonRows.join(python) if python else ArrowRows.join(arrow)
    return Chunk(ordered, rows.take(order)), order
