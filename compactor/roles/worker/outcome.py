"""
Decides what becomes of an entry whose attempt ended with an error and was undone.

Pure: `outcome_of` looks at what is known of the attempt; the Worker applies what it says.
Source: docs/operations.md, *Worker*.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from compactor.errors import (
    CompactorError,
    OutcomeUnknownError,
    RefusedError,
    RetryableError,
    RivalError,
    UnreachableError,
    VerificationError,
)
from compactor.planning.eligibility import RENAME_SECONDS
from compactor.reasons import Reason
from compactor.roles.worker.cancellation import CancelRequestedError, DrainedError, GivesWayError
from compactor.roles.worker.failures import ATTEMPTS, SuspectWaitsError
from compactor.spark.submitter import SessionEndedError
from compactor.words import one_line

_PASSING: Final = frozenset(
    {Reason.DISK_FULL, Reason.QUOTA_EXCEEDED, Reason.LOCK_NOT_ACQUIRED, Reason.OPEN_FILE, Reason.ICEBERG_TABLE}
)
"""
Refusals caused by the surroundings: before anything was written, the entry waits until they pass, or, where it is left
to Hive's own workers, for one of them.
"""
_MAY_BE_RENAMED: Final = frozenset({Reason.TABLE_MISSING, Reason.PARTITION_MISSING})
"""A missing name is looked for again for `RENAME_SECONDS`, as long as the Cleaner waits."""


class End(Enum):
    """What the queue is told; the value names it in metrics and the log."""

    GIVEN_BACK = "given-back"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    UNNEEDED = "unneeded"
    FAILED = "failed"
    LOST = "lost"
    """Nothing: it is another's by now."""


class Retry(Enum):
    """When an entry that was given back is tried again."""

    AT_ONCE = auto()
    """Nothing is wrong with the entry, and the next free worker takes it. Also of an entry that has ended."""
    IN_TURN = auto()
    """Another entry or a statement comes first, or there is no room: it waits by itself, and nothing is counted."""
    WHEN_THERE = auto()
    """A service or store can't be reached: all entries that need it wait, and nothing is counted."""
    ALONE = auto()
    """A session ended with it, which another entry may have caused: it is a suspect, and not counted."""
    COUNTED = auto()
    """Its work broke down: it is given up after so many times in a row."""


@dataclass(frozen=True, slots=True)
class Ended:
    """
    What is known of an attempt that ended with an error.

    Args:
        visible: what it published stays: on Hive 3.1 the rename is the commit.
        state_stored: its state was in the queue, so its transaction may have been seen.
        stopping: the daemon is told to stop.
        missing_seconds: for how long the entry has gone back because of the same refusal.
    """

    error: Exception
    visible: bool = False
    state_stored: bool = False
    stopping: bool = False
    missing_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What becomes of the entry.

    Args:
        message: why, in one line; a refusal begins with its code.
        words: for a sentence.
        shows: code and sentence of what the entry waits for, where nothing else tells that: for display.
    """

    end: End
    message: str
    words: str
    retry: Retry = Retry.AT_ONCE
    shows: tuple[Reason, str] | None = None

    @property
    def name(self) -> str:
        """In metrics and the log."""
        return End.REFUSED.value if self.end is End.UNNEEDED else self.end.value

    @property
    def troubles(self) -> bool:
        """Whether an operator should look: the entry failed, or goes back after a breakdown or an unreachable store."""
        return self.end in {End.FAILED, End.LOST} or self.retry in {Retry.WHEN_THERE, Retry.ALONE, Retry.COUNTED}

    def lost(self, why: Exception) -> "Outcome":
        """The same where the entry was another's by then."""
        message = f"{why}; it had ended with: {self.message}"
        return Outcome(End.LOST, message, "lost")

    def given_up(self) -> "Outcome":
        """The same after the last time that it may break down."""
        return replace(
            self,
            end=End.FAILED,
            words="failed",
            retry=Retry.AT_ONCE,
            message=f"{self.message} ({ATTEMPTS} times in a row)",
        )


def outcome_of(ended: Ended) -> Outcome:
    """What becomes of an entry whose attempt ended like this."""
    error, message = ended.error, message_of(ended.error)
    if ended.visible:
        return Outcome(End.GIVEN_BACK, message, "published, but not marked; given back for the rest")
    match error:
        case CancelRequestedError():
            return Outcome(End.CANCELLED, message, "cancelled")
        case SuspectWaitsError():
            return _back(message, Retry.IN_TURN)
        case GivesWayError():
            return _back(message, Retry.IN_TURN, (Reason.LOCK_NOT_ACQUIRED, message))
        case _ if _is_drained(ended):
            return _back(message, Retry.AT_ONCE)
        case RivalError():
            return _back(message, Retry.IN_TURN, (Reason.AT_WORK, message))
        case RefusedError():
            return _refused(error, ended)
        case UnreachableError():
            return _back(message, Retry.WHEN_THERE)
        case SessionEndedError():
            return _back(message, Retry.ALONE)
        case RetryableError() | OutcomeUnknownError():
            return _back(message, Retry.COUNTED)
        case _:
            return Outcome(End.FAILED, message, "failed")


def _refused(error: RefusedError, ended: Ended) -> Outcome:
    message = message_of(error)
    if ended.state_stored:
        return Outcome(End.FAILED, message, "failed")
    if error.reason in _PASSING or (error.reason in _MAY_BE_RENAMED and ended.missing_seconds < RENAME_SECONDS):
        return _back(message, Retry.IN_TURN, (error.reason, str(error)))
    if isinstance(error, VerificationError):
        return Outcome(End.FAILED, message, "failed")
    return Outcome(End.UNNEEDED if error.reason is Reason.NOT_ENOUGH else End.REFUSED, message, "refused")


def _back(message: str, retry: Retry, shows: tuple[Reason, str] | None = None) -> Outcome:
    return Outcome(End.GIVEN_BACK, message, "given back", retry, shows)


def _is_drained(ended: Ended) -> bool:
    """
    Whether the daemon's end ended the attempt, and not the compaction itself.

    A signal for all processes at once (systemd's KillMode=control-group, a terminal that closes) ends Spark's JVM
    before the daemon could drain what runs in it.
    """
    return isinstance(ended.error, DrainedError) or (
        ended.stopping and isinstance(ended.error, RetryableError | UnreachableError)
    )


def message_of(error: Exception) -> str:
    """One line for CQ_ERROR_MESSAGE; a refusal starts with its code."""
    text = one_line(error) or type(error).__name__
    if isinstance(error, RefusedError):
        return f"{error.reason.value}: {text}"
    return text if isinstance(error, CompactorError) else f"{type(error).__name__}: {text}"
