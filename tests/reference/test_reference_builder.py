"""The reference reader and the builder's own books agree: neither was made from the other."""

import pytest

from compactor.acid.compaction import LayoutVersion
from tests.demo import files
from tests.demo.ledger import MemoryLedger
from tests.demo.warehouse import Warehouse
from tests.reference.compare import assert_as_expected, read_table, schema_of
from tests.reference.reader import NotEnoughHistoryError, read

COLUMNS = [("id", "int"), ("state", "string")]


@pytest.fixture(params=list(LayoutVersion))
def warehouse(request, tmp_path):
    return Warehouse(tmp_path / "warehouse", MemoryLedger(request.param))


def numbered(low, high):
    return [(number, f"row {number}") for number in range(low, high)]


def test_insert_update_delete(warehouse):
    """An update is a delete and an insert; the newest version of each row is read."""
    table = warehouse.create_table("d", "t", COLUMNS)
    with warehouse.begin() as txn:
        txn.insert(table, numbered(0, 30), writers=3)
    with warehouse.begin() as txn:
        txn.update(table, lambda row: row[0] % 3 == 0, lambda row: (row[0], "changed"))
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] % 5 == 0)
    assert_as_expected(warehouse, table)
    assert len(read_table(warehouse, table)[None]) == 24


def test_aborted_and_open_writers_are_not_read(warehouse):
    """Inserts and deletes of a transaction that isn't committed change nothing."""
    table = warehouse.create_table("d", "t", COLUMNS)
    with warehouse.begin() as txn:
        txn.insert(table, numbered(0, 4))
    aborted, opened = warehouse.begin(), warehouse.begin()
    aborted.insert(table, numbered(4, 6))
    aborted.delete(table, lambda row: row[0] == 0)
    aborted.abort()
    opened.insert(table, numbered(6, 8))
    opened.delete(table, lambda row: row[0] == 1)
    assert [row for _, row in read_table(warehouse, table)[None]] == [(number, f"row {number}") for number in range(4)]
    assert_as_expected(warehouse, table)


def test_streaming_batch_is_filtered_row_by_row(warehouse):
    """Of a delta shared by a committed, an aborted and an open transaction the committed rows are read."""
    table = warehouse.create_table("d", "t", COLUMNS, partition_keys=[("k", "string")])
    batch = warehouse.stream(table, [numbered(0, 2), numbered(2, 4), numbered(4, 6)], ["x"], side_file=True)
    batch.finish(0, commit=True)
    batch.finish(1, commit=False)
    assert_as_expected(warehouse, table)
    assert len(read_table(warehouse, table)["k=x"]) == 2


def test_overwrite_and_truncate_hide_what_was_before(warehouse):
    """A base of INSERT OVERWRITE counts when its writer has committed; a truncated base is empty."""
    table = warehouse.create_table("d", "t", COLUMNS)
    with warehouse.begin() as txn:
        txn.insert(table, numbered(0, 3))
    with warehouse.begin() as txn:
        txn.overwrite(table, numbered(10, 12))
    lost = warehouse.begin()
    lost.overwrite(table, numbered(20, 22))
    lost.abort()
    with warehouse.begin() as txn:
        txn.insert(table, numbered(3, 5))
    assert_as_expected(warehouse, table)
    assert len(read_table(warehouse, table)[None]) == 4
    with warehouse.begin() as txn:
        txn.truncate(table)
    assert read_table(warehouse, table)[None] == []
    assert_as_expected(warehouse, table)


def test_buckets_partitions_and_merge(warehouse):
    """
    Several statements of one transaction, over partitions and buckets, among them rows that the same transaction wrote.
    """
    table = warehouse.create_table(
        "d", "t", COLUMNS, partition_keys=[("k", "string")], buckets=3, bucket_columns=["id"]
    )
    with warehouse.begin() as txn:
        txn.insert(table, [(number, "x", f"a=/{number % 2}") for number in range(20)])
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] == 4)
        txn.insert(table, [(100, "y", None)])
        txn.update(table, lambda row: row[0] in {5, 100}, lambda row: (row[0], "merged"))
    assert_as_expected(warehouse, table)
    assert sorted(table.directories) == ["k=__HIVE_DEFAULT_PARTITION__", "k=a%3D%2F0", "k=a%3D%2F1"]


def test_originals_loads_and_added_columns(warehouse):
    """Rows from before conversion and of LOAD DATA have ids by position; columns added later are NULL in them."""
    table = warehouse.create_table("d", "t", COLUMNS, transactional=False)
    for copy in range(12):
        warehouse.write_original(table, numbered(10 * copy, 10 * copy + 3))
    warehouse.write_original(table, numbered(500, 503), bucket=2)
    warehouse.convert(table)
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] in {21, 101, 501})
    with warehouse.begin() as txn:
        txn.load(table, numbered(900, 903))
    warehouse.add_columns(table, [("n", "bigint")])
    with warehouse.begin() as txn:
        txn.insert(table, [(1000, "wide", 7)])
        txn.delete(table, lambda row: row[0] == 901)
    assert_as_expected(warehouse, table)
    assert len(read_table(warehouse, table)[None]) == 39 - 3 + 3 - 1 + 1


@pytest.mark.parametrize("file_format", ["orc", "text"])
def test_insert_only(warehouse, file_format):
    """Insert-only tables have no ROW__IDs; aborted directories don't count."""
    table = warehouse.create_table("d", "t", COLUMNS, insert_only=True, file_format=file_format)
    for number in range(4):
        txn = warehouse.begin()
        txn.insert(table, numbered(number, number + 2))
        txn.abort() if number == 2 else txn.commit()
    assert_as_expected(warehouse, table)


def test_a_snapshot_below_the_oldest_base_has_not_enough_history(tmp_path):
    """With only a compacted base above the snapshot, reading fails instead of losing rows."""
    warehouse = Warehouse(tmp_path / "warehouse", MemoryLedger())
    table = warehouse.create_table("d", "t", COLUMNS)
    files.write_acid(
        table.location / "base_0000005_v0000009" / "bucket_00000", table.columns, [(0, 1, 536870912, 0, 1, (1, "a"))]
    )
    with pytest.raises(NotEnoughHistoryError):
        read(table.location, schema_of(table), "d.t:3:9223372036854775807::", "9:9223372036854775807::")


def test_compacted_directories_need_their_transaction(tmp_path):
    """A base with a visibility transaction is read when that transaction is committed, and passed over before."""
    warehouse = Warehouse(tmp_path / "warehouse", MemoryLedger())
    table = warehouse.create_table("d", "t", COLUMNS)
    with warehouse.begin() as txn:
        txn.insert(table, numbered(0, 2))
    files.write_acid(
        table.location / "base_0000001_v0000002" / "bucket_00000",
        table.columns,
        [(0, 1, 536870912, 0, 1, (0, "row 0"))],
    )
    old, new = (
        read(table.location, schema_of(table), "d.t:1:9223372036854775807::", txns)
        for txns in ("2:2:2:", "2:9223372036854775807::")
    )
    assert (len(old), len(new)) == (2, 1)
