"""
The key-value metadata of a file, and what of it is true of that one file only.

pandas writes for an index without values of its own how it is counted: from where, to where, in which steps. GeoParquet
may state which area the geometries of the file lie in. Joined files have other rows, so these entries are taken out:
readers count anew, as they do for a directory of several files, and know no area. The same texts stand again inside
Arrow's schema, from which other readers than Arrow's take them. All else stays as it is, byte for byte.
Source: pandas' "Storing pandas DataFrame objects in Apache Parquet format"; parquet-cpp's and arrow-rs' ARROW:schema;
the GeoParquet specification 1.1.0, "bbox" (optional).
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from compactor.parquet import thrift

_KEY: Final = 1
_VALUE: Final = 2
_PANDAS: Final = b"pandas"
_GEO: Final = b"geo"
_ARROW: Final = b"ARROW:schema"
_COUNTED: Final = re.compile(r'("index_columns"\s*:\s*\[)\s*\{[^{}]*\}\s*(\])')
_NUMBERS: Final = r'"bbox"\s*:\s*\[[^][{}"]*\]'
_AREA: Final = re.compile(rf",\s*{_NUMBERS}|{_NUMBERS}\s*,")


@lru_cache(maxsize=64)
def shared(data: bytes) -> bytes:
    """
    The list of key-value pairs that a file gets whose rows come from several files.

    Args:
        data: a footer's list, or nothing.
    """
    pairs = thrift.structs(data, 0) if data else []
    changed = False
    for pair in pairs:
        key, value = pair[_KEY][1], pair.get(_VALUE, (0, b""))[1]
        after = _shared_schema(value) if key == _ARROW else _CHANGES[key](value) if key in _CHANGES else value
        if after != value:
            pair[_VALUE] = thrift.BINARY, after
            changed = True
    return thrift.encoded_list([thrift.encode(pair) for pair in pairs]) if changed else data


@lru_cache(maxsize=64)
def carried(data: bytes) -> str | None:
    """
    Why rows must stay in their file, by its list of key-value pairs, or None. Of categories fastparquet takes those of
    the last row group for those of all, so that values would become others.
    """
    pairs = thrift.structs(shared(data), 0) if data else []
    for said in (_decoded(pair[_VALUE][1]) for pair in pairs if pair[_KEY][1] == _PANDAS and _VALUE in pair):
        if _has(said.get("columns"), "pandas_type", "categorical"):
            return "pandas counts its categories, and some readers take those of one row group for those of all"
        if _has(said.get("index_columns"), "kind", "range"):
            return "pandas counts its index in a way that isn't known"
    return None


def _has(described: Any, key: str, value: str) -> bool:
    """Whether a list holds an object with that value of a key."""
    return isinstance(described, list) and any(isinstance(one, dict) and one.get(key) == value for one in described)


def _without_count(value: bytes) -> bytes:
    """The entry of pandas without an index that is only counted; the same where it has none."""
    before = _decoded(value)
    index = before.get("index_columns")
    if not (isinstance(index, list) and len(index) == 1 and isinstance(index[0], dict)):
        return value
    after = _COUNTED.sub(r"\1\2", value.decode(), count=1).encode()
    return after if _decoded(after) == {**before, "index_columns": []} else value


def _without_area(value: bytes) -> bytes:
    """GeoParquet's entry without the area of each column; the same where none has one."""
    before = _decoded(value)
    columns = before.get("columns")
    if not isinstance(columns, dict):
        return value
    expected = {name: _area_left_out(column) for name, column in columns.items()}
    if expected == columns:
        return value
    after = _AREA.sub("", value.decode()).encode()
    return after if _decoded(after) == {**before, "columns": expected} else value


def _area_left_out(column: Any) -> Any:
    if isinstance(column, dict) and isinstance(column.get("bbox"), list):
        return {key: said for key, said in column.items() if key != "bbox"}
    return column


_CHANGES: Final[Mapping[bytes, Callable[[bytes], bytes]]] = {_PANDAS: _without_count, _GEO: _without_area}
"""What becomes of an entry, by its key; inside Arrow's schema, too."""


def _shared_schema(value: bytes) -> bytes:
    """An Arrow schema, serialized and in base64, with the entries that `_CHANGES` names as they are left there."""
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value, validate=True)))
    except (binascii.Error, pa.ArrowException, OSError):
        return value
    before = schema.metadata or {}
    after = {key: _CHANGES[key](said) if key in _CHANGES else said for key, said in before.items()}
    if after == before:
        return value
    made: Any = schema.with_metadata(after)
    return base64.b64encode(made.serialize().to_pybytes())


def _decoded(value: bytes) -> dict[str, Any]:
    try:
        found = json.loads(value.decode())
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
