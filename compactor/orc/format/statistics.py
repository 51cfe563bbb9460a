"""
Column statistics: merged over stripes for a footer, empty for a file without rows, and what they tell of the memory
that values take.

A reader prunes by these numbers: a wrong one loses rows, a missing one costs time. Java reads an absent count as "all
NULL" and an absent minimum inside a present message as 0. So a column always keeps its count, and keeps its detail
message only when the message is complete.
Source: the ORC specification, "Column statistics"; ORC-203 for bounds of long strings; Java's
RecordReaderImpl.getValueRange.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any, Final

from compactor.acid.types import Kind
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.tail import Tail

INT64: Final = range(-(1 << 63), 1 << 63)
_DECIMAL_DIGITS: Final = 38
_FULL_NANOS: Final = 999_999
_DETAIL: Final = {
    Kind.BOOLEAN: "buckets",
    Kind.BYTE: "integers",
    Kind.SHORT: "integers",
    Kind.INT: "integers",
    Kind.LONG: "integers",
    Kind.FLOAT: "doubles",
    Kind.DOUBLE: "doubles",
    Kind.STRING: "strings",
    Kind.VARCHAR: "strings",
    Kind.CHAR: "strings",
    Kind.BINARY: "binaries",
    Kind.DECIMAL: "decimals",
    Kind.DATE: "dates",
    Kind.TIMESTAMP: "timestamps",
    Kind.TIMESTAMP_INSTANT: "timestamps",
    Kind.LIST: "collections",
    Kind.MAP: "collections",
}
_EMPTY: Final = {
    "integers": pb.ColumnStatistics(integers=pb.IntegerStatistics(sum=0)),
    "doubles": pb.ColumnStatistics(doubles=pb.DoubleStatistics(sum=0.0)),
    "strings": pb.ColumnStatistics(strings=pb.StringStatistics(sum=0)),
    "buckets": pb.ColumnStatistics(buckets=pb.BucketStatistics(count=[0])),
    "decimals": pb.ColumnStatistics(decimals=pb.DecimalStatistics(sum="0")),
    "binaries": pb.ColumnStatistics(binaries=pb.BinaryStatistics(sum=0)),
    "dates": pb.ColumnStatistics(dates=pb.DateStatistics()),
    "timestamps": pb.ColumnStatistics(timestamps=pb.TimestampStatistics()),
    "collections": pb.ColumnStatistics(collections=pb.CollectionStatistics(total=0)),
}
"""Of a column of NULLs only, or without rows: readers still expect the message of the column's kind."""


_WIDTHS: Final = {
    **dict.fromkeys((Kind.BOOLEAN, Kind.BYTE, Kind.UNION), 1),
    Kind.SHORT: 2,
    **dict.fromkeys((Kind.INT, Kind.FLOAT, Kind.DATE, Kind.LIST, Kind.MAP), 4),
    **dict.fromkeys((Kind.STRING, Kind.VARCHAR, Kind.CHAR, Kind.BINARY), 4),
    **dict.fromkeys((Kind.LONG, Kind.DOUBLE, Kind.DECIMAL), 8),
    **dict.fromkeys((Kind.TIMESTAMP, Kind.TIMESTAMP_INSTANT), 12),
    Kind.STRUCT: 0,
}
"""Bytes of a value in a reader's memory; of texts and lists only the offsets."""


def value_bytes(tail: Tail, index: int) -> int:
    """
    About the bytes that the values of a stripe's table columns take in a reader's memory; 0 where statistics don't
    tell. Source: Java's ReaderImpl.getRawDataSizeFromColIndices.
    """
    columns = tail.stripe_stats(index)
    if columns is None:
        return 0
    kinds = [node.kind for node in tail.tree.walk()]
    first = len(kinds) - tail.row_tree.columns
    return sum(
        found.number_of_values * _WIDTHS[kind] + max(0, found.strings.sum) + max(0, found.binaries.sum)
        for kind, found in zip(kinds[first:], columns[first:], strict=True)
    )


def merge_statistics(
    parts: Iterable[Sequence[pb.ColumnStatistics]], kinds: Sequence[Kind]
) -> list[pb.ColumnStatistics]:
    """
    Statistics of a file from those of its stripes.

    Args:
        parts: the statistics of each stripe, by column id; each with its count (`Tail.stripe_stats` returns no others).
        kinds: the kind of each column id.
    """
    stripes = list(parts)
    return [merge_column([stripe[column] for stripe in stripes], kind) for column, kind in enumerate(kinds)]


def merge_column(parts: Sequence[pb.ColumnStatistics], kind: Kind) -> pb.ColumnStatistics:
    """
    Statistics of a column from those of its parts.

    An integer sum beyond 64 bits is left out. With a NaN, minimum, maximum and sum are left out. A shortened string
    bound stays a bound.
    """
    merged = pb.ColumnStatistics(number_of_values=sum(part.number_of_values for part in parts))
    if all(part.HasField("has_null") for part in parts):
        merged.has_null = any(part.has_null for part in parts)
    if parts and all(part.HasField("bytes_on_disk") for part in parts):
        merged.bytes_on_disk = sum(part.bytes_on_disk for part in parts)
    detail = _DETAIL.get(kind)
    if detail is None:
        return merged
    filled = [part for part in parts if part.number_of_values]
    if not filled:
        merged.MergeFrom(_EMPTY[detail])
        return merged
    details = [getattr(part, detail) for part in filled]
    whole = all(part.HasField(detail) for part in filled)  # type: ignore[arg-type]  # detail is one of the message's names
    if not whole or not _MERGE[detail](getattr(merged, detail), details):
        merged.ClearField(detail)  # type: ignore[arg-type]
    return merged


