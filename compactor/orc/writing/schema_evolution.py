"""
Converts rows of an older schema to the table's current one.

Columns are found as `ColumnRule` says, struct fields by their exact names; a column that the file lacks is NULL; a type
may become a wider one that holds every value. Every other change is refused: a reader would see changed values, and
compaction would make that permanent.
Source: Hive's OrcInputFormat.getDesiredRowTypeDescr; ORC's SchemaEvolution and ConvertTreeReaderFactory; docs/orc.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from compactor.acid.columns import ColumnRule, by_place, disputed, matched, places, unread
from compactor.acid.types import HiveType, Kind
from compactor.errors import RefusedError
from compactor.orc.format.schema import same_layout
from compactor.orc.reading.arrow import arrow_type
from compactor.reasons import Reason

_DIGITS: Final[Mapping[Kind, int]] = {Kind.BYTE: 3, Kind.SHORT: 5, Kind.INT: 10, Kind.LONG: 19}
_WIDER: Final[Mapping[Kind, tuple[Kind, ...]]] = {
    Kind.BYTE: (Kind.SHORT, Kind.INT, Kind.LONG, Kind.FLOAT, Kind.DOUBLE),
    Kind.SHORT: (Kind.INT, Kind.LONG, Kind.FLOAT, Kind.DOUBLE),
    Kind.INT: (Kind.LONG, Kind.DOUBLE),
    Kind.FLOAT: (Kind.DOUBLE,),
}
_TEXT: Final = (Kind.STRING, Kind.VARCHAR, Kind.CHAR)


@dataclass(frozen=True, slots=True)
class Conversion:
    """
    Converts values of one type to another.

    Args:
        array: converts a pyarrow array of the source's type to one of the target's type and the same length.
        value: converts one value in pyorc's form; never called with None.
    """

    array: Callable[[Any], Any]
    value: Callable[[Any], Any]


def conversion(
    source: HiveType, target: HiveType, where: str, first_column: int, rule: ColumnRule
) -> Conversion | None:
    """
    The conversion of a file's rows to the table's; None when the file's rows need none.

    Args:
        source: the file's row struct.
        target: the table's row struct.
        where: the file, for messages.
        first_column: column id of the target's row struct; determines the field names of new arrays.
        rule: how the table's readers find its columns in the file.

    Raises:
        RefusedError: SCHEMA_MISMATCH; the file has a column that the table lacks, a type that doesn't fit the table's
            without loss (decimals without precision never do), or no columns at all. UNSUPPORTED_FORMAT; the table has
            a union column that the file lacks.
    """
    if source.kind is not Kind.STRUCT:
        raise _refused(where, f"the file holds {source} instead of rows of columns, which Hive doesn't read as a table")
    if any(node.kind is Kind.DECIMAL and not node.precision for node in source.walk()):
        what = "the file's decimals have no precision (Hive 0.11 and 0.12 wrote them so, each value with a scale of its own); they can't be rewritten without loss"
        raise _refused(where, what)
    if rule is ColumnRule.BOTH and (apart := disputed(source, target)):
        raise _refused(
            where,
            f"readers by position and readers by name take other columns of the file for {', '.join(apart)}, and the site has both "
            "(readers.orc_columns): write the partition anew",
        )
    by_position = by_place(source, rule)
    if lost := unread(source, target, rule):
        how = "columns by their places" if by_position else "columns by their names"
        inside = ", and fields of structs by their names" if any("." in name for name in lost) and by_position else ""
        raise _refused(
            where,
            f"the table's readers, which find {how}{inside}, read nothing from {', '.join(lost)} (dropped or renamed, or in other letters): "
            "compaction would lose these values for good; give them back to the table, or write the partition anew",
        )
    if same_layout(source, target, names=not by_position):
        return None
    return _struct(source, target, where, "", first_column, by_position=by_position)


def widens_float(source: HiveType, target: HiveType, rule: ColumnRule) -> bool:
    """
    Whether a float column, at any depth, has become a double.

    Hive 3.1 reads such a value by its decimal digits, 1.1 as 1.1; every other reader keeps the number,
    1.100000023841858.
    """
    pairs = matched(source, target, by_position=by_place(source, rule))
    return any((one.kind, other.kind) == (Kind.FLOAT, Kind.DOUBLE) for _, one, other in pairs)


def _convert(source: HiveType, target: HiveType, where: str, path: str, column: int) -> Conversion:
    whole = arrow_type(target, column)
    if same_layout(source, target, names=True):
        return Conversion(lambda values: _as_type(values, whole), lambda value: value)
    match (source.kind, target.kind):
        case (Kind.STRUCT, Kind.STRUCT):
            return _struct(source, target, where, path, column, by_position=False)
        case (Kind.LIST, Kind.LIST):
            return _list(_convert(source.children[0], target.children[0], where, f"{path}[]", column + 1), whole)
        case (Kind.MAP, Kind.MAP):
            (key_column, key), (item_column, item) = target.inside(column)
            return _map(
                _convert(source.children[0], key, where, f"{path}.key", key_column),
                _convert(source.children[1], item, where, f"{path}.value", item_column),
                whole,
            )
        case (old, new) if old in _WIDER and new in _WIDER[old]:
            return _cast(whole, float) if new in (Kind.FLOAT, Kind.DOUBLE) else _cast(whole)
        case (old, Kind.DECIMAL) if old in _DIGITS and (target.precision or 0) - (target.scale or 0) >= _DIGITS[old]:
            return _cast(whole, str)
        case (Kind.DECIMAL, Kind.DECIMAL) if _decimal_fits(source, target):
            return _cast(whole)
        case (old, Kind.STRING) if old in _DIGITS:
            return _cast(whole, str)
        case (old, new) if old in _TEXT and new in _TEXT:
            return _text(source, target, f"{where}: column {path}")
    raise _refused(
        where, f"column {path} is {source} in the file and {target} in the table, which can't hold every value of it"
    )


def _decimal_fits(source: HiveType, target: HiveType) -> bool:
    before, after = (source.precision or 0, source.scale or 0), (target.precision or 0, target.scale or 0)
    return after[1] >= before[1] and after[0] - after[1] >= before[0] - before[1]


def _refused(where: str, what: str) -> RefusedError:
    return RefusedError(Reason.SCHEMA_MISMATCH, f"{where}: {what}")


def _as_type(values: Any, whole: Any) -> Any:
    """The same values; those of nested types get the field names of their new place, which are column ids."""
    return values.view(whole) if pa.types.is_nested(whole) and values.type != whole else values


def _cast(whole: Any, value: Callable[[Any], Any] = lambda value: value) -> Conversion:
    return Conversion(lambda values: pc.cast(values, whole), value)


def _text(source: HiveType, target: HiveType, where: str) -> Conversion:
    """
    Converts between string, varchar and char: trims the padding of a char source, pads to a char target. A value that
    is too long for the target is refused when it is read.
    """
    trims = source.kind is Kind.CHAR
    pad = target.length if target.kind is Kind.CHAR else None
    limit = target.length  # None of a string

    def require(length: int) -> None:
        if limit is not None and length > limit:
            what = f"{where} holds a value of {length} characters, the table's type is {target}"
            raise RefusedError(Reason.SCHEMA_MISMATCH, what)

    def array(values: Any) -> Any:
        values = pc.utf8_rtrim(values, " ") if trims else values
        if limit is not None:
            require(pc.max(pc.utf8_length(values)).as_py() or 0)
        return values if pad is None else pc.utf8_rpad(values, pad, " ")

    def value(text: str) -> str:
        text = text.rstrip(" ") if trims else text
        require(len(text))
        return text if pad is None else text.ljust(pad)

    return Conversion(array, value)


def _struct(source: HiveType, target: HiveType, where: str, path: str, column: int, *, by_position: bool) -> Conversion:
    fields: list[tuple[int, Conversion] | None] = []
    types: list[Any] = []
    found = places(source, target, by_position=by_position)
    for name, (below, child), place in zip(target.names, target.inside(column), found, strict=True):
        inner = f"{path}.{name}" if path else name
        if place is None and child.holds((Kind.UNION,)):
            what = f"column {inner} is {child} and isn't in the file; NULL in a union can't be rewritten (Arrow would make it a value of the first alternative)"
            raise RefusedError(Reason.UNSUPPORTED_FORMAT, f"{where}: {what}")
        fields.append(None if place is None else (place, _convert(source.children[place], child, where, inner, below)))
        types.append(arrow_type(child, below))
    whole = arrow_type(target, column)

    def array(values: Any) -> Any:
        children = [
            pa.nulls(len(values), kind) if field is None else field[1].array(values.field(field[0]))
            for field, kind in zip(fields, types, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=list(whole), mask=_mask(values))

    def value(row: Any) -> Any:
        return tuple(
            None if field is None or row[field[0]] is None else field[1].value(row[field[0]]) for field in fields
        )

    return Conversion(array, value)


def _list(element: Conversion, whole: Any) -> Conversion:
    def array(values: Any) -> Any:
        items = element.array(values.flatten())
        return pa.ListArray.from_arrays(_offsets(values), items, type=whole, mask=_mask(values))

    return Conversion(array, lambda items: [None if item is None else element.value(item) for item in items])


def _map(key: Conversion, item: Conversion, whole: Any) -> Conversion:
    def array(values: Any) -> Any:
        offsets = values.offsets.to_numpy()
        start, length = int(offsets[0]), int(offsets[-1] - offsets[0])
        keys, items = key.array(values.keys.slice(start, length)), item.array(values.items.slice(start, length))
        return pa.MapArray.from_arrays(
            pa.array(offsets - offsets[0], pa.int32()), keys, items, type=whole, mask=_mask(values)
        )

    def value(entries: Any) -> Any:
        return {
            None if one is None else key.value(one): None if other is None else item.value(other)
            for one, other in entries.items()
        }

    return Conversion(array, value)


def _mask(values: Any) -> Any:
    return values.is_null() if values.null_count else None


def _offsets(values: Any) -> Any:
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array([0], pa.int32()).to_numpy().repeat(len(values) + 1)
    offsets[1:] = lengths.cumsum()
    return pa.array(offsets, pa.int32())
