"""
Which stripes Arrow may rewrite, and which need pyorc.

Arrow keeps timestamps as 64-bit nanoseconds: it can't read timestamps outside 1677 to 2262, and writes those before
1970 that have a fraction with negative nanoseconds, which Hive's reader rejects. Each stripe's statistics decide; where
they leave the question open, the stripe's timestamps alone are decoded.

Statistics hold local times, while decoding yields the stored seconds as if they were UTC (`compactor.orc.format.zones`). Zones
have moved by up to a day, so values within two days of a border are left to decoding.
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from compactor.acid.types import Kind
from compactor.durations import DAY_MS
from compactor.errors import CorruptFileError, RefusedError
from compactor.handles import RandomReader
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.tail import Tail, read_stripe_footer
from compactor.orc.format.zones import timestamp_columns
from compactor.orc.reading.single_stripe import read_batches
from compactor.reasons import Reason

_PRESENT_STREAM: Final = 0
_TWO_DAYS: Final = 2 * DAY_MS
_ARROW_MILLIS: Final = 9_223_372_036_000
_SECOND: Final = 1_000_000_000
_BASE: Final = 1_420_070_400 * _SECOND
"""2015-01-01 in nanoseconds from 1970, the value that timestamps without seconds are counted from."""


def needs_pyorc(reader: RandomReader, tail: Tail, stripe: int) -> bool:
    """
    Whether a stripe holds timestamps that Arrow can't read or would write wrong.

    Raises:
        CorruptFileError: the stripe can't be decoded.
    """
    columns = timestamp_columns(tail.tree)
    statistics = tail.stripe_stats(stripe)
    if statistics is not None:
        columns = [column for column in columns if not _after_1970(statistics[column])]
        if any(_outside(statistics[column]) for column in columns):
            return True
    if not columns:
        return False
    try:
        return any(
            _old_fraction(column) for batch in read_batches(reader, tail, stripe, columns) for column in batch.columns
        )
    except CorruptFileError as error:
        if "out of range" in error.message:
            return True
        raise


def check_unions(reader: RandomReader, tail: Tail, stripe: int) -> None:
    """
    Refuse a stripe with NULL unions: Arrow turns them into alternative 0 with NULL inside, and pyorc mixes values up.

    Raises:
        RefusedError: UNSUPPORTED_FORMAT.
    """
    unions = {column for column, node in enumerate(tail.tree.walk()) if node.kind is Kind.UNION}
    if not unions:
        return
    _refuse_null(reader, tail, stripe, unions, "in a union column")


def check_nanoseconds(reader: RandomReader, tail: Tail, stripe: int) -> None:
    """
    Refuse a stripe with a timestamp whose nanoseconds aren't between 0 and 999,999,999: Hive's reader fails on it, and
    Arrow would change its second.

    Raises:
        CorruptFileError: the stripe holds such a timestamp, or can't be decoded.
    """
    columns = timestamp_columns(tail.tree)
    if not columns:
        return
    for batch in read_batches(reader, tail, stripe, columns, without_seconds=True):
        for low, high in (found for column in batch.columns for found in _extremes(column)):
            if low < _BASE or high >= _BASE + _SECOND:
                what = f"a timestamp with {(low if low < _BASE else high) - _BASE} nanoseconds, which Hive doesn't read"
                raise CorruptFileError(f"{tail.name}: stripe {stripe + 1} holds {what}")


def check_map_keys(reader: RandomReader, tail: Tail, stripe: int) -> None:
    """
    Refuse a stripe with NULL among the keys of maps: Arrow ends the process at such a key, and pyorc's dictionaries
    would keep only one of several.

    Raises:
        RefusedError: UNSUPPORTED_FORMAT.
    """
    keys = {found.subtypes[0] for found in tail.footer.types if found.kind == Kind.MAP}
    if keys:
        _refuse_null(reader, tail, stripe, keys, "among the keys of a map")


def _refuse_null(reader: RandomReader, tail: Tail, stripe: int, columns: set[int], where: str) -> None:
    """
    Refuse a stripe that holds, or may hold, a NULL in one of these columns.

    Java's writer writes a PRESENT stream only for a column with a NULL; C++'s writer always writes `has_null` in its
    statistics. Hive 0.11 always wrote the stream, and no Hive before 1.1 wrote `has_null`, so there a PRESENT stream
    means a possible NULL.
    """
    statistics = tail.stripe_stats(stripe)
    for stream in read_stripe_footer(reader, tail, stripe).streams:
        if stream.kind == _PRESENT_STREAM and stream.column in columns:
            said = statistics[stream.column] if statistics is not None else pb.ColumnStatistics()
            if said.has_null or not said.HasField("has_null"):
                what = f"{'holds' if said.has_null else 'may hold'} NULL {where} (id {stream.column})"
                raise RefusedError(
                    Reason.UNSUPPORTED_FORMAT,
                    f"{tail.name}: stripe {stripe + 1} {what}; such stripes can be copied but not rewritten",
                )


def _after_1970(column: pb.ColumnStatistics) -> bool:
    """Whether a column has only NULLs, or only values from 1970 on and before 2262, with two days of margin."""
    found = column.timestamps
    if not column.number_of_values:
        return True
    return (
        found.HasField("minimum_utc")
        and found.HasField("maximum_utc")
        and found.minimum_utc >= _TWO_DAYS
        and found.maximum_utc < _ARROW_MILLIS - _TWO_DAYS
    )


def _outside(column: pb.ColumnStatistics) -> bool:
    found = column.timestamps
    return any(
        found.HasField(name) and abs(getattr(found, name)) > _ARROW_MILLIS + _TWO_DAYS
        for name in ("minimum_utc", "maximum_utc")
    )


def _old_fraction(values: Any) -> bool:
    """Whether an array holds, at any depth, a timestamp before 1970 with a fraction."""
    numbers = (pc.fill_null(found, 0).to_numpy() for found in _timestamps(values))
    return any(bool(((found < 0) & (found % _SECOND != 0)).any()) for found in numbers)


def _extremes(values: Any) -> Iterator[tuple[int, int]]:
    """The lowest and the highest timestamp of each timestamp column in an array, at any depth, in nanoseconds."""
    for found in _timestamps(values):
        if found.null_count < len(found):
            yield tuple(pc.min_max(found).as_py().values())


def _timestamps(values: Any) -> Iterator[Any]:
    """The timestamps in an array, at any depth, as int64 arrays of nanoseconds."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        yield values.cast(pa.int64())
    elif pa.types.is_map(kind):
        yield from _timestamps(values.keys)
        yield from _timestamps(values.items)
    elif pa.types.is_list(kind):
        yield from _timestamps(values.values)
    elif pa.types.is_struct(kind) or pa.types.is_union(kind):
        for number in range(kind.num_fields):
            yield from _timestamps(values.field(number))
