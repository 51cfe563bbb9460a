"""
What is known of the programs that wrote a file, by the name in its footer, and of what they used.

Readers take `created_by` for more than a name: they work around faults of old writers by it. Rows that another library
encoded must not stand under a name that calls for such a workaround.
Source: parquet-mr's VersionParser, CorruptStatistics (PARQUET-251), CorruptDeltaByteArrays (PARQUET-246); Arrow's
ApplicationVersion (PARQUET-816, ARROW-10353); parquet.thrift (Encoding, CompressionCodec).
"""

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final

import pyarrow as pa

from compactor.parquet.schema import BYTE_ARRAY, DOUBLE, FIXED, FLOAT, INT32, INT64

PLAIN: Final = 0
PLAIN_DICTIONARY: Final = 2
RLE: Final = 3
BIT_PACKED: Final = 4
DELTA_BINARY_PACKED: Final = 5
DELTA_LENGTH_BYTE_ARRAY: Final = 6
DELTA_BYTE_ARRAY: Final = 7
RLE_DICTIONARY: Final = 8
BYTE_STREAM_SPLIT: Final = 9
DICTIONARIES: Final = frozenset({PLAIN_DICTIONARY, RLE_DICTIONARY})
ENCODINGS: Final = {
    PLAIN: "PLAIN",
    RLE: "RLE",
    DELTA_BINARY_PACKED: "DELTA_BINARY_PACKED",
    DELTA_LENGTH_BYTE_ARRAY: "DELTA_LENGTH_BYTE_ARRAY",
    DELTA_BYTE_ARRAY: "DELTA_BYTE_ARRAY",
    BYTE_STREAM_SPLIT: "BYTE_STREAM_SPLIT",
}
"""Arrow's names of the encodings that values can have without a dictionary."""
FITTING: Final = {
    DELTA_BINARY_PACKED: frozenset({INT32, INT64}),
    DELTA_LENGTH_BYTE_ARRAY: frozenset({BYTE_ARRAY}),
    DELTA_BYTE_ARRAY: frozenset({BYTE_ARRAY, FIXED}),
    BYTE_STREAM_SPLIT: frozenset({INT32, INT64, FLOAT, DOUBLE, FIXED}),
}
"""
Physical types that Arrow writes in the encodings that aren't for all: a footer may state one that its pages don't have.
"""
KNOWN_ENCODINGS: Final = frozenset({*ENCODINGS, *DICTIONARIES, BIT_PACKED})
KNOWN_CODECS: Final = frozenset(range(8))
CODECS: Final = {0: "none", 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4"}
"""Arrow's writer's names of the codecs; Arrow writes no LZO, and no LZ4 in Hadoop's frames."""
PAGE_CODECS: Final = {**CODECS, 7: "lz4_raw"}
"""The same of the codecs by themselves, to which `lz4` is one with frames."""

_NEWER: Final = {
    DELTA_BINARY_PACKED: "delta",
    DELTA_LENGTH_BYTE_ARRAY: "delta",
    DELTA_BYTE_ARRAY: "delta",
    BYTE_STREAM_SPLIT: "split",
}
"""Encodings that not every reader knows; one that knows any of the three for differences knows all."""

_VERSION: Final = re.compile(r"(.*?)\s+version\s+v?(\d+)(?:\.(\d+))?(?:\.(\d+))?", re.ASCII)
_KNOWN: Final = {
    "parquet-mr": (1, 8, 0),
    "parquet-cpp-arrow": (0, 0, 0),
    "impala": (0, 0, 0),
    "parquet-mr-trino": (0, 0, 0),
}
"""Writers whose name calls for no workaround from this version on; Trino's is one with parquet-mr's before it."""


@lru_cache(maxsize=64)
def parsed(created_by: str) -> tuple[str, tuple[int, int, int] | None]:
    """Name of the writer, in lower case, and its version, None where it gives none."""
    found = _VERSION.match(created_by)
    if found is None:
        return created_by.split(" ", maxsplit=1)[0].lower(), None
    name, *numbers = found.groups()
    major, minor, patch = (int(number or 0) for number in numbers)
    return name.strip().lower(), (major, minor, patch)


def carried(created_by: str, codecs: AbstractSet[int], encodings: AbstractSet[int]) -> str | None:
    """Why the row groups of this writer must stay in their file, or None."""
    if unknown := codecs - KNOWN_CODECS:  # Java's readers can't open a file in which a number has no name
        return f"its compression codec {min(unknown)} isn't known"
    if unknown := encodings - KNOWN_ENCODINGS:
        return f"its encoding {min(unknown)} isn't known"
    name, version = parsed(created_by)
    if name != "parquet-mr":
        return None
    if version is None or version < (1, 2, 9):  # PARQUET-816
        return "its writer, parquet-mr before 1.2.9 or without a version, left dictionaries out of the sizes"
    if version < (1, 8, 0) and DELTA_BYTE_ARRAY in encodings:  # PARQUET-246
        return "its writer, parquet-mr before 1.8, let texts go on from page to page"
    return None


def needs(codecs: AbstractSet[int], encodings: AbstractSet[int]) -> str:
    """
    What a reader of such row groups must know that not all know: codecs and newer encodings.

    Hive 3.1's parquet-mr (1.10) has Zstandard only by Hadoop's native code, and no LZ4_RAW and BYTE_STREAM_SPLIT.
    """
    newer = {_NEWER[encoding] for encoding in encodings if encoding in _NEWER}
    return " ".join([*map(str, sorted(codecs - {0})), *sorted(newer)])


def kept(created_by: str, codecs: Iterable[int]) -> str | None:
    """Why Arrow can't encode columns like these, or must not under this name; or None."""
    name, version = parsed(created_by)
    if name not in _KNOWN or version is None or version < _KNOWN[name]:
        return f"its writer, {created_by or 'without a name'}, isn't one whose files are known well enough"
    for codec in codecs:
        if codec not in CODECS or (codec and not pa.Codec.is_available(CODECS[codec])):
            return f"its compression codec {codec} can't be written"
    return None
