"""
In what two directories of one table differ: rows that only one of them has, and by column how many of the others hold another value.

Both are read in the order of ROW__IDs, a batch of each at a time; compared are hashes of values (`compactor.orc.digest`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from compactor.acid.row_id import RowKey
from compactor.engine.reading import Reading
from compactor.orc.digest import RowHashes, column_paths, key_hashes
from compactor.orc.digest_values import struct_of
from compactor.orc.key_columns import KeyColumns, keys_up_to
from compactor.orc.lanes import Lanes
from compactor.orc.merge import merged


@dataclass(slots=True)
class Differences:
    """
    Args:
        missing, extra: rows that only the first, only the second reading has.
        columns: path → rows of both whose value differs.
        first: the lowest key that is concerned, by what: `missing`, `extra`, or a path.
    """

    missing: int = 0
    extra: int = 0
    columns: dict[str, int] = field(default_factory=dict)
    first: dict[str, RowKey] = field(default_factory=dict)

    def note(self, what: str, keys: KeyColumns) -> None:
        """Remember the first key."""
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


def compare(one: Reading, other: Reading) -> Differences:
    """
    Read both wholly.

    Raises:
        RefusedError: DUPLICATE_RANGE, the same ROW__ID is in two files of one of them; what else reading them raises.
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


def _blocks(reading: Reading, bucket: int) -> Iterator[_Block]:
    hashes = RowHashes(reading.row)
    for chunk in merged(reading.rows(bucket)):
        yield _Block(chunk.keys, hashes.of(chunk.keys, struct_of(chunk.rows, reading.row), chunk.zone))


def _compare(found: Differences, paths: list[str], one: _Block, other: _Block) -> None:
    """Blocks that end at the same key; keys ascend in each. Rows are matched by their keys' hashes."""
    mine, yours = key_hashes(one.keys), key_hashes(other.keys)
    _, left, right = np.intersect1d(mine, yours, assume_unique=True, return_indices=True)
    for what, block, common in (("missing", one, left), ("extra", other, right)):
        alone = np.ones(len(block.keys), np.bool_)
        alone[common] = False
        if alone.any():
            setattr(found, what, getattr(found, what) + int(alone.sum()))
            found.note(what, block.keys.select(alone))
    different = one.hashes[:, left] != other.hashes[:, right]
    for column in np.flatnonzero(different.any(axis=1)).tolist():
        found.columns[paths[column]] = found.columns.get(paths[column], 0) + int(different[column].sum())
        found.note(paths[column], one.keys.select(np.sort(left[different[column]])))
