"""Hive 3.1 reads no file of two time zones right: a plan that would make one is refused before anything runs."""

import zoneinfo

import pytest

from compactor.acid.compaction import LayoutVersion
from compactor.acid.row_id import RowKey
from compactor.acid.types import row_type
from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.storage.local_fs.driver import LocalStorage
from tests.compacting import compact_directory, directory_compaction
from tests.unit.orc.files import acid_file, insert, plain_file

HIVE_3, HIVE_4 = LayoutVersion.HIVE_3, LayoutVersion.HIVE_4
COLUMNS = [("id", "int"), ("t", "timestamp")]
BUCKET = 536870912
KOLKATA = "Asia/Kolkata"
REFUSED = r"bucket 0 has timestamps in time zone Asia/Kolkata \((delta_0000001_.*|000000_0)\) and in GMT \(delta_0000002_.*\) would stand in one file"


def written(location, name, data):
    (location / name).parent.mkdir(parents=True, exist_ok=True)
    (location / name).write_bytes(data)


def delta(location, write_id, zone, columns=COLUMNS, bucket=0):
    """Two rows by a writer in this zone."""
    rows = [
        insert(RowKey(write_id, BUCKET + (bucket << 16), n), (n, (1_577_836_800 + n, 0))[: len(columns)])
        for n in range(2)
    ]
    data = acid_file(rows, row_type(columns), timezone=zoneinfo.ZoneInfo(zone))
    written(location, f"delta_{write_id:07}_{write_id:07}_0000/bucket_{bucket:05}", data)


def deletes(location, write_id, of, count):
    """Delete events for the first rows of another write id."""
    rows = [(2, of, BUCKET, n, write_id, None) for n in range(count)]
    written(location, f"delete_delta_{write_id:07}_{write_id:07}_0000/bucket_00000", acid_file(rows, row_type(COLUMNS)))


def planned(location, layout=HIVE_3, **how):
    compaction = directory_compaction(location, COLUMNS, layout=layout, **how)
    return compaction.plan(compaction.observe())


def test_two_zones_in_a_bucket_are_refused_by_the_plan(tmp_path):
    """Copied stripes: both zones are named, each with a file."""
    delta(tmp_path, 1, KOLKATA)
    delta(tmp_path, 2, "UTC")
    with pytest.raises(RefusedError, match=REFUSED) as refused:
        planned(tmp_path)
    assert refused.value.reason is Reason.UNSUPPORTED_FORMAT
    assert planned(tmp_path, HIVE_4).outputs, "Hive 4 takes each stripe's own zone"


def test_original_files_of_another_zone_are_refused_by_the_plan(tmp_path):
    """Rows without ROW__ID are recoded, and keep their zone."""
    written(tmp_path, "000000_0", plain_file(row_type(COLUMNS), [(7, (0, 0))], timezone=zoneinfo.ZoneInfo(KOLKATA)))
    delta(tmp_path, 2, "UTC")
    with pytest.raises(RefusedError, match=REFUSED):
        planned(tmp_path)


def test_rows_without_timestamps_from_before_a_column_was_added_count_as_utc(tmp_path):
    """As they do for the splicer."""
    delta(tmp_path, 1, KOLKATA, COLUMNS[:1])
    delta(tmp_path, 2, "UTC")
    assert planned(tmp_path).outputs


def test_zones_of_different_buckets_are_compacted(tmp_path):
    """Each bucket has a file of its own."""
    delta(tmp_path, 1, KOLKATA)
    delta(tmp_path, 2, "UTC", bucket=1)
    compact_directory(tmp_path, COLUMNS, layout=HIVE_3)
    assert (tmp_path / "base_0000002" / "bucket_00001").exists()


def test_a_zone_whose_rows_are_all_deleted_is_no_reason_to_refuse(tmp_path):
    """Only what surely stays is judged before the rows are seen."""
    delta(tmp_path, 1, KOLKATA)
    delta(tmp_path, 2, "UTC")
    deletes(tmp_path, 3, 1, 2)
    compact_directory(tmp_path, COLUMNS, layout=HIVE_3)
    assert (tmp_path / "base_0000003").exists()


def test_a_zone_of_which_a_row_stays_is_reason_enough(tmp_path):
    """One of two rows is deleted."""
    delta(tmp_path, 1, KOLKATA)
    delta(tmp_path, 2, "UTC")
    deletes(tmp_path, 3, 1, 1)
    with pytest.raises(RefusedError, match=REFUSED):
        planned(tmp_path)


def test_hive_4_pays_nothing_for_it(tmp_path, monkeypatch):
    """The zone stands in a stripe's footer, which is read for Hive 3.1 only, once per file."""
    reads = []
    true = LocalStorage.open_read

    def opened(self, path):
        reader = true(self, path)
        asked = reader.read_at
        reader.read_at = lambda offset, length: (reads.append(path), asked(offset, length))[1]
        return reader

    monkeypatch.setattr(LocalStorage, "open_read", opened)
    for write_id in (1, 2):
        delta(tmp_path, write_id, KOLKATA)
    counts = []
    for layout in (HIVE_4, HIVE_3):
        reads.clear()
        planned(tmp_path, layout)
        counts.append(len(reads))
    assert counts[1] == counts[0] + 2
