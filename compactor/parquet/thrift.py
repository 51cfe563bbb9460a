"""
Thrift's compact protocol, as far as Parquet's metadata needs it: structs to dicts, and back to the same bytes.

A struct is a dict from field id to (wire type, value), in the order of the bytes. What the caller's shape doesn't name
stays as its bytes, so unknown fields survive and cost no memory. Knows no field of Parquet.
Source: the Thrift compact protocol specification.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

TRUE: Final = 1
FALSE: Final = 2
BYTE: Final = 3
I16: Final = 4
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
MAP: Final = 11
STRUCT: Final = 12
UUID: Final = 13

Struct = dict[int, tuple[int, Any]]
Shape = Mapping[int, "Shape"]
"""The fields of a struct that are decoded although they are structs or lists of structs, with the shape of each."""
Span = tuple[int, int, int]
"""Wire type of a field, and where its value begins and ends."""

_DEEPEST: Final = 64
_LONGEST: Final = 63


class MalformedError(ValueError):
    """Bytes that aren't the compact protocol, or that end too early."""


def decode(data: bytes, at: int, shape: Shape) -> tuple[Struct, int]:
    """
    Decode a struct.

    Values: bool, int, content of a BINARY, bytes of a DOUBLE or UUID; of the containers that `shape` names a dict or a
    list of dicts, of all others the bytes as they stand.

    Args:
        at: where the struct begins.

    Returns:
        The struct, and where it ends.

    Raises:
        MalformedError: anything is wrong with the bytes.
    """
    try:
        return _struct(data, at, shape)
    except IndexError as error:
        raise MalformedError("it ends too early") from error


def spans(data: bytes, visit: Mapping[int, Callable[[dict[int, Span], Span], int]]) -> dict[int, Span]:
    """
    Find the fields of a struct without decoding them.

    Args:
        visit: by field id, what reads the field instead. It gets the fields before it, and wire type and beginning of
            its own value, with an end of 0; and returns where the value ends.

    Returns:
        Each field's place by id.

    Raises:
        MalformedError: as for `decode`.
    """
    found: dict[int, Span] = {}
    at = field = 0
    try:
        while header := data[at]:
            field, at = _field(data, at, header, field)
            if field in found:
                raise MalformedError(f"field {field} stands there twice")
            kind = header & 15
            end = visit[field](found, (kind, at, 0)) if field in visit else _skip(data, at, kind, 0)
            found[field] = kind, at, end
            at = end
    except IndexError as error:
        raise MalformedError("it ends too early") from error
    return found


def list_header(data: bytes, at: int) -> tuple[int, int, int]:
    """
    Read the head of a list.

    Returns:
        Number of elements, their wire type, and where the first one begins.

    Raises:
        MalformedError: the list claims more elements than bytes are left.
    """
    try:
        return _list_header(data, at)
    except IndexError as error:
        raise MalformedError("it ends too early") from error


def structs(data: bytes, at: int) -> list[Struct]:
    """
    Decode the list of structs that begins at a place.

    Raises:
        MalformedError: as for `decode`, or the list holds something else.
    """
    try:
        return _structs(data, at, {})[0]
    except IndexError as error:
        raise MalformedError("it ends too early") from error


def integers(data: bytes) -> list[int]:
    """
    Decode the bytes of a list of I16, I32 or I64.

    Raises:
        MalformedError: they aren't one.
    """
    count, kind, at = list_header(data, 0)
    if count and kind not in {I16, I32, I64}:
        raise MalformedError("a list doesn't hold integers")
    found = []
    try:
        for _ in range(count):
            number, at = _varint(data, at)
            found.append((number >> 1) ^ -(number & 1))
    except IndexError as error:
        raise MalformedError("it ends too early") from error
    return found


def integer(data: bytes, at: int) -> int:
    """Decode the I16, I32 or I64 at a place that `spans` found."""
    number, _ = _varint(data, at)
    return (number >> 1) ^ -(number & 1)


def unsigned_at(data: bytes, at: int) -> tuple[int, int]:
    """
    Decode the number in 7 bits a byte that begins at a place; returns it, and where it ends.

    Raises:
        MalformedError: the bytes end too early.
    """
    try:
        return _varint(data, at)
    except IndexError as error:
        raise MalformedError("it ends too early") from error


def binary(data: bytes) -> bytes:
    """The content of a BINARY that `spans` found, from its bytes."""
    return data[_varint(data, 0)[1] :]


