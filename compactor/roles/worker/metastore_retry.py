"""
Retries calls to a metastore that is unreachable for a while, so that an attempt survives a restart of the database.

The attempt's transaction (on Hive 3.1 its lock) lives on meanwhile: a process that would end it needs the same
database. Before anything is published, the attempt checks that it still lives. Only for calls that may be made twice.
Source: docs/operations.md.
"""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from compactor.errors import CompactorError, RetryableError, UnreachableError
from compactor.log import get_logger
from compactor.roles.worker.cancellation import Cancellation

T = TypeVar("T")

_log = get_logger(__name__)
AWAY_SECONDS: Final = 120.0
PAUSE_SECONDS: Final = 1.0


def patiently(ask: Callable[[], T], cancellation: Cancellation, *also: type[CompactorError]) -> T:
    """
    Call `ask`, and again while the metastore doesn't answer, for two minutes at most.

    Args:
        cancellation: checked in between.
        also: further errors after which the call is repeated.

    Raises:
        CompactorError: the last error; why the work is over; any other error of `ask`, such as an unreachable store.
    """
    passing: tuple[type[CompactorError], ...] = (UnreachableError, RetryableError, *also)
    began, told = time.monotonic(), False
    while True:
        try:
            return ask()
        except passing as error:
            if (
                isinstance(error, UnreachableError) and error.store is not None
            ) or time.monotonic() - began >= AWAY_SECONDS:
                raise
            if not told:
                _log.warning(
                    "metastore.call_failed",
                    error=str(error),
                    at_most_seconds=AWAY_SECONDS,
                    detail="the compaction waits for the metastore",
                )
            told = True
        time.sleep(PAUSE_SECONDS)
        cancellation.check()
