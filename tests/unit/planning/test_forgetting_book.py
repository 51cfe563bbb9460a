"""The case book of what may be forgotten of aborted transactions: tests/cases/forgetting.txt."""

import pytest
from hypothesis import given

from compactor.acid.write_ids import ValidTxnList
from compactor.planning.forgetting import AbortedComponent, Ground, Search, may_be_forgotten
from tests.casebook import Case, cases, check
from tests.strategies import aborted_components, searches

BOOK = "forgetting.txt"
_HOUR_MS = 3_600_000


def hours(word: str) -> int:
    return round(float(word) * _HOUR_MS)


def numbers(word: str) -> tuple[int, ...]:
    return tuple(int(number) for number in word.split(",") if number)


def component(line: str) -> AbortedComponent:
    """A row, from the words of one entry."""
    txn_id, operation, *words = line.split()
    options = dict(word.split("=", 1) for word in words if "=" in word)
    write_id, heartbeat = options["write_id"], options["heartbeat"]
    mapped = options.get("mapped", write_id)
    return AbortedComponent(
        int(txn_id),
        operation,
        options.get("partition"),
        None if write_id == "?" else int(write_id),
        None if heartbeat == "?" else hours(heartbeat),
        mapped_id=None if mapped in {"?", "none"} else int(mapped),
    )


def outcome(case: Case) -> list[str]:
    """A verdict for each row."""
    options = case.options
    aborted = numbers(options["aborted"])
    search = Search(
        ValidTxnList(max(aborted, default=0), (), aborted),
        options.get("name"),
        frozenset(numbers(options["gone"])),
        hours(options["searched"]),
        hours(options["late"]),
    )
    told = []
    for line in case.entries:
        row = component(line)
        verdict = may_be_forgotten(row, search)
        until = "" if verdict.until_ms is None else f" until hour {verdict.until_ms / _HOUR_MS:g}"
        what = "forgotten" if verdict.forgets else "stays"
        number = "?" if row.write_id is None else row.write_id
        told.append(f"{row.txn_id} {row.operation} {number}: {what} ({verdict.ground.value}){until}")
    return told


@cases(BOOK)
def test_case(case: Case, request: pytest.FixtureRequest) -> None:
    """What is forgotten, and what stays and why, as the book says."""
    check(BOOK, case, outcome, rewrite=request.config.getoption("--rewrite"))


@given(aborted_components(), searches())
def test_nothing_is_forgotten_that_may_still_be_written(row, search):
    """
    A write of this table, or a compaction, is forgotten only if the search began when its tasks were over, knew its
    transaction as aborted, and found nothing of it; and a later search of as much would forget it, too.
    """
    verdict = may_be_forgotten(row, search)
    if not verdict.forgets or verdict.ground is Ground.OF_ANOTHER_TABLE:
        assert verdict.forgets == (row.operation != "c" and row.mapped_id is None and row.write_id is not None)
        return
    assert row.heartbeat_ms is not None
    assert row.heartbeat_ms + search.late_ms <= search.listed_ms
    assert search.txns.is_aborted(row.txn_id)
    assert row.mapped_id in search.gone or row.operation == "c"
    assert search.partition is None or row.operation == "c"
