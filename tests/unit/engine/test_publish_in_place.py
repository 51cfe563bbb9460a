"""
A compaction on a store that can only copy: the result is written in place, under the number of a transaction that
hasn't committed.
"""

from dataclasses import replace

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.engine.compaction import Compaction
from compactor.errors import CancelledError
from compactor.storage.registry import storage_for
from tests.cluster.mirror import fetch, put
from tests.compacting import Attempt
from tests.reference.compare import read_table


@pytest.fixture
def table(warehouse, fsspec_directory):
    """Two inserts and a delete."""
    made = warehouse.create_table("db", "t", [("id", "int")])
    for first in (0, 10):
        with warehouse.begin() as txn:
            txn.insert(made, [(first + number,) for number in range(5)])
    with warehouse.begin() as txn:
        txn.delete(made, lambda row: row[0] == 3)
    return made


def attempt_there(warehouse, table, location, kind):
    put(table.location, location)
    attempt = Attempt(warehouse, table, kind)
    attempt.request = replace(attempt.request, location=location)
    attempt.compaction = Compaction(attempt.request, storage_for(location), attempt.submitter, attempt.settings)
    attempt.stage()
    attempt.verify()
    return attempt


@pytest.mark.parametrize("kind", [CompactionKind.MAJOR, CompactionKind.MINOR])
def test_no_row_changes(warehouse, table, fsspec_directory, kind):
    """And a second call finds all done."""
    before = read_table(warehouse, table)
    location = fsspec_directory
    attempt = attempt_there(warehouse, table, location, kind)
    published = attempt.publish(lambda: None)
    assert attempt.publish(lambda: None) == published
    attempt.commit()
    fetch(location, table.location)
    assert read_table(warehouse, table) == before
    assert not [name for name in storage_for(location).directories(location) if name.startswith(".")]


def test_a_publisher_that_was_discarded_finds_no_source(warehouse, table, fsspec_directory):
    """Between preparing and copying: nothing appears."""
    location = fsspec_directory
    attempt = attempt_there(warehouse, table, location, CompactionKind.MAJOR)
    calls = []

    def guard():
        calls.append(1)
        if len(calls) == 2:
            attempt.compaction.discard()

    with pytest.raises(CancelledError):
        attempt.publish(guard)
    assert not [name for name in storage_for(location).directories(location) if "_v" in name]
