"""
Which entries one cycle of the Cleaner reaches, and in which order, so that a cycle ends and every entry gets a turn.

Entries whose turn was longest ago come first. Entries whose store was unreachable in the cycle before come last. When a
store is found unreachable in this cycle, nothing more is tried there. A store that was unreachable and that the next
cycle doesn't reach for want of time is treated like any other in the cycle after that. Knows nothing of what cleaning
is.
Source: docs/operations.md, Cleaner.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from compactor.metastore.clean.may_clean import ReadyEntry
from compactor.metastore.model import Entity
from compactor.roles.cleaner.tally import CleanerTally
from compactor.roles.cycle import Clock, Progress
from compactor.roles.services import Services
from compactor.roles.unreachable import AwayStores, StoreAwayError

CYCLE_SECONDS: Final = 300.0
"""
No entry is begun after this time, and no aborted writes after as long again: other processes wait for Hive's mutex, and
metrics for a cycle that ends.
"""


@dataclass(slots=True)
class EntryMemory:
    """
    What the Cleaner remembers of one entry, for as long as it is ready for cleaning.

    Args:
        turn: the number of its latest turn; 0: it had none.
        said: what of the entry was told in the log last.
        failures: how many of its cleanings failed in a row.
        unanswered: whether the outcome of its latest cleaning is unknown.
        missing: its name, and since when that isn't in the catalog; in seconds of the Cleaner's clock.
    """

    turn: int = 0
    said: Hashable = None
    failures: int = 0
    unanswered: bool = False
    missing: tuple[Entity, float] | None = None


class StoreDoubtfulError(StoreAwayError):
    """Its store was unreachable in the cycle before: other entries come first."""


class Schedule:
    """
    Gives one Cleaner's entries their turns.

    Args:
        progress: told of each entry that had its turn.
        memory: of each entry by its id, in which the turns are kept; threads use it that are at different entries.
    """

    def __init__(
        self, services: Services, progress: Progress, clock: Clock, memory: defaultdict[int, EntryMemory]
    ) -> None:
        self._services = services
        self._progress = progress
        self._clock = clock
        self._turns = itertools.count(1)
        self._memory = memory
        self._last = False
        self.away: Final = AwayStores()

    def time_is_up(self) -> Callable[[], bool]:
        """A function that tells whether `CYCLE_SECONDS` from now have passed."""
        until = self._clock() + CYCLE_SECONDS
        return lambda: self._clock() >= until

    def give(self, due: list[ReadyEntry], clean: Callable[[ReadyEntry], None], tally: CleanerTally) -> None:
        """
        Clean each entry, in the Cleaner's threads; count in the tally those that there is no time for.

        Args:
            clean: calls `take` as soon as it knows where the entry's files are, and lets through what `take` raises; it
                raises nothing else.
        """
        if not due:
            return
        time_is_up = self.time_is_up()
        doubtful: list[ReadyEntry] = []

        def guarded(item: ReadyEntry) -> None:
            if self._services.stopping.is_set():
                return
            if time_is_up():
                tally.put_off()
                return
            turn = next(self._turns)
            try:
                clean(item)
                self._memory[item.entry.id].turn = turn
            except StoreDoubtfulError:
                doubtful.append(item)
            except StoreAwayError as error:
                tally.pass_over(error.store)
            self._progress.made()

        with ThreadPoolExecutor(self._services.settings.cleaner.threads, thread_name_prefix="cleaning") as pool:
            self._last = False
            list(pool.map(guarded, sorted(due, key=lambda item: self._memory[item.entry.id].turn)))
            self._last = True
            list(pool.map(guarded, doubtful[:]))

    def take(self, location: str) -> None:
        """
        Begin the turn of the entry that has its files at this location.

        Raises:
            StoreAwayError: the entry has no turn in this cycle; or, as `StoreDoubtfulError`, not yet.
        """
        self.away.check(location)
        if not self._last and self.away.is_doubtful(location):
            raise StoreDoubtfulError(f"{location} is on a store that was away")
