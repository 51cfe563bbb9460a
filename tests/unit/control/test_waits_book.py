"""The case book of what waits in the queue: tests/cases/waits.txt."""

import shlex
from dataclasses import replace
from datetime import UTC, datetime

from compactor.acid.compaction import CompactionKind
from compactor.control.scope import Subject
from compactor.control.waits import Surroundings, Wait, Workers
from tests.casebook import Case, cases, check
from tests.unit.control.test_control_book import situation

BOOK = "waits.txt"
OURS = ("workers", "workers-unknown", "attempted", "entry")


def answers(case: Case) -> list[str]:
    """What each entry waits for."""
    lines = [shlex.split(line) for line in case.entries]
    mine = [words for words in lines if words[0] in OURS]
    control = tuple(line for line, words in zip(case.entries, lines, strict=True) if words[0] not in OURS)
    judge, working, _ = situation(replace(case, entries=control))
    workers = tuple(
        Workers(host, frozenset(told[0].split(",")) if told and told[0] != "-" else None, *told[1:])
        for verb, host, *told in (words for words in mine if len(words) > 1)
        if verb == "workers"
    )
    attempted = {int(words[1]): (words[2], words[3]) for words in mine if words[0] == "attempted"}
    unknown = ["workers-unknown"] in mine
    at = Surroundings(judge, working, attempted, None if unknown else workers)
    return [f"{words[1]}: {shown(asked(at, words))}" for words in mine if words[0] == "entry"]


def asked(at: Surroundings, words: list[str]) -> Wait | None:
    """The answer to one `entry` line."""
    given = dict(word.split("=") for word in words[3:])
    subject = Subject(*words[2].split("."), given.get("pool"))
    return at.wait(subject, CompactionKind(given.get("kind", "major")), int(words[1]))


def shown(wait: Wait | None) -> str:
    """A line of the book."""
    if wait is None:
        return "the next free worker claims it"
    moment = None if wait.until_ms is None else datetime.fromtimestamp(wait.until_ms / 1000, UTC)
    until = "" if moment is None else f", until {moment:%Y-%m-%dT%H:%M:%SZ}"
    return f"{wait.reason}: {wait.sentence} -> {wait.remedy}{until}"


@cases(BOOK)
def test_book(case: Case, request):
    """What the book says."""
    check(BOOK, case, answers, rewrite=request.config.getoption("--rewrite"))
