"""
Encodes and decodes the properties of a queue entry.

The string form is `<n>:`, then per entry `<length>:<key><length>:<value>`; lengths count UTF-16 units as Java does, -1
is null. Source: Hive's StringableMap.
"""

from collections.abc import Iterator, Mapping


def encode_properties(properties: Mapping[str, str]) -> str | None:
    """CQ_TBLPROPERTIES for a mapping; None when it is empty, as Hive stores it."""
    if not properties:
        return None
    return f"{len(properties)}:" + "".join(_encode(key) + _encode(value) for key, value in properties.items())


def decode_properties(text: str | None) -> dict[str, str]:
    """
    The mapping for CQ_TBLPROPERTIES; null values become empty.

    Raises:
        ValueError: the text isn't of that form.
    """
    return {key: value for key, value, _ in _entries(text)}


def with_property(text: str | None, key: str, value: str) -> str:
    """
    CQ_TBLPROPERTIES with one property more; a property of the same name is replaced, the others stay as they are.

    Raises:
        ValueError: the text isn't of that form.
    """
    pairs = [raw for name, _, raw in _entries(text) if name != key] + [_encode(key) + _encode(value)]
    return f"{len(pairs)}:{''.join(pairs)}"


def without_property(text: str | None, key: str) -> str | None:
    """
    CQ_TBLPROPERTIES without this property, the others as they are; None when no property is left.

    Raises:
        ValueError: the text isn't of that form.
    """
    pairs = [raw for name, _, raw in _entries(text) if name != key]
    return f"{len(pairs)}:{''.join(pairs)}" if pairs else None


def _entries(text: str | None) -> Iterator[tuple[str, str, str]]:
    """Each key, its value, and the text of both as it stands."""
    if not text:
        return
    units = text.encode("utf-16-le", "surrogatepass")
    count, position = _number(units, 0)
    for _ in range(count):
        start = position
        key, position = _string(units, position)
        value, position = _string(units, position)
        yield key, value, units[start:position].decode("utf-16-le", "surrogatepass")


def _encode(value: str) -> str:
    return f"{len(value.encode('utf-16-le', 'surrogatepass')) // 2}:{value}"


def _number(units: bytes, position: int) -> tuple[int, int]:
    colon = position
    while colon < len(units) and units[colon : colon + 2] != b":\0":
        colon += 2
    if colon >= len(units):
        raise ValueError("properties end before a length")
    return int(units[position:colon].decode("utf-16-le")), colon + 2


def _string(units: bytes, position: int) -> tuple[str, int]:
    length, position = _number(units, position)
    if length <= 0:
        return "", position
    end = position + 2 * length
    if end > len(units):
        raise ValueError("properties end inside a value")
    return units[position:end].decode("utf-16-le", "surrogatepass"), end
