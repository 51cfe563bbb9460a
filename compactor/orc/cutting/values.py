"""
Column statistics of a few decoded values.

Source: the ORC specification, "Column statistics"; Java's ColumnStatisticsImpl.
"""

from collections.abc import Sequence
from decimal import localcontext
from math import isnan
from typing import Any, Final

from compactor.acid.types import Kind
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.statistics import INT64
from compactor.orc.format.zones import TIMESTAMPS

_NANOS_A_MILLI: Final = 1_000_000
_TEXTS: Final = (Kind.STRING, Kind.VARCHAR, Kind.CHAR)
_DECIMAL_DIGITS: Final = 38
DIGITS: Final = 200
"""Digits in which sums of decimals are exact."""


def statistics_of(values: Sequence[Any], kind: Kind) -> pb.ColumnStatistics:
    """
    Statistics of values of which none is NULL; at least one.

    Args:
        values: integers for dates (days from 1970) and timestamps (nanoseconds from 1970, in the stripe's zone), bytes
            for texts.
        kind: of the column; none with columns inside.
    """
    made = pb.ColumnStatistics(number_of_values=len(values), has_null=False)
    if kind is Kind.BOOLEAN:
        made.buckets.count.append(sum(values))
        return made
    if kind is Kind.BINARY:
        made.binaries.sum = sum(map(len, values))
        return made
    if kind in {Kind.FLOAT, Kind.DOUBLE}:
        _doubles(made, values)
        return made
    low, high = min(values), max(values)
    if kind in _TEXTS:
        made.strings.minimum, made.strings.maximum, made.strings.sum = low, high, sum(map(len, values))
    elif kind is Kind.DECIMAL:
        made.decimals.minimum, made.decimals.maximum = format(low, "f"), format(high, "f")
        with localcontext(prec=DIGITS):
            total = sum(values)
        if len(total.as_tuple().digits) <= _DECIMAL_DIGITS:
            made.decimals.sum = format(total, "f")
    elif kind in TIMESTAMPS:
        _timestamps(made.timestamps, low, high)
    elif kind is Kind.DATE:
        made.dates.minimum, made.dates.maximum = low, high
    else:
        made.integers.minimum, made.integers.maximum = low, high
        if (total := sum(values)) in INT64:
            made.integers.sum = total
    return made


def _doubles(made: pb.ColumnStatistics, values: Sequence[float]) -> None:
    """Without detail if there is a NaN; a zero at an end counts as the zero that lies farther out."""
    if any(map(isnan, values)):
        return
    made.doubles.minimum, made.doubles.maximum = min(values) or -0.0, max(values) or 0.0
    made.doubles.sum = sum(values)


def _timestamps(made: pb.TimestampStatistics, low: int, high: int) -> None:
    """Milliseconds, and the digits below plus one, unless they are those that count where none are said."""
    made.minimum = made.minimum_utc = low // _NANOS_A_MILLI
    made.maximum = made.maximum_utc = high // _NANOS_A_MILLI
    if digits := low % _NANOS_A_MILLI:
        made.minimum_nanos = digits + 1
    if (digits := high % _NANOS_A_MILLI) != _NANOS_A_MILLI - 1:
        made.maximum_nanos = digits + 1
