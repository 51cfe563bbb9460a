"""Files that Hive 4.0.1 wrote: read, copied and recoded without a difference that a reader could see."""

from pathlib import Path

import pytest

from compactor.acid.row_id import RowKey
from compactor.orc.events.deletes import DeleteEvents
from compactor.orc.events.keys import acid_stats, last_key, read_keys, stripe_bounds
from compactor.orc.format.key_columns import KeyColumns
from compactor.orc.format.statistics import merge_statistics
from compactor.orc.format.tail import read_tail
from compactor.orc.rows import StripeSource
from compactor.orc.writing.output import OutputFormat, compatible
from compactor.orc.writing.splice import Splicer
from compactor.storage.local_fs.files import LocalReader
from tests.fixtures import hive
from tests.recoding import recode
from tests.unit.orc.files import MemorySink, opened, rows_of


@pytest.fixture(scope="module", params=hive.SNAPSHOTS)
def bucket_files(request, tmp_path_factory):
    """Every full-ACID bucket file of a snapshot."""
    warehouse = hive.restore(tmp_path_factory.mktemp("hive4"), request.param)
    found = sorted(path for path in warehouse.rglob("bucket_*") if path.is_file())
    assert len(found) > 30
    return found


def is_delete(path: Path) -> bool:
    return path.parent.name.startswith("delete_delta")


def test_statistics_of_the_file_are_those_of_its_stripes(bucket_files):
    """
    Merging what Hive noted for the stripes gives what Hive noted for the file (but for sums of no strings, which Java
    leaves unsaid).
    """
    for path in bucket_files:
        tail = read_tail(LocalReader(str(path)))
        merged = merge_statistics(
            [tail.stripe_stats(index) for index in range(len(tail.stripes))], [node.kind for node in tail.tree.walk()]
        )
        for ours, theirs in zip(merged, tail.footer.statistics, strict=True):
            if not theirs.number_of_values:
                for column in (ours, theirs):
                    column.ClearField("strings")
                    column.ClearField("collections")
            assert ours == theirs, path


def test_keys_are_where_hive_says(bucket_files):
    """Decoded keys agree with Hive's key index, with its counts, and with the bounds from its statistics."""
    for path in bucket_files:
        reader = LocalReader(str(path))
        tail = read_tail(reader)
        for index, noted in enumerate(tail.key_index):
            keys = KeyColumns.concat(list(read_keys(reader, tail, index)))
            bounds = stripe_bounds(tail, index)
            assert noted == keys.key(-1) == last_key(reader, tail, index)
            assert bounds.first <= keys.key(0)
            assert keys.ascending()
        counts = acid_stats(tail)
        assert counts == ((0, 0, tail.rows) if is_delete(path) else (tail.rows, 0, 0))


def test_copied_files_keep_hives_label(bucket_files):
    """A spliced file has the rows, the metadata and the label of the one it was copied from."""
    for path in bucket_files:
        reader = LocalReader(str(path))
        tail = read_tail(reader)
        output = OutputFormat(tail.tree)
        assert compatible(tail, output, 0) is None
        sink = MemorySink()
        splicer = Splicer(sink, output)
        splicer.add_stripe(reader, tail, 0)
        splicer.finish("delete" if is_delete(path) else "insert")
        made = opened(sink.getvalue())[1]
        assert rows_of(sink) == rows_of(path.read_bytes())
        assert made.user_metadata == tail.user_metadata
        assert (made.writer, made.writer_version, made.footer.calendar, made.footer.software_version) == (
            0,
            9,
            1,
            tail.footer.software_version,
        )


def test_recoded_files_hold_the_same_rows(bucket_files):
    """
    Every type of the fixtures: extreme values, times before 1970, padded chars, unions, nested nulls; statistics and
    types as Hive had them.
    """
    for path in bucket_files:
        if is_delete(path):
            continue
        reader = LocalReader(str(path))
        tail = read_tail(reader)
        sink = MemorySink()
        recode([StripeSource(reader, tail)], OutputFormat(tail.tree), sink)
        made = opened(sink.getvalue())[1]
        assert rows_of(sink) == rows_of(path.read_bytes()), path
        assert made.tree == tail.tree
        assert made.footer.calendar == 1
        for ours, theirs in zip(made.footer.statistics, tail.footer.statistics, strict=True):
            assert ours.number_of_values == theirs.number_of_values
            for name in ("integers", "doubles", "decimals", "dates", "timestamps", "buckets"):
                if theirs.HasField(name) and theirs.number_of_values and name != "timestamps":
                    assert getattr(ours, name) == getattr(theirs, name), path
            if theirs.timestamps.HasField("minimum_utc"):
                seen = [
                    (column.timestamps.minimum_utc, column.timestamps.maximum_utc, column.timestamps.minimum_nanos)
                    for column in (ours, theirs)
                ]
                assert seen[0] == seen[1]


def test_delete_files_are_loaded_and_name_their_rows(bucket_files):
    """All events of a snapshot, with the write id that deleted."""
    for path in (path for path in bucket_files if is_delete(path)):
        reader = LocalReader(str(path))
        events = DeleteEvents.load([(reader, read_tail(reader))])
        expected = [(RowKey(*row[1:4]), row[4]) for row in rows_of(path.read_bytes())]
        found = zip(
            events.write_id.tolist(),
            events.bucket.tolist(),
            events.row_id.tolist(),
            events.current.tolist(),
            strict=True,
        )
        assert [(RowKey(*row[:3]), row[3]) for row in found] == expected
