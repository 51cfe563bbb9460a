"""
The structs of Parquet's metadata: which fields they have, of which wire type, and which of them each reader requires.

Thrift's readers pass over a field of another type and give up where a required one is missing; a copy of such a struct
would take the row groups beside it along. Fields that aren't named here are left to their readers.
Source: parquet.thrift.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from compactor.parquet.thrift import BINARY, BYTE, FALSE, I16, I32, I64, LIST, STRUCT, TRUE, MalformedError, Struct


@dataclass(frozen=True, slots=True)
class Shape:
    """
    Args:
        name: for messages.
        kinds: the wire type of each field; TRUE stands for both booleans.
        required: the fields that must be there.
    """

    name: str
    kinds: Mapping[int, int]
    required: frozenset[int]

    def require(self, struct: Struct) -> None:
        """
        Raises:
            MalformedError: a field of the struct is missing, or of another type.
        """
        if not self.required <= struct.keys():
            raise MalformedError(f"{self.name} has no field {min(self.required - struct.keys())}")
        for number, (kind, _) in struct.items():
            expected = self.kinds.get(number, kind)
            if expected != kind and not (expected == TRUE and kind == FALSE):
                raise MalformedError(f"field {number} of {self.name} has the wire type {kind} instead of {expected}")


def _shape(name: str, required: Mapping[int, int], optional: Mapping[int, int]) -> Shape:
    return Shape(name, {**required, **optional}, frozenset(required))


FILE: Final = _shape(
    "the footer", {1: I32, 2: LIST, 3: I64, 4: LIST}, {5: LIST, 6: BINARY, 7: LIST, 8: STRUCT, 9: BINARY}
)
ELEMENT: Final = _shape(
    "a schema element", {4: BINARY}, {1: I32, 2: I32, 3: I32, 5: I32, 6: I32, 7: I32, 8: I32, 9: I32, 10: STRUCT}
)
KEY_VALUE: Final = _shape("a key-value pair", {1: BINARY}, {2: BINARY})
ROW_GROUP: Final = _shape("a row group", {1: LIST, 2: I64, 3: I64}, {4: LIST, 5: I64, 6: I64, 7: I16})
SORTING: Final = _shape("a sorting column", {1: I32, 2: TRUE, 3: TRUE}, {})
CHUNK: Final = _shape(
    "a column chunk", {2: I64}, {1: BINARY, 3: STRUCT, 4: I64, 5: I32, 6: I64, 7: I32, 8: STRUCT, 9: BINARY}
)
META: Final = _shape(
    "a column's metadata",
    {1: I32, 2: LIST, 3: LIST, 4: I32, 5: I64, 6: I64, 7: I64, 9: I64},
    {8: LIST, 10: I64, 11: I64, 12: STRUCT, 13: LIST, 14: I64, 15: I32, 16: STRUCT, 17: STRUCT},
)
STATISTICS: Final = _shape(
    "a column's statistics", {}, {1: BINARY, 2: BINARY, 3: I64, 4: I64, 5: BINARY, 6: BINARY, 7: TRUE, 8: TRUE}
)
ENCODING_STATISTICS: Final = _shape("the statistics of encodings", {1: I32, 2: I32, 3: I32}, {})
SIZE_STATISTICS: Final = _shape("the statistics of sizes", {}, {1: I64, 2: LIST, 3: LIST})
PAGE: Final = _shape("a page header", {1: I32, 2: I32, 3: I32}, {4: I32, 5: STRUCT, 6: STRUCT, 7: STRUCT, 8: STRUCT})
DATA_PAGE: Final = _shape("a data page header", {1: I32, 2: I32, 3: I32, 4: I32}, {5: STRUCT})
DICTIONARY_PAGE: Final = _shape("a dictionary page header", {1: I32, 2: I32}, {3: TRUE})
DATA_PAGE_2: Final = _shape(
    "a data page header", {1: I32, 2: I32, 3: I32, 4: I32, 5: I32, 6: I32}, {7: TRUE, 8: STRUCT}
)
OFFSET_INDEX: Final = _shape("an offset index", {1: LIST}, {2: LIST})
PAGE_LOCATION: Final = _shape("a page location", {1: I64, 2: I32, 3: I64}, {})
COLUMN_INDEX: Final = _shape("a column index", {1: LIST, 2: LIST, 3: LIST, 4: I32}, {5: LIST, 6: LIST, 7: LIST})
BLOOM_FILTER: Final = _shape("a Bloom filter", {1: I32, 2: STRUCT, 3: STRUCT, 4: STRUCT}, {})
LOGICAL_INTEGER: Final = _shape("an integer's logical type", {1: BYTE, 2: TRUE}, {})
