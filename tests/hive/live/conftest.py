"""Real Hive servers with our daemon beside them, and what was counted on them."""

import itertools
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from tests.counts import count
from tests.hive.live.beside import Beside, beside
from tests.hive.live.compared import Difference
from tests.hive.live.history import History
from tests.hive.live.shrinking import shrink
from tests.hive.live.steps import choose
from tests.hive.live.world import ASCII_VALUES, MORE, VALUES, Step, World
from tests.hive.server.hive import HiveServer, hive_server
from tests.hive.server.jars import UnavailableError
from tests.metastore.databases import mariadb, postgres  # noqa: F401 - fixtures
from tests.needs import missing

SHRINK_SECONDS = 240.0
LENGTH = 50
"""Statements of one history; then its databases are dropped, with what the daemon is still doing there."""


@dataclass
class Pair:
    """
    A server and our daemon on its metastore.

    Args:
        readers: a second HiveServer2, for queries that are held.
        compactor: a third, in which Hive's own threads run: jobs of one JVM get into each other's way.
    """

    hive: HiveServer
    readers: HiveServer
    compactor: HiveServer
    daemon: Beside
    folder: Path
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def histories(
        self,
        name: str,
        seed: int,
        statements: int,
        hours: float,
        *,
        values: list[str | None] = VALUES,
        forgets: bool = False,
        both: bool = False,
    ) -> Counter[str]:
        """
        One after the other, until there were so many statements and hours; what was done in them.

        Args:
            both: Hive's own Cleaner runs too.

        Raises:
            Difference: one failed; the message ends with the shortest SQL that fails too.
        """
        counts: Counter[str] = Counter()
        deadline = time.monotonic() + hours * 3600
        while _played(counts) < statements or time.monotonic() < deadline:
            most = min(LENGTH, statements - _played(counts)) if hours == 0 else LENGTH
            with ExitStack() as told:
                begin = partial(self._history, seed, values, forgets=forgets, both=both)
                history, steps = begin(), []
                if history.world.listing_wait:
                    told.enter_context(self.daemon.told(cleaner={"listing_wait_seconds": history.world.listing_wait}))
                try:
                    self._play(history, steps, most)
                except Difference as difference:
                    if not self._made_by_hive(difference, steps, begin):
                        shortest = self._shrunk(difference, steps, begin, history)
                        raise AssertionError(
                            f"seed {seed}, {len(steps)} steps: {difference}\n\n{shortest}"
                        ) from difference
                    history.counts["differences that Hive makes without our daemon"] += 1
                finally:
                    found = history.counts + self.daemon.finished() + self.daemon.refusals(history.world.databases)
                    found["histories"] += 1
                    counts.update(found)
                    for what, number in found.items():
                        count(f"Hive {self.hive.release} {name}: {what}", number)
                self._drop(history)
            seed += 1
        return counts

    def _history(
        self, seed: int, values: list[str | None], *, forgets: bool, both: bool, patient: bool = False
    ) -> History:
        number = next(self.numbers)
        world = World(
            seed,
            self.hive.version,
            str(self.folder / f"places {number}"),
            (f"h{number}", f"own{number}"),
            values,
            forgets=forgets,
            both=both,
        )
        return History(self.hive, self.readers, self.compactor, self.daemon, world, patient=patient)

    def _play(self, history: History, steps: list[Step], most: int) -> None:
        def drawn():
            for number in itertools.count():
                if _played(history.counts) >= most:
                    return
                steps.append(choose(history.world, number))
                yield steps[-1]

        history.run(drawn())

    def _made_by_hive(self, difference: Difference, steps: list[Step], begin: Callable[..., History]) -> bool:
        """Whether the same table differs at the same step where our daemon isn't there at all."""
        history, played = begin(), 0

        def again():
            nonlocal played
            for played, step in enumerate(steps, 1):  # noqa: B007 - counts what was played
                yield step

        with self.daemon.away():
            try:
                history.run(again())
            except Difference as found:
                return found.root == difference.root != "" and played == len(steps)
            finally:
                self._drop(history)
        return False

    def _shrunk(self, difference: Difference, steps: list[Step], begin: Callable[..., History], first: History) -> str:
        last: list[str] = []

        def fails(candidate) -> bool:
            history = begin(patient=True)
            try:
                history.run(candidate)
            except Difference as found:
                last[:] = [f"{history.sql()}\n{found}"]
                return True
            finally:
                self._drop(history)
            return False

        left, plays = shrink(steps, difference.root, fails, SHRINK_SECONDS)
        return f"shrunk to {len(left)} steps in {plays} plays:\n" + (
            last[0] if last else f"it didn't fail again when played step by step; before:\n{first.sql(difference.root)}"
        )

    def _drop(self, history: History) -> None:
        for table in history.world.tables.values():
            if table.view:  # else CASCADE is refused
                self.hive.sql(f"drop materialized view if exists {table.full_name}")
        delivered = [f"set {name}={value}" for name, value, _, versions in MORE if self.hive.version in versions]
        for server, session in ((self.hive, "main"), (self.readers, "held reader")):  # other tests use them, too
            server.sql(*delivered, session=session)
        for database in history.world.databases:
            self.hive.sql(f"drop database {database} cascade")


def _played(counts: Counter[str]) -> int:
    """Statements that took their time, on tables and on their twins."""
    return counts["statements"] + counts["statements of twins"]


@pytest.fixture(scope="session")
def pair(request, tmp_path_factory):
    """
    Gives the server of a release, "3" or "4", on a database, "postgres" or "mariadb", with our daemon beside it; one
    runs at a time.
    """
    running: dict[tuple[str, str], tuple[Pair, ExitStack]] = {}

    def started(version: str, product: str = "postgres") -> Pair:
        which = version, product
        if which not in running:
            for _, stack in running.values():
                stack.close()
            running.clear()
            stack, folder = ExitStack(), tmp_path_factory.mktemp(f"hive-{version}-{product}-")
            try:
                hive = stack.enter_context(hive_server(version, request.getfixturevalue(product)))
            except UnavailableError as error:
                missing(str(error))
            second, third = stack.enter_context(hive.second()), stack.enter_context(hive.second())
            running[which] = Pair(hive, second, third, stack.enter_context(beside(hive, folder)), folder), stack
        return running[which][0]

    yield started
    for _, stack in running.values():
        stack.close()


@pytest.fixture
def ascii_values():
    """
    Values of partitions where Hive compacts as well: its own compactor loses the rows of others (MRCompactor writes a
    path's low bytes only).
    """
    return ASCII_VALUES
