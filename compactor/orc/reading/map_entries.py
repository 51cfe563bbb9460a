"""
Counts the entries of a stripe's maps, as Arrow reads them and as pyorc's dictionaries keep them.

A map may hold one key twice, or 0.0 beside -0.0. A dictionary keeps one of them and drops the other before a digest is
taken, so no digest shows the loss; the entries are counted instead.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from compactor.acid.types import HiveType, Kind
from compactor.errors import RefusedError
from compactor.handles import RandomReader
from compactor.orc.format.tail import Tail
from compactor.orc.reading.single_stripe import read_batches
from compactor.reasons import Reason


class DecodedMaps:
    """
    Counts the map entries of one stripe's rows while they are decoded into dictionaries; `check` compares the count.

    Args:
        row: the struct type of the rows.
        batch_rows: rows to decode at a time, when `check` decodes the maps.
    """

    def __init__(self, reader: RandomReader, tail: Tail, stripe: int, row: HiveType, batch_rows: int) -> None:
        self._reader, self._tail, self._stripe, self._row, self._batch_rows = reader, tail, stripe, row, batch_rows
        self._columns = [column for column, found in enumerate(tail.footer.types) if found.kind == Kind.MAP]
        self._seen = 0

    def add(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Count the entries of decoded rows."""
        if self._columns:
            self._seen += _kept(rows, self._row)

    def check(self) -> None:
        """
        Refuse the stripe when entries are missing. Arrow decodes the stripe's maps for the comparison, with timestamps
        reduced to a form that it can read.

        Raises:
            CorruptFileError: Arrow can't decode the maps.
            RefusedError: UNSUPPORTED_FORMAT.
        """
        if not self._columns:
            return
        batches = read_batches(
            self._reader, self._tail, self._stripe, self._columns, rows=self._batch_rows, without_seconds=True
        )
        stored = sum(_stored(column) for batch in batches for column in batch.columns)
        if self._seen != stored:
            what = "holds equal keys in a map (0.0 and -0.0 are equal) beside timestamps that Arrow can't rewrite, here or in a file that it is merged with"
            message = f"{self._tail.name}: stripe {self._stripe + 1} {what}; pyorc would keep {self._seen} of {stored} entries"
            raise RefusedError(Reason.UNSUPPORTED_FORMAT, f"{message}; such stripes can be copied but not rewritten")


def _kept(values: Sequence[Any], node: HiveType) -> int:
    """Number of map entries in values of one type, at any depth."""
    if not node.holds((Kind.MAP,)):
        return 0
    present = [value for value in values if value is not None]
    match node.kind:
        case Kind.STRUCT:
            return sum(_kept([value[place] for value in present], child) for place, child in enumerate(node.children))
        case Kind.LIST:
            return _kept(list(chain.from_iterable(present)), node.children[0])
        case _:
            keys, items = (
                list(chain.from_iterable(found)) for found in (present, (value.values() for value in present))
            )
            return len(keys) + _kept(keys, node.children[0]) + _kept(items, node.children[1])


def _stored(values: Any) -> int:
    """Number of map entries in an Arrow array, at any depth."""
    kind = values.type
    if pa.types.is_struct(kind):
        return sum(_stored(values.field(number)) for number in range(kind.num_fields))
    if pa.types.is_map(kind):
        start, count = _span(values)
        return count + _stored(values.keys.slice(start, count)) + _stored(values.items.slice(start, count))
    if pa.types.is_list(kind):
        return _stored(values.values.slice(*_span(values)))
    return 0


def _span(values: Any) -> tuple[int, int]:
    """Position of the first item of an array of lists or maps, and the number of its items."""
    first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
    return first, last - first
