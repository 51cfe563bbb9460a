"""
Attempts of one worker that have ended and can't be undone yet, because the metastore or the store that may hold their
files is unreachable.

The claim stays with the worker, and the attempt's transaction open, until nothing of the attempt can become visible any
more. Meanwhile the worker takes other entries. It keeps a few such attempts at most: each holds a claim, a heartbeat
and an open transaction, which the Cleaner has to wait for.
Source: docs/operations.md.
"""

from dataclasses import dataclass, field
from typing import Final

from compactor.errors import CompactorError
from compactor.log import get_logger
from compactor.roles.cycle import Phrase
from compactor.roles.unreachable import news
from compactor.roles.worker.attempt import Attempt
from compactor.roles.worker.backoff import Backoff, next_try, pause_after
from compactor.words import one_line

_log = get_logger(__name__)
MOST: Final = 8
"""The most such attempts of one worker; with these it claims nothing more."""


@dataclass(slots=True, eq=False)
class PendingRollback:
    """
    An attempt that ended with this error and is to be undone.

    Args:
        times: how many tries to undo it failed.
        until: when the next try is due, by the backoff's clock.
    """

    attempt: Attempt
    error: Exception
    times: int = 0
    until: float = 0.0
    why: Phrase = field(default_factory=lambda: Phrase(""))

    @property
    def phrase(self) -> Phrase:
        entry = self.attempt.entry
        return self.why.after(f"compaction {entry.id} of {entry.entity} has ended and can't be undone yet: ")


class Rollbacks:
    """
    The attempts that one worker's thread still has to undo.

    Args:
        backoff: the backoff, told of each of these attempts; its clock is used here, too.
    """

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._left: list[PendingRollback] = []

    def __contains__(self, pending: PendingRollback) -> bool:
        return pending in self._left

    @property
    def entries(self) -> frozenset[int]:
        """
        The ids of their entries. When another process has cleared up after such an attempt, this worker doesn't claim
        the entry before it has cleared up itself.
        """
        return frozenset(pending.attempt.entry.id for pending in self._left)

    def due(self) -> PendingRollback | None:
        """The attempt to undo now, if any: the one whose time came first."""
        first = min(self._left, key=lambda pending: pending.until, default=None)
        return first if first is not None and first.until <= self._backoff.clock() else None

    def keep(self, pending: PendingRollback, error: Exception) -> Phrase:
        """Keep an attempt that can't be undone now because of this error; says so."""
        pending.times += 1
        pending.until = self._backoff.clock() + (pause := pause_after(pending.times))
        pending.why = Phrase(one_line(error) or type(error).__name__, news(error))
        if pending not in self._left:
            self._left.append(pending)
        self._backoff.kept(pending, pending.phrase.text)
        if isinstance(error, CompactorError | OSError):
            (_log.debug if pending.times > 1 else _log.warning)(
                "rollback.postponed", why=pending.why.text, next_try_seconds=pause, detail="the claim stays"
            )
        else:
            _log.error("rollback.crashed", detail="the claim stays", exc_info=error)
        return next_try(pending.phrase, pause)

    def done(self, pending: PendingRollback) -> None:
        """Forget an attempt of which nothing is left."""
        if pending in self._left:
            self._left.remove(pending)
        self._backoff.settled(pending)

    def full(self) -> Phrase | None:
        """Why nothing more may be claimed; None if entries may be."""
        if (waiting := self.waiting()) is None or len(self._left) < MOST:
            return None
        return waiting.after(
            f"{len(self._left)} attempts have ended and can't be undone yet, so nothing more is claimed; "
        )

    def waiting(self) -> Phrase | None:
        """What the worker waits for; None if no attempt is left."""
        first = min(self._left, key=lambda pending: pending.until, default=None)
        return None if first is None else next_try(first.phrase, first.until - self._backoff.clock())
