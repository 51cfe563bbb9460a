"""
Asking a metastore that may be away for a while: a running attempt goes on, and isn't thrown away for a restart of the database.

The attempt's transaction (on Hive 3.1 its lock) lives on meanwhile: whoever would end it needs the same database. Whether it does is asked before anything is
published. Only for what may be asked twice.
Source: docs/operations.md.
"""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from compactor.errors import CompactorError, RetryableError, UnreachableError
from compactor.log import get_logger
from compactor.roles.cancellation import Cancellation

T = TypeVar("T")

_log = get_logger(__name__)
AWAY_SECONDS: Final = 120.0
PAUSE_SECONDS: Final = 1.0


def patiently(ask: Callable[[], T], cancellation: Cancellation, *also: type[CompactorError]) -> T:
    """
    Ask, and again while the metastore doesn't answer, for two minutes at most.

    Args:
        cancellation: looked at in between.
        also: errors that are repeated, too.

    Raises:
        CompactorError: the last error; why the work is over; what asking raises otherwise, such as that a store is away.
    """
    passing: tuple[type[CompactorError], ...] = (UnreachableError, RetryableError, *also)
    began, told = time.monotonic(), False
    while True:
        try:
            return ask()
        except passing as error:
            if (isinstance(error, UnreachableError) and error.store is not None) or time.monotonic() - began >= AWAY_SECONDS:
                raise
            if not told:
                _log.warning("the metastore doesn't answer; the compaction waits for it", error=str(error), at_most_seconds=AWAY_SECONDS)
            told = True
        time.sleep(PAUSE_SECONDS)
        cancellation.check()
