"""ROW__ID's bucket field."""

import pickle

import numpy as np
import pytest
from hypothesis import given

from compactor.acid.row_id import (
    MAX_STATEMENT,
    BucketRangeError,
    RowKey,
    decode_bucket,
    decode_buckets,
    decode_statement,
    encode,
)
from compactor.reasons import Reason
from tests import strategies


@pytest.mark.parametrize(
    ("bucket", "statement", "packed"),
    [
        (0, 0, 536870912),
        (1, 0, 536936448),
        (0, 1, 536870913),
        (7, 16, 537329680),
        (0, None, 536870912),
        (4095, 4095, 0x2FFF0FFF),
    ],
)
def test_version_1(bucket, statement, packed):
    """Known values of Hive's codec; no statement is packed as statement 0."""
    assert encode(bucket, statement) == packed
    assert (decode_bucket(packed), decode_statement(packed)) == (bucket, statement or 0)


@given(strategies.buckets(), strategies.statements())
def test_packing_round_trips_and_sorts_by_bucket(bucket, statement):
    """What is packed is unpacked, the value fits a signed 32-bit integer, and it orders by bucket first."""
    packed = encode(bucket, statement)
    assert (decode_bucket(packed), decode_statement(packed)) == (bucket, statement)
    assert 0 < packed < 2**31
    assert bucket == 0 or encode(bucket - 1, MAX_STATEMENT) < packed


@pytest.mark.parametrize(("bucket", "statement"), [(-1, 0), (4096, 0), (0, -1), (0, 4096)])
def test_out_of_range(bucket, statement):
    """Twelve bits each, no more."""
    with pytest.raises(BucketRangeError) as caught:
        encode(bucket, statement)
    assert caught.value.reason is Reason.WRONG_BUCKET


def test_version_0_is_the_bucket_itself():
    """Rows written by Hive 2 hold the plain bucket number, statement 0."""
    assert (decode_bucket(7), decode_statement(7)) == (7, 0)


@pytest.mark.parametrize("packed", [4 << 29, 2 << 29, -1, -(1 << 31)])
def test_unknown_versions(packed):
    """Any other codec version is refused, one value at a time and in columns."""
    with pytest.raises(BucketRangeError, match="version"):
        decode_bucket(packed)
    with pytest.raises(BucketRangeError, match="version"):
        decode_statement(packed)
    column = np.array([7, encode(3, 0), packed], dtype=np.int64).astype(np.int32)
    with pytest.raises(BucketRangeError, match=str(int(column[2]))):
        decode_buckets(column)


@pytest.mark.parametrize(("bucket", "statement", "limit"), [(5000, 12, 100), (65535, 150, 150), (4097, 0, 1)])
def test_buckets_above_4095_decode_modulo_4096(bucket, statement, limit):
    """Hive 4 puts the high part of large bucket numbers above the statement; whoever decodes sees the rest only."""
    free_from = limit.bit_length()
    packed = encode(bucket % 4096, (bucket // 4096) << free_from | statement)
    assert decode_bucket(packed) == bucket % 4096
    assert decode_statement(packed) % (1 << free_from) == statement


def test_hives_own_overflow_values():
    """Statement field 10001100b with writer 1110001000b for bucket 5000; 111110010110b with 4095 for bucket 65535."""
    assert (
        decode_bucket(1 << 29 | 0b1110001000 << 16 | 0b10001100),
        decode_statement(1 << 29 | 0b1110001000 << 16 | 0b10001100),
    ) == (5000 % 4096, 0b10001100)
    assert decode_bucket(1 << 29 | 4095 << 16 | 0b111110010110) == 65535 % 4096


def test_columns_decode_like_values():
    """A column of mixed versions decodes value by value."""
    column = np.array([0, 7, encode(0, 0), encode(7, 16), encode(4095, 4095)], dtype=np.int32)
    decoded = decode_buckets(column)
    assert decoded.dtype == np.int32
    assert decoded.tolist() == [0, 7, 0, 7, 4095]
    assert decode_buckets(np.array([], dtype=np.int32)).size == 0


def test_keys_sort_as_files_do():
    """Write id, then the packed bucket as a signed number, then row id."""
    keys = [
        RowKey(2, 0, 0),
        RowKey(1, encode(0, 1), 0),
        RowKey(1, 7, 9),
        RowKey(1, encode(0, 0), 5),
        RowKey(1, encode(0, 0), 4),
    ]
    assert sorted(keys) == [keys[2], keys[4], keys[3], keys[1], keys[0]]


def test_the_error_travels():
    """It can be pickled."""
    error = pickle.loads(pickle.dumps(BucketRangeError("bucket 9 is wrong")))
    assert (str(error), error.reason) == ("bucket 9 is wrong", Reason.WRONG_BUCKET)
