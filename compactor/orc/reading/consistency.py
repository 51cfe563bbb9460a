"""
Whether a full-ACID file's statements about its keys agree with each other, and with the decoded keys.

ORC has no checksums, and the statistics decide which stripes are copied without decoding: a damaged statistic would
bring a deleted row back, or lose a row. The same facts stand in several places (counts, minimum, maximum, sum, key
index; stripe and file), so damage shows as a contradiction.
Source: the ORC specification, "Column statistics"; Hive's OrcRecordUpdater (rows ascend by ROW__ID);
docs/compaction.md.
"""

from typing import Final

import numpy as np

from compactor.acid.row_id import RowKey
from compactor.errors import CorruptFileError
from compactor.orc.format.key_columns import KeyColumns
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.tail import Tail

_NAMES: Final = ("operation", "originalTransaction", "bucket", "rowId", "currentTransaction")
_WRITE_ID, _BUCKET, _ROW_ID = 2, 3, 4
_INSERT: Final = 0
_WRAP: Final = 1 << 64
Span = tuple[int, int, int]
"""Minimum, maximum, and the sum (correct modulo 2**64)."""


def check_key_statistics(tail: Tail) -> None:
    """
    Compare the statistics of a full-ACID file's key columns with each other and with the file's key index.

    Stripes without trustworthy statistics (`Tail.stripe_stats`) have nothing to contradict: they are decoded.

    Raises:
        CorruptFileError: a contradiction.
    """
    if not tail.is_acid:
        return
    for index, stripe in enumerate(tail.stripes):
        columns = tail.stripe_stats(index)
        if columns is None or not stripe.number_of_rows:
            continue
        for column in range(1, 6):
            _check_column(tail, index, column, columns[column], stripe.number_of_rows)
        _check_row_ids(tail, index, columns, stripe.number_of_rows)
        _check_last_key(tail, index, columns)
    _check_file(tail)


class DecodedKeys:
    """
    Collects minimum, maximum, sum and first and last key of a stripe while its keys are decoded batch by batch.

    `check` compares them with the stripe's statistics and, for rows, with the key index, which decides which delete
    events are looked up for a stripe's rows.
    """

    def __init__(self, tail: Tail, stripe: int) -> None:
        self._tail = tail
        self._stripe = stripe
        self._spans: list[Span] = []
        self._ends: tuple[RowKey, RowKey] | None = None

    def add(self, keys: KeyColumns) -> None:
        if not len(keys):
            return
        self._ends = (keys.key(0) if self._ends is None else self._ends[0], keys.key(-1))
        spans = [(int(found.min()), int(found.max()), int(found.sum(dtype=np.int64))) for found in keys.columns]
        if self._spans:
            spans = [(min(a[0], b[0]), max(a[1], b[1]), a[2] + b[2]) for a, b in zip(self._spans, spans, strict=True)]
        self._spans = spans

    def check(self) -> None:
        """
        Compare the keys with the tail, once all batches are added.

        Raises:
            CorruptFileError: the statistics, or the key index, describe other keys.
        """
        self._check_index()
        columns = self._tail.stripe_stats(self._stripe)
        if columns is None or not self._spans:
            return
        for number, (low, high, total) in enumerate(self._spans, start=1):
            noted = columns[number].integers
            differs = (noted.HasField("minimum") and noted.minimum != low) or (
                noted.HasField("maximum") and noted.maximum != high
            )
            if differs or (noted.HasField("sum") and (noted.sum - total) % _WRAP):
                what = (
                    f"{_NAMES[number - 1]} {low} to {high} where its statistics say {noted.minimum} to {noted.maximum}"
                )
                raise _contradiction(
                    self._tail,
                    self._stripe,
                    what if differs else f"{_NAMES[number - 1]}s whose sum isn't the one in its statistics",
                )

    def _check_index(self) -> None:
        noted = self._tail.key_index
        if noted is None or self._ends is None or self._spans[0][1] != _INSERT:
            return
        (first, last), before = self._ends, noted[self._stripe - 1] if self._stripe else None
        if last != noted[self._stripe] or (before is not None and first <= before):
            what = f"keys from {tuple(first)} to {tuple(last)}, which hive.acid.key.index excludes"
            raise _contradiction(self._tail, self._stripe, what)


