"""
Hive's types in Arrow, and Arrow arrays in a form that Arrow's ORC writer writes correctly.

Struct fields are named by their column ids in the output (`c7`), as in single-stripe files, so arrays from any source
fit together.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from compactor.acid.types import HiveType, Kind
from compactor.errors import RefusedError
from compactor.orc.reading.single_stripe import column_name
from compactor.reasons import Reason

_PLAIN: Final = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.BYTE: pa.int8(),
    Kind.SHORT: pa.int16(),
    Kind.INT: pa.int32(),
    Kind.LONG: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.VARCHAR: pa.string(),
    Kind.CHAR: pa.string(),
    Kind.BINARY: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("ns"),
    Kind.TIMESTAMP_INSTANT: pa.timestamp("ns", "UTC"),
}
_NESTED: Final = (Kind.STRUCT, Kind.LIST, Kind.MAP)


def arrow_type(node: HiveType, column: int) -> Any:
    """
    The Arrow type that Arrow's ORC reader makes of a Hive type.

    Args:
        column: the type's column id in the output.
    """
    if node.kind in _PLAIN:
        return _PLAIN[node.kind]
    if node.kind is Kind.DECIMAL:
        return pa.decimal128(node.precision, node.scale)
    inside = node.inside(column)
    children = [arrow_type(child, number) for number, child in inside]
    match node.kind:
        case Kind.STRUCT:
            names = (column_name(number) for number, _ in inside)
            return pa.struct([pa.field(name, child) for name, child in zip(names, children, strict=True)])
        case Kind.LIST:
            return pa.list_(pa.field("item", children[0]))
        case Kind.MAP:
            return pa.map_(children[0], children[1])
        case _:
            return pa.sparse_union([pa.field(f"_union_{number}", child) for number, child in enumerate(children)])


def check_recodable(row: HiveType, where: str) -> None:
    """
    Refuse types that neither Arrow nor pyorc can rewrite without a change or a crash: unions inside other types, and
    unions of structs or unions.

    Raises:
        RefusedError: UNSUPPORTED_FORMAT.
    """
    for name, column in zip(row.names, row.children, strict=True):
        inside = column.children if column.kind is Kind.UNION else (column,)
        kinds = (Kind.UNION, Kind.STRUCT) if column.kind is Kind.UNION else (Kind.UNION,)
        if any(child.holds(kinds) for child in inside):
            message = f"{where}: column {name} is {column}; unions inside other types, or of structs, can be copied but not rewritten"
            raise RefusedError(Reason.UNSUPPORTED_FORMAT, message)


def has_nested(row: HiveType) -> bool:
    """Whether a column is a struct, list or map: slices of such arrays need `settled` before they are written."""
    return any(column.kind in _NESTED for column in row.children)


def settled(values: Any) -> Any:
    """
    The same values with no offset into shared buffers, and NULL in each field wherever the struct around it is NULL.

    Arrow's ORC writer reads a struct's validity without its offset. It also takes the fields of a NULL struct for
    values when the struct outside it has no NULLs. Either way rows silently get the values of other rows.
    """
    kind = values.type
    mask = values.is_null() if values.null_count else None
    if pa.types.is_struct(kind):
        fields = values.flatten() if values.null_count else [values.field(number) for number in range(kind.num_fields)]
        return (
            pa.StructArray.from_arrays([settled(field) for field in fields], fields=list(kind), mask=mask)
            if fields
            else values
        )
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        offsets = values.offsets.to_numpy()
        start, length = int(offsets[0]), int(offsets[-1] - offsets[0])
        own = pa.array(offsets - offsets[0], pa.int32())
        if pa.types.is_list(kind):
            return pa.ListArray.from_arrays(own, settled(values.values.slice(start, length)), type=kind, mask=mask)
        keys, items = values.keys.slice(start, length), values.items.slice(start, length)
        return pa.MapArray.from_arrays(own, settled(keys), settled(items), type=kind, mask=mask)
    if values.offset == 0:
        return values
    return values.take(pa.array(np.arange(len(values))))
