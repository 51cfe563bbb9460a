"""Pieces of sentences."""

import pytest

from compactor.words import binary_units, instant, one_line, plural


def test_plural():
    """One delta, two deltas, and words that change otherwise."""
    assert [plural(1, "delta"), plural(2000, "delta"), plural(0, "entry", "entries")] == [
        "1 delta",
        "2,000 deltas",
        "0 entries",
    ]


def test_one_line():
    """Breaks and runs of blanks become one blank; the text of an error is its words."""
    assert one_line(ValueError(" a\n\tb  c\n")) == "a b c"


def test_instant():
    """Times are ISO 8601 in UTC for programs; a number that is none stays as it is."""
    assert instant(1_714_552_200_123) == "2024-05-01T08:30:00.123Z"
    assert instant(None) is None
    assert instant(900_000_000_000_000_000) == "900000000000000000"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (8 << 20, "8.0 MiB"),
        (3 << 50, "3.0 PiB"),
        (5 << 60, "5120.0 PiB"),
    ],
)
def test_binary_units(count, text):
    """Sizes are in binary units with one digit."""
    assert binary_units(count) == text
