"""
The schema in a footer: its leaves, how they repeat, and which of them have an order that everybody agrees about.

Knows the elements of a schema; nothing of row groups and values.
Source: parquet.thrift (SchemaElement, ConvertedType, LogicalType, ColumnOrder); LogicalTypes.md.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from compactor.parquet import thrift
from compactor.parquet.structs import ELEMENT, LOGICAL_INTEGER
from compactor.parquet.thrift import MalformedError, Struct

BOOLEAN: Final = 0
INT32: Final = 1
INT64: Final = 2
INT96: Final = 3
FLOAT: Final = 4
DOUBLE: Final = 5
BYTE_ARRAY: Final = 6
FIXED: Final = 7

TYPE: Final = 1
TYPE_LENGTH: Final = 2
REPETITION: Final = 3
NAME: Final = 4
CHILDREN: Final = 5
CONVERTED: Final = 6
SCALE: Final = 7
PRECISION: Final = 8
LOGICAL: Final = 10

REQUIRED: Final = 0
OPTIONAL: Final = 1
REPEATED: Final = 2

DECIMAL: Final = 5
_TIMESTAMP_MILLIS: Final = 9
_SIGNED_NUMBERS: Final = frozenset({DECIMAL, 6, 7, 8, 9, 10, 15, 16, 17, 18})
_TEXTS: Final = frozenset({0, 4, 19, 20})
_LOGICAL_NUMBERS: Final = frozenset({5, 6, 7, 8})
_LOGICAL_INTEGER: Final = 10
_LOGICAL_TEXTS: Final = frozenset({1, 4, 12, 13})
_LOGICAL_DECIMAL: Final = 5
_LOGICAL_TIMESTAMP: Final = 8
_LOGICAL_FLOAT16: Final = 15
_UNIT: Final = 2
_MILLIS: Final = 1
_LOGICAL_UNKNOWN: Final = 11
_LOGICAL_UUID: Final = 14
_INTEGER_IS_SIGNED: Final = 2
_TYPE_ORDER: Final = 1
_MOST_ELEMENTS: Final = 1 << 16
_DEEPEST: Final = 100
_MOST_DIGITS: Final = 38
"""Digits of the longest decimal that Arrow keeps in 16 bytes."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """
    A column that has values.

    Args:
        element: index of its schema element.
        path: `path_in_schema`, encoded.
        name: the same path for messages, with dots.
        levels: an O for each OPTIONAL and an R for each REPEATED element on the way from the root.
        physical, width: type, and bytes of a value (0 where they vary).
        ordered: whether minimum and maximum have the order of the physical type, bytes compared as unsigned.
        decimal: a decimal in as few bytes as its precision needs, whose order is that of its number.
        unknown: the logical type UNKNOWN: what readers of it see is NULL.
        milliseconds: timestamps in INT64.
        half: floats of two bytes.
    """

    element: int
    path: bytes
    name: str
    levels: str
    physical: int
    width: int
    ordered: bool
    decimal: bool
    unknown: bool
    milliseconds: bool
    half: bool


@dataclass(frozen=True, slots=True)
class Schema:
    """All elements in the order of the file, and their leaves."""

    elements: tuple[Struct, ...]
    leaves: tuple[Leaf, ...]


@lru_cache(maxsize=64)
def read_schema(data: bytes) -> Schema:
    """
    Decode the list of schema elements.

    Raises:
        MalformedError: the bytes, or the tree that they describe, make no sense.
    """
    count, kind, at = thrift.list_header(data, 0)
    if kind != thrift.STRUCT or not 0 < count <= _MOST_ELEMENTS:
        raise MalformedError(f"its schema has {count} elements")
    elements: list[Struct] = []
    for _ in range(count):
        element, at = thrift.decode(data, at, {})
        ELEMENT.require(element)
        elements.append(element)
    leaves: list[Leaf] = []
    open_groups: list[tuple[int, list[bytes], str]] = [(1, [], "")]
    for number, element in enumerate(elements):
        if not open_groups:
            raise MalformedError("its schema has elements behind the last field")
        left, path, levels = open_groups.pop()
        if left > 1:
            open_groups.append((left - 1, path, levels))
        name = _value(element, NAME, thrift.BINARY)
        if number:
            repetition = _number(element, REPETITION)
            if repetition not in {REQUIRED, OPTIONAL, REPEATED}:
                raise MalformedError(f"a field of its schema has the repetition {repetition}")
            path, levels = [*path, name], levels + ("", "O", "R")[repetition]
        if TYPE in element and number:
            leaves.append(_leaf(number, element, path, levels))
            continue
        children = _number(element, CHILDREN) if CHILDREN in element else 0
        if not 0 <= children < count or len(path) > _DEEPEST:
            raise MalformedError(f"a group of its schema has {children} fields, {len(path)} levels deep")
        if children:
            open_groups.append((children, path, levels))
    if open_groups:
        raise MalformedError("its schema ends too early")
    return Schema(tuple(elements), tuple(leaves))


def _number(element: Struct, field: int) -> int:
    return int(_value(element, field, thrift.I32))


def _value(element: Struct, field: int, kind: int) -> Any:
    found = element.get(field)
    if found is None or found[0] != kind:
        raise MalformedError(f"an element of its schema has no field {field}")
    return found[1]


def _leaf(number: int, element: Struct, path: list[bytes], levels: str) -> Leaf:
    physical = _number(element, TYPE)
    if not BOOLEAN <= physical <= FIXED:
        raise MalformedError(f"a field of its schema has the physical type {physical}")
    widths = {BOOLEAN: 1, INT32: 4, INT64: 8, INT96: 12, FLOAT: 4, DOUBLE: 8, BYTE_ARRAY: 0}
    width = widths[physical] if physical != FIXED else _number(element, TYPE_LENGTH)
    if physical == FIXED and width <= 0:
        raise MalformedError(f"a field of its schema has values of {width} bytes")
    name = b".".join(path).decode(errors="backslashreplace")
    decimal = physical == FIXED and _is_short_decimal(element, width)
    ordered = not decimal and _is_ordered(physical, element)
    logical = _logical(element)
    unknown = logical is not None and logical[0] == _LOGICAL_UNKNOWN
    milliseconds = physical == INT64 and _is_milliseconds(element)
    half = logical is not None and logical[0] == _LOGICAL_FLOAT16
    return Leaf(
        number,
        thrift.encoded_binaries(path),
        name,
        levels,
        physical,
        width,
        ordered,
        decimal,
        unknown,
        milliseconds,
        half,
    )


def _is_ordered(physical: int, element: Struct) -> bool:
    converted = element.get(CONVERTED)
    logical = _logical(element)
    if physical in {BOOLEAN, INT32, INT64, FLOAT, DOUBLE}:
        if converted is not None and converted[1] not in _SIGNED_NUMBERS:
            return False
        if logical is not None and logical[0] == _LOGICAL_INTEGER:
            return bool(logical[1].get(_INTEGER_IS_SIGNED, (0, False))[1])
        return logical is None or logical[0] in _LOGICAL_NUMBERS
    if physical == BYTE_ARRAY:
        return (converted is None or converted[1] in _TEXTS) and (logical is None or logical[0] in _LOGICAL_TEXTS)
    return physical == FIXED and converted is None and (logical is None or logical[0] == _LOGICAL_UUID)


def _is_short_decimal(element: Struct, width: int) -> bool:
    precision, scale = (element.get(field, (0, 0))[1] for field in (PRECISION, SCALE))
    logical = _logical(element)
    return (
        element.get(CONVERTED, (0, None))[1] == DECIMAL
        and (logical is None or logical[0] == _LOGICAL_DECIMAL)
        and 0 < precision <= _MOST_DIGITS
        and 0 <= scale <= precision
        and width == decimal_width(precision)
    )


def _is_milliseconds(element: Struct) -> bool:
    if element.get(CONVERTED, (0, None))[1] == _TIMESTAMP_MILLIS:
        return True
    union, _ = (
        thrift.decode(element[LOGICAL][1], 0, {_LOGICAL_TIMESTAMP: {_UNIT: {}}}) if LOGICAL in element else ({}, 0)
    )
    found = union.get(_LOGICAL_TIMESTAMP, (0, None))[1]
    unit = found.get(_UNIT, (0, None))[1] if isinstance(found, dict) else None
    return isinstance(unit, dict) and _MILLIS in unit


def decimal_width(precision: int) -> int:
    """Fewest bytes that hold every number with so many digits, and its sign."""
    return (int(10**precision - 1).bit_length() + 8) // 8


def _logical(element: Struct) -> tuple[int, Struct] | None:
    """Which member of the union LogicalType an element has, and that member's fields."""
    if LOGICAL not in element:
        return None
    union, _ = thrift.decode(element[LOGICAL][1], 0, {_LOGICAL_INTEGER: {}})
    if len(union) != 1:
        return 0, {}
    ((member, (_, fields)),) = union.items()
    if member == _LOGICAL_INTEGER and isinstance(fields, dict):
        LOGICAL_INTEGER.require(fields)
    return member, fields if isinstance(fields, dict) else {}


@lru_cache(maxsize=64)
def type_ordered(data: bytes, leaves: int) -> tuple[bool, ...]:
    """
    Which leaves have the order of their type, by a footer's list of column orders; none where the footer has no list.

    Raises:
        MalformedError: the bytes aren't such a list.
    """
    count, kind, at = thrift.list_header(data, 0) if data else (0, thrift.STRUCT, 0)
    if count != leaves or kind != thrift.STRUCT:
        return (False,) * leaves
    found = []
    for _ in range(count):
        order, at = thrift.decode(data, at, {})
        found.append(_TYPE_ORDER in order)
    return tuple(found)
