"""
Task attempts that fail on a cluster: which errors fail an attempt, how the error travels through Spark, and what a job's
failed attempts say together.

An error that another node may not have fails the attempt: Spark tries the task again, elsewhere where it can, and
excludes a node that fails again and again. A refusal that every node would repeat is the task's result: it ends the job
at once, and Spark repeats nothing. Of a failed attempt Spark keeps no more than its host and a text with a stack trace,
so the error travels inside that text, as one line of JSON.

One node says little about a store: it is unreachable when several hosts or the daemon itself can't reach it. Otherwise
the attempt at the compaction broke down, which is counted. Where everything runs on the daemon's machine there is no
other node: there each error is a result, and counts as the daemon's own.
Source: docs/spark.md, "A sick node".
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from compactor.errors import (
    CancelledError,
    CompactorError,
    CorruptFileError,
    OutcomeUnknownError,
    RefusedError,
    RetryableError,
    UnreachableError,
    VerificationError,
)
from compactor.reasons import Reason
from compactor.words import one_line

_OF_A_NODE: Final = frozenset(
    {
        Reason.CORRUPT_FILE,
        Reason.DISK_FULL,
        Reason.INPUT_CHANGED,
        Reason.LOCATION_MISSING,
        Reason.PERMISSION_DENIED,
        Reason.UNSUPPORTED_STORE,
    }
)
"""
Refusals that may be one node's: its memory or network damages what it reads, its disk is full, its mount is stale or
missing, its user may not read, a package isn't installed there.
"""
_LONGEST: Final = 2000
"""Characters of an error's message that travel."""
_PLAIN: Final = (CompactorError, RetryableError, OutcomeUnknownError, CancelledError)


class AttemptFailedError(Exception):
    """Fails a task attempt. Its message, the only part that reaches the driver, is the error as JSON."""

    def __init__(self, error: CompactorError) -> None:
        super().__init__(_encoded(error))


_TRAVELLED: Final = re.compile(rf"\b{AttemptFailedError.__name__}: (\{{.*\}})[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """
    A failed attempt of a task, as Spark has recorded it.

    Args:
        host: by Spark's name for it.
        error: None: an unforeseen error, or its executor was lost.
        why: one line.
    """

    host: str
    error: CompactorError | None
    why: str

    @classmethod
    def of(cls, host: str, text: str, line: Callable[[str], str] = one_line) -> "FailedAttempt":
        """
        Args:
            text: what Spark recorded.
            line: takes the telling line from a text without an error of ours.
        """
        error = travelled(text)
        return cls(host, error, line(text) if error is None else one_line(error))

    @property
    def kind(self) -> str:
        """In metrics and the log: the code of a refusal; `unreachable`; or `broke-down`."""
        if isinstance(self.error, RefusedError):
            return self.error.reason.value
        return "unreachable" if isinstance(self.error, UnreachableError) else "broke-down"


def fails_the_attempt(error: CompactorError) -> bool:
    """
    Whether a task on a cluster fails with this error, and is tried again. Every node would repeat any other. What was
    found different is never asked for again: in doubt nothing is published.
    """
    if isinstance(error, VerificationError):
        return False
    if isinstance(error, RefusedError):
        return isinstance(error, CorruptFileError) or error.reason in _OF_A_NODE
    return True


def _encoded(error: CompactorError) -> str:
    known = (RefusedError, UnreachableError, *_PLAIN[1:])
    facts: dict[str, Any] = {
        "error": next((one.__name__ for one in known if isinstance(error, one)), CompactorError.__name__),
        "message": str(error)[:_LONGEST],
    }
    if isinstance(error, RefusedError):
        facts["reason"] = error.reason.value
    if isinstance(error, UnreachableError):
        facts["store"] = error.store
    return json.dumps(facts)


def travelled(text: str) -> CompactorError | None:
    """
    The error that failed an attempt, from Spark's text about it; None: it failed otherwise. The text also holds the
    error's own stack trace, and there a message that names a file may look like anything: the last one counts.
    """
    found = _TRAVELLED.findall(text)
    try:
        return _decoded(json.loads(found[-1])) if found else None
    except (ValueError, KeyError, TypeError):
        return None


def _decoded(facts: Mapping[str, Any]) -> CompactorError:
    name, message = facts["error"], str(facts["message"])
    if name == RefusedError.__name__:
        return RefusedError(Reason(facts["reason"]), message)
    if name == UnreachableError.__name__:
        return UnreachableError(message, store=facts["store"])
    return {one.__name__: one for one in _PLAIN}[name](message)


def judged(error: CompactorError, failures: Iterable[FailedAttempt], seen_here: Callable[[], bool]) -> CompactorError:
    """
    What a job ends with, the last attempt of whose task failed with this error.

    Args:
        failures: the job's failed attempts.
        seen_here: whether this process reaches the store, and finds the compaction's staging directory there.
    """
    hosts = sorted({failure.host for failure in failures if _is_alike(error, failure.error)})
    message = f"{error} (seen from {' and '.join(hosts[:3]) or 'a node'}{' and others' if hosts[3:] else ''})"
    match error:
        case RefusedError():
            return RefusedError(error.reason, message)
        case UnreachableError() if len(hosts) > 1 or not seen_here():
            return UnreachableError(message, store=error.store)
        case CancelledError() if not seen_here():
            return error
        case UnreachableError() | CancelledError() | RetryableError():
            return RetryableError(message)
        case _:
            return type(error)(message)


def _is_alike(error: CompactorError, other: CompactorError | None) -> bool:
    if isinstance(error, UnreachableError):
        return isinstance(other, UnreachableError) and other.store == error.store
    if isinstance(error, RefusedError):
        return isinstance(other, RefusedError) and other.reason is error.reason
    return type(other) is type(error)
