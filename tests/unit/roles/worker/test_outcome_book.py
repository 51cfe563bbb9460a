"""The case book of what becomes of an entry whose attempt ended with an error: tests/cases/outcome.txt."""

import pytest

from compactor.errors import (
    OutcomeUnknownError,
    OwnershipLostError,
    RefusedError,
    RetryableError,
    RivalError,
    UnreachableError,
    VerificationError,
)
from compactor.reasons import Reason
from compactor.roles.worker.cancellation import CancelRequestedError, DrainedError, GivesWayError, TimedOutError
from compactor.roles.worker.failures import SuspectWaitsError
from compactor.roles.worker.outcome import End, Ended, Outcome, Retry, outcome_of
from compactor.spark.submitter import BrokenDownError, SessionEndedError
from tests.casebook import Case, cases, check

BOOK = "outcome.txt"
ERRORS = {
    "cancelled": CancelRequestedError,
    "drained": DrainedError,
    "gives-way": GivesWayError,
    "other-suspect": SuspectWaitsError,
    "timed-out": TimedOutError,
    "rival": RivalError,
    "unreachable": UnreachableError,
    "retryable": RetryableError,
    "broke-down": BrokenDownError,
    "session-ended": SessionEndedError,
    "outcome-unknown": OutcomeUnknownError,
    "ownership-lost": OwnershipLostError,
    "bug": ValueError,
}
RETRIES = {
    Retry.IN_TURN: "waits by itself",
    Retry.WHEN_THERE: "waits with all that need the same",
    Retry.ALONE: "is a suspect",
    Retry.COUNTED: "is counted",
}


def answers(case: Case) -> list[str]:
    """What becomes of the entry of each line."""
    return [shown(outcome_of(ended(line.split()))) for line in case.entries]


def ended(words: list[str]) -> Ended:
    """One line: the error, and what is known of the attempt."""
    given = dict(word.partition("=")[::2] for word in words[1:])
    error: Exception
    if words[0] == Reason.VERIFICATION_FAILED:
        error = VerificationError("why")
    else:
        error = ERRORS[words[0]]("why") if words[0] in ERRORS else RefusedError(Reason(words[0]), "why")
    return Ended(
        error,
        visible="published" in given,
        state_stored="state-stored" in given,
        stopping="stopping" in given,
        missing_seconds=float(given.get("missing", 0)),
    )


def shown(outcome: Outcome) -> str:
    """A line of the book."""
    retry = f"; it {RETRIES[outcome.retry]}" if outcome.retry in RETRIES else ""
    waits = f"; shown as {outcome.shows[0].value}" if outcome.shows is not None else ""
    return f"{outcome.end.value}{retry}{waits}"


@cases(BOOK)
def test_book(case: Case, request):
    """What the book says."""
    check(BOOK, case, answers, rewrite=request.config.getoption("--rewrite"))


def test_given_up_and_lost():
    """After the last breakdown the entry fails; one that another process has by then is told nothing at all."""
    broken = outcome_of(Ended(BrokenDownError("away")))
    assert broken.given_up() == Outcome(End.FAILED, "away (3 times in a row)", "failed")
    assert broken.lost(OwnershipLostError("gone")) == Outcome(End.LOST, "gone; it had ended with: away", "lost")
    assert broken.troubles
    assert broken.given_up().troubles
    assert broken.lost(OwnershipLostError("gone")).troubles


@pytest.mark.parametrize("reason", Reason)
def test_every_refusal_ends(reason):
    """Whatever the reason: before anything was stored a refusal ends the entry, or the entry waits and shows for what."""
    found = outcome_of(Ended(RefusedError(reason, "why")))
    assert found.message == f"{reason.value}: why"
    assert (found.retry is Retry.IN_TURN) == (found.shows is not None) == (found.end is End.GIVEN_BACK)
    assert found.end in {End.GIVEN_BACK, End.REFUSED, End.UNNEEDED}
