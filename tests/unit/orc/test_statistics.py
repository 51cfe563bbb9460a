"""Merged statistics: what the parts together say, never more."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.acid.row_id import RowKey
from compactor.acid.types import HiveType, Kind, row_type
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.statistics import merge_column, merge_statistics, value_bytes
from tests import strategies
from tests.unit.orc.files import acid_file, insert, opened, plain_file

BUCKET = 536870912
KINDS = [
    HiveType(Kind.BOOLEAN),
    HiveType(Kind.BYTE),
    HiveType(Kind.LONG),
    HiveType(Kind.DOUBLE),
    HiveType(Kind.STRING),
    HiveType(Kind.CHAR, length=5),
    HiveType(Kind.BINARY),
    HiveType(Kind.DATE),
    HiveType(Kind.TIMESTAMP),
    HiveType(Kind.DECIMAL, precision=12, scale=3),
]


def written(kind, values):
    """Statistics as the C++ writer notes them for one column."""
    _, tail = opened(plain_file(HiveType(Kind.STRUCT, (kind,), ("c",)), [(value,) for value in values]))
    return tail.stripe_stats(0)[1] if values else tail.footer.statistics[1]


@given(st.data(), st.sampled_from(KINDS))
def test_merging_parts_says_what_writing_all_at_once_says(data, kind):
    """
    For every type: statistics of some parts merged are those of one file with all rows (sizes, rounding of sums, and
    who drops one that overflows apart).
    """
    parts = data.draw(st.lists(st.lists(strategies.values(kind), min_size=1, max_size=6), min_size=1, max_size=4))
    merged = merge_column([written(kind, part) for part in parts], kind.kind)
    whole = written(kind, [value for part in parts for value in part])
    for column in (merged, whole):
        column.ClearField("bytes_on_disk")
    if kind.kind is Kind.DECIMAL and merged.decimals.sum:
        assert Decimal(merged.decimals.sum) == Decimal(whole.decimals.sum)
        merged.decimals.sum = whole.decimals.sum
    if kind.kind is Kind.DOUBLE and merged.HasField("doubles"):
        assert math.isclose(merged.doubles.sum, whole.doubles.sum, abs_tol=1e300)
        merged.doubles.sum = whole.doubles.sum
    if merged.integers.HasField("sum"):
        assert merged.integers.sum == sum(value for part in parts for value in part if value is not None)
    if merged.integers.HasField("sum") != whole.integers.HasField(
        "sum"
    ):  # a writer gives the sum up when it overflows on the way, even if it would come back
        for column in (merged, whole):
            column.integers.ClearField("sum")
    if merged.number_of_values:
        assert merged == whole
    else:
        assert (merged.number_of_values, merged.has_null) == (whole.number_of_values, whole.has_null)


def integers(low, high, total=None, count=1):
    column = pb.ColumnStatistics(number_of_values=count, has_null=False)
    column.integers.minimum, column.integers.maximum = low, high
    if total is not None:
        column.integers.sum = total
    return column


def test_a_sum_beyond_64_bits_is_left_out():
    """Java takes an absent sum for an overflow; a wrapped one would be wrong."""
    merged = merge_column([integers(1, 2**62, 2**62), integers(1, 2**62, 2**62)], Kind.LONG)
    assert not merged.integers.HasField("sum")
    assert (merged.integers.minimum, merged.integers.maximum) == (1, 2**62)


def test_a_part_without_minimum_leaves_the_whole_message_out():
    """Java reads an absent minimum inside a present message as 0: better none."""
    bare = pb.ColumnStatistics(number_of_values=3, has_null=False)
    merged = merge_column([integers(5, 9, 14, 2), bare], Kind.INT)
    assert merged.number_of_values == 5
    assert not merged.HasField("integers")


@pytest.mark.parametrize("absent", ["minimum", "maximum"])
def test_a_part_that_tells_only_one_end_leaves_no_range(absent):
    """Its message is there, and one end isn't: no end of the whole is known, and 0 is not one."""
    part = integers(5, 9, 14, 2)
    part.integers.ClearField(absent)
    for parts in ([integers(5, 9, 14, 2), part], [part, integers(5, 9, 14, 2)]):
        assert not merge_column(parts, Kind.INT).HasField("integers")


def test_a_part_of_nothing_but_null_adds_only_its_null():
    """Minimum and maximum of the other parts stay."""
    empty = pb.ColumnStatistics(number_of_values=0, has_null=True)
    merged = merge_column([integers(5, 9, 14, 2), empty], Kind.INT)
    assert (merged.number_of_values, merged.has_null, merged.integers.minimum) == (2, True, 5)


def test_an_unsaid_null_flag_stays_unsaid():
    """Readers take an absent flag for "maybe"; False would be a claim."""
    silent = pb.ColumnStatistics(number_of_values=1)
    assert not merge_column([integers(1, 1), silent], Kind.INT).HasField("has_null")


