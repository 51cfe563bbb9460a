"""
Column statistics of decoded values.

Source: the ORC specification, "Column statistics"; Java's ColumnStatisticsImpl.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from compactor.acid.types import Kind
from compactor.orc.proto import orc_pb2 as pb
from compactor.orc.zones import TIMESTAMPS

_INT64_END: Final = 1 << 63
_NANOS_A_MILLI: Final = 1_000_000
_TEXTS: Final = (Kind.STRING, Kind.VARCHAR, Kind.CHAR)
_DECIMAL_DIGITS: Final = 38


def statistics_of(values: Any, kind: Kind) -> pb.ColumnStatistics:
    """
    Statistics of an Arrow array without NULLs, of at least one value.

    Args:
        values: integers for dates (days from 1970) and timestamps (nanoseconds from 1970, in the stripe's zone).
        kind: of the column; none with columns inside.
    """
    made = pb.ColumnStatistics(number_of_values=len(values), has_null=False)
    if kind is Kind.BOOLEAN:
        made.buckets.count.append(pc.sum(values).as_py())
    elif kind is Kind.BINARY:
        made.binaries.sum = pc.sum(pc.binary_length(values)).as_py()
    elif kind in {Kind.FLOAT, Kind.DOUBLE}:
        _doubles(made, values)
    else:
        low, high = (
            found.as_py() for found in pc.min_max(values.cast(pa.binary()) if kind in _TEXTS else values).values()
        )
        if kind in _TEXTS:
            made.strings.minimum, made.strings.maximum = low, high
            made.strings.sum = pc.sum(pc.binary_length(values)).as_py()
        elif kind is Kind.DECIMAL:
            made.decimals.minimum, made.decimals.maximum = format(low, "f"), format(high, "f")
            total = pc.sum(values.cast(pa.decimal256(76, values.type.scale))).as_py()
            if len(total.as_tuple().digits) <= _DECIMAL_DIGITS:
                made.decimals.sum = format(total, "f")
        elif kind in TIMESTAMPS:
            _timestamps(made.timestamps, low, high)
        elif kind is Kind.DATE:
            made.dates.minimum, made.dates.maximum = low, high
        else:
            made.integers.minimum, made.integers.maximum = low, high
            if max(-low, high) * len(values) < _INT64_END:
                made.integers.sum = pc.sum(values).as_py()
    return made


def _doubles(made: pb.ColumnStatistics, values: Any) -> None:
    """Without detail if there is a NaN; a zero at an end counts as the zero that lies farther out."""
    if pc.any(pc.is_nan(values)).as_py():
        return
    low, high = (found.as_py() for found in pc.min_max(values).values())
    made.doubles.minimum, made.doubles.maximum = low or -0.0, high or 0.0
    made.doubles.sum = pc.sum(values.cast(pa.float64())).as_py()


def _timestamps(made: pb.TimestampStatistics, low: int, high: int) -> None:
    """Milliseconds, and the digits below plus one, unless they are those that count where none are said."""
    made.minimum = made.minimum_utc = low // _NANOS_A_MILLI
    made.maximum = made.maximum_utc = high // _NANOS_A_MILLI
    if digits := low % _NANOS_A_MILLI:
        made.minimum_nanos = digits + 1
    if (digits := high % _NANOS_A_MILLI) != _NANOS_A_MILLI - 1:
        made.maximum_nanos = digits + 1