def _check_column(tail: Tail, index: int, column: int, found: pb.ColumnStatistics, rows: int) -> None:
    noted = found.integers
    if found.number_of_values != rows or found.has_null:
        raise _contradiction(tail, index, f"{rows} rows and {found.number_of_values} values of {_NAMES[column - 1]}")
    if not (noted.HasField("minimum") and noted.HasField("maximum")):
        return
    if noted.minimum > noted.maximum:
        raise _contradiction(
            tail, index, f"{_NAMES[column - 1]} from {noted.minimum} to {noted.maximum} in its statistics"
        )
    if noted.HasField("sum") and not rows * noted.minimum <= noted.sum <= rows * noted.maximum:
        raise _contradiction(
            tail,
            index,
            f"{rows} values of {_NAMES[column - 1]} from {noted.minimum} to {noted.maximum} with a sum of {noted.sum}",
        )


def _check_row_ids(tail: Tail, index: int, columns: tuple[pb.ColumnStatistics, ...], rows: int) -> None:
    """
    Rows of one write and bucket have different row ids: their range is wide enough, and their sum is possible for
    different numbers.

    Delete events are exempt: one row may have several, from MERGE without its cardinality check or from an aborted and
    a later transaction of one stream.
    """
    if columns[1].integers.maximum != _INSERT:
        return
    write_id, bucket, row_id = (columns[number].integers for number in (_WRITE_ID, _BUCKET, _ROW_ID))
    if any(not one.HasField("minimum") or not one.HasField("maximum") for one in (write_id, bucket, row_id)):
        return
    if write_id.minimum != write_id.maximum or bucket.minimum != bucket.maximum:
        return
    apart = rows * (rows - 1) // 2
    room = row_id.maximum - row_id.minimum + 1 >= rows
    if not room or (
        row_id.HasField("sum") and not rows * row_id.minimum + apart <= row_id.sum <= rows * row_id.maximum - apart
    ):
        raise _contradiction(
            tail,
            index,
            f"{rows} rows of one write with rowIds from {row_id.minimum} to {row_id.maximum} in its statistics",
        )


def _check_last_key(tail: Tail, index: int, columns: tuple[pb.ColumnStatistics, ...]) -> None:
    """Rows ascend by write id first, so the last key has the highest write id, and its other parts are in range."""
    noted = tail.key_index
    write_id, bucket, row_id = (columns[number].integers for number in (_WRITE_ID, _BUCKET, _ROW_ID))
    if noted is None or columns[1].integers.maximum != _INSERT or not write_id.HasField("maximum"):
        return
    last = noted[index]
    alone = write_id.minimum == write_id.maximum and bucket.minimum == bucket.maximum
    fits = (
        last.write_id == write_id.maximum
        and bucket.minimum <= last.bucket <= bucket.maximum
        and row_id.minimum <= last.row_id <= row_id.maximum
    )
    if not fits or (alone and last.row_id != row_id.maximum):
        raise _contradiction(
            tail, index, f"the last key {tuple(last)} in hive.acid.key.index, which its statistics exclude"
        )
    if index and write_id.minimum < noted[index - 1].write_id:
        raise _contradiction(tail, index, f"write ids from {write_id.minimum} after the key {tuple(noted[index - 1])}")


def _check_file(tail: Tail) -> None:
    """The file's statistics must equal those of all its stripes together."""
    filled = [index for index, stripe in enumerate(tail.stripes) if stripe.number_of_rows]
    stripes = [tail.stripe_stats(index) for index in filled]
    known = [columns for columns in stripes if columns is not None]
    if len(tail.footer.statistics) < 6 or len(known) < len(stripes) or not known:
        return
    for column in range(1, 6):
        whole, noted = tail.footer.statistics[column].integers, [columns[column].integers for columns in known]
        if not all(one.HasField("minimum") and one.HasField("maximum") for one in (whole, *noted)):
            continue
        low, high = min(one.minimum for one in noted), max(one.maximum for one in noted)
        summed = all(one.HasField("sum") for one in (whole, *noted))
        if (whole.minimum, whole.maximum) != (low, high) or (summed and whole.sum != sum(one.sum for one in noted)):
            what = f"{_NAMES[column - 1]} {whole.minimum} to {whole.maximum} in the file's statistics, {low} to {high} in those of its stripes"
            raise CorruptFileError(f"{tail.name} contradicts itself: {what}; the file is damaged")


def _contradiction(tail: Tail, index: int, what: str) -> CorruptFileError:
    return CorruptFileError(f"{tail.name} contradicts itself: stripe {index + 1} has {what}; the file is damaged")
