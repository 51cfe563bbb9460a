"""What lies in a partition, item by item."""

import pytest

from compactor.acid.compaction import LayoutVersion
from compactor.acid.listing import FileEntry, Listing
from compactor.acid.snapshot import resolve
from compactor.acid.write_ids import CompactorWriteIdList, ValidTxnList, ValidWriteIdList
from compactor.status.items import DirectoryStanding, Totals, items_of, read_totals

SIZES = {
    "base_0000005_v0000010": 1_000_000,
    "delta_0000001_0000005": 900,
    "delta_0000006_0000006_0000": 2_000,
    "delete_delta_0000007_0000007_0000": 500,
    "delta_0000007_0000007_0001": 3_000,
    "delta_0000008_0000008_0000": 4_000,
    "delta_0000009_0000009_0000": 5_000,
    "delta_0000010_0000010_0000": 6_000,
}


def listing(sizes):
    files = []
    for name, size in sizes.items():
        files += [FileEntry(f"{name}/bucket_00000", size), FileEntry(f"{name}/_orc_acid_version", 1)]
    return Listing(tuple(files), tuple(sizes))


def states(sizes):
    """Write id 8 aborted, 9 open, 10 committed after it."""
    write_ids = ValidWriteIdList("db.t", 10, open=(9,), aborted=(8,), min_open=9)
    txns = ValidTxnList(50)
    found = listing(sizes)
    reader = resolve(found, write_ids, txns, LayoutVersion.HIVE_4)
    return reader, resolve(found, CompactorWriteIdList.from_reader(write_ids), txns, LayoutVersion.HIVE_4)


@pytest.fixture
def items():
    reader, compactor = states(SIZES)
    return items_of(
        reader,
        compactor,
        insert_only=False,
        explain=lambda listed: "transaction 57 of etl@edge" if listed.acid.max_write_id == 9 else "",
    )


def test_every_directory_has_one_standing(items):
    """Each directory of the listing appears once, with what it is to a query that starts now."""
    assert {item.name: item.standing for item in items} == {
        "base_0000005_v0000010": DirectoryStanding.BASE,
        "delta_0000001_0000005": DirectoryStanding.OBSOLETE,
        "delta_0000006_0000006_0000": DirectoryStanding.DELTA,
        "delete_delta_0000007_0000007_0000": DirectoryStanding.DELETE_DELTA,
        "delta_0000007_0000007_0001": DirectoryStanding.DELTA,
        "delta_0000008_0000008_0000": DirectoryStanding.ABORTED,
        "delta_0000009_0000009_0000": DirectoryStanding.NOT_VISIBLE,
        "delta_0000010_0000010_0000": DirectoryStanding.DELTA,
    }


def test_input_is_what_a_compaction_takes_in(items):
    """
    Nothing at or above the open write id is taken in, though a query reads it; nothing obsolete or aborted either.
    """
    assert [item.name for item in items if item.input] == [
        "base_0000005_v0000010",
        "delta_0000006_0000006_0000",
        "delta_0000007_0000007_0001",
        "delete_delta_0000007_0000007_0000",
    ]


def test_totals_count_what_a_query_opens(items):
    """Directories, data files and their bytes: no markers, nothing obsolete, aborted or invisible."""
    assert read_totals(items) == Totals(5, 5, 1_000_000 + 2_000 + 500 + 3_000 + 6_000)


def test_what_is_not_read_has_a_note(items):
    """The transaction that is open, where it is known."""
    assert {item.name: item.note for item in items if item.note} == {
        "delta_0000009_0000009_0000": "transaction 57 of etl@edge"
    }


def test_originals_are_told_once_and_odd_names_are_called_so():
    """
    Files from before the conversion are originals, which queries read, whatever their names; one that tells no bucket
    has a note.
    """
    found = Listing((FileEntry("000000_0", 10), FileEntry("000000_0_copy_1", 20), FileEntry("part-0.orc", 5)), ())
    state = resolve(found, ValidWriteIdList("db.t", 0), ValidTxnList(1), LayoutVersion.HIVE_4)
    items = items_of(state, state, insert_only=False)
    assert [(item.standing, item.name, bool(item.note)) for item in items] == [
        (DirectoryStanding.ORIGINAL, "000000_0", False),
        (DirectoryStanding.ORIGINAL, "000000_0_copy_1", False),
        (DirectoryStanding.ORIGINAL, "part-0.orc", True),
    ]
