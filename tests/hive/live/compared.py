"""
What Hive reads in a live history beside what the model says: rows, ROW__IDs, and the known cases in which Hive itself
reads less or fails.
"""

import contextlib
import itertools
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.hive.live.beside import Beside
from tests.hive.live.kinds import AS_READ
from tests.hive.live.tables import Row, Table
from tests.hive.live.twins import Twins
from tests.hive.live.world import World
from tests.hive.server.hive import HiveError, HiveServer

READ_AGAIN = 10
"""Times at most."""

EXCUSED = 12
"""
How often in a history a directory may go while Hive lists; once where our Cleaner waits for those who may be listing:
it looks twice, and there are milliseconds in between.
"""

MIDWAY = re.compile(r"/(base|delta|delete_delta)_[0-9_v]+(/_[a-z_]+)? does not exist")
"""
A directory, not a file with rows, was gone when it was to be listed: it may be one that the statement doesn't need.
"""

_MANIFEST = re.compile(r"Malformed ORC file .*?/-tmp\.[^/ ]*/[^/ ]*\.manifest")
"""Where a table has no base Hive 4.0.1 takes the manifests of a running INSERT for original files when it reads."""

_REPEATED = re.compile(r"Two readers for .*?/(delete_delta_\d+_\d+)/bucket_")
"""
Delete events that stand in several files of a directory that Hive 3.1's own minor compaction wrote (docs/testing.md).
"""

JOBS = {
    "vectorized": ["hive.fetch.task.conversion=none", "hive.vectorized.execution.enabled=true"],
    "row by row": ["hive.fetch.task.conversion=none", "hive.vectorized.execution.enabled=false"],
}
"""Sessions whose queries are jobs; others fetch rows themselves, one by one."""
_FORMATS = "org.apache.hadoop.hive.ql.io."
_NOT_COMBINED = "Must use HiveInputFormat to read ACID tables"
"""What Hive says of a job of MapReduce, as delivered, over a table that was migrated and not written since."""
BY_JOBS = 0.08
"""How many of the reads."""

Rows = list[tuple[str | None, Row]]


class Difference(AssertionError):  # noqa: N818 - what a history is for
    """Hive doesn't say what the model says. `root` is the table."""

    def __init__(self, root: str, what: str) -> None:
        super().__init__(what)
        self.root = root


