"""
Decoded rows as an Arrow struct, the one form that digests are computed from, whether Arrow or pyorc decoded them.

Timestamps that pyorc returns as seconds and nanoseconds become 64-bit nanoseconds, as Arrow has them; those that don't
fit wrap around.
"""

from collections.abc import Sequence
from decimal import Context, Decimal
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from compactor.acid.types import HiveType, Kind, to_hive_string
from compactor.errors import RefusedError
from compactor.orc.format.zones import TIMESTAMPS
from compactor.orc.reading.arrow import arrow_type
from compactor.orc.reading.chunks import ArrowRows, PythonRows
from compactor.reasons import Reason

_SECOND: Final = 1_000_000_000
_HALF: Final = 1 << 63
_EXACT: Final = Context(prec=76)


def struct_of(rows: ArrowRows | PythonRows, row: HiveType) -> Any:
    """
    The rows' values, without their keys, as a pyarrow.StructArray.

    Args:
        rows: at least one batch or row.
        row: the struct type of the rows.

    Raises:
        RefusedError: UNSUPPORTED_FORMAT; a file holds a value that its column's type can't hold, such as a decimal of
            too many digits.
    """
    if isinstance(rows, ArrowRows):
        whole = rows.parts[0] if len(rows.parts) == 1 else pa.concat_batches(rows.parts)
        return whole.column(whole.num_columns - 1)
    return _array([values[-1] for values in rows.rows], row, "")


def _array(values: Sequence[Any], node: HiveType, path: str) -> Any:
    """The values of a column; `path` is the column's name in messages (`digest.column_paths`)."""
    try:
        return _made(values, node, path)
    except pa.ArrowInvalid as error:
        raise RefusedError(
            Reason.UNSUPPORTED_FORMAT, f"column {path} holds values that its type {to_hive_string(node)} can't: {error}"
        ) from error


def _made(values: Sequence[Any], node: HiveType, path: str) -> Any:
    match node.kind:
        case Kind.STRUCT:
            named = zip(node.names, node.children, strict=True)
            children = [
                _array(
                    [None if value is None else value[place] for value in values],
                    child,
                    f"{path}.{name}".removeprefix("."),
                )
                for place, (name, child) in enumerate(named)
            ]
            return pa.StructArray.from_arrays(
                children, names=[str(place) for place in range(len(children))], mask=_nulls(values)
            )
        case Kind.LIST:
            inside = _array(list(chain.from_iterable(value or () for value in values)), node.children[0], f"{path}[]")
            return pa.ListArray.from_arrays(_offsets(values), inside, mask=_nulls(values))
        case Kind.MAP:
            keys = _array([key for value in values for key in value or ()], node.children[0], f"{path}.key")
            items = _array(
                [item for value in values for item in (value or {}).values()], node.children[1], f"{path}.value"
            )
            return pa.MapArray.from_arrays(_offsets(values), keys, items, mask=_nulls(values))
        case kind if kind in TIMESTAMPS:
            return pa.array(
                [
                    None if value is None else (value[0] * _SECOND + value[1] + _HALF) % (2 * _HALF) - _HALF
                    for value in values
                ],
                pa.int64(),
            )
        case Kind.DECIMAL:
            return pa.array(
                [None if value is None else Decimal(value, _EXACT) for value in values], arrow_type(node, 0)
            )
        case _:
            return pa.array(values, arrow_type(node, 0))


def _offsets(values: Sequence[Any]) -> Any:
    return pa.array(np.cumsum([0, *(len(value or ()) for value in values)]), pa.int32())


def _nulls(values: Sequence[Any]) -> Any:
    return pa.array([value is None for value in values], pa.bool_())
