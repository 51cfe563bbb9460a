"""The case books of what holds back cleaning: tests/cases/cleaner.txt, and cleaner_3.txt of Hive 3.1."""

from functools import partial
from pathlib import Path

import pytest

from compactor.coordination import Member
from compactor.coordination.sql.coordinator import DatabaseCoordinator
from tests.casebook import Case, cases, check
from tests.unit.cli.explained import explained
from tests.unit.roles.drawn import Drawn

BOOK, BOOK_3 = "cleaner.txt", "cleaner_3.txt"
ABOUT_CLEANING = ("cleaning after", "nothing holds back cleaning")


def clean(drawn: Drawn, _: list[str]) -> list[str]:
    """
    A cycle of the Cleaner: its sentence, what it removed, and what stays.

    The right number of bytes reads "their bytes": how long our own files are depends on the processor (ISA-L).
    """
    drawn.world.settle_time()
    sizes = {name: _size(drawn.location / name) for name in drawn.names()}
    sentence = drawn.cleaner.run_once().sentence
    after = drawn.names()
    removed = [name for name in sizes if name not in after]
    sentence = sentence.replace(f", {sum(sizes[name] for name in removed):,} bytes", ", their bytes")
    ended = [f"ended    {state}: {message}" for state, message in drawn.world.ended() if message]
    return [
        f"clean    {sentence}",
        *ended,
        *([f"removed  {' '.join(removed)}"] if removed else []),
        f"stays    {' '.join(after)}",
    ]


def explain(drawn: Drawn, words: list[str]) -> list[str]:
    """What `compactor explain` says of cleaning."""
    drawn.world.settle_time()
    said = explained(drawn, words)
    first = next((at for at, line in enumerate(said) if line.startswith(ABOUT_CLEANING)), len(said))
    last = next((at for at, line in enumerate(said) if line.startswith("last: ")), len(said))
    return [f"explain  {line}" for line in said[first:last] or ["(no word of cleaning)"]]


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def answers(world, monkeypatch, case: Case) -> list[str]:
    """The answers to the questions of a case; for `explain` a daemon is the Cleaner."""
    DatabaseCoordinator(world.database, 3600).join(Member("other", "there", 1, "1", ("worker", "cleaner")), ())
    return Drawn(world, case, monkeypatch).answers(clean=clean, explain=explain)


@cases(BOOK)
def test_case(case: Case, world, monkeypatch, request: pytest.FixtureRequest) -> None:
    """What may still be read stays, as the book says, and `explain` and the Cleaner name the same blocker."""
    check(BOOK, case, partial(answers, world, monkeypatch), rewrite=request.config.getoption("--rewrite"))


@pytest.mark.postgres
@cases(BOOK_3)
def test_case_of_hive_3(case: Case, world_3, monkeypatch, request: pytest.FixtureRequest) -> None:
    """The same on the schema of Hive 3.1."""
    check(BOOK_3, case, partial(answers, world_3, monkeypatch), rewrite=request.config.getoption("--rewrite"))
