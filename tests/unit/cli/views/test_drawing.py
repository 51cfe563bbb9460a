"""A partition as a picture."""

from dataclasses import replace

import pytest
from rich.console import Console

from compactor.acid.compaction import LayoutVersion
from compactor.acid.listing import FileEntry, Listing
from compactor.acid.snapshot import resolve
from compactor.acid.write_ids import CompactorWriteIdList, ValidTxnList, ValidWriteIdList
from compactor.cli.views.drawing import bar, picture
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


def drawn(renderable):
    console = Console(width=160, no_color=True)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


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


def test_picture_says_why_something_is_not_read(items):
    """The drawing names each group, the transaction that is open, and marks what is compacted."""
    text = drawn(picture("db.t", items))
    assert "a query reads 5 directories, 5 files" in text
    assert "transaction 57 of etl@edge" in text
    assert "● base_0000005_v0000010" in text
    assert "  delta_0000010_0000010_0000" in text


def test_notes_stand_below_where_the_terminal_is_narrow(items, monkeypatch):
    """Each once, with what it is about; nothing is folded into a column of a few letters."""
    note = "transaction 57 of etl@edge"
    for key, value in {"FORCE_COLOR": "1", "TERM": "dumb", "COLUMNS": "80", "LINES": "40"}.items():
        monkeypatch.setenv(key, value)
    lines = drawn(picture("db.t", items)).splitlines()
    assert f"delta_0000009_0000009_0000: {note}" in [line.strip() for line in lines]
    assert sum(note in line for line in lines) == 1
    monkeypatch.setenv("COLUMNS", "160")
    (line,) = [line for line in drawn(picture("db.t", items)).splitlines() if note in line]
    assert line.startswith("not visible")


def test_a_note_of_many_is_told_once(items, monkeypatch):
    """By the first that has it."""
    monkeypatch.setattr("compactor.cli.views.drawing.fits_terminal", lambda _: False)
    many = [replace(item, note="odd") for item in items]
    text = drawn(picture("db.t", many))
    assert f"{many[0].name} and {len(many) - 1} more: odd" in text


def test_long_groups_are_folded_unless_asked_otherwise():
    """Of many deltas the first and last are drawn and the rest are counted; `fold=False` draws all."""
    sizes = {f"delta_{n:07d}_{n:07d}_0000": 100 for n in range(1, 31)}
    write_ids = ValidWriteIdList("db.t", 30)
    state = resolve(listing(sizes), write_ids, ValidTxnList(1), LayoutVersion.HIVE_4)
    items = items_of(state, state, insert_only=False)
    folded, full = drawn(picture("t", items)), drawn(picture("t", items, fold=False))
    assert "21 more" in folded
    assert "delta_0000015_0000015_0000" not in folded
    assert all(name in full for name in sizes)


def test_originals_are_drawn_once_and_odd_names_are_called_so():
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


def test_an_empty_partition_says_so():
    """Nothing there is drawn as empty."""
    assert "empty" in drawn(picture("t", ()))


@pytest.mark.parametrize(
    ("value", "largest", "text"), [(0, 10, ""), (10, 10, "█" * 12), (5, 10, "█" * 6), (1, 10_000, "▏"), (1, 0, "")]
)
def test_bar(value, largest, text):
    """Bars are in proportion; something is never nothing."""
    assert bar(value, largest) == text