def binary_at(data: bytes, at: int) -> tuple[bytes, int]:
    """
    The content of a BINARY that is an element of a list, and where it ends.

    Raises:
        MalformedError: it ends too early.
    """
    try:
        length, at = _varint(data, at)
    except IndexError as error:
        raise MalformedError("it ends too early") from error
    if at + length > len(data):
        raise MalformedError("it ends too early")
    return data[at : at + length], at + length


def leading_integer(data: bytes, wanted: int) -> int:
    """
    Decode one I64 of a struct whose end may be missing.

    Raises:
        MalformedError: the bytes before it are wrong, or it isn't there.
    """
    at = field = 0
    try:
        while header := data[at]:
            field, at = _field(data, at, header, field)
            if field == wanted and header & 15 == I64:
                return integer(data, at)
            at = _skip(data, at, header & 15, 0)
    except IndexError as error:
        raise MalformedError("it ends too early") from error
    raise MalformedError(f"field {wanted} is missing")


def put(struct: Struct, field: int, kind: int, value: Any) -> None:
    """Set a field at the place that its id gives it."""
    later = [number for number in struct if number > field] if field not in struct else []
    struct[field] = kind, value
    for number in later:
        struct[number] = struct.pop(number)


def encode(struct: Struct) -> bytes:
    """Encode what `decode` returned."""
    out = bytearray()
    _put_struct(out, struct)
    return bytes(out)


def encoded_integer(number: int) -> bytes:
    """Encode the value of an I16, I32 or I64."""
    number = (number << 1) ^ (number >> 63)
    if number < 128:
        return number.to_bytes(1, "little")
    if number < 1 << 14:
        return bytes((number & 127 | 128, number >> 7))
    out = bytearray()
    _put_varint(out, number)
    return bytes(out)


def encoded_field(number: int, kind: int, value: bytes, before: int) -> bytes:
    """Encode a field whose value is encoded already; `before` is the id of the field before it, or 0."""
    out = bytearray()
    _put_field(out, number, kind, before)
    return bytes(out) + value


def encoded_list(elements: list[bytes], kind: int = STRUCT) -> bytes:
    """Encode a list of elements that are encoded already."""
    return list_head(len(elements), kind) + b"".join(elements)


def list_head(count: int, kind: int = STRUCT) -> bytes:
    """Encode the head of a list, after which its elements follow."""
    out = bytearray()
    _put_list_header(out, count, kind)
    return bytes(out)


def encoded_binaries(values: list[bytes]) -> bytes:
    """Encode a list of BINARY."""
    elements = []
    for value in values:
        out = bytearray()
        _put_varint(out, len(value))
        elements.append(bytes(out) + value)
    return encoded_list(elements, BINARY)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 128:
        return byte, at
    number = byte & 127
    shift = 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            if number >> 64:
                raise MalformedError("a number has more than 64 bits")
            return number, at
        shift += 7
        if shift > _LONGEST:
            raise MalformedError("a number has more than 64 bits")


def _field(data: bytes, at: int, header: int, before: int) -> tuple[int, int]:
    """The id of the field whose header is at `at`, and where its value begins."""
    if header >> 4:
        return before + (header >> 4), at + 1
    number, at = _varint(data, at + 1)
    field = (number >> 1) ^ -(number & 1)
    if not -0x8000 <= field <= 0x7FFF:
        raise MalformedError(f"a field has the id {field}")
    return field, at


def _list_header(data: bytes, at: int) -> tuple[int, int, int]:
    header = data[at]
    count = header >> 4
    at += 1
    if count == 15:
        count, at = _varint(data, at)
    if count > len(data) - at:
        raise MalformedError(f"a list claims {count} elements, with {len(data) - at} bytes left")
    return count, header & 15, at


