"""
What the quotas of HDFS leave at a directory, with as few questions to its NameNode as that takes.

The protocol that hdfs-native speaks tells a directory's quotas only together with a count of everything below it (getContentSummary). The NameNode answers that to
whoever may look into every directory below, so that one private directory of somebody else's closes all that are above it; and the count costs it time. So the
directories above are asked from the nearest upwards, as far as they answer, and each answer is kept the longer, the longer it took.
Source: docs/storage.md; Hadoop's ContentSummaryComputationContext.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from compactor.errors import CompactorError, RefusedError
from compactor.log import get_logger
from compactor.reasons import Reason
from compactor.storage.base import Room
from compactor.storage.hdfs_client import FileDefaults
from compactor.storage.hdfs_failures import explained
from compactor.storage.location import parent

_log = get_logger(__name__)
_UNLIMITED: Final = 1 << 62
"""A quota that isn't set is -1, seen as an unsigned number."""
_REPLICATION: Final = 3
"""How often a byte counts against a space quota where only the NameNode knows: HDFS' own default."""
_BLOCK: Final = 128 << 20
_COUNTED: Final = 1_000_000
"""Directories above one that holds more names aren't asked."""
_FRESH_SECONDS: Final = 60.0
"""What a quota leaves changes with every file; so does what is below the directory itself."""
_KEPT_SECONDS: Final = 600.0
"""That a directory above has no quota, or doesn't tell, changes when somebody sets one, or opens a directory."""
_LONGEST_SECONDS: Final = 3600.0
_SHARE: Final = 200
"""A count isn't repeated before so many times what it took: half a percent of somebody's time at most."""


@dataclass(frozen=True, slots=True)
class _Count:
    """
    What a directory said.

    Args:
        until: when it is asked again, by the clock.
        found: hdfs-native's ContentSummary; None: it doesn't tell.
    """

    until: float
    found: Any


class Quotas:
    """
    Remembers what was said. Safe in any number of threads; of the directories above, one at a time is counted.

    Args:
        client, defaults: asked for when they are needed.
        clock: seconds.
    """

    def __init__(self, client: Callable[[], Any], defaults: Callable[[], FileDefaults], clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._defaults = defaults
        self._clock = clock
        self._lock = threading.Lock()
        self._counting = threading.Lock()
        self._counts: dict[str, _Count] = {}

    def room(self, path: str) -> Room:
        """
        What the nearest quota of each kind leaves at a directory.

        Raises:
            FileNotFoundError: nothing there.
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
                free = max(0, left - (defaults.block_size or _BLOCK))  # a file that is being written holds a whole block of the quota
                said.append(f"the space quota of {directory}")
            if names is None and found.quota < _UNLIMITED:
                names = max(0, found.quota - found.file_count - found.directory_count)
                said.append(f"the name quota of {directory}")
            if None not in (free, names) or found.file_count + found.directory_count > _COUNTED:
                break
            directory = parent(directory)
        return Room(free, names, " or ".join(said) or "no quota", Reason.QUOTA_EXCEEDED)

    def _count(self, directory: str, *, itself: bool) -> Any:
        """What the directory says, or said lately; None when it doesn't tell."""
        with contextlib.nullcontext() if itself else self._counting:
            began, known = self._clock(), self._counts.get(directory)
            if known is not None and began < known.until:
                return known.found
            try:
                with explained("look at", directory):
                    found = self._client().get_content_summary(directory)
            except (CompactorError, FileNotFoundError) as error:
                closed = isinstance(error, RefusedError) and error.reason is Reason.PERMISSION_DENIED
                if itself and not closed:
                    raise
                _log.debug("what quotas leave here and above isn't told", directory=directory, why=str(error))
                found, lasting = None, closed
            else:
                lasting = min(found.quota, found.space_quota) >= _UNLIMITED
            now = self._clock()
            least = _KEPT_SECONDS if lasting and not itself else _FRESH_SECONDS
            until = now + min(_LONGEST_SECONDS, max(least, _SHARE * (now - began)))
            with self._lock:
                self._counts = {name: count for name, count in self._counts.items() if now < count.until} | {directory: _Count(until, found)}
            return found
