"""
ROW__ID: the three numbers that name a row permanently, and the packed integer in its middle.

Pure. The bucket field holds a codec version, the bucket of the file the row lives in, and the ordinal of the statement
that wrote it.
Source: docs/layout.md; Hive's RecordIdentifier and BucketCodec.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from compactor.errors import RefusedError
from compactor.reasons import Reason

MAX_BUCKET: Final = 4095
MAX_STATEMENT: Final = 4095

_VERSION_1: Final = 1 << 29
_VERSION_SHIFT: Final = 29
_BUCKET_SHIFT: Final = 16
_TWELVE_BITS: Final = 0xFFF


class RowKey(NamedTuple):
    """
    ROW__ID, the sort key of rows in a file. `bucket` is the packed integer, compared as a signed number; `write_id` is
    the write id that inserted the row.
    """

    write_id: int
    bucket: int
    row_id: int


@dataclass(frozen=True, slots=True)
class SyntheticIds:
    """
    ROW__IDs of a file that has none (it is older than the transactional table, or LOAD DATA put it there): its rows are
    (write_id, bucket_property, first_row_id + ordinal).

    Args:
        write_id: 0 for original files, the directory's for loaded ones.
        bucket_property: the packed bucket field.
        first_row_id: row ids continue through all files with the same bucket number.
    """

    write_id: int
    bucket_property: int
    first_row_id: int


class Hit(StrEnum):
    """Whether delete events hit rows of a stripe: certainly not, possibly, certainly."""

    NONE = "none"
    POSSIBLE = "possible"
    CERTAIN = "certain"


class BucketRangeError(RefusedError):
    """A bucket or statement doesn't fit its 12 bits, or a packed bucket field has an undefined codec version."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.WRONG_BUCKET, message)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.message,)


def encode(bucket: int, statement: int | None) -> int:
    """
    Pack a writer bucket and a statement id into ROW__ID's bucket field (codec version 1).

    Args:
        bucket: 0..4095.
        statement: 0..4095, the statement's ordinal inside its transaction; None (no statement in the directory name) is
            packed as 0.

    Raises:
        BucketRangeError: either value needs more than 12 bits.

    Source: Hive's BucketCodec.V1.
    """
    if not 0 <= bucket <= MAX_BUCKET:
        raise BucketRangeError(f"bucket {bucket} isn't in 0..{MAX_BUCKET}")
    if statement is not None and not 0 <= statement <= MAX_STATEMENT:
        raise BucketRangeError(f"statement {statement} isn't in 0..{MAX_STATEMENT}")
    return _VERSION_1 | bucket << _BUCKET_SHIFT | (statement or 0)


def decode_bucket(packed: int) -> int:
    """
    The bucket whose file holds a row with this bucket field.

    Version 0 (rows from Hive 2) is the bucket itself. Buckets above 4095 were packed modulo 4096 by Hive 4.

    Raises:
        BucketRangeError: the top three bits say neither version 0 nor 1.
    """
    return packed >> _BUCKET_SHIFT & _TWELVE_BITS if _version(packed) else packed


def decode_statement(packed: int) -> int:
    """
    The statement ordinal of a row's bucket field; 0 for version 0.

    Raises:
        BucketRangeError: the top three bits say neither version 0 nor 1.
    """
    return packed & _TWELVE_BITS if _version(packed) else 0


def decode_buckets(packed: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """
    `decode_bucket` for a column: int32 in, int32 of the same length out.

    Raises:
        BucketRangeError: a value is of an unknown version; the message names the first such value.
    """
    version = packed >> _VERSION_SHIFT
    unknown = packed[(version != 0) & (version != 1)]
    if unknown.size:
        _version(int(unknown[0]))
    return np.where(version == 1, packed >> _BUCKET_SHIFT & _TWELVE_BITS, packed).astype(np.int32)


def _version(packed: int) -> int:
    version = packed >> _VERSION_SHIFT
    if version not in {0, 1}:
        raise BucketRangeError(f"bucket field {packed} is of codec version {version & 7}; only 0 and 1 exist")
    return version
