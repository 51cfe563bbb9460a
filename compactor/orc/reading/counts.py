"""
How many values the columns of a decoded stripe have, held against what the stripe's statistics count.

A stripe's footer says which bytes belong to which column, and nothing else protects it: where it names a stream wrongly,
a reader takes the values of a column for NULL, and so would every result of it. The statistics stand elsewhere in the
file, and count each column's values.
Source: the ORC specification, "Column Statistics" (number_of_values leaves NULLs out).
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from compactor.errors import CorruptFileError
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.tail import Tail

_ROW: Final = 6
"""The struct of the table's columns in a full ACID file."""


class ValueCounts:
    """
    Counts the values of each column in the batches of one stripe; unions and what is inside them aren't counted. Nor
    are columns inside columns, where the writer isn't one whose statistics of these are known.

    Args:
        shift: what was added to the ids in the batches' names.
    """

    def __init__(self, tail: Tail, stripe: int, shift: int = 0) -> None:
        self._tail, self._stripe, self._shift = tail, stripe, shift
        self._deep = tail.splice_class is not None
        self._statistics = tail.stripe_stats(stripe)
        self._seen: dict[int, int] = {}

    def add(self, batch: Any) -> None:
        """Count the values of a batch whose columns are named by their ids."""
        if self._statistics is None:
            return
        for field, column in zip(batch.schema, batch.columns, strict=True):
            for number, values in self._values(self._number(field), column):
                self._seen[number] = self._seen.get(number, 0) + len(values) - values.null_count

    def _number(self, field: Any) -> int:
        return int(field.name[1:]) - self._shift

    def _values(self, number: int, array: Any) -> Iterator[tuple[int, Any]]:
        """A column and those inside it, with their arrays: fields of NULL structs, elements of NULL lists left out."""
        kind: pb.Type = self._tail.footer.types[number]
        if pa.types.is_union(array.type):
            return
        yield number, array
        if not self._deep and not (self._tail.is_acid and number == _ROW):
            return
        if pa.types.is_struct(array.type):
            for field, values in zip(array.type, array.flatten(), strict=True):
                yield from self._values(self._number(field), values)
        elif pa.types.is_map(array.type):
            there = array.drop_null() if array.null_count else array
            begin, end = _extent(there)
            for child, values in zip(kind.subtypes, (there.keys, there.items), strict=True):
                yield from self._values(child, values.slice(begin, end - begin))
        elif pa.types.is_list(array.type):
            yield from self._values(kind.subtypes[0], array.flatten())

    def check(self) -> None:
        """
        Compare, once all batches are added.

        Raises:
            CorruptFileError: a column has other values than its statistics count.
        """
        for number, count in self._seen.items():
            noted = self._statistics[number] if self._statistics is not None else None
            if noted is not None and noted.number_of_values != count:
                raise CorruptFileError(
                    f"{self._tail.name} contradicts itself: stripe {self._stripe + 1} has {count} values of column "
                    f"{number}, where its statistics count {noted.number_of_values}; the file is damaged",
                )


def _extent(array: Any) -> tuple[int, int]:
    """Where the entries of an array of maps without NULLs begin and end."""
    return (array.offsets[0].as_py(), array.offsets[-1].as_py()) if len(array) else (0, 0)
