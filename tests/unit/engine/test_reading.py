"""
Looking at a table as a reader does: its rows, what compacted files say of themselves, and in what two directories
differ.
"""

import shutil

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.acid.row_id import RowKey
from compactor.acid.write_ids import ValidTxnList, ValidWriteIdList
from compactor.engine.comparing import compare
from compactor.engine.reading import PartitionReading, ReadSnapshot, highest_write_id
from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.storage.registry import storage_for
from tests.compacting import KIB, Attempt, facts_of, settings
from tests.reference.compare import expected_rows

COLUMNS = [("id", "int"), ("v", "string"), ("s", "struct<x:int,l:array<string>>")]
BUCKET = 536870912


def rows(first, count):
    return [(first + i, f"{(first + i) * 2654435761 % (1 << 32):x}" * 4, (i, [f"{i}", None])) for i in range(count)]


@pytest.fixture
def table(warehouse):
    table = warehouse.create_table("db", "t", COLUMNS)
    for first in (0, 2000, 4000):
        with warehouse.begin() as txn:
            txn.insert(table, rows(first, 2000))
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] in {1, 2, 4001})
    lost = warehouse.begin()
    lost.insert(table, rows(9000, 5))
    lost.abort()
    return table


def snapshot_of(warehouse, table):
    found = warehouse.snapshot(table)
    return ReadSnapshot(
        warehouse.ledger.layout, ValidWriteIdList.parse(found.write_ids), ValidTxnList.parse(found.txns)
    )


def reading(warehouse, table, location=None, up_to=None):
    snapshot = snapshot_of(warehouse, table)
    where = f"file:{location or table.location}"
    spec = Attempt(warehouse, table).request.spec
    return PartitionReading(storage_for(where), where, spec, snapshot if up_to is None else snapshot.up_to(up_to))


def compacted(warehouse, table, kind=CompactionKind.MAJOR):
    attempt = Attempt(warehouse, table, kind, settings=settings(splice={"min_stripe_bytes": 4 * KIB}))
    attempt.run()
    return attempt


@pytest.mark.parametrize("kind", [CompactionKind.MAJOR, CompactionKind.MINOR])
def test_a_compaction_changes_no_digest(warehouse, table, kind):
    """Deleted and aborted rows don't count, wherever they lie; all others are what they were, under their keys."""
    with reading(warehouse, table) as before:
        expected = before.digest()
    assert expected.rows == len(expected_rows(warehouse, table)[None]) == 5997
    compacted(warehouse, table, kind)
    with reading(warehouse, table) as after:
        assert after.digest() == expected


def test_a_compacted_file_proves_what_it_was_made_of(warehouse, table):
    """
    Its recoded stripes hold what its footer says, also after columns were added and rows deleted; one changed byte
    doesn't.
    """
    compacted(warehouse, table)
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] == 3)
    with reading(warehouse, table) as found:
        ((file, note, held),) = list(found.notes())
        assert file.path.endswith("/bucket_00000")
        assert note is not None
        assert note == held
        assert 0 < len(note.stripes) < found.stripes(file)


def test_quarantined_inputs_equal_the_result(warehouse, table, tmp_path):
    """Read up to what they hold, they are the compacted directory; what was written since doesn't matter."""
    shutil.copytree(table.location, tmp_path / "kept")
    compacted(warehouse, table)
    with warehouse.begin() as txn:
        txn.insert(table, rows(9000, 5))
    kept = f"file:{tmp_path}/kept"
    highest = highest_write_id(storage_for(kept), kept, warehouse.ledger.layout)
    assert highest == 5  # of the aborted write, whose directory is there too
    with (
        reading(warehouse, table, up_to=highest) as one,
        reading(warehouse, table, tmp_path / "kept", highest) as other,
    ):
        assert one.digest() == other.digest()
        found = compare(one, other)
        assert (found.missing, found.extra, found.columns) == (0, 0, {})


def test_differences_are_counted_by_column(warehouse, table, tmp_path):
    """A copy with one delta of other values, and one that is gone."""
    shutil.copytree(table.location, tmp_path / "copy")
    other = warehouse.create_table("db", "other", COLUMNS)
    changed = [(i, v + "!" if i % 500 == 7 else v, (s[0], ["?"]) if i == 9 else s) for i, v, s in rows(0, 2000)]
    with warehouse.begin() as txn:
        txn.insert(other, changed)
    delta = next(path.name for path in (tmp_path / "copy").glob("delta_0000001*"))
    shutil.rmtree(tmp_path / "copy" / delta)
    shutil.copytree(next(other.location.glob("delta_0000001*")), tmp_path / "copy" / delta)
    shutil.rmtree(next((tmp_path / "copy").glob("delta_0000003*")))
    with reading(warehouse, table) as one, reading(warehouse, table, tmp_path / "copy") as two:
        found = compare(one, two)
    assert (found.missing, found.extra) == (1999, 0)
    assert found.columns == {"v": 4, "s.l": 1, "s.l[]": 1}
    assert found.first == {
        "missing": RowKey(3, BUCKET, 0),
        "v": RowKey(1, BUCKET, 7),
        "s.l": RowKey(1, BUCKET, 9),
        "s.l[]": RowKey(1, BUCKET, 9),
    }


def test_one_base_may_be_read_alone(warehouse, table):
    """A directory of the partition, as if the others weren't there."""
    attempt = compacted(warehouse, table)
    base = next(table.location.glob("base_*"))
    with reading(warehouse, table) as whole, reading(warehouse, table, base) as alone:
        assert alone.digest() == whole.digest()
    assert attempt.names() != [base.name]


def test_what_is_not_there(warehouse, table, tmp_path):
    """A refusal that says so; insert-only tables have nothing to go by."""
    for place in (tmp_path / "nowhere", table.location / "base_0000099"):
        with pytest.raises(RefusedError) as caught:
            reading(warehouse, table, place)
        assert caught.value.reason is Reason.LOCATION_MISSING
    assert facts_of(table).transactional
