"""A queue in which entries wait, and workers who claim what `Backoff` lets them, with a clock of their own."""

import heapq
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from compactor.acid.compaction import CompactionKind
from compactor.errors import UnreachableError
from compactor.metastore.model import Entity, QueueEntry, QueueState
from compactor.roles.worker.backoff import Backoff

POLL = 5.0
LONGEST_ATTEMPT = 600.0


@dataclass(frozen=True)
class Waiting:
    """
    An entry, and what becomes of each try.

    Args:
        fails: so often something is away that all need, in the end not any more.
        store: it lies on this one, which may be away.
        waits: there is never room for it.
        since: seconds; when it is queued.
        seconds: that a try takes.
    """

    fails: int = 0
    store: str | None = None
    waits: bool = False
    pool: str | None = None
    since: float = 0.0
    seconds: float = 1.0


@dataclass
class Model:
    """Workers of some pools, and a queue; `back`: from when on the stores answer."""

    entries: dict[int, Waiting]
    workers: tuple[str | None, ...]
    back: float = float("inf")
    now: float = 0.0
    claims: list[tuple[float, str | None, int]] = field(default_factory=list)
    done: dict[int, float] = field(default_factory=dict)
    trouble: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.backoff = Backoff(lambda: self.now)
        self.working: set[int] = set()
        self.tries: Counter[int] = Counter()

    def run(self, until: float, wanted: Collection[int] = ()) -> None:
        """Until then, or until those are done, if any are named."""
        events = [(0.0, number, None) for number in range(len(self.workers))]
        while events[0][0] <= until and not (wanted and self.done.keys() >= set(wanted)):
            self.now, worker, busy = heapq.heappop(events)
            if busy is not None:
                self.end(busy)
            number = self.claim(self.workers[worker])
            heapq.heappush(
                events,
                (self.now + (POLL if number is None else max(0.1, self.entries[number].seconds)), worker, number),
            )

    def claim(self, pool: str | None) -> int | None:
        if self.backoff.pause(pool) is not None:
            return None

        def take(without, among):
            for number, entry in self.entries.items():
                waits = (
                    entry.pool == pool
                    and entry.since <= self.now
                    and number not in self.working
                    and number not in self.done
                )
                if waits and number not in without and (among is None or number in among):
                    self.working.add(number)
                    return row(number)
            return None

        found = self.backoff.claim(pool, take)
        if found is None:
            self.backoff.nothing_else(lambda number: number not in self.done)
            return None
        self.claims.append((self.now, pool, found.id))
        return found.id

    def end(self, number: int) -> None:
        self.working.remove(number)
        self.tries[number] += 1
        entry = self.entries[number]
        if entry.store is not None and self.now < self.back:
            error = UnreachableError(f"{entry.store} is away")
            error.store = entry.store
            self.backoff.given_back(row(number), error, entry.pool)
        elif self.tries[number] <= entry.fails:
            self.backoff.given_back(row(number), UnreachableError("no ResourceManager"), entry.pool)
        elif entry.waits:
            self.backoff.leave(row(number), UnreachableError("no room"))
        else:
            self.backoff.ended(row(number), compacted=True)
            self.done[number] = self.now
        self.trouble.append(self.backoff.trouble())

    def first(self, number: int) -> int:
        """How many claims its pool's workers made while it waited, before its first."""
        entry = self.entries[number]
        before = [claimed for at, pool, claimed in self.claims if pool == entry.pool and at >= entry.since]
        return before.index(number) if number in before else len(before) + 1_000_000


def row(number):
    return QueueEntry(number, Entity("db", f"t{number}"), CompactionKind.MAJOR, QueueState.WORKING)
