"""
Which entries one cycle of the Cleaner comes to, and in which order, so that a cycle ends and everybody gets a turn.

Those first whose turn was longest ago; those last whose store was away in it; and of a store that is found away in this cycle nothing more is tried. A store
that nobody came to for want of time is as good as any other in the cycle after that. Knows nothing of what cleaning is.
Source: docs/operations.md, Cleaner.
"""

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from compactor.metastore.cleaning import ReadyEntry
from compactor.roles.away import AwayStores, StoreAwayError
from compactor.roles.cleaner_tally import CleanerTally
from compactor.roles.progress import Progress
from compactor.roles.services import Services

CYCLE_SECONDS: Final = 300.0
"""No entry is begun after that, nor aborted writes after as long again: others wait for Hive's mutex, and metrics for a cycle that ends."""


class StoreDoubtfulError(StoreAwayError):
    """Its store was away in the latest cycle: others come first."""


class Turns:
    """
    The memory of one Cleaner.

    Args:
        progress: told of each entry that had its turn.
        clock: seconds.
    """

    def __init__(self, services: Services, progress: Progress, clock: Callable[[], float]) -> None:
        self._services = services
        self._progress = progress
        self._clock = clock
        self._turns = itertools.count(1)
        self._tried: dict[int, int] = {}
        self._last = False
        self.away: Final = AwayStores()

    def time_is_up(self) -> Callable[[], bool]:
        """To be asked until `CYCLE_SECONDS` from now have passed."""
        until = self._clock() + CYCLE_SECONDS
        return lambda: self._clock() >= until

    def give(self, due: list[ReadyEntry], clean: Callable[[ReadyEntry], None], tally: CleanerTally) -> None:
        """
        Clean each, in the Cleaner's threads; what there is no time for is told to the tally.

        Args:
            clean: calls `take` as soon as it knows where the entry's files are, and lets through what that raises; nothing else.
        """
        if not due:
            return
        time_is_up = self.time_is_up()
        self._tried = {item.entry.id: turn for item in due if (turn := self._tried.get(item.entry.id))}
        doubtful: list[ReadyEntry] = []

        def guarded(item: ReadyEntry) -> None:
            if self._services.stopping.is_set():
                return
            if time_is_up():
                tally.put_off()
                return
            number, turn = item.entry.id, next(self._turns)
            try:
                clean(item)
                self._tried[number] = turn
            except StoreDoubtfulError:
                doubtful.append(item)
            except StoreAwayError as error:
                tally.pass_over(error.store)
            self._progress.made()

        with ThreadPoolExecutor(self._services.settings.cleaner.threads, thread_name_prefix="cleaning") as pool:
            self._last = False
            list(pool.map(guarded, sorted(due, key=lambda item: self._tried.get(item.entry.id, 0))))
            self._last = True
            list(pool.map(guarded, doubtful[:]))

    def take(self, location: str) -> None:
        """
        The turn of the entry that has its files here begins.

        Raises:
            StoreAwayError: it has none in this cycle; or, as `StoreDoubtfulError`, not yet.
        """
        self.away.check(location)
        if not self._last and self.away.is_doubtful(location):
            raise StoreDoubtfulError(f"{location} is on a store that was away")
