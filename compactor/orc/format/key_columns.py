"""
Keys of rows as arrays: five columns of equal length, and binary searches in them.

Pure; knows nothing of files. Source: docs/orc.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from compactor.acid.row_id import RowKey


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """
    The five ACID columns of some rows, in file order; arrays of equal length.

    Args:
        operation: int32; 0 insert, 2 delete.
        write_id: int64; the write that inserted the row (`originalTransaction`).
        bucket: int32; the packed bucket field.
        row_id: int64.
        current: int64; the write that wrote this event (`currentTransaction`).
    """

    operation: npt.NDArray[np.int32]
    write_id: npt.NDArray[np.int64]
    bucket: npt.NDArray[np.int32]
    row_id: npt.NDArray[np.int64]
    current: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.row_id)

    def key(self, position: int) -> RowKey:
        return RowKey(int(self.write_id[position]), int(self.bucket[position]), int(self.row_id[position]))

    @property
    def columns(self) -> tuple[npt.NDArray[np.integer], ...]:
        """All five, in the order of the file's columns."""
        return (self.operation, self.write_id, self.bucket, self.row_id, self.current)

    def missing(self) -> int:
        """How many row ids are left out between rows of one write and bucket; the keys ascend."""
        together = (np.diff(self.write_id) == 0) & (np.diff(self.bucket) == 0)
        return int((np.diff(self.row_id)[together] - 1).sum())

    def select(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.intp] | slice) -> "KeyColumns":
        """The rows that a mask, positions or a slice choose."""
        return KeyColumns(
            self.operation[chosen],
            self.write_id[chosen],
            self.bucket[chosen],
            self.row_id[chosen],
            self.current[chosen],
        )

    @staticmethod
    def concat(parts: Sequence["KeyColumns"]) -> "KeyColumns":
        """All rows of `parts`, one after the other; empty when there are none."""
        return KeyColumns(
            np.concatenate([part.operation for part in parts] or [np.empty(0, np.int32)]),
            np.concatenate([part.write_id for part in parts] or [np.empty(0, np.int64)]),
            np.concatenate([part.bucket for part in parts] or [np.empty(0, np.int32)]),
            np.concatenate([part.row_id for part in parts] or [np.empty(0, np.int64)]),
            np.concatenate([part.current for part in parts] or [np.empty(0, np.int64)]),
        )

    @staticmethod
    def of(keys: Sequence[RowKey]) -> "KeyColumns":
        """Keys to search with; they stand for no written rows, so their operation and `current` are 0."""
        write_id, bucket, row_id = zip(*keys, strict=True)
        nothing = np.zeros(len(keys), np.int64)
        return KeyColumns(
            nothing.astype(np.int32),
            np.array(write_id, np.int64),
            np.array(bucket, np.int32),
            np.array(row_id, np.int64),
            nothing,
        )

    def ascending(self) -> bool:
        """Whether each key is greater than the one before it."""
        write_id, bucket, row_id = self.write_id, self.bucket, self.row_id
        same_write = write_id[1:] == write_id[:-1]
        same_both = same_write & (bucket[1:] == bucket[:-1])
        greater = (
            (write_id[1:] > write_id[:-1])
            | (same_write & (bucket[1:] > bucket[:-1]))
            | (same_both & (row_id[1:] > row_id[:-1]))
        )
        return bool(greater.all())


class KeyArrays(Protocol):
    """Columns of keys in ascending key order."""

    @property
    def write_id(self) -> npt.NDArray[np.int64]: ...

    @property
    def bucket(self) -> npt.NDArray[np.int32]: ...

    @property
    def row_id(self) -> npt.NDArray[np.int64]: ...

    def __len__(self) -> int: ...


def search_keys(sorted_keys: KeyArrays, needles: KeyColumns, *, after: bool = False) -> npt.NDArray[np.intp]:
    """
    Where each needle would be inserted to keep key order, before its equals or after them: a binary search of all
    needles at once.

    Where the first two parts of the key don't vary, one `searchsorted` is enough.
    """
    count = len(sorted_keys)
    if (
        count
        and _constant(sorted_keys)
        and _constant(needles)
        and sorted_keys.write_id[0] == needles.write_id[0]
        and sorted_keys.bucket[0] == needles.bucket[0]
    ):
        return np.searchsorted(sorted_keys.row_id, needles.row_id, side="right" if after else "left")
    low = np.zeros(len(needles), np.intp)
    high = np.full(len(needles), count, np.intp)
    for _ in range(count.bit_length()):
        middle = np.minimum((low + high) >> 1, max(count - 1, 0))
        write_id, bucket, row_id = sorted_keys.write_id[middle], sorted_keys.bucket[middle], sorted_keys.row_id[middle]
        same_write = write_id == needles.write_id
        same_both = same_write & (bucket == needles.bucket)
        smaller = (
            (write_id < needles.write_id)
            | (same_write & (bucket < needles.bucket))
            | (same_both & (row_id < needles.row_id))
        )
        if after:
            smaller |= same_both & (row_id == needles.row_id)
        active = low < high
        low = np.where(active & smaller, middle + 1, low)
        high = np.where(active & ~smaller, middle, high)
    return low


def _constant(keys: KeyArrays) -> bool:
    """
    Whether all keys share write id and bucket. The keys are in order, so comparing the first with the last is enough.
    """
    return bool(len(keys) and keys.write_id[0] == keys.write_id[-1] and keys.bucket[0] == keys.bucket[-1])


def keys_up_to(keys: KeyColumns, bound: RowKey) -> int:
    """How many of the given ascending keys are at or below `bound`."""
    return int(search_keys(keys, KeyColumns.of([bound]), after=True)[0])
