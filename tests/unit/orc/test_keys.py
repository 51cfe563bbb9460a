"""Keys of a file: decoded, noted, bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.acid.row_id import RowKey
from compactor.errors import CorruptFileError
from compactor.orc.events.keys import acid_stats, format_key_index, last_key, read_keys, stripe_bounds
from compactor.orc.format.key_columns import KeyColumns, keys_up_to
from compactor.orc.format.tail import KEY_INDEX
from compactor.orc.reading.single_stripe import read_batches, stripe_image
from tests import strategies
from tests.unit.orc.files import ROW, acid_file, insert, opened, plain_file, rows_of

BUCKET = 536870912


def keys_of(data):
    reader, tail = opened(data)
    return KeyColumns.concat(
        [keys for stripe in range(len(tail.stripes)) for keys in read_keys(reader, tail, stripe, rows=7)]
    )


@given(strategies.sorted_keys(min_size=1))
def test_keys_come_back_as_they_were_written(keys):
    """Five columns, in batches, whatever else is in the rows."""
    found = keys_of(acid_file([insert(key, (n, "x" * n), current=9) for n, key in enumerate(keys)]))
    assert [found.key(place) for place in range(len(found))] == keys
    assert (set(found.operation.tolist()), set(found.current.tolist())) == ({0}, {9})
    assert found.ascending()


@given(strategies.sorted_keys(min_size=1))
def test_bounds_hold_every_key(keys):
    """Each key lies between first and last and in each column's range; exact bounds are keys."""
    _, tail = opened(acid_file([insert(key, (1, "v")) for key in keys]))
    bounds = stripe_bounds(tail, 0)
    assert bounds.first <= keys[0]
    assert keys[-1] <= bounds.last
    for key in keys:
        assert bounds.write_id[0] <= key.write_id <= bounds.write_id[1]
        assert bounds.bucket[0] <= key.bucket <= bounds.bucket[1]
        assert bounds.row_id[0] <= key.row_id <= bounds.row_id[1]
    if bounds.exact:
        assert (bounds.first, bounds.last) == (keys[0], keys[-1])
    assert bounds.rows == len(keys)


@pytest.mark.parametrize("column", [2, 3, 4])
def test_statistics_that_count_fewer_values_than_rows_bound_nothing(column):
    """A key that they leave out could lie anywhere."""
    _, tail = opened(acid_file([insert(RowKey(1, BUCKET, number), (1, "v")) for number in range(3)]))
    assert stripe_bounds(tail, 0) is not None
    tail.metadata.stripe_stats[0].columns[column].number_of_values = 2
    assert stripe_bounds(tail, 0) is None


@given(strategies.sorted_keys(min_size=1))
def test_the_last_key_is_found_without_an_index(keys):
    """By statistics where they prove it, else by decoding."""
    reader, tail = opened(acid_file([insert(key, (1, "v")) for key in keys]))
    assert last_key(reader, tail, 0) == keys[-1]


@given(strategies.sorted_keys(), strategies.row_keys())
def test_keys_up_to_a_bound_are_counted(keys, bound):
    """As many as aren't above it."""
    columns = keys_of(acid_file([insert(key, (1, "v")) for key in keys])) if keys else KeyColumns.concat([])
    assert keys_up_to(columns, bound) == sum(key <= bound for key in keys)


def indexed(value, keys):
    """A one-stripe file whose tail claims a key index."""
    _, tail = opened(acid_file([insert(key, (1, "v")) for key in keys]))
    tail.footer.metadata.add(name=KEY_INDEX, value=value)
    return tail


KEYS = [RowKey(1, BUCKET, 3), RowKey(2, BUCKET, 0)]


def test_a_key_index_is_read_as_hive_writes_it():
    """`writeId,bucket,rowId;` for each stripe, with a semicolon at the end."""
    assert indexed(b"2,536870912,0;", KEYS).key_index == [KEYS[1]]
    assert format_key_index(KEYS) == b"1,536870912,3;2,536870912,0;"


@pytest.mark.parametrize("value", [b"", b"1,536870912,3;2,536870912,0;", b"2,536870912;", b"x,y,z;", b"2,536870912,0"])
def test_a_key_index_that_cant_be_is_no_index(value):
    """Too few or too many entries (HIVE-18817), or no numbers: as if it weren't there."""
    assert indexed(value, KEYS).key_index is None


