"""Pieces of sentences."""

from compactor.words import one_line, plural


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
