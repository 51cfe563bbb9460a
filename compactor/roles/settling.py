"""
Attempts of one worker that have ended and can't be undone yet: the store that something of theirs may lie in is away, or the metastore.

The claim stays ours, and its transaction open, until nothing of the attempt can become visible any more; meanwhile the worker takes other entries, a few at most: each
keeps a claim, a heartbeat and an open transaction, which the Cleaner has to wait for.
Source: docs/operations.md.
"""

from dataclasses import dataclass
from typing import Final

from compactor.errors import CompactorError
from compactor.log import get_logger
from compactor.roles.attempt import Attempt
from compactor.roles.setbacks import Setbacks, pause_after

_log = get_logger(__name__)
MOST: Final = 8
"""So many of one worker; with these it claims nothing more."""


@dataclass(slots=True, eq=False)
class Unsettled:
    """
    An attempt that ended with this error, and is to be undone.

    Args:
        times: how often that was tried in vain.
        until: when it is tried again.
    """

    attempt: Attempt
    error: Exception
    times: int = 0
    until: float = 0.0
    why: str = ""

    @property
    def sentence(self) -> str:
        entry = self.attempt.entry
        return f"compaction {entry.id} of {entry.entity} has ended and can't be undone yet: {self.why}"


class Settling:
    """
    For one thread.

    Args:
        setbacks: told of all of them; its clock is ours.
    """

    def __init__(self, setbacks: Setbacks) -> None:
        self._setbacks = setbacks
        self._left: list[Unsettled] = []

    def __contains__(self, unsettled: Unsettled) -> bool:
        return unsettled in self._left

    @property
    def entries(self) -> frozenset[int]:
        """By id: if somebody else has cleared up after such an attempt, the entry isn't for this worker before it has done so itself."""
        return frozenset(unsettled.attempt.entry.id for unsettled in self._left)

    def due(self) -> Unsettled | None:
        """The one to be tried again now, if any: whose time came first."""
        first = min(self._left, key=lambda unsettled: unsettled.until, default=None)
        return first if first is not None and first.until <= self._setbacks.clock() else None

    def keep(self, unsettled: Unsettled, error: Exception) -> str:
        """It can't be undone now, for that error; returns a sentence."""
        unsettled.times += 1
        unsettled.until = self._setbacks.clock() + (pause := pause_after(unsettled.times))
        unsettled.why = " ".join(str(error).split()) or type(error).__name__
        if unsettled not in self._left:
            self._left.append(unsettled)
        self._setbacks.kept(unsettled, unsettled.sentence)
        if isinstance(error, CompactorError | OSError):
            say = _log.debug if unsettled.times > 1 else _log.warning
            say("an attempt can't be undone yet; its claim stays", message=unsettled.why, next_try_seconds=pause)
        else:
            _log.error("undoing an attempt broke; its claim stays", exc_info=error)
        return f"{unsettled.sentence}; next try in {pause:.0f} s"

    def done(self, unsettled: Unsettled) -> None:
        """Nothing of it is left."""
        if unsettled in self._left:
            self._left.remove(unsettled)
        self._setbacks.settled(unsettled)

    def full(self) -> str | None:
        """Why nothing more may be claimed; None: it may."""
        if len(self._left) < MOST:
            return None
        return f"{len(self._left)} attempts have ended and can't be undone yet, so nothing more is claimed; {self.waiting()}"

    def waiting(self) -> str | None:
        """What is waited for; None: nothing is left."""
        first = min(self._left, key=lambda unsettled: unsettled.until, default=None)
        return None if first is None else f"{first.sentence}; next try in {max(0.0, first.until - self._setbacks.clock()):.0f} s"