class Compared:
    """
    The tables of a history, and how each read when it was read last.

    Args:
        readers: where a query is held, and asked beside a statement: in one JVM with a job it would read nothing.
        patient: wait after each step until nothing is queued, so that a shorter history meets the same compactions.
        compactor: where Hive's own Worker compacts the twins.
    """

    def __init__(
        self,
        hive: HiveServer,
        readers: HiveServer,
        compactor: HiveServer,
        daemon: Beside,
        world: World,
        *,
        patient: bool = False,
    ) -> None:
        self.hive, self.readers, self.daemon, self.world, self.patient = hive, readers, daemon, world, patient
        self.both = world.both
        self.said: list[tuple[str, str]] = []
        self.counts: Counter[str] = Counter()
        self.twins = Twins(hive, compactor, daemon, world, self.counts)
        self._draw = random.Random(f"{world.seed}/readers")
        self._open: list[tuple[int, int, str]] = []
        self._known: dict[str, Rows] = {}
        self._seen: dict[str, frozenset[str]] = {}
        self._excuses = 0
        Path(world.places).mkdir(parents=True, exist_ok=True)
        plain, own = world.databases
        hive.sql(f"create database {plain}", f"create database {own} location 'file://{world.places}/{own}.DB'")
        hive.sql("create temporary function hold as 'Hold'")
        by_jobs = [(server, session) for server in (hive, readers) for session in JOBS]
        for name, value in world.settings.items():
            for server, session in ((hive, "main"), (readers, "beside"), (readers, "held reader"), *by_jobs):
                server.sql(f"set {name}={value}", session=session)
        for server, session in by_jobs:
            for setting in JOBS[session]:
                server.sql(f"set {setting}", session=session)

    def _compare(self, table: Table, before_it: frozenset[str], *, keeps: bool) -> None:
        """
        Read a table that a statement was about, and remember how it reads.

        Args:
            before_it: its directories before the statement.
        """
        self._seen[table.root] = self._listing(table.root)
        unsure = any(AS_READ in row for row in table.rows.values())

        def right(found: Rows) -> bool:
            table.fill([row for _, row in found])
            return [row for _, row in found] == table.expected()

        try:
            found = self._read(table, self.hive, "main", right)
        except HiveError as error:
            raise self._unreadable(table, "after its statement", error) from error
        expected = table.expected()
        if unsure:
            quiet = self._listing(table.root) == before_it
            self.counts[
                f"tables whose values are as Hive read them {'before' if quiet else 'beside'} a compaction"
            ] += 1
        if [row for _, row in found] != expected:
            raise Difference(
                table.root,
                f"{table.full_name} reads:\n{rows_apart([(None, row) for row in expected], [(None, row) for _, row in found])}\n{self._evidence(table.root)}",
            )
        ids = [row_id for row_id, _ in found if row_id is not None]
        if len(set(zip(ids, map(table.key, (row for _, row in found)), strict=False))) != len(ids):
            raise Difference(table.root, f"{table.full_name} has a ROW__ID twice: {found}")
        before = {row: row_id for row_id, row in self._known.get(table.root, [])}
        moved = [(row_id, row) for row_id, row in found if keeps and before.get(row, row_id) != row_id]
        if moved:
            raise Difference(
                table.root, f"{table.full_name}: rows that no statement changed have other ROW__IDs: {moved}"
            )
        self._known[table.root] = found
        self.counts["rows compared"] += len(found)

    def _same(self, root: str, when: str) -> None:
        """Read a table again that no statement has changed since."""
        table, listing = self.world.tables[root], self._listing(root)
        if root not in self._known:
            return
        try:
            found = self._read(
                table,
                self.readers,
                "beside",
                lambda found: found == self._known[root],
                jobs=not when.startswith("beside"),  # its error is a job's, which doesn't tell of manifests
            )
        except HiveError as error:
            if _MANIFEST.search(str(error)):
                self.counts["readers that met the manifests of a writer"] += 1
                return
            raise self._unreadable(table, when, error) from error
        self.counts["rows compared"] += len(found)
        if found != self._known[root]:
            raise Difference(
                root,
                f"{table.full_name} reads {when}:\n{rows_apart(self._known[root], found)}\n{self._evidence(root)}",
            )
        self._seen[root] = listing

    def _reader(self, session: str) -> str:
        """
        A session that reads by a job, now and then; not row by row where Hive 3.1's own compactor repeats delete
        events, over which that one fails.
        """
        names = [name for name in JOBS if not (self.both and self.world.version == "3" and name == "row by row")]
        if self._draw.random() >= BY_JOBS:
            return session
        session = self._draw.choice(names)
        self.counts[f"reads by jobs, {session}"] += 1
        return session

    def _read(
        self, table: Table, server: HiveServer, session: str, right: Callable[[Rows], bool], *, jobs: bool = True
    ) -> Rows:
        """
        Read a table, and again where it isn't right and a directory went meanwhile: if Hive was about to list it, it
        took the partition for empty, or failed (docs/testing.md).

        So too where Hive 3.1 began before a base appeared, and listed after; and where the only base is of an INSERT
        OVERWRITE that was undone, until our daemon cleaned.
        """
        session = self._reader(session) if jobs else session
        for tries in itertools.count():
            before = self._listing(table.root)
            try:
                found = table.read(self._rows(table, server, session))
            except HiveError as error:
                if self._repeated_by_hive(error, table):
                    self.counts["tables that Hive 3.1 repeats delete events in"] += 1
                    return table.read(vectorized(server, table.query()))
                gone = sorted(before - self._listing(table.root))
                if tries == READ_AGAIN or not (gone or self._too_late(error)):
                    raise
                if self._too_late(error):
                    self.counts["read again where Hive 3.1 can't know a base"] += 1
                else:
                    self._excuse("read again where a directory went", table.root, f"{gone} went, and then: {error}")
                time.sleep(1)
            else:
                gone = sorted(before - self._listing(table.root))
                if right(found) or not gone or tries == READ_AGAIN:
                    return found
                self._excuse("read again where a directory went", table.root, f"{gone} went, and it read {found}")
        raise AssertionError

    def _rows(self, table: Table, server: HiveServer, session: str) -> list[tuple[str | None, ...]]:
        try:
            return server.rows(table.query(), session)
        except HiveError:
            if session not in JOBS or _NOT_COMBINED not in server.said(30_000):
                raise
        self.counts["jobs that Hive wants to read without CombineHiveInputFormat"] += 1
        server.sql(f"set hive.input.format={_FORMATS}HiveInputFormat", session=session)
        try:
            return server.rows(table.query(), session)
        finally:
            server.sql(f"set hive.input.format={_FORMATS}CombineHiveInputFormat", session=session)

    def _excuse(self, what: str, root: str, why: object, *, waits: bool = True) -> None:
        """
        Count what Hive couldn't read for a directory that went while it listed.

        Args:
            waits: our Cleaner would have waited for this one, as long as it does.

        Raises:
            Difference: it happens too often.
        """
        self.counts[what] += 1
        self._excuses += 1
        waits = waits and self.world.listing_wait > 0 and self.world.version == "4" and not self.world.lockless
        if self._excuses > (1 if waits else EXCUSED):
            raise Difference(
                root, f"{what}, the {self._excuses}th such excuse of a history: {why}\n{self._evidence(root)}"
            )

    def _too_late(self, error: HiveError) -> bool:
        return self.hive.version == "3" and "Not enough history available" in str(error)

    def _repeated_by_hive(self, error: HiveError, table: Table) -> bool:
        """Whether Hive can't read a table for what its own compactor wrote, not ours."""
        found = _REPEATED.search(str(error)) if self.hive.version == "3" else None
        ours = (
            one["directories"]
            for one in self.daemon.events()
            if one.get("event") == "compaction.committed" and one["db"] == table.database
        )
        return found is not None and not any(found[1] in directories for directories in ours)

    def _unreadable(self, table: Table, when: str, error: HiveError) -> Difference:
        return Difference(
            table.root,
            f"{table.full_name} can't be read {when}: {error}\n{self.hive.said()}\n{self._evidence(table.root)}",
        )

    def _evidence(self, root: str) -> str:
        """
        What tells how a difference came about: the last statements, the table's files with their times, what the daemon
        and the metastore say.
        """
        table = self.world.tables[root]
        place = self._place(table)
        files = []
        for path in sorted(Path(folder) / name for folder, _, names in os.walk(place) for name in names):
            with contextlib.suppress(OSError):
                files.append(f"{path.relative_to(place)} {path.stat().st_size} {path.stat().st_mtime:.3f}")
        said = [text for about, text in self.said if about == root]
        return "\n".join([f"at {time.time():.3f}", *said[-4:], *files, self.daemon.told_of(table.name)])

    def sql(self, root: str | None = None) -> str:
        """What was said so far, or about one table."""
        return "\n".join(text for about, text in self.said if root in {None, "", about})

    def _place(self, table: Table) -> Path:
        """Where the catalog has it; a table that isn't there yet, where it would be."""
        plain, own = self.world.databases
        home = self.hive.warehouse / f"{plain}.db" if table.database == plain else Path(self.world.places) / f"{own}.DB"
        return self.daemon.location(table.database, table.name) or (
            Path(table.place) if table.place else home / table.name.lower()
        )

    def _listing(self, root: str) -> frozenset[str]:
        return self._listing_of(self.world.tables[root])

    def _listing_of(self, table: Table) -> frozenset[str]:
        return names_below(self._place(table))


def vectorized(server: HiveServer, query: str) -> list[tuple[str | None, ...]]:
    """A query's rows by Hive's vectorized reader, which takes a job: a plain select takes its row reader."""
    server.sql("set hive.fetch.task.conversion=none", session="vectorized")
    return server.rows(query, "vectorized")


def names_below(place: Path) -> frozenset[str]:
    """What is there, to the third level."""
    found = set()
    for folder, folders, files in os.walk(place):  # passes over what goes meanwhile
        below = Path(folder).relative_to(place)
        found.update(str(below / name) for name in (*folders, *files))
        if len(below.parts) == 2:
            folders.clear()
    return frozenset(found)


def rows_apart(expected: Rows, found: Rows) -> str:
    """The rows that are lost, not expected or there twice."""
    lost, more = [one for one in expected if one not in found], [one for one in found if one not in expected]
    twice = [one for one, count in Counter(found).items() if count > 1]
    return f"  lost ({len(lost)}): {lost[:10]}\n  not expected ({len(more)}): {more[:10]}\n  twice: {twice[:10]}"
