"""A partition as a picture."""

from dataclasses import replace

import pytest
from rich.console import Console

from compactor.cli.views.drawing import bar, picture
from compactor.status.items import DirectoryStanding, Item

OPEN = "transaction 57 of etl@edge"
ITEMS = (
    Item(DirectoryStanding.BASE, "base_0000005_v0000010", 0, 5, 1, 1_000_000, input=True),
    Item(DirectoryStanding.DELTA, "delta_0000006_0000006_0000", 6, 6, 1, 2_000, input=True),
    Item(DirectoryStanding.DELETE_DELTA, "delete_delta_0000007_0000007_0000", 7, 7, 1, 500, input=True),
    Item(DirectoryStanding.DELTA, "delta_0000010_0000010_0000", 10, 10, 1, 6_000),
    Item(DirectoryStanding.NOT_VISIBLE, "delta_0000009_0000009_0000", 9, 9, 1, 5_000, note=OPEN),
    Item(DirectoryStanding.OBSOLETE, "delta_0000001_0000005", 1, 5, 1, 900),
)


def drawn(renderable):
    console = Console(width=160, no_color=True)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_picture_says_why_something_is_not_read():
    """The drawing names each group, the transaction that is open, and marks what is compacted."""
    text = drawn(picture("db.t", ITEMS))
    assert "a query reads 4 directories, 4 files" in text
    assert OPEN in text
    assert "● base_0000005_v0000010" in text
    assert "  delta_0000010_0000010_0000" in text


def test_notes_stand_below_where_the_terminal_is_narrow(monkeypatch):
    """Each once, with what it is about; nothing is folded into a column of a few letters."""
    for key, value in {"FORCE_COLOR": "1", "TERM": "dumb", "COLUMNS": "80", "LINES": "40"}.items():
        monkeypatch.setenv(key, value)
    lines = drawn(picture("db.t", ITEMS)).splitlines()
    assert f"delta_0000009_0000009_0000: {OPEN}" in [line.strip() for line in lines]
    assert sum(OPEN in line for line in lines) == 1
    monkeypatch.setenv("COLUMNS", "160")
    (line,) = [line for line in drawn(picture("db.t", ITEMS)).splitlines() if OPEN in line]
    assert line.startswith("not visible")


def test_a_note_of_many_is_told_once(monkeypatch):
    """By the first that has it."""
    monkeypatch.setattr("compactor.cli.views.drawing.fits_terminal", lambda _: False)
    many = [replace(item, note="odd") for item in ITEMS]
    text = drawn(picture("db.t", many))
    assert f"{many[0].name} and {len(many) - 1} more: odd" in text


def test_long_groups_are_folded_unless_asked_otherwise():
    """Of many deltas the first and last are drawn and the rest are counted; `fold=False` draws all."""
    names = [f"delta_{n:07d}_{n:07d}_0000" for n in range(1, 31)]
    items = [Item(DirectoryStanding.DELTA, name, n, n, 1, 100) for n, name in enumerate(names, 1)]
    folded, full = drawn(picture("t", items)), drawn(picture("t", items, fold=False))
    assert "21 more" in folded
    assert "delta_0000015_0000015_0000" not in folded
    assert all(name in full for name in names)


def test_an_empty_partition_says_so():
    """Nothing there is drawn as empty."""
    assert "empty" in drawn(picture("t", ()))


@pytest.mark.parametrize(
    ("value", "largest", "text"), [(0, 10, ""), (10, 10, "█" * 12), (5, 10, "█" * 6), (1, 10_000, "▏"), (1, 0, "")]
)
def test_bar(value, largest, text):
    """Bars are in proportion; something is never nothing."""
    assert bar(value, largest) == text
