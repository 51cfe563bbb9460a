"""
What a footer, a page header or a column index says of values: whether readers can take it for what it should be.

Java's reader opens no file in which the minimum of an INT32 hasn't four bytes, or an enumeration has a number without
a name.
Source: parquet-mr's ParquetMetadataConverter, Statistics and BytesUtils; parquet.thrift.
"""

from typing import Final

from compactor.parquet import fields, structs, thrift
from compactor.parquet.schema import BOOLEAN, DOUBLE, FIXED, FLOAT, INT32, INT64, INT96, Leaf
from compactor.parquet.thrift import MalformedError, Struct
from compactor.parquet.writers import KNOWN_ENCODINGS

_NULLS: Final = 3
_BOUNDS: Final = (1, 2, 5, 6)
_WIDTHS: Final = {BOOLEAN: 1, INT32: 4, INT64: 8, INT96: 12, FLOAT: 4, DOUBLE: 8}
_MOST_MILLISECONDS: Final = (1 << 63) // 1000 - 1
"""DuckDB makes microseconds of a minimum or maximum before it reads, and fails where they have no room."""
_KINDS_OF_PAGES: Final = range(4)


def require_statistics(meta: Struct, leaf: Leaf) -> None:
    """
    Judge all statistics in a column chunk's metadata.

    Args:
        meta: with its statistics decoded.

    Raises:
        MalformedError: a reader can't take them for what they should be.
    """
    if fields.META_STATISTICS in meta:
        require_bounds(meta[fields.META_STATISTICS][1], leaf, meta[fields.META_VALUES][1])
    for found in meta.get(fields.META_ENCODING_STATISTICS, (0, ()))[1]:
        structs.ENCODING_STATISTICS.require(found)
        if found[1][1] not in _KINDS_OF_PAGES or found[2][1] not in KNOWN_ENCODINGS:
            raise MalformedError(f"column {leaf.name} counts pages of a kind or an encoding that isn't known")
    if fields.META_SIZE_STATISTICS in meta:
        _require_sizes(meta[fields.META_SIZE_STATISTICS][1], leaf)
    for found in meta.get(fields.META_KEY_VALUES, (0, ()))[1]:
        structs.KEY_VALUE.require(found)


def require_bounds(statistics: Struct, leaf: Leaf, values: int) -> None:
    """
    Judge a struct Statistics.

    Args:
        values: so many values it is about.

    Raises:
        MalformedError: see above.
    """
    structs.STATISTICS.require(statistics)
    if not 0 <= statistics.get(_NULLS, (0, 0))[1] <= values:
        raise MalformedError(f"column {leaf.name} has {statistics[_NULLS][1]} NULLs among {values} values")
    for number in _BOUNDS:
        if number in statistics:
            require_bound(statistics[number][1], leaf)


def require_bound(value: bytes, leaf: Leaf) -> None:
    """
    Judge a minimum or maximum by its length, where that of texts and of FIXED may be shortened, and of milliseconds by
    the range that DuckDB has for them.

    Raises:
        MalformedError: see above.
    """
    width = leaf.width if leaf.half else _WIDTHS.get(leaf.physical)
    if (width is not None and len(value) != width) or (leaf.physical == FIXED and len(value) > leaf.width):
        raise MalformedError(f"column {leaf.name} has a minimum or maximum of {len(value)} bytes")
    if leaf.milliseconds and abs(int.from_bytes(value, "little", signed=True)) > _MOST_MILLISECONDS:
        raise MalformedError(f"column {leaf.name} has a minimum or maximum whose microseconds have no room")


def _require_sizes(found: Struct, leaf: Leaf) -> None:
    structs.SIZE_STATISTICS.require(found)
    most = (leaf.levels.count("R"), len(leaf.levels))
    for number, level in zip((2, 3), most, strict=True):
        histogram = thrift.integers(found[number][1]) if number in found else []
        if histogram and (len(histogram) != level + 1 or min(histogram) < 0):
            raise MalformedError(
                f"column {leaf.name} has a histogram of {len(histogram)} levels instead of {level + 1}"
            )
