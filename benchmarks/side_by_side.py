"""
One compaction by Hive's own Worker and Cleaner, and the same by ours, in turn, on the same directories of one table.
Hive's Worker does it as a MapReduce job, as delivered, and again by queries on Tez (hive.compactor.crud.query.based).

Times to the commit are the metastore's, from the claim on; cleaning adds its cycle of the Cleaner. No time counts that
an entry waits for a thread, nor the second in which Hive's Cleaner takes a transaction that has just begun for one that
may still be open (TxnHandler's `openTxnTimeOutMillis`). The directories are put back before each turn, as hard links: what a compaction
reads is in memory for both. Hive reads each result afterwards, and the rows (ROW__IDs included) must be those of before.
"""

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psycopg

from benchmarks import harness, processes
from benchmarks.lab import run_once
from compactor.acid.compaction import CompactionKind
from compactor.metastore.model import Entity, QueueState
from compactor.roles.cleaner.cleaner import Cleaner
from compactor.roles.services import Services
from compactor.roles.worker.worker import Worker
from compactor.settings import Settings
from tests.hive.server.configuration import by_queries
from tests.hive.server.hive import HiveServer

MAPREDUCE = {"mapreduce.local.map.tasks.maximum": "2"}
HIVE, HIVE_ON_TEZ, OURS = "Hive", "Hive on Tez", "ours"
ENDED = 'select "CC_STATE", "CC_START", "CC_COMMIT_TIME", "CC_ERROR_MESSAGE" from "COMPLETED_COMPACTIONS" where "CC_ID" = %s'
YOUNG_SECONDS = 1.2
WORKERS = 4
TEZ_ROUNDS = 3
"""Queries on Tez take longest, and no bar has them as its peer."""


@dataclass(slots=True)
class Side:
    """
    What one side did.

    Attributes:
        turns: of each compaction: seconds to the `commit` and until `cleaned`; to the commit also `cpu` seconds, bytes
            `read` and `written`, and the `peak` of resident memory; the `size` of the result in bytes.
        queries: of each query, the seconds that Hive took over the result, several times; and its `…_cpu` seconds.
    """

    turns: list[dict[str, float]] = field(default_factory=list)
    queries: dict[str, list[float]] = field(default_factory=dict)

    def figures(self) -> dict[str, float]:
        """Medians; of memory the highest."""
        median = {name: statistics.median(turn[name] for turn in self.turns) for name in self.turns[0]}
        peak = max(turn["peak"] for turn in self.turns)
        queries = {name: statistics.median(took) for name, took in self.queries.items()}
        return {name: round(figure, 3) for name, figure in {**median, "peak": peak, **queries}.items()}


def services_beside(hive: HiveServer) -> Services:
    """What our roles need to work on a Hive's metastore and warehouse, as delivered but for the Cleaner's wait."""
    return Services.open(
        Settings(
            database={"url": hive.database},
            warehouse={"roots": [f"file:{hive.warehouse}"]},
            spark={"master": "local[2]"},
            cleaner={"listing_wait_seconds": 0},
            http={"enabled": False},
            log={"level": "error"},
        )
    )