def _integers(merged: pb.IntegerStatistics, parts: Sequence[pb.IntegerStatistics]) -> bool:
    if all(part.HasField("sum") for part in parts):
        total = sum(part.sum for part in parts)
        if total in INT64:
            merged.sum = total
    merged.minimum, merged.maximum = min(part.minimum for part in parts), max(part.maximum for part in parts)
    return all(part.HasField("minimum") and part.HasField("maximum") for part in parts)


def _doubles(merged: pb.DoubleStatistics, parts: Sequence[pb.DoubleStatistics]) -> bool:
    merged.sum = sum(part.sum for part in parts)
    merged.minimum, merged.maximum = min(part.minimum for part in parts), max(part.maximum for part in parts)
    whole = all(part.HasField("minimum") and part.HasField("maximum") and part.HasField("sum") for part in parts)
    numbers = [number for part in parts for number in (part.sum, part.minimum, part.maximum)]
    return whole and not any(map(math.isnan, [merged.sum, *numbers]))  # infinite sums of both signs have no sum


def _strings(merged: pb.StringStatistics, parts: Sequence[pb.StringStatistics]) -> bool:
    lows = [(part.minimum, True) if part.HasField("minimum") else (part.lower_bound, False) for part in parts]
    highs = [(part.maximum, True) if part.HasField("maximum") else (part.upper_bound, False) for part in parts]
    low, low_exact = min(lows, key=lambda found: (found[0], not found[1]))
    high, high_exact = max(highs)
    if low_exact:
        merged.minimum = low
    else:
        merged.lower_bound = low
    if high_exact:
        merged.maximum = high
    else:
        merged.upper_bound = high
    if all(part.HasField("sum") for part in parts):
        total = sum(part.sum for part in parts)
        if total in INT64:
            merged.sum = total
    bounded_below = all(part.HasField("minimum") or part.HasField("lower_bound") for part in parts)
    return bounded_below and all(part.HasField("maximum") or part.HasField("upper_bound") for part in parts)


def _buckets(merged: pb.BucketStatistics, parts: Sequence[pb.BucketStatistics]) -> bool:
    if len({len(part.count) for part in parts}) != 1:
        return False
    merged.count.extend([sum(counts) for counts in zip(*(part.count for part in parts), strict=True)])
    return len(merged.count) > 0


def _decimals(merged: pb.DecimalStatistics, parts: Sequence[pb.DecimalStatistics]) -> bool:
    try:
        with localcontext(prec=200):
            merged.minimum = min((part.minimum for part in parts), key=Decimal)
            merged.maximum = max((part.maximum for part in parts), key=Decimal)
            if all(part.sum for part in parts):
                total = sum((Decimal(part.sum) for part in parts), Decimal(0))
                if len(total.as_tuple().digits) <= _DECIMAL_DIGITS:
                    merged.sum = format(total, "f")
    except InvalidOperation:
        return False
    return True


def _dates(merged: pb.DateStatistics, parts: Sequence[pb.DateStatistics]) -> bool:
    merged.minimum, merged.maximum = min(part.minimum for part in parts), max(part.maximum for part in parts)
    return all(part.HasField("minimum") and part.HasField("maximum") for part in parts)


def _binaries(merged: pb.BinaryStatistics, parts: Sequence[pb.BinaryStatistics]) -> bool:
    total = sum(part.sum for part in parts)
    if total not in INT64:
        return False
    merged.sum = total
    return all(part.HasField("sum") for part in parts)


def _timestamps(merged: pb.TimestampStatistics, parts: Sequence[pb.TimestampStatistics]) -> bool:
    """
    Merge milliseconds in local and in UTC form. The digits below a millisecond are stored plus one; if absent, they
    count as all zeros in a minimum and as all nines in a maximum.
    """
    if not all(part.HasField("minimum_utc") and part.HasField("maximum_utc") for part in parts):
        return False
    low = min((part.minimum_utc, part.minimum_nanos - 1 if part.minimum_nanos else 0) for part in parts)
    high = max((part.maximum_utc, part.maximum_nanos - 1 if part.maximum_nanos else _FULL_NANOS) for part in parts)
    merged.minimum_utc, merged.maximum_utc = low[0], high[0]
    if low[1]:
        merged.minimum_nanos = low[1] + 1
    if high[1] != _FULL_NANOS:
        merged.maximum_nanos = high[1] + 1
    if all(part.HasField("minimum") and part.HasField("maximum") for part in parts):
        merged.minimum, merged.maximum = min(part.minimum for part in parts), max(part.maximum for part in parts)
    return True


def _collections(merged: pb.CollectionStatistics, parts: Sequence[pb.CollectionStatistics]) -> bool:
    merged.minimum, merged.maximum = min(part.minimum for part in parts), max(part.maximum for part in parts)
    merged.total = sum(part.total for part in parts)
    return all(part.HasField("minimum") and part.HasField("maximum") and part.HasField("total") for part in parts)


_MERGE: Final[Mapping[str, Callable[[Any, Sequence[Any]], bool]]] = {
    "integers": _integers,
    "doubles": _doubles,
    "strings": _strings,
    "buckets": _buckets,
    "decimals": _decimals,
    "dates": _dates,
    "binaries": _binaries,
    "timestamps": _timestamps,
    "collections": _collections,
}
"""How the message of each kind of detail is filled from those of the parts; False: they aren't complete."""