def test_an_index_tightens_bounds_only_inside_the_statistics():
    """An entry outside the statistics' box is not believed."""
    assert stripe_bounds(indexed(b"2,536870912,0;", KEYS), 0).last == RowKey(2, BUCKET, 0)
    assert stripe_bounds(indexed(b"7,536870912,0;", KEYS), 0).last == RowKey(2, BUCKET, 3)


@pytest.mark.parametrize(("value", "counts"), [(b"3,0,1", (3, 0, 1)), (b"3,0", None), (b"a,b,c", None)])
def test_acid_stats_are_three_numbers(value, counts):
    """Anything else is as if it weren't there."""
    _, tail = opened(acid_file([insert(KEYS[0], (1, "v"))]))
    assert acid_stats(tail) is None
    tail = opened(acid_file([insert(KEYS[0], (1, "v"))]))[1]
    tail.footer.metadata.add(name="hive.acid.stats", value=value)
    assert acid_stats(tail) == counts


def test_a_null_in_a_key_is_corruption():
    """Every row of an ACID file has a key."""
    with pytest.raises(CorruptFileError, match="NULL in an ACID column"):
        keys_of(acid_file([(0, 1, BUCKET, None, 1, (1, "v"))]))


def test_a_plain_file_has_no_keys():
    """Files without the six columns are named with the columns they have."""
    with pytest.raises(CorruptFileError, match="struct<id:int,v:string>"):
        keys_of(plain_file(ROW, [(1, "v")]))


@given(st.data(), strategies.row_structs())
def test_an_image_holds_what_the_stripe_holds(data, row):
    """One stripe as a file of its own: all columns."""
    events = [(0, 1, BUCKET, n, 1, data.draw(strategies.filled(row))) for n in range(3)]
    made = acid_file(events, row)
    reader, tail = opened(made)
    assert rows_of(bytes(stripe_image(reader, tail, 0))) == rows_of(made)


def test_a_stripe_too_large_for_memory_is_read_where_it_is(monkeypatch):
    """Above the limit the image is a file object over the source; same rows."""
    events = [insert(RowKey(1, BUCKET, n), (n, f"value {n}")) for n in range(5000)]
    reader, tail = opened(acid_file(events))
    small = list(read_batches(reader, tail, 0, rows=1000))
    monkeypatch.setattr("compactor.orc.reading.single_stripe._IN_MEMORY", 10)
    large = list(read_batches(reader, tail, 0, rows=1000))
    assert [batch.to_pylist() for batch in large] == [batch.to_pylist() for batch in small]
    assert sum(batch.num_rows for batch in large) == 5000


def test_damaged_data_is_named_with_its_stripe():
    """Streams that can't be decoded end in one line, from Arrow's error."""
    data = bytearray(acid_file([insert(RowKey(1, BUCKET, n), (n, f"v{n}")) for n in range(3000)]))
    _, tail = opened(bytes(data))
    stripe = tail.stripes[0]
    start = stripe.offset + stripe.index_length
    data[start : start + stripe.data_length] = b"\x05" * stripe.data_length
    reader, tail = opened(bytes(data), "bucket_00000")
    with pytest.raises(CorruptFileError, match="bucket_00000: stripe 1 at byte 3 can't be decoded") as refused:
        list(read_keys(reader, tail, 0))
    assert "\n" not in str(refused.value)


def test_a_source_that_ends_inside_a_stripe_is_named():
    """A file cut while it is read doesn't pass for a shorter stripe."""
    data = acid_file([insert(RowKey(1, BUCKET, n), (n, f"v{n}")) for n in range(3000)])
    _, tail = opened(data)
    reader, _ = opened(data)

    class Cut:
        name = "cut"
        size = reader.size

        def read_at(self, offset, length):
            whole = reader.read_at(offset, length)
            return whole if offset >= tail.stripes[0].offset + tail.stripes[0].data_length else whole[: length // 2]

    with pytest.raises(CorruptFileError, match="cut ended too early"):
        list(read_keys(Cut(), tail, 0))