def test_nan_leaves_no_range():
    """One NaN makes every comparison meaningless."""
    poisoned = pb.ColumnStatistics(number_of_values=2)
    poisoned.doubles.minimum, poisoned.doubles.maximum, poisoned.doubles.sum = 1.0, 2.0, math.nan
    fine = pb.ColumnStatistics(number_of_values=1)
    fine.doubles.minimum = fine.doubles.maximum = fine.doubles.sum = 5.0
    assert not merge_column([fine, poisoned], Kind.DOUBLE).HasField("doubles")


def test_infinite_sums_of_both_signs_have_no_sum():
    """They would make a NaN, which nothing may be compared with."""
    parts = []
    for total in (math.inf, -math.inf):
        one = pb.ColumnStatistics(number_of_values=2)
        one.doubles.minimum, one.doubles.maximum, one.doubles.sum = -1.7e308, 1.7e308, total
        parts.append(one)
    assert not merge_column(parts, Kind.DOUBLE).HasField("doubles")
    assert merge_column(parts[:1] * 2, Kind.DOUBLE).doubles.sum == math.inf


def text(low=None, high=None, lower=None, upper=None):
    column = pb.ColumnStatistics(number_of_values=1)
    for name, value in (("minimum", low), ("maximum", high), ("lower_bound", lower), ("upper_bound", upper)):
        if value is not None:
            setattr(column.strings, name, value)
    return column


def test_shortened_strings_stay_bounds():
    """The smallest bound wins; it is called exact only when a value equals it (ORC-203)."""
    merged = merge_column([text(b"b", b"d"), text(lower=b"a", upper=b"c")], Kind.STRING).strings
    assert (merged.lower_bound, merged.HasField("minimum"), merged.maximum, merged.HasField("upper_bound")) == (
        b"a",
        False,
        b"d",
        False,
    )
    merged = merge_column([text(b"b", b"d"), text(lower=b"c", upper=b"e")], Kind.STRING).strings
    assert (merged.minimum, merged.HasField("lower_bound"), merged.upper_bound, merged.HasField("maximum")) == (
        b"b",
        False,
        b"e",
        False,
    )


def test_a_string_part_without_bounds_leaves_none():
    """Two parts, one without any minimum: there is no minimum."""
    assert not merge_column([text(b"b", b"d"), text(high=b"z")], Kind.STRING).HasField("strings")


def moment(low, high, low_nanos=0, high_nanos=0):
    column = pb.ColumnStatistics(number_of_values=1)
    column.timestamps.minimum_utc, column.timestamps.maximum_utc = low, high
    if low_nanos:
        column.timestamps.minimum_nanos = low_nanos
    if high_nanos:
        column.timestamps.maximum_nanos = high_nanos
    return column


def test_digits_below_a_millisecond_belong_to_their_millisecond():
    """Absent digits mean 0 for a minimum and 999999 for a maximum; equal milliseconds compare by them."""
    merged = merge_column([moment(10, 20, 6, 8), moment(10, 20)], Kind.TIMESTAMP).timestamps
    assert (
        merged.minimum_utc,
        merged.HasField("minimum_nanos"),
        merged.maximum_utc,
        merged.HasField("maximum_nanos"),
    ) == (10, False, 20, False)
    merged = merge_column([moment(10, 20, 6, 8), moment(11, 19, 1, 9)], Kind.TIMESTAMP).timestamps
    assert (merged.minimum_utc, merged.minimum_nanos, merged.maximum_utc, merged.maximum_nanos) == (10, 6, 20, 8)


def test_java_and_cpp_timestamps_share_the_utc_form():
    """Java notes only the UTC form, C++ both: what both tell is kept."""
    both = moment(10, 20)
    both.timestamps.minimum, both.timestamps.maximum = 10, 20
    merged = merge_column([both, moment(5, 6)], Kind.TIMESTAMP).timestamps
    assert (merged.minimum_utc, merged.HasField("minimum")) == (5, False)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Kind.INT, "integers"),
        (Kind.DOUBLE, "doubles"),
        (Kind.STRING, "strings"),
        (Kind.BOOLEAN, "buckets"),
        (Kind.DECIMAL, "decimals"),
        (Kind.DATE, "dates"),
        (Kind.TIMESTAMP, "timestamps"),
        (Kind.BINARY, "binaries"),
        (Kind.LIST, "collections"),
    ],
)
def test_a_file_without_rows_still_has_messages_of_each_kind(kind, message):
    """Hive casts the statistics of columns 2 to 4 to integer statistics, rows or not."""
    (column,) = merge_statistics([], [kind])
    assert column.HasField(message)
    assert column.number_of_values == 0


def test_the_memory_that_values_take():
    """Of the table's columns alone: a text's own bytes and four, a number's width, nothing for NULL."""
    row = row_type([("n", "bigint"), ("s", "string"), ("l", "array<smallint>")])
    values = [(n, "abc" if n % 2 else None, [n, n]) for n in range(100)]
    data = acid_file([insert(RowKey(1, BUCKET, n), value) for n, value in enumerate(values)], row)
    _, tail = opened(data)
    assert value_bytes(tail, 0) == 100 * 8 + 50 * (3 + 4) + 100 * 4 + 200 * 2
    assert value_bytes(opened(acid_file([insert(RowKey(1, BUCKET, 0), values[0])], row, row_index_stride=0))[1], 0) == 0
