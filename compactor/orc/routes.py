"""
Which stripes Arrow may rewrite, and which need pyorc.

Arrow keeps timestamps as 64-bit nanoseconds: it can't read those outside 1677 to 2262, and writes those before 1970 that have a fraction with negative
nanoseconds, which Hive's reader rejects. Decided for each stripe from its statistics, and where they leave it open by decoding its timestamps alone.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from compactor.acid.types import Kind
from compactor.errors import CorruptFileError, RefusedError
from compactor.orc.handles import RandomReader
from compactor.orc.image import read_batches
from compactor.orc.proto import orc_pb2 as pb
from compactor.orc.schema import column_ids
from compactor.orc.tail import Tail, read_stripe_footer
from compactor.reasons import Reason

_TIMESTAMPS: Final = (Kind.TIMESTAMP, Kind.TIMESTAMP_INSTANT)
_PRESENT_STREAM: Final = 0
_ARROW_MILLIS: Final = range(-9_223_372_036_000, 9_223_372_036_000)
_SECOND: Final = 1_000_000_000


def needs_pyorc(reader: RandomReader, tail: Tail, stripe: int) -> bool:
    """
    Whether a stripe holds timestamps that Arrow can't read or would write wrong.

    Raises:
        CorruptFileError: the stripe can't be decoded.
    """
    columns = [column for column, node in column_ids(tail.tree) if node.kind in _TIMESTAMPS]
    statistics = tail.stripe_stats(stripe)
    if statistics is not None:
        columns = [column for column in columns if not _after_1970(statistics[column])]
        if any(_outside(statistics[column]) for column in columns):
            return True
    if not columns:
        return False
    try:
        return any(_old_fraction(column) for batch in read_batches(reader, tail, stripe, columns) for column in batch.columns)
    except CorruptFileError as error:
        if "out of range" in error.message:
            return True
        raise


def check_unions(reader: RandomReader, tail: Tail, stripe: int) -> None:
    """
    Refuse a stripe with NULL unions: Arrow makes them alternative 0 with NULL inside, pyorc mixes values up.

    Raises:
        RefusedError: UNSUPPORTED_FORMAT.
    """
    unions = {column for column, node in column_ids(tail.tree) if node.kind is Kind.UNION}
    if not unions:
        return
    statistics = tail.stripe_stats(stripe)
    for stream in read_stripe_footer(reader, tail, stripe).streams:
        if stream.kind == _PRESENT_STREAM and stream.column in unions and (statistics is None or statistics[stream.column].has_null):
            message = f"{tail.name}: stripe {stripe + 1} holds NULL in a union column (id {stream.column}); such stripes can be copied but not rewritten"
            raise RefusedError(Reason.UNSUPPORTED_FORMAT, message)


def _after_1970(column: pb.ColumnStatistics) -> bool:
    """Nothing but NULLs, or all values from 1970 on and before 2262."""
    found = column.timestamps
    if not column.number_of_values:
        return True
    return found.HasField("minimum_utc") and found.HasField("maximum_utc") and found.minimum_utc >= 0 and found.maximum_utc in _ARROW_MILLIS


def _outside(column: pb.ColumnStatistics) -> bool:
    found = column.timestamps
    return any(found.HasField(name) and getattr(found, name) not in _ARROW_MILLIS for name in ("minimum_utc", "maximum_utc"))


def _old_fraction(values: Any) -> bool:
    """Whether a timestamp before 1970 with a fraction is in an array, at any depth."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        numbers = pc.fill_null(values.cast(pa.int64()), 0).to_numpy()
        return bool(((numbers < 0) & (numbers % _SECOND != 0)).any())
    if pa.types.is_map(kind):
        return _old_fraction(values.keys) or _old_fraction(values.items)
    if pa.types.is_list(kind):
        return _old_fraction(values.values)
    if pa.types.is_struct(kind) or pa.types.is_union(kind):
        return any(_old_fraction(values.field(number)) for number in range(kind.num_fields))
    return False
