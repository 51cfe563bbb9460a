"""
Delete events of a partition, as sorted arrays: which stripes they can hit, and which rows they hide.

One event is kept for each key, the earliest: it counts for every snapshot that may see the compacted directory (Hive's
delete registry breaks on two events of one key). Beyond a limit the arrays live in unlinked temporary files, so memory
doesn't grow with the number of deletes.
Source: docs/orc.md; Hive's VectorizedOrcAcidRowBatchReader.ColumnizedDeleteEventRegistry.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from compactor.acid.row_id import Hit, RowKey, decode_buckets
from compactor.errors import CorruptFileError
from compactor.handles import RandomReader
from compactor.orc.events.event_share import EVERYTHING, Share
from compactor.orc.events.keys import DELETE, StripeBounds, read_keys
from compactor.orc.format.key_columns import KeyColumns, search_keys
from compactor.orc.format.tail import Tail

IN_MEMORY_EVENTS: Final = 4_000_000
_BLOCK: Final = 1 << 18
_NOTHING: Final = np.empty(0, np.int64)
_COLUMNS: Final = (("write_id", np.int64), ("bucket", np.int32), ("row_id", np.int64), ("current", np.int64))
Array = npt.NDArray[Any]
Seen = Callable[[int, KeyColumns], None]


@dataclass(frozen=True, slots=True, eq=False)
class DeleteEvents:
    """
    Events in key order, one per key; four arrays of equal length (28 bytes an event).

    Args:
        write_id, bucket, row_id: the key of the deleted row (int64, int32, int64).
        current: the write id that deleted it (int64).
    """

    write_id: npt.NDArray[np.int64]
    bucket: npt.NDArray[np.int32]
    row_id: npt.NDArray[np.int64]
    current: npt.NDArray[np.int64]

    @staticmethod
    def load(
        sources: Iterable[tuple[RandomReader, Tail]],
        *,
        aborted: npt.NDArray[np.int64] = _NOTHING,
        high_watermark: int | None = None,
        share: Share = EVERYTHING,
        spill_directory: str | Path | None = None,
        limit: int = IN_MEMORY_EVENTS,
    ) -> "DeleteEvents":
        """
        Read delete files and keep the valid events.

        Args:
            aborted: write ids whose events don't count.
            high_watermark: events of later write ids don't count; None counts all.
            share: the part of the events to load.
            spill_directory: where events beyond `limit` go; None is the system's temporary directory.
            limit: events held in memory, at least some tens of thousands.

        Raises:
            CorruptFileError: a file can't be decoded, or holds rows that aren't delete events.
        """
        collector = _Collector(spill_directory, limit)
        for keys in read_events(sources, aborted=aborted, high_watermark=high_watermark, share=lambda: share):
            collector.add(keys)
        return collector.finish()

    @staticmethod
    def of(keys: KeyColumns) -> "DeleteEvents":
        """Events from keys in any order; of events with equal keys only the earliest stays."""
        ordered = _sorted_unique([keys.write_id, keys.bucket, keys.row_id, keys.current])
        return DeleteEvents(*ordered)

    def __len__(self) -> int:
        return len(self.row_id)

    @property
    def _columns(self) -> tuple[Array, ...]:
        return self.write_id, self.bucket, self.row_id, self.current

    def part(self, part: slice) -> "DeleteEvents":
        """Some of the events that follow each other, where they are."""
        return DeleteEvents(*(column[part] for column in self._columns))

    def keys(self, part: slice) -> KeyColumns:
        """Some of the events as key columns."""
        write_id, bucket, row_id, current = (np.asarray(column[part]) for column in self._columns)
        return KeyColumns(np.full(len(row_id), DELETE, np.int32), write_id, bucket, row_id, current)

    def select(self, chosen: npt.NDArray[np.bool_]) -> "DeleteEvents":
        """
        The events that a mask chooses. They stay on disk where these events are on disk, so that a bucket's share of
        many events doesn't use memory.
        """
        if chosen.all():
            return self
        if not isinstance(self.row_id, np.memmap) or not chosen.any():
            return DeleteEvents(*(column[chosen] for column in self._columns))
        writer = _RunWriter(None)
        for start in range(0, len(self), _BLOCK):
            part = slice(start, start + _BLOCK)
            writer.append([column[part][chosen[part]] for column in self._columns])
        return DeleteEvents(*writer.finish())

    def buckets(self) -> tuple[int, ...]:
        """The decoded buckets that occur, ascending."""
        found: set[int] = set()
        for start in range(0, len(self), _BLOCK):
            found.update(np.unique(decode_buckets(np.asarray(self.bucket[start : start + _BLOCK]))).tolist())
        return tuple(sorted(found))

    def blocks(self, rows: int = _BLOCK) -> Iterator[KeyColumns]:
        """The events as key columns, at most `rows` at a time."""
        for start in range(0, len(self), rows):
            yield self.keys(slice(start, start + rows))

    def between(self, first: RowKey, last: RowKey) -> tuple[int, int]:
        """Positions [start, stop) of the events whose keys lie between two keys, both included."""
        needles = KeyColumns.of([first, last])
        start = int(search_keys(self, needles)[0])
        stop = int(search_keys(self, needles, after=True)[1])
        return start, max(start, stop)

    def hit(self, bounds: StripeBounds) -> Hit:
        """
        Whether a row of a stripe is deleted, as far as the stripe's bounds tell.

        CERTAIN where an event names a key that must be in the stripe: an exact first or last key, or any key of a
        stripe without gaps.
        """
        start, stop = self.between(bounds.first, bounds.last)
        found = Hit.NONE
        gapless = bounds.exact and bounds.last.row_id - bounds.first.row_id + 1 == bounds.rows
        for at in range(start, stop, _BLOCK):
            part = slice(at, min(stop, at + _BLOCK))
            write_id, bucket, row_id = self.write_id[part], self.bucket[part], self.row_id[part]
            inside = (
                _within(write_id, bounds.write_id) & _within(bucket, bounds.bucket) & _within(row_id, bounds.row_id)
            )
            if not inside.any():
                continue
            ends = (row_id == bounds.first.row_id) | (row_id == bounds.last.row_id)
            if gapless or (bounds.exact and (inside & ends).any()):
                return Hit.CERTAIN
            found = Hit.POSSIBLE
        return found

    def mask(self, keys: KeyColumns) -> npt.NDArray[np.bool_]:
        """
        Which of the given rows are deleted.

        Args:
            keys: in ascending order, as in a file.

        Returns:
            True where an event has the row's key; as long as `keys`.
        """
        deleted = np.zeros(len(keys), np.bool_)
        if not len(keys) or not len(self):
            return deleted
        start, stop = self.between(keys.key(0), keys.key(-1))
        if stop - start > len(keys):
            events = self.part(slice(start, stop))
            at = np.minimum(search_keys(events, keys), len(events) - 1)
            return _equal(events, at, keys)
        for begin in range(start, stop, _BLOCK):
            wanted = self.keys(slice(begin, min(stop, begin + _BLOCK)))
            at = np.minimum(search_keys(keys, wanted), len(keys) - 1)
            deleted[at[_equal(keys, at, wanted)]] = True
        return deleted


def read_events(
    sources: Iterable[tuple[RandomReader, Tail]],
    *,
    aborted: npt.NDArray[np.int64] = _NOTHING,
    high_watermark: int | None = None,
    share: Callable[[], Share] = lambda: EVERYTHING,
    seen: Seen | None = None,
) -> Iterator[KeyColumns]:
    """
    The valid events of delete files, in file order. Stripes that can't hold an event of the share aren't read.

    Args:
        share: returns the wanted part of the events; called again for every stripe and batch, because the part may
            shrink.
        seen: called with the number of the file and events of the share in it, before they are returned.

    Raises:
        CorruptFileError: as `DeleteEvents.load`.
    """
    for number, (reader, tail) in enumerate(sources):
        for stripe in range(len(tail.stripes)):
            if not share().may_be_in(tail, stripe):
                continue
            for keys in read_keys(reader, tail, stripe):
                if (keys.operation != DELETE).any():
                    raise CorruptFileError(f"{tail.name}: stripe {stripe + 1} holds rows that aren't delete events")
                valid = visible(keys, aborted, high_watermark)
                chosen = share().of(keys if valid.all() else keys.select(valid))
                if seen is not None:
                    seen(number, chosen)
                yield chosen


def visible(keys: KeyColumns, aborted: npt.NDArray[np.int64], high_watermark: int | None) -> npt.NDArray[np.bool_]:
    """Which events count: those whose write id (`current`) isn't aborted and isn't above the high watermark."""
    counts = np.ones(len(keys), np.bool_) if high_watermark is None else keys.current <= high_watermark
    if len(aborted):
        counts &= ~np.isin(keys.current, aborted)
    return counts


def _within(values: Array, limits: tuple[int, int]) -> npt.NDArray[np.bool_]:
    inside: npt.NDArray[np.bool_] = (values >= limits[0]) & (values <= limits[1])
    return inside


def _equal(
    sorted_keys: DeleteEvents | KeyColumns, at: npt.NDArray[np.intp], needles: KeyColumns
) -> npt.NDArray[np.bool_]:
    equal: npt.NDArray[np.bool_] = (
        (sorted_keys.write_id[at] == needles.write_id)
        & (sorted_keys.bucket[at] == needles.bucket)
        & (sorted_keys.row_id[at] == needles.row_id)
    )
    return equal


def _sorted_unique(columns: list[Array]) -> list[Array]:
    """The columns in key order; of equal keys the one with the smallest `current` stays."""
    write_id, bucket, row_id, current = columns
    order = np.lexsort((current, row_id, bucket, write_id))
    ordered = [column[order] for column in columns]
    first = np.ones(len(order), np.bool_)
    first[1:] = (
        (ordered[0][1:] != ordered[0][:-1]) | (ordered[1][1:] != ordered[1][:-1]) | (ordered[2][1:] != ordered[2][:-1])
    )
    return ordered if first.all() else [column[first] for column in ordered]


class _Collector:
    """
    Gathers events. Beyond the limit it sorts the gathered events and writes them out as a run; `finish` merges the
    runs.
    """

    def __init__(self, directory: str | Path | None, limit: int) -> None:
        self._directory = directory
        self._limit = limit
        self._parts: list[list[Array]] = []
        self._count = 0
        self._runs: list[list[Array]] = []

    def add(self, keys: KeyColumns) -> None:
        self._parts.append([keys.write_id, keys.bucket, keys.row_id, keys.current])
        self._count += len(keys)
        if self._count > self._limit:
            self._spill()

    def finish(self) -> DeleteEvents:
        if not self._runs:
            return DeleteEvents(*self._take())
        self._spill()
        runs = self._runs
        while len(runs) > 1:
            runs = [*runs[2:], self._merge(runs[0], runs[1])]
        return DeleteEvents(*runs[0])

    def _take(self) -> list[Array]:
        columns = [
            np.concatenate([part[index] for part in self._parts] or [np.empty(0, kind)])
            for index, (_, kind) in enumerate(_COLUMNS)
        ]
        self._parts, self._count = [], 0
        return _sorted_unique(columns)

    def _spill(self) -> None:
        columns = self._take()
        if len(columns[0]):
            writer = _RunWriter(self._directory)
            writer.append(columns)
            self._runs.append(writer.finish())

    def _merge(self, left: list[Array], right: list[Array]) -> list[Array]:
        writer = _RunWriter(self._directory)
        at = [0, 0]
        runs = (left, right)
        while at[0] < len(left[0]) and at[1] < len(right[0]):
            ends = [min(len(run[0]), start + _BLOCK) for run, start in zip(runs, at, strict=True)]
            bounds = [
                tuple(int(run[column][end - 1]) for column in range(3)) for run, end in zip(runs, ends, strict=True)
            ]
            bound = RowKey(*min(bounds))
            blocks = []
            for side, run in enumerate(runs):
                block = [column[at[side] : ends[side]] for column in run]
                taken = DeleteEvents(*block).between(RowKey(-(1 << 63), -(1 << 31), -(1 << 63)), bound)[1]
                blocks.append([column[:taken] for column in block])
                at[side] += taken
            writer.append(_sorted_unique([np.concatenate(pair) for pair in zip(*blocks, strict=True)]))
        for side, run in enumerate(runs):
            for start in range(at[side], len(run[0]), _BLOCK):
                writer.append([column[start : start + _BLOCK] for column in run])
        return writer.finish()


class _RunWriter:
    """
    Four growing temporary files, returned as memory maps. The files are unlinked from the start, so a killed process
    leaves nothing on disk.
    """

    def __init__(self, directory: str | Path | None) -> None:
        self._files = [tempfile.TemporaryFile(dir=directory) for _ in _COLUMNS]  # noqa: SIM115 - the maps outlive this block

    def append(self, columns: list[Array]) -> None:
        for file, column in zip(self._files, columns, strict=True):
            file.write(np.ascontiguousarray(column).data)

    def finish(self) -> list[Array]:
        maps: list[Array] = []
        for file, (_, kind) in zip(self._files, _COLUMNS, strict=True):
            file.flush()
            maps.append(np.memmap(file, dtype=kind, mode="r"))
            file.close()
        return maps
