"""
Whether each column of converted rows holds the values of the column that a reader takes for it.

The rows are added up twice, as they were decoded and as they were converted. The sums of a column and of its source are
equal, since a value's hash depends on its row and not on its column. Which column is whose source is found here by
column ids, as ORC's readers do, and not by what `compactor.orc.writing.schema_evolution` has built.
Source: ORC's SchemaEvolution.buildConversion.
"""

from typing import Any, Final

import pyarrow as pa

from compactor.acid.columns import ColumnRule, nameless
from compactor.acid.types import HiveType, Kind
from compactor.errors import VerificationError
from compactor.orc.digests.digest import Digester, column_paths
from compactor.orc.format.key_columns import KeyColumns

_INTEGERS: Final = (Kind.BYTE, Kind.SHORT, Kind.INT, Kind.LONG)
_TEXTS: Final = (Kind.STRING, Kind.VARCHAR)
_NOTHING: Final = HiveType(Kind.BYTE)


def source_ids(file: HiveType, table: HiveType, rule: ColumnRule) -> list[int | None]:
    """
    For each column id of a table's rows the column id of the file that readers take for it, or None; 0 is the row itself.

    Args:
        file, table: the structs of their columns.
    """
    found: list[int | None] = [None] * table.columns

    def match(source: HiveType, source_id: int, target: HiveType, target_id: int, *, by_place: bool) -> None:
        found[target_id] = source_id
        if source.kind is not target.kind:
            return
        theirs = source.inside(source_id)
        for number, (column, child) in enumerate(target.inside(target_id)):
            place: int | None = number
            if source.kind is Kind.STRUCT and not by_place:
                place = next((at for at, name in enumerate(source.names) if name == target.names[number]), None)
            if place is not None and place < len(theirs):
                below, taken = theirs[place]
                match(taken, below, child, column, by_place=False)

    match(file, 0, table, 0, by_place=rule is ColumnRule.POSITION or nameless(file))
    return found


class MovedValues:
    """
    The check of one file's rows.

    Args:
        name: of the file, for messages.
    """

    def __init__(self, file: HiveType, table: HiveType, rule: ColumnRule, name: str) -> None:
        self._table, self._name = table, name
        self._nothing = file.columns
        with_nothing = HiveType(Kind.STRUCT, (*file.children, _NOTHING), (*file.names, "nothing"))
        self._before, self._after = Digester(with_nothing), Digester(table)
        file_nodes, table_nodes = list(file.walk()), list(table.walk())
        top = {column for column, _ in table.inside(0)}
        self._pairs: list[tuple[int, int]] = []
        for column, source in enumerate(source_ids(file, table, rule)):
            if column and source is not None and _alike(file_nodes[source], table_nodes[column]):
                self._pairs.append((column, source))
            elif column in top and source is None:
                self._pairs.append((column, self._nothing))

    def check(self, keys: KeyColumns, before: Any, after: Any) -> None:
        """
        Add rows, as decoded and as converted (pyarrow.StructArray), and compare.

        Raises:
            VerificationError: a column holds other values than its source.
        """
        columns = [before.field(place) for place in range(before.type.num_fields)]
        nothing = pa.nulls(len(before), pa.int8())
        names = [str(place) for place in range(len(columns) + 1)]
        self._before.add(keys, pa.StructArray.from_arrays([*columns, nothing], names=names))
        self._after.add(keys, after)
        theirs, ours = self._before.digest.columns, self._after.digest.columns
        paths = list(column_paths(self._table))
        if wrong := [paths[column] for column, source in self._pairs if ours[column] != theirs[source]]:
            raise VerificationError(
                f"{self._name}: {', '.join(wrong)} would hold other values than the table's readers take from the file"
            )


def _alike(one: HiveType, other: HiveType) -> bool:
    """Whether equal values of the two types have equal hashes, and no conversion between them changes a value."""
    if one.kind is other.kind:
        return (one.length, one.precision, one.scale) == (other.length, other.precision, other.scale) or (
            one.kind is Kind.VARCHAR
        )
    return any(one.kind in kinds and other.kind in kinds for kinds in (_INTEGERS, _TEXTS))
