"""The case book of what may begin: tests/cases/control.txt."""

import shlex
from datetime import UTC, datetime

from compactor.control.configured import Configured
from compactor.control.judge import Judge
from compactor.control.records import Drain, Holds, Pause
from compactor.control.scope import Scope, Subject
from compactor.control.spending import charged, slot_of
from compactor.control.times import in_ms
from compactor.settings import Settings
from tests.casebook import Case, cases, check

BOOK = "control.txt"
LISTS = ("pools", "tables", "days", "dates", "month_days")


def moment(text: str) -> int:
    """A moment of the book."""
    return in_ms(datetime.fromisoformat(text).astimezone(UTC))


def section(words: list[str]) -> dict[str, object]:
    """A window, blackout or budget as the settings hold it."""
    given: dict[str, object] = {"name": words[0]}
    for word in words[1:]:
        key, _, value = word.partition("=")
        key = {"zone": "time_zone", "bytes": "bytes_per_hour"}.get(key, key)
        given[key] = value.split(",") if key in LISTS else value
    return given


def situation(case: Case) -> tuple[Judge, list[Subject], list[Subject]]:
    """The judge of a case, what is being worked on, and who asks."""
    words = case.look.split()
    options = case.options
    now = moment(words[1])
    pauses, drains, working, asked, unknown, only = [], [], [], [], None, []
    sections = {"window": [], "blackout": [], "budget": []}
    spent: dict[str, dict[str, int]] = {}
    for line in case.entries:
        verb, *rest = shlex.split(line)
        match verb:
            case "pause":
                flags = {word.partition("=")[0]: word.partition("=")[2] for word in rest[1:-1]}
                until = moment(flags["until"]) if "until" in flags else None
                pauses.append(
                    Pause(
                        Scope.parse(rest[0]),
                        rest[-1],
                        "ann@edge1",
                        now - 1,
                        until,
                        "cancel" in flags,
                        "cleaner" in flags,
                    )
                )
            case "drain":
                drains.append(Drain(rest[0], rest[1], "ann@edge1", now - 1))
            case "spent":
                spent[rest[0]] = charged(spent.get(rest[0], {}), 0, slot_of(now - int(rest[2]) * 60_000), int(rest[1]))
            case "working" | "ask":
                (working if verb == "working" else asked).append(Subject(*rest[0].split("."), *rest[1:]))
            case "unknown":
                unknown = rest[0]
            case "only":
                only += rest
            case _:
                sections[verb].append(section(rest))
    windows = {
        "time_zone": options.get("zone", "UTC"),
        "maintenance": sections["window"],
        "blackouts": sections["blackout"],
    }
    given = Configured.of(
        Settings(
            database={"url": "sqlite:////unused.db"},
            windows=windows,
            control={"budgets": sections["budget"], "only": only},
        )
    )
    judge = Judge(
        now_ms=now,
        holds=Holds(tuple(pauses), tuple(drains)),
        unknown=unknown,
        host=options.get("host"),
        windows=given.windows,
        blackouts=given.blackouts,
        budgets=given.budgets,
        records=spent,
        zone=given.zone,
        only=given.only,
    )
    return judge, working, asked


def answers(case: Case) -> list[str]:
    """What each that asks is told."""
    judge, working, asked = situation(case)
    lines = []
    for subject in asked:
        denial = judge.may_begin(subject, working)
        told = "runs" if denial is None else f"{denial.reason.value}: {denial.sentence}"
        if judge.uncertain() is None and judge.cleaning(subject):
            told += "  (clean)"
        if judge.cancelled(subject):
            told += "  (stop)"
        lines.append(f"{subject.full_name}{f' {subject.pool}' if subject.pool else ''}: {told}")
    return lines


@cases(BOOK)
def test_book(case: Case, request):
    """What the book says."""
    check(BOOK, case, answers, rewrite=request.config.getoption("--rewrite"))
