"""Hive's own readers over what we wrote: the judge that shares nothing with us."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from compactor.acid.compaction import CompactionKind
from tests.compacting import KIB, compact, settings
from tests.reference.compare import expected_rows, schema_of

pytestmark = pytest.mark.hive
COLUMNS = [
    ("id", "int"),
    ("v", "string"),
    ("d", "decimal(12,2)"),
    ("t", "timestamp"),
    ("c", "char(6)"),
    ("a", "array<int>"),
]
MODES = ["vector", "row"]


def rows(first, count):
    return [
        (
            first + i,
            f"{(first + i) * 2654435761 % (1 << 32):x}" * 3,
            Decimal(f"{first + i}.25"),
            datetime(2021, 3, 4, 5, 6, 7, first + i, tzinfo=UTC),
            f"c{i % 7}",
            [i, None, i + 1],
        )
        for i in range(count)
    ]


def lived_in(warehouse):
    """Several deltas with large stripes, an update, deletes, a stream with an aborted part."""
    table = warehouse.create_table("db", "t", COLUMNS, buckets=2, bucket_columns=("id",))
    for first in (0, 3000, 6000):
        with warehouse.begin() as txn:
            txn.insert(table, rows(first, 3000))
    with warehouse.begin() as txn:
        txn.update(table, lambda row: row[0] == 3100, lambda row: (row[0], "new", *row[2:]))
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] % 999 == 0)
    return table


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [CompactionKind.MAJOR, CompactionKind.MINOR])
def test_hive_4_reads_the_same_rows(warehouse, hive_4, kind, mode):
    """Copied and recoded stripes in one file, and both sides of a minor."""
    table = lived_in(warehouse)
    compact(warehouse, table, kind, settings=settings(splice={"min_stripe_bytes": 4 * KIB}))
    snapshot = warehouse.snapshot(table)
    found = hive_4.rows(
        table.location, schema_of(table), snapshot.write_ids, snapshot.txns, mode=mode, buckets=table.buckets
    )
    assert found == expected_rows(warehouse, table)[None]


@pytest.mark.parametrize("mode", MODES)
def test_hive_3_reads_the_same_rows(warehouse_3, hive_3, mode):
    """The older reader needs key index, counts and statistics to be exact."""
    table = lived_in(warehouse_3)
    compact(warehouse_3, table, settings=settings(splice={"min_stripe_bytes": 4 * KIB}))
    snapshot = warehouse_3.snapshot(table)
    found = hive_3.rows(table.location, schema_of(table), snapshot.write_ids, mode=mode, buckets=table.buckets)
    assert found == expected_rows(warehouse_3, table)[None]


def test_deletes_after_a_compaction_still_hit(warehouse, hive_4):
    """Row ids in the base are those that delete events name; pruning by our statistics and key index loses none."""
    table = lived_in(warehouse)
    compact(warehouse, table, settings=settings(splice={"min_stripe_bytes": 4 * KIB}))
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] in {1, 2999, 3000, 5999, 8998})
    snapshot = warehouse.snapshot(table)
    found = hive_4.rows(table.location, schema_of(table), snapshot.write_ids, snapshot.txns, buckets=table.buckets)
    assert found == expected_rows(warehouse, table)[None]
