"""
Finds out what the quotas of HDFS leave at a directory, with as few calls to the NameNode as possible.

The protocol that hdfs-native speaks tells a directory's quotas only together with a count of everything below it
(getContentSummary). The NameNode answers this call only for a user that may look into every directory below. So one
private directory of another user hides the quotas of all directories above it; and the count takes the NameNode's time.
Therefore the directories above are asked from the nearest upwards, as far as they answer. The longer an answer took,
the longer it is kept.
Source: docs/storage.md; Hadoop's ContentSummaryComputationContext.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from compactor.errors import CompactorError, RefusedError
from compactor.log import get_logger
from compactor.reasons import Reason
from compactor.shared import Freshness
from compactor.storage.base import Room
from compactor.storage.hdfs.client import FileDefaults
from compactor.storage.hdfs.failures import explained
from compactor.storage.location import parent

_log = get_logger(__name__)
_UNLIMITED: Final = 1 << 62
"""From this number on no quota is set: an unset quota is -1, seen as an unsigned number."""
_REPLICATION: Final = 3
"""How often a byte counts against a space quota where only the NameNode knows the replication: HDFS' own default."""
_BLOCK: Final = 128 << 20
_COUNTED: Final = 1_000_000
"""Above a directory with more names than this, no directory is asked."""
_CHANGING: Final = Freshness(60.0, times=200, most=3600.0)
"""
Of an answer that each new file changes: what a quota leaves, and what is below the directory itself. Counting takes
half a percent of the NameNode's time at most.
"""
_LASTING: Final = Freshness(600.0, times=200, most=3600.0)
"""Of an answer that only a user's action changes: a directory above has no quota, or is private."""


class Quotas:
    """
    Asks for quotas and remembers the answers. Safe in any number of threads; directories above are counted one at a
    time.

    Args:
        client, defaults: called when they are needed.
        clock: returns seconds.
    """

    def __init__(
        self,
        client: Callable[[], Any],
        defaults: Callable[[], FileDefaults],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._defaults = defaults
        self._clock = clock
        self._lock = threading.Lock()
        self._counting = threading.Lock()
        self._counts: dict[str, tuple[float, Any]] = {}
        """
        Of a directory, until when its answer is kept, by the clock; and the answer, hdfs-native's ContentSummary. None:
        the NameNode doesn't tell.
        """

    def room(self, path: str) -> Room:
        """
        What the nearest quota of each kind leaves at a directory.

        Raises:
            FileNotFoundError: nothing is there.
            UnreachableError: the NameNode doesn't answer.
        """
        free: int | None = None
        names: int | None = None
        said: list[str] = []
        directory = path
        while directory != "/":
            found = self._count(directory, itself=directory == path)
            if found is None:
                break
            if free is None and found.space_quota < _UNLIMITED:
                defaults = self._defaults()
                left = (found.space_quota - found.space_consumed) // (defaults.replication or _REPLICATION)
                # an open file reserves a whole block of the quota
                free = max(0, left - (defaults.block_size or _BLOCK))
                said.append(f"the space quota of {directory}")
            if names is None and found.quota < _UNLIMITED:
                names = max(0, found.quota - found.file_count - found.directory_count)
                said.append(f"the name quota of {directory}")
            if None not in (free, names) or found.file_count + found.directory_count > _COUNTED:
                break
            directory = parent(directory)
        return Room(free, names, " or ".join(said) or "no quota", Reason.QUOTA_EXCEEDED)

    def _count(self, directory: str, *, itself: bool) -> Any:
        """A directory's answer, new or remembered; None when the NameNode doesn't tell."""
        with contextlib.nullcontext() if itself else self._counting:
            began, known = self._clock(), self._counts.get(directory)
            if known is not None and began < known[0]:
                return known[1]
            try:
                with explained("look at", directory):
                    found = self._client().get_content_summary(directory)
            except (CompactorError, FileNotFoundError) as error:
                closed = isinstance(error, RefusedError) and error.reason is Reason.PERMISSION_DENIED
                if itself and not closed:
                    raise
                _log.debug("quotas.not_read", directory=directory, error=str(error))
                found, lasting = None, closed
            else:
                lasting = min(found.quota, found.space_quota) >= _UNLIMITED
            now = self._clock()
            until = now + (_LASTING if lasting and not itself else _CHANGING).seconds(now - began)
            with self._lock:
                fresh = {name: count for name, count in self._counts.items() if now < count[0]}
                self._counts = fresh | {directory: (until, found)}
            return found
