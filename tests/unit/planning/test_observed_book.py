"""The case book of what may be removed by an observation: tests/cases/observed.txt."""

import pytest

from compactor.acid.compaction import LayoutVersion
from compactor.acid.listing import FileEntry, Listing
from compactor.acid.snapshot import resolve
from compactor.acid.write_ids import CleanerWriteIdList
from compactor.planning.observed import NOTHING, marks_in, only_seen, replaced_then, seen_of
from tests.casebook import Case, cases, check, listing

BOOK = "observed.txt"


def outcome(case: Case) -> list[str]:
    """The directories that may go."""
    then, now = (
        listing(tuple(line.strip().removeprefix(word) for line in case.entries if line.strip().startswith(word)))
        for word in ("then", "now")
    )
    write_ids = CleanerWriteIdList("db.t", int(case.options["hwm"]))
    state = resolve(now, write_ids, None, LayoutVersion.HIVE_3)
    was = resolve(only_seen(now, seen_of(marks_in(then))), write_ids, None, LayoutVersion.HIVE_3)
    directories, _ = replaced_then(state, was)
    return [f"replaced  {' '.join(sorted(directories)) or 'nothing'}"]


@cases(BOOK)
def test_case(case: Case, request: pytest.FixtureRequest) -> None:
    """What may be removed, as the book says."""
    check(BOOK, case, outcome, rewrite=request.config.getoption("--rewrite"))


def test_without_a_meaning_of_its_own_nothing_is_replaced():
    """What was there may have been replaced, and removed, by now."""
    there = listing(("base_5/ delta_5_5/",))
    state = resolve(there, CleanerWriteIdList("db.t", 9), None, LayoutVersion.HIVE_3)
    assert replaced_then(state, None) == (frozenset(), frozenset())


def test_original_files_stay_in_the_listing():
    """They replace nothing, so it doesn't matter when they came; a directory of them is one like any other."""
    there = listing(("000000_0 5", "base_5/"))
    assert only_seen(there, NOTHING) == Listing((FileEntry("000000_0", 5),), ())


def test_an_observation_is_small():
    """There may be a hundred thousand, each with hundreds of directories."""
    many = " ".join(f"delta_{number}_{number}/" for number in range(1, 301))
    assert len(seen_of(marks_in(listing((many,))))) == 8 * 300
