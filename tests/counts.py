"""What a suite ran besides its tests: histories, statements, cases. Counted where they run, printed at the end."""

from collections import Counter

COUNTS: Counter[str] = Counter()


def count(what: str, number: int = 1) -> None:
    """So many more of these."""
    COUNTS[what] += number