def _struct(data: bytes, at: int, shape: Shape) -> tuple[Struct, int]:
    found: Struct = {}
    field = 0
    while header := data[at]:
        kind = header & 15
        if header >> 4:
            field += header >> 4
            at += 1
        else:
            field, at = _field(data, at, header, field)
        if field in found:
            raise MalformedError(f"field {field} stands there twice")
        if I16 <= kind <= I64:
            number = data[at]
            at += 1
            if number > 127:
                number, at = _varint(data, at - 1)
            found[field] = kind, (number >> 1) ^ -(number & 1)
        elif kind == BINARY:
            length, at = _varint(data, at)
            end = at + length
            if end > len(data):
                raise MalformedError(f"a value claims {length} bytes, with {len(data) - at} left")
            found[field] = kind, data[at:end]
            at = end
        elif kind in {TRUE, FALSE}:
            found[field] = kind, kind == TRUE
        elif field in shape and kind == STRUCT:
            inner, at = _struct(data, at, shape[field])
            found[field] = kind, inner
        elif field in shape and kind == LIST:
            inners, at = _structs(data, at, shape[field])
            found[field] = kind, inners
        else:
            end = _skip(data, at, kind, 0)
            found[field] = kind, data[at:end]
            at = end
    return found, at + 1


def _structs(data: bytes, at: int, shape: Shape) -> tuple[list[Struct], int]:
    count, kind, at = _list_header(data, at)
    if kind != STRUCT and count:
        raise MalformedError("a list doesn't hold structs")
    found = []
    for _ in range(count):
        struct, at = _struct(data, at, shape)
        found.append(struct)
    return found, at


def _skip(data: bytes, at: int, kind: int, depth: int, *, element: bool = False) -> int:
    """Where a value ends that begins at `at`; a bool takes a byte only as an element of a container."""
    if I16 <= kind <= I64:
        return _varint(data, at)[1]
    if kind == BINARY:
        length, at = _varint(data, at)
        end = at + length
    elif kind in {TRUE, FALSE}:
        end = at + element
    elif kind == BYTE:
        end = at + 1
    elif kind == DOUBLE:
        end = at + 8
    elif kind == UUID:
        end = at + 16
    elif depth == _DEEPEST:
        raise MalformedError(f"it is nested more than {_DEEPEST} levels deep")
    elif kind == STRUCT:
        end = _skip_struct(data, at, depth + 1)
    elif kind in {LIST, SET}:
        count, inner, at = _list_header(data, at)
        for _ in range(count):
            at = _skip(data, at, inner, depth + 1, element=True)
        end = at
    elif kind == MAP:
        count, at = _varint(data, at)
        if count > len(data) - at:
            raise MalformedError(f"a map claims {count} entries, with {len(data) - at} bytes left")
        if count:
            kinds = data[at]
            at += 1
            for _ in range(count):
                at = _skip(data, at, kinds >> 4, depth + 1, element=True)
                at = _skip(data, at, kinds & 15, depth + 1, element=True)
        end = at
    else:
        raise MalformedError(f"there is no wire type {kind}")
    if end > len(data):
        raise MalformedError("it ends too early")
    return end


def _skip_struct(data: bytes, at: int, depth: int) -> int:
    """Where a struct ends. Most of a footer is skipped here, hence the numbers and BINARYs without a call."""
    while header := data[at]:
        kind = header & 15
        at = at + 1 if header >> 4 else _field(data, at, header, 0)[1]
        if I16 <= kind <= I64:
            while data[at] > 127:
                at += 1
            at += 1
        elif kind == BINARY:
            length = data[at]
            at += 1
            if length > 127:
                length, at = _varint(data, at - 1)
            at += length
        elif kind > FALSE:
            at = _skip(data, at, kind, depth)
    return at + 1


def _put_varint(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def _put_list_header(out: bytearray, count: int, kind: int) -> None:
    if count < 15:
        out.append(count << 4 | kind)
    else:
        out.append(0xF0 | kind)
        _put_varint(out, count)


def _put_field(out: bytearray, field: int, wire: int, before: int) -> None:
    step = field - before
    if 0 < step < 16:
        out.append(step << 4 | wire)
    else:
        out.append(wire)
        _put_varint(out, field << 1 ^ field >> 15)


def _put_struct(out: bytearray, struct: Struct) -> None:
    before = 0
    for field, (kind, value) in struct.items():
        wire = kind if kind > FALSE else (TRUE if value else FALSE)
        _put_field(out, field, wire, before)
        before = field
        if kind in {I16, I32, I64}:
            number = (value << 1) ^ (value >> 63)
            if number < 128:
                out.append(number)
            else:
                _put_varint(out, number)
        elif kind == BINARY:
            _put_varint(out, len(value))
            out += value
        elif isinstance(value, dict):
            _put_struct(out, value)
        elif isinstance(value, list):
            _put_list_header(out, len(value), STRUCT)
            for element in value:
                _put_struct(out, element)
        elif kind > FALSE:
            out += value
    out.append(0)
