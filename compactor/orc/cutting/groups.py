"""
Which row groups the rows of a stripe come into when others go, and the statistics of these groups.

A group keeps the statistics of the group in its place, without what left it, with what came into it: only these values
are looked at. Counts and sums are exact; minimum and maximum may be those of values that left.
Source: the ORC specification, "Column Statistics".
"""

from collections.abc import Sequence
from decimal import Decimal, localcontext
from itertools import pairwise
from math import isfinite
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.acid.types import Kind
from compactor.orc.cutting.columns import Column, Mask
from compactor.orc.cutting.runs import UncutError
from compactor.orc.cutting.values import DIGITS, statistics_of
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.statistics import INT64, merge_column

_DECIMAL_DIGITS: Final = 38
_NOTHING: Final = pb.ColumnStatistics(number_of_values=0, has_null=False)


class Groups:
    """
    Row groups before and after.

    Args:
        stride: rows of a group.
        kept: for each row of the stripe; at least one stays.
    """

    def __init__(self, stride: int, kept: Mask) -> None:
        self.left = np.flatnonzero(kept)
        self.starts = np.arange(0, len(self.left), stride, dtype=np.int64)
        before, after = self.left // stride, np.arange(len(self.left)) // stride
        moved = before != after
        self._stay = np.bincount(before[~moved], minlength=len(self.starts))
        self._rows = len(kept)
        self._old_starts = np.arange(0, len(kept), stride, dtype=np.int64)
        rows = np.concatenate((np.flatnonzero(~kept), self.left[moved]))
        order = np.argsort(rows)
        self.wanted: npt.NDArray[np.int64] = rows[order]
        """The rows that leave their group, in order; their values are needed."""
        into = np.concatenate((np.full(len(rows) - int(moved.sum()), -1), after[moved]))[order]
        places, numbers = np.flatnonzero(into >= 0), np.arange(len(self.starts) + 1)
        self._gone = [(at, end) for at, end in pairwise(np.searchsorted(self.wanted // stride, numbers).tolist())]
        self._come = [places[at:end].tolist() for at, end in pairwise(np.searchsorted(into[places], numbers).tolist())]

    def statistics(self, column: Column, kind: Kind, were: Sequence[pb.ColumnStatistics]) -> list[pb.ColumnStatistics]:
        """
        Of each group after.

        Args:
            were: of each group before.

        Raises:
            UncutError: they don't count the values that were there.
        """
        self._check(column, were)
        present = column.present
        counts = np.diff(np.append(self.starts, len(self.left)))
        filled = counts if present is None else np.add.reduceat(present[self.left], self.starts, dtype=np.int64)
        wanted = _listed(column, self.wanted)
        found = []
        for group, (rows, values) in enumerate(zip(counts.tolist(), filled.tolist(), strict=True)):
            gone = _of(wanted[slice(*self._gone[group])], kind)
            come = _of([wanted[place] for place in self._come[group]], kind)
            parts = [were[group]] if self._stay[group] else []
            made = merge_column([*parts, come], kind) if come.number_of_values or not parts else _copy(parts[0])
            if parts and gone.number_of_values:
                _subtract(made, gone)
            if not values:
                made = merge_column([_NOTHING], kind)
            made.number_of_values, made.has_null = values, values < rows
            made.ClearField("bytes_on_disk")
            found.append(made)
        return found

    def _check(self, column: Column, were: Sequence[pb.ColumnStatistics]) -> None:
        present, starts = column.present, self._old_starts
        rows = np.diff(np.append(starts, self._rows))
        counted = rows if present is None else np.add.reduceat(present, starts, dtype=np.int64)
        if [said.number_of_values if said.HasField("number_of_values") else -1 for said in were] != counted.tolist():
            raise UncutError

    def exact(self, values: npt.NDArray[np.integer]) -> list[pb.ColumnStatistics]:
        """Of each group of a column of integers without NULLs; `values` are those that stay."""
        low, high = np.minimum.reduceat(values, self.starts), np.maximum.reduceat(values, self.starts)
        counts = np.diff(np.append(self.starts, len(values)))
        made = []
        sums = np.add.reduceat(values, self.starts, dtype=np.int64).tolist()  # those that overflow are left out
        for least, most, total, count in zip(low.tolist(), high.tolist(), sums, counts.tolist(), strict=True):
            one = pb.ColumnStatistics(number_of_values=count, has_null=False)
            one.integers.minimum, one.integers.maximum = least, most
            if max(-least, most) * count in INT64:
                one.integers.sum = total
            made.append(one)
        return made


def _listed(column: Column, wanted: npt.NDArray[np.int64]) -> list[Any]:
    """The values of these rows, with None for NULL; all None of a column that has none of its own."""
    if column.values is None:
        return [None] * len(wanted)
    found = column.values.cast(pa.binary()) if pa.types.is_string(column.values.type) else column.values
    values: list[Any] = found.to_pylist()
    if column.present is None:
        return values
    left = iter(values)
    return [next(left) if there else None for there in column.present[wanted].tolist()]


def _of(values: Sequence[Any], kind: Kind) -> pb.ColumnStatistics:
    there = [value for value in values if value is not None]
    return statistics_of(there, kind) if there else _NOTHING


def _copy(said: pb.ColumnStatistics) -> pb.ColumnStatistics:
    made = pb.ColumnStatistics()
    made.CopyFrom(said)
    return made


def _subtract(made: pb.ColumnStatistics, gone: pb.ColumnStatistics) -> None:
    """Take the sums of values that left out; where one isn't known, none is said, and of doubles nothing."""
    for detail in ("integers", "strings", "binaries"):
        if made.HasField(detail):
            message, left = getattr(made, detail), getattr(gone, detail)
            total = message.sum - left.sum
            if message.HasField("sum") and left.HasField("sum") and total in INT64:
                message.sum = total
            else:
                message.ClearField("sum")
    if made.HasField("buckets"):
        made.buckets.count[0] -= gone.buckets.count[0]
    if made.decimals.sum:
        with localcontext(prec=DIGITS):
            total = Decimal(made.decimals.sum) - Decimal(gone.decimals.sum or "NaN")
        fits = total.is_finite() and len(total.as_tuple().digits) <= _DECIMAL_DIGITS
        made.decimals.sum = format(total, "f") if fits else ""
    if made.HasField("doubles"):
        made.doubles.sum -= gone.doubles.sum
        if not gone.HasField("doubles") or not isfinite(made.doubles.sum):
            made.ClearField("doubles")