class SideBySide:
    """
    A Hive with nothing of its own running, and our roles on its metastore.

    Args:
        hive: the server.
        aside: an empty folder on the warehouse's file system.
        rounds: how many count; one more comes first, to warm both up.
    """

    def __init__(self, hive: HiveServer, aside: Path, rounds: int) -> None:
        self._hive, self._aside, self._rounds = hive, aside, rounds
        self._services = services_beside(hive)
        self._worker, self._cleaner = Worker(self._services, 0), Cleaner(self._services)

    def close(self) -> None:
        self._services.close()

    def run(self, table: str, kind: CompactionKind, rows: str, queries: dict[str, str]) -> dict[str, Side]:
        """
        Compact a table by both in turn, and leave our result in it.

        Args:
            rows: a query whose answer tells whether two directories hold the same rows.
            queries: whose time over each result is taken.

        Raises:
            RuntimeError: a compaction didn't end well, or a result holds other rows.
        """
        before, sides = self._aside / table / "before", {name: Side() for name in (HIVE, HIVE_ON_TEZ, OURS)}
        place = self._hive.warehouse / table
        shutil.rmtree(before.parent, ignore_errors=True)
        _link(place, before)
        expected = self._hive.rows(rows)
        for number in range(self._rounds + 1):
            for name in sorted(sides, reverse=bool(number % 2)):
                if name == HIVE_ON_TEZ and number > TEZ_ROUNDS:
                    continue
                turn = self._turn(table, kind, name)
                if number:
                    sides[name].turns.append(turn)
                kept = self._aside / table / name
                shutil.rmtree(kept, ignore_errors=True)
                place.rename(kept)
                _link(before, place)
        for name in sides:
            with self._in_place(table, name):
                if (found := self._hive.rows(rows)) != expected:
                    raise RuntimeError(f"{table}: {name} made {found} of {expected}")
        for query, text in queries.items():
            for number in range(self._rounds + 1):
                for name in (HIVE, OURS)[:: -1 if number % 2 else 1]:
                    side = sides[name]
                    with self._in_place(table, name), processes.Meter(self._hive.pid) as meter:
                        took = harness.seconds(partial(self._hive.rows, text))
                    if number:
                        side.queries.setdefault(query, []).append(took)
                        side.queries.setdefault(f"{query}_cpu", []).append(meter.seconds)
        shutil.rmtree(place)
        (self._aside / table / OURS).rename(place)
        return sides

    def run_many(self, table: str, partitions: Sequence[str], kind: CompactionKind, rows: str) -> dict[str, Side]:
        """
        Compact many partitions by both in turn. Hive's worker takes one after the other, for two jobs in one JVM lose
        rows: its times from claim to commit are added up. Of our four workers it is the time from the first claim to
        the last commit.

        Args:
            rows: as for `run`.

        Raises:
            RuntimeError: a compaction didn't end well, or a result holds other rows.
        """
        before, place = self._aside / table / "before", self._hive.warehouse / table
        sides = {name: Side() for name in (HIVE, OURS)}
        _link(place, before)
        expected = self._hive.rows(rows)
        for number in range(self._rounds + 1):
            for name in sorted(sides, reverse=bool(number % 2)):
                turn = self._turn_of_many(table, partitions, kind, name)
                if number:
                    sides[name].turns.append(turn)
                if (found := self._hive.rows(rows)) != expected:
                    raise RuntimeError(f"{table}: {name} made {found} of {expected}")
                shutil.rmtree(place)
                _link(before, place)
        return sides

    def _turn_of_many(self, table: str, partitions: Sequence[str], kind: CompactionKind, name: str) -> dict[str, float]:
        os.sync()
        queue = self._services.queue
        entries = [queue.enqueue(Entity("default", table, one), kind).id for one in partitions]
        ours = name == OURS
        with processes.Meter(*((os.getpid(), {self._hive.pid}) if ours else (self._hive.pid,))) as meter:
            if ours:
                with ThreadPoolExecutor(WORKERS) as pool:
                    list(pool.map(self._work_until_empty, range(WORKERS)))
            else:
                for _ in entries:
                    self._hive.cycle("worker", MAPREDUCE)
        time.sleep(YOUNG_SECONDS)
        if ours:
            self._cleaner.run_once()
        else:
            self._hive.cycle("cleaner")
        with psycopg.connect(self._hive.database) as connection:
            ended = [connection.execute(ENDED, (entry,)).fetchone() for entry in entries]
        times = [(row[1], row[2]) for row in ended if row is not None and row[0] == "s"]
        if len(times) < len(entries):
            raise RuntimeError(f"{table}: by {name} {len(times)} of {len(entries)} ended well; {self._hive.said()}")
        took = (
            max(commit for _, commit in times) - min(start for start, _ in times)
            if ours
            else sum(commit - start for start, commit in times)
        )
        return {"commit": took / 1000, "cpu": meter.seconds, "peak": meter.peak}

    def _work_until_empty(self, number: int) -> None:
        worker = Worker(self._services, number)
        while self._services.queue.entries(QueueState.INITIATED):
            run_once(worker)

    def _turn(self, table: str, kind: CompactionKind, name: str) -> dict[str, float]:
        os.sync()
        entry = self._services.queue.enqueue(Entity("default", table, None), kind).id
        work: Callable[[], object]
        clean: Callable[[], object]
        if name == OURS:
            work, clean = partial(run_once, self._worker), self._cleaner.run_once
            meter = processes.Meter(os.getpid(), without={self._hive.pid})
        else:
            told = MAPREDUCE if name == HIVE else by_queries(self._hive.folder)
            work, clean = partial(self._hive.cycle, "worker", told), partial(self._hive.cycle, "cleaner")
            meter = processes.Meter(self._hive.pid)
        with meter:
            work()
        time.sleep(YOUNG_SECONDS)
        cleaning = harness.seconds(clean)
        with psycopg.connect(self._hive.database) as connection:
            ended = connection.execute(ENDED, (entry,)).fetchone()
        if ended is None or ended[0] != "s":
            found = ended or self._services.queue.entry(entry)
            raise RuntimeError(f"{table}: the compaction by {name} ended as {found}; {self._hive.said()}")
        _, start, commit, _ = ended
        took = (commit - start) / 1000
        size = sum(file.stat().st_size for file in (self._hive.warehouse / table).rglob("*") if file.is_file())
        return {
            "commit": took,
            "cleaned": took + cleaning,
            "cpu": meter.seconds,
            "read": meter.read,
            "written": meter.written,
            "peak": meter.peak,
            "size": size,
        }

    @contextmanager
    def _in_place(self, table: str, name: str) -> Iterator[None]:
        """For as long as the block runs the table holds this side's result."""
        place, kept, waiting = self._hive.warehouse / table, self._aside / table / name, self._aside / table / "waiting"
        place.rename(waiting)
        kept.rename(place)
        yield
        place.rename(kept)
        waiting.rename(place)


def _link(source: Path, target: Path) -> None:
    shutil.copytree(source, target, copy_function=os.link)
