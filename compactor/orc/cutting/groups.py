"""
Which row groups the rows of a stripe come into when others go, and the statistics of these groups.

A group keeps the statistics of the group in its place, without what left it, with what came into it: only these values
are looked at. Counts and sums are exact; minimum and maximum may be those of values that left.
Source: the ORC specification, "Column Statistics".
"""

from collections.abc import Sequence
from decimal import Decimal, localcontext
from math import isfinite
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.acid.types import Kind
from compactor.orc.cutting.columns import Column, Mask
from compactor.orc.proto import orc_pb2 as pb
from compactor.orc.statistics import merge_column
from compactor.orc.value_statistics import statistics_of

_DIGITS: Final = 200
_NOTHING: Final = pb.ColumnStatistics(number_of_values=0, has_null=False)


class Groups:
    """
    Row groups before and after.

    Args:
        stride: rows of a group.
        kept: for each row of the stripe; at least one stays.
    """

    def __init__(self, stride: int, kept: Mask) -> None:
        self.kept = kept
        self.left = np.flatnonzero(kept)
        self.starts = np.arange(0, len(self.left), stride, dtype=np.int64)
        before, after = self.left // stride, np.arange(len(self.left)) // stride
        moved = before != after
        self._stay = np.bincount(before[~moved], minlength=len(self.starts))
        rows = np.concatenate((np.flatnonzero(~kept), self.left[moved]))
        order = np.argsort(rows)
        self.wanted: npt.NDArray[np.int64] = rows[order]
        """The rows that leave their group, in order; their values are needed."""
        self._before = self.wanted // stride
        into = np.concatenate((np.full(len(rows) - int(moved.sum()), -1), after[moved]))
        self._after = into[order]

    def statistics(self, column: Column, kind: Kind, were: Sequence[pb.ColumnStatistics]) -> list[pb.ColumnStatistics]:
        """
        Of each group after.

        Args:
            were: of each group before.
        """
        present = column.present
        counts = np.diff(np.append(self.starts, len(self.left)))
        filled = counts if present is None else np.add.reduceat(present[self.left], self.starts)
        there = np.ones(len(self.wanted), np.bool_) if present is None else present[self.wanted]
        place = np.cumsum(there) - 1
        found = []
        for group, (rows, values) in enumerate(zip(counts.tolist(), filled.tolist(), strict=True)):
            gone, come = (
                self._of(column, kind, place[(side == group) & there]) for side in (self._before, self._after)
            )
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

    def exact(self, values: npt.NDArray[np.int64]) -> list[pb.ColumnStatistics]:
        """Of each group of a column of integers without NULLs; `values` are those that stay."""
        ends = np.append(self.starts[1:], len(values))
        return [
            statistics_of(pa.array(values[start:end]), Kind.LONG)
            for start, end in zip(self.starts.tolist(), ends.tolist(), strict=True)
        ]

    @staticmethod
    def _of(column: Column, kind: Kind, places: npt.NDArray[np.intp]) -> pb.ColumnStatistics:
        if not len(places) or column.values is None:
            return _NOTHING
        return statistics_of(column.values.take(pa.array(places)), kind)


def _copy(said: pb.ColumnStatistics) -> pb.ColumnStatistics:
    made = pb.ColumnStatistics()
    made.CopyFrom(said)
    return made


def _subtract(made: pb.ColumnStatistics, gone: pb.ColumnStatistics) -> None:
    """Take the sums of values that left out; where one isn't known, none is said, and of doubles nothing."""
    for detail in ("integers", "strings", "binaries"):
        message, left = getattr(made, detail), getattr(gone, detail)
        if not made.HasField(detail):
            continue
        if not left.HasField("sum"):
            message.ClearField("sum")
        elif message.HasField("sum"):
            message.sum -= left.sum
    if made.HasField("buckets"):
        made.buckets.count[0] -= gone.buckets.count[0]
    if made.decimals.sum:
        left = gone.decimals.sum
        with localcontext(prec=_DIGITS):
            made.decimals.sum = format(Decimal(made.decimals.sum) - Decimal(left), "f") if left else ""
    if made.HasField("doubles"):
        made.doubles.sum -= gone.doubles.sum
        if not gone.HasField("doubles") or not isfinite(made.doubles.sum):
            made.ClearField("doubles")
