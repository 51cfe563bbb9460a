"""
Compares two directories of one table: rows that only one of them has, and how many common rows differ, by column.

Both are read in the order of ROW__IDs, one batch of each at a time; hashes of values are compared
(`compactor.orc.digests.digest`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from compactor.acid.row_id import RowKey
from compactor.engine.reading import PartitionReading
from compactor.orc.digests.digest import RowHashes, column_paths, key_hashes
from compactor.orc.digests.digest_values import struct_of
from compactor.orc.digests.lanes import Lanes
from compactor.orc.format.key_columns import KeyColumns, keys_up_to
from compactor.orc.merge import merged


@dataclass(slots=True)
class Differences:
    """
    The differences between a first and a second reading.

    Args:
        missing, extra: number of rows that only the first reading has, and that only the second has.
        columns: path of a column → number of common rows whose value differs.
        first: `missing`, `extra` or a path → the lowest key with this difference.
    """

    missing: int = 0
    extra: int = 0
    columns: dict[str, int] = field(default_factory=dict)
    first: dict[str, RowKey] = field(default_factory=dict)

    def note(self, what: str, keys: KeyColumns) -> None:
        """Remember the first key of a difference, unless an earlier one is known."""
        if len(keys):
            self.first.setdefault(what, keys.key(0))


@dataclass(frozen=True, slots=True)
class _Block:
    keys: KeyColumns
    hashes: Lanes

    def split(self, bound: RowKey) -> "tuple[_Block, _Block | None]":
        at = keys_up_to(self.keys, bound)
        rest = _Block(self.keys.select(slice(at, None)), self.hashes[:, at:]) if at < len(self.keys) else None
        return _Block(self.keys.select(slice(0, at)), self.hashes[:, :at]), rest


def compare(one: PartitionReading, other: PartitionReading) -> Differences:
    """
    Read both completely and return their differences.

    Raises:
        RefusedError: DUPLICATE_RANGE, two files of one reading hold the same ROW__ID; and the errors of reading files.
    """
    found = Differences()
    paths = list(column_paths(one.row))
    for bucket in sorted({*one.buckets, *other.buckets}):
        left, right = _blocks(one, bucket), _blocks(other, bucket)
        here, there = next(left, None), next(right, None)
        while here is not None and there is not None:
            bound = min(here.keys.key(-1), there.keys.key(-1))
            ours, here = here.split(bound)
            theirs, there = there.split(bound)
            _compare(found, paths, ours, theirs)
            here, there = here or next(left, None), there or next(right, None)
        while here is not None:
            found.missing += len(here.keys)
            found.note("missing", here.keys)
            here = next(left, None)
        while there is not None:
            found.extra += len(there.keys)
            found.note("extra", there.keys)
            there = next(right, None)
    return found


def _blocks(reading: PartitionReading, bucket: int) -> Iterator[_Block]:
    hashes = RowHashes(reading.row)
    for chunk in merged(reading.rows(bucket)):
        yield _Block(chunk.keys, hashes.of(chunk.keys, struct_of(chunk.rows, reading.row), chunk.zone))


def _compare(found: Differences, paths: list[str], one: _Block, other: _Block) -> None:
    """Add the differences of two blocks that end at the same key, keys ascending; matches rows by hashes of keys."""
    mine, yours = key_hashes(one.keys), key_hashes(other.keys)
    _, left, right = np.intersect1d(mine, yours, assume_unique=True, return_indices=True)
    missing, extra = _without(one.keys, left), _without(other.keys, right)
    found.missing += len(missing)
    found.extra += len(extra)
    found.note("missing", missing)
    found.note("extra", extra)
    different = one.hashes[:, left] != other.hashes[:, right]
    for column in np.flatnonzero(different.any(axis=1)).tolist():
        found.columns[paths[column]] = found.columns.get(paths[column], 0) + int(different[column].sum())
        found.note(paths[column], one.keys.select(np.sort(left[different[column]])))


def _without(keys: KeyColumns, common: NDArray[np.intp]) -> KeyColumns:
    alone = np.ones(len(keys), np.bool_)
    alone[common] = False
    return keys.select(alone)
