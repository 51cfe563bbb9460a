"""The case book of `compactor explain`: tests/cases/explain.txt."""

from functools import partial

import pytest

from compactor.coordination import Member
from compactor.coordination.sql.coordinator import DatabaseCoordinator
from tests.casebook import Case, cases, check
from tests.metastore.databases import metastore
from tests.unit.cli.explained import explained
from tests.unit.roles.drawn import Drawn
from tests.unit.roles.world import World

BOOK = "explain.txt"


def explain(drawn: Drawn, words: list[str]) -> list[str]:
    """The answer, a while after the last transaction."""
    drawn.world.settle_time()
    return explained(drawn, words)


def answers(database, folder, monkeypatch, case: Case) -> list[str]:
    """The answers to the questions of a case; a daemon is there, the Cleaner, whose workers serve any pool."""
    DatabaseCoordinator(database, 3600).join(Member("other", "there", 1, "1", ("worker", "cleaner")), ())
    return Drawn(World(database, folder), case, monkeypatch).answers(explain=explain)


@cases(BOOK)
def test_case(case: Case, tmp_path, monkeypatch, request: pytest.FixtureRequest) -> None:
    """`explain` prints what the book says."""
    with metastore("sqlite", request, tmp_path) as database:
        run = partial(answers, database, tmp_path, monkeypatch)
        check(BOOK, case, run, rewrite=request.config.getoption("--rewrite"))
