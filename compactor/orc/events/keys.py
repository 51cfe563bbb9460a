"""
The keys of a full-ACID file's rows: decoded, as the file's key index records them, and as its statistics bound them.

Source: docs/orc.md; Hive's OrcRecordUpdater.KeyIndexBuilder and OrcAcidUtils.parseKeyIndex.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from compactor.acid.row_id import RowKey
from compactor.errors import CorruptFileError, RefusedError
from compactor.handles import RandomReader
from compactor.orc.format.key_columns import KeyColumns
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.tail import Tail
from compactor.orc.reading.consistency import DecodedKeys
from compactor.orc.reading.single_stripe import BATCH_ROWS, read_batches
from compactor.reasons import Reason

ACID_STATS: Final = "hive.acid.stats"
ACID_VERSION: Final = "hive.acid.version"
INSERT: Final = 0
DELETE: Final = 2
_KEY_COLUMNS: Final = (1, 2, 3, 4, 5)


@dataclass(frozen=True, slots=True)
class StripeBounds:
    """
    Bounds of the keys of a stripe.

    Every key is between `first` and `last` (both included, in key order) and inside the ranges of its three parts.

    Args:
        exact: `first` and `last` are keys of the stripe, not only bounds.
        write_id, bucket, row_id, current, operation: (minimum, maximum) of each column; the last two are None where the
            file doesn't state them.
        rows: number of rows in the stripe.
    """

    first: RowKey
    last: RowKey
    exact: bool
    write_id: tuple[int, int]
    bucket: tuple[int, int]
    row_id: tuple[int, int]
    current: tuple[int, int] | None
    operation: tuple[int, int] | None
    rows: int


def read_keys(reader: RandomReader, tail: Tail, stripe: int, rows: int = BATCH_ROWS) -> Iterator[KeyColumns]:
    """
    Decode the five ACID columns of one stripe, and read no other stream.

    Raises:
        CorruptFileError: the file isn't an ACID file or can't be decoded, a key holds NULL, or the keys differ from the
            stripe's statistics (raised after the last batch).
    """
    if not tail.is_acid:
        raise CorruptFileError(f"{tail.name} isn't a full-ACID file: its columns are {tail.tree}")
    seen = DecodedKeys(tail, stripe)
    for batch in read_batches(reader, tail, stripe, _KEY_COLUMNS, rows=rows):
        keys = key_columns(batch, tail.name, stripe)
        seen.add(keys)
        yield keys
    seen.check()


def key_columns(batch: Any, name: str, stripe: int) -> KeyColumns:
    """
    The first five columns of a record batch of an ACID file.

    Raises:
        CorruptFileError: a key holds NULL.
    """
    columns = [batch.column(column - 1) for column in _KEY_COLUMNS]
    if any(column.null_count for column in columns):
        raise CorruptFileError(f"{name}: stripe {stripe + 1} has NULL in an ACID column")
    return KeyColumns(*(column.to_numpy(zero_copy_only=False) for column in columns))


def format_key_index(keys: Sequence[RowKey]) -> bytes:
    """The value of `hive.acid.key.index`: `writeId,bucket,rowId;` for each stripe."""
    return "".join(f"{key.write_id},{key.bucket},{key.row_id};" for key in keys).encode()


def acid_stats(tail: Tail) -> tuple[int, int, int] | None:
    """Inserts, updates and deletes as the writer recorded them; None where the record is missing or can't be read."""
    noted = tail.user_metadata.get(ACID_STATS)
    if noted is None:
        return None
    try:
        inserts, updates, deletes = map(int, noted.split(b","))
    except ValueError:
        return None
    return inserts, updates, deletes


def stripe_bounds(tail: Tail, index: int) -> StripeBounds | None:
    """
    Bounds of a stripe's keys from its statistics, tightened by the key index; None where the statistics can't be
    trusted.

    Source: the ORC specification, "Column statistics"; Hive's VectorizedOrcAcidRowBatchReader.findMinMaxKeys.
    """
    columns = tail.stripe_stats(index)
    rows = tail.stripes[index].number_of_rows
    if not tail.is_acid or columns is None or rows == 0:
        return None
    ranges = [_integer_range(column, rows) for column in columns[1:6]]
    operation, write_id, bucket, row_id, current = ranges
    if write_id is None or bucket is None or row_id is None:
        return None
    first = RowKey(write_id[0], bucket[0], row_id[0])
    last = RowKey(write_id[1], bucket[1], row_id[1])
    exact = write_id[0] == write_id[1] and bucket[0] == bucket[1]
    noted = tail.key_index
    if not exact and noted is not None and first <= noted[index] <= last:
        last = noted[index]
        if index and noted[index - 1] >= first:
            before = noted[index - 1]
            first = RowKey(before.write_id, before.bucket, before.row_id + 1)
    if first > last:
        return None
    return StripeBounds(first, last, exact, write_id, bucket, row_id, current, operation, rows)


def last_key(reader: RandomReader, tail: Tail, index: int) -> RowKey:
    """
    The last key of a stripe: from exact statistics, else from the key index where the statistics agree with it, else
    decoded.

    Raises:
        RefusedError: the stripe has no rows.
    """
    noted = tail.key_index
    bounds = stripe_bounds(tail, index)
    if bounds is not None and bounds.exact:
        return bounds.last
    if noted is not None and bounds is not None and bounds.last == noted[index]:
        return noted[index]
    found: RowKey | None = None
    for keys in read_keys(reader, tail, index):
        found = keys.key(-1)
    if found is None:
        raise RefusedError(Reason.CORRUPT_FILE, f"{tail.name}: stripe {index + 1} has no rows")
    return found


def _integer_range(column: pb.ColumnStatistics, rows: int) -> tuple[int, int] | None:
    found = column.integers
    whole = column.number_of_values == rows and found.HasField("minimum") and found.HasField("maximum")
    return (found.minimum, found.maximum) if whole else None
