"""
Whole compactions of tables on an S3 server through the real Spark session: no row changes, and what nothing touches is
copied by the store.
"""

import random

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.storage.io_counters import TASKS
from tests.cluster.s3_tables import OnS3
from tests.compacting import settings

pytestmark = pytest.mark.spark
COLUMNS = [("id", "int"), ("v", "string")]


def compacted(table, submitter, kind=CompactionKind.MAJOR, **sections):
    """One compaction from its plan to its commit; readers of now and of before see the same rows afterwards."""
    old = table.warehouse.snapshot(table.table)
    attempt = table.attempt(kind, submitter=submitter, settings=settings(**sections))
    published = attempt.run()
    assert table.uploads() == []
    assert not [name for name in table.names() if name.startswith(".")]
    assert table.read() == table.rows
    assert table.read(old) == table.rows
    return published


@pytest.mark.parametrize("kind", [CompactionKind.MAJOR, CompactionKind.MINOR])
def test_full_acid(warehouse, s3, s3_directory, submitter, kind):
    """Inserts, updates and deletes of a bucketed table."""
    made = warehouse.create_table("db", "t", COLUMNS, buckets=2, bucket_columns=["id"])
    for first in range(0, 40, 10):
        with warehouse.begin() as txn:
            txn.insert(made, [(first + number, f"v{number}") for number in range(10)])
    with warehouse.begin() as txn:
        txn.update(made, lambda row: row[0] == 1, lambda row: (row[0], "changed"))
    with warehouse.begin() as txn:
        txn.delete(made, lambda row: row[0] % 7 == 3)
    published = compacted(OnS3(s3, s3_directory, warehouse, made), submitter, kind)
    assert len(published.directories) == (1 if kind is CompactionKind.MAJOR else 2)


def test_insert_only(warehouse, s3, s3_directory, submitter):
    """Five small files become one, read from the store and written to it."""
    made = warehouse.create_table("db", "io", COLUMNS, insert_only=True)
    for number in range(5):
        with warehouse.begin() as txn:
            txn.insert(made, [(number, "x")])
    (file,) = compacted(OnS3(s3, s3_directory, warehouse, made), submitter).staged.files
    assert file.rows.written == 5


def test_stripes_are_copied_by_the_store(warehouse, s3, s3_directory, submitter):
    """
    Files large enough for parts; one of them loses a row, so that its stripe passes through us between two that don't;
    both are counted.
    """
    made = warehouse.create_table("db", "large", COLUMNS, parameters={"orc.compress": "NONE"})
    for number in range(3):
        with warehouse.begin() as txn:
            txn.insert(made, [(number * 1000 + row, random.Random(row).randbytes(30_000).hex()) for row in range(100)])
    with warehouse.begin() as txn:
        txn.delete(made, lambda row: row[0] == 1050)
    before = TASKS.moved
    published = compacted(OnS3(s3, s3_directory, warehouse, made), submitter, splice={"min_stripe_bytes": 1 << 20})
    moved = TASKS.moved - before  # executors are other processes: what they moved came with their results
    assert moved.copied > 11_000_000
    assert 5_000_000 < moved.sent < moved.copied
    assert published.staged.copied_bytes > 11_000_000
    assert 5_000_000 < published.staged.recoded_bytes < 7_000_000
