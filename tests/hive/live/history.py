"""
One live history: statement by statement through HiveServer2, while our daemon compacts and cleans; after each, Hive is
asked for every row.

What must hold: the rows are the model's; a table that no statement changed reads the same, ROW__IDs too, however often
it was compacted and cleaned in between; a reader and a writer that were held midway end as if nothing had happened; no
statement fails but those made to.
"""

import contextlib
import itertools
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from pathlib import Path

import pyarrow as pa
import pyarrow.orc

from tests.hive.live.beside import Beside
from tests.hive.live.steps import SHARED, build
from tests.hive.live.tables import Row, Table
from tests.hive.live.world import Action, Step, World
from tests.hive.server.hive import HiveError, HiveServer, Hold

STATEMENT_SECONDS = 240
HELD_SECONDS = 1.5
"""How long a reader or writer is held while our daemon works."""
_REFUSED = (
    "Error while compiling",
    "SemanticException",
    "not allowed",
    "ParseException",
    "InvalidOperationException",
    "Unable to alter",
    "Unable to rename",
)
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
_LOADED = pa.schema([("id", pa.int32()), ("v", pa.string()), ("n", pa.decimal128(12, 3)), ("t", pa.timestamp("ns"))])

_POINTS = {
    "create": ("create", "{place}/.*(bucket_|/0000|_metadata_acid)"),
    "rename": ("rename", "{place}[/ ]"),
    "listed in": ("listed", "{place}/.*(delta_|=[^/]*$)"),
    "listed": ("listed", "{place}$"),
    "delete": ("delete", "{place}(/|$)"),
}
"""Break points: operation and path."""
_POINTS_OF = {
    "truncate": ("create", "delete"),
    "rename": ("rename",),
    "drop": ("delete",),
    "drop-partition": ("delete", "create"),
    "rename-partition": ("rename", "create"),
    "migrate": ("listed", "listed in"),
    "load": ("create",),
    "load-overwrite": ("create",),
}
"""Those to which a statement of that kind comes; others come to any."""

Rows = list[tuple[str | None, Row]]


def _nothing() -> None:
    """What a statement does that takes no effect."""


def vectorized(server: HiveServer, query: str) -> list[tuple[str | None, ...]]:
    """A query's rows by Hive's vectorized reader, which takes a job: a plain select takes its row reader."""
    server.sql("set hive.fetch.task.conversion=none", session="vectorized")
    return server.rows(query, "vectorized")


class Difference(AssertionError):  # noqa: N818 - what a history is for
    """Hive doesn't say what the model says. `root` is the table."""

    def __init__(self, root: str, what: str) -> None:
        super().__init__(what)
        self.root = root


class History:
    """
    A history that goes on for as long as steps are given.

    Args:
        readers: where a query is held, and asked beside a statement: in one JVM with a job it would read nothing.
        patient: wait after each step until nothing is queued, so that a shorter history meets the same compactions.
        both: Hive's own Cleaner runs too.
    """

    def __init__(
        self,
        hive: HiveServer,
        readers: HiveServer,
        daemon: Beside,
        world: World,
        *,
        patient: bool = False,
        both: bool = False,
    ) -> None:
        self.hive, self.readers, self.daemon, self.world, self.patient, self.both = (
            hive,
            readers,
            daemon,
            world,
            patient,
            both,
        )
        self.said: list[tuple[str, str]] = []
        self.counts: Counter[str] = Counter()
        self._open: list[tuple[int, int, str]] = []
        self._known: dict[str, Rows] = {}
        self._seen: dict[str, frozenset[str]] = {}
        self._excuses = 0
        Path(world.places).mkdir(parents=True, exist_ok=True)
        plain, own = world.databases
        hive.sql(f"create database {plain}", f"create database {own} location 'file://{world.places}/{own}.DB'")
        hive.sql("create temporary function hold as 'Hold'")
        for name, value in world.settings.items():
            for server, session in ((hive, "main"), (readers, "beside"), (readers, "held reader")):
                server.sql(f"set {name}={value}", session=session)

    def run(self, steps: Iterable[Step]) -> None:
        """
        All of them, and then what is left to compact.

        Raises:
            Difference: Hive and the model differ.
        """
        for step in steps:
            self._end_open(step)
            self._run(step)
            self.look()
            if self.patient:
                self.daemon.settle(10)
                self.look()
        self._end_open(None)
        self.daemon.settle(60)
        for root in sorted(self._known):
            self._same(root, "at the end")
        if self.world.version == "4":
            self._removed()

    def look(self) -> None:
        """Read again every table in whose directories something appeared or went since it was read."""
        if not self.daemon.alive():
            raise Difference("", f"the daemon ended: {self.daemon.log.read_text(encoding='utf-8')[-3000:]}")
        for root in sorted(self._known):
            if self._listing(root) != self._seen.get(root):
                self.counts["reads after a change of directories"] += 1
                self._same(root, "after a change of its directories")

    def _run(self, step: Step) -> None:
        action = build(self.world, step)
        if action is None:
            self.counts["steps without sense"] += 1
            return
        if action.file:
            self._write(step, action)
        self.said.append((step.root, f"-- {step.number} {step.kind} {step.mode} {time.time():.3f}\n{action.sql};"))
        outcome = _nothing
        try:
            outcome = self._perform(step, action)
        except HiveError as error:
            self.said[-1] = (step.root, self.said[-1][1] + f"  -- {str(error)[:300]}")
            if MIDWAY.search(str(error)):
                self._excuse("statements that met a directory that went", step.root, error)
            elif self._too_late(error):
                self.counts["statements that met a base that Hive 3.1 can't know"] += 1
            elif action.refused or any(text in str(error) for text in _REFUSED):
                self.counts[f"refused: {step.kind}"] += 1
                self.counts["refused though it might have run"] += not action.refused
            else:
                raise Difference(step.root, f"a statement failed: {action.sql}\n{error}\n{self.hive.said()}") from error
        self.counts["statements"] += 1
        self.counts[f"{step.kind}"] += outcome == action.effect
        self.counts[f"mode {step.mode}"] += 1
        outcome()
        if action.table.root in self.world.tables:
            self._compare(action.table, keeps=action.keeps)
        else:
            self._known.pop(action.table.root, None)

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

    def _removed(self) -> None:
        """What was dropped and left to the Cleaner has gone, but what the catalog has again."""
        waiting = self.daemon.requests(self.world.databases, ended=False)
        removed = self.daemon.requests(self.world.databases, ended=True)
        self.counts["directories left to the Cleaner"] += len(removed)
        left = [place for place in removed if place.exists() and not self.daemon.catalogued(place)]
        if self.both:  # Hive's own Cleaner doesn't wait for a DROP's transaction, whose base then appears after it
            ours = self.daemon.removed()
            self.counts["directories that Hive's Cleaner removed before their DROP had ended"] += sum(
                place not in ours for place in left
            )
            left = [place for place in left if place in ours]
        if waiting or left:
            raise Difference(
                "",
                f"left of what was dropped: {waiting} not removed, {left} said to be removed\n{self.daemon.told_of('')}",
            )

    def _end_open(self, step: Step | None) -> None:
        """End transactions that were open for five steps, and those whose locks a statement would wait for."""
        for opened in list(self._open):
            txn, number, root = opened
            if step is None or step.number - number > 5 or (step.root == root and step.kind not in SHARED):
                self._open.remove(opened)
                try:
                    (self.hive.commit if txn % 2 and number >= 0 else self.hive.abort)(txn)
                except HiveError:
                    self.counts["open transactions that timed out"] += 1

    def _streamed(self, step: Step, action: Action) -> Callable[[], None]:
        table = action.table
        key = [value for value in action.key if value is not None]
        command = self.hive.java("Stream", table.database, table.name, *key)
        text = "\n".join(action.stream) + "\n"
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.hive.folder,
            timeout=STATEMENT_SECONDS,
        )
        died = action.stream[-1] == "die"
        if done.returncode != (9 if died else 0):
            raise Difference(table.root, f"streaming failed: {action.stream}\n{done.stderr[-3000:]}")
        if died:
            known = {txn for txn, _, _ in self._open}
            self._open += [
                (txn, step.number - 1_000_000, table.root)
                for txn in self.daemon.open_transactions()
                if txn not in known
            ]
        self.counts["streamed transactions"] += 3
        return action.effect

    def _perform(self, step: Step, action: Action) -> Callable[[], None]:
        """Run the statement in its mode; what it has done to the model."""
        if step.kind == "open":
            self._open.append((self.hive.open(action.table.full_name), step.number, step.root))
            return action.effect
        if action.stream:
            return self._streamed(step, action)
        if action.table.style == "plain" and step.kind != "migrate":  # no transaction, no snapshot
            self._result(self.hive.begin(action.sql), action)
            return action.effect
        if step.mode == "rolled back":
            self.hive.roll_back(action.sql, settings=self.world.settings)
            return action.undone
        if step.mode in {"fails", "held"}:
            return self._broken(step, action)
        if (
            step.mode == "reader" and self.hive.version == "4"
        ):  # one of Hive 3.1 has given back its locks before it reads (docs/testing.md)
            return self._beside_reader(step, action)
        self._result(self.hive.begin(action.sql), action)
        return action.effect

    def _broken(self, step: Step, action: Action) -> Callable[[], None]:
        """A writer that is held, or fails, at a break point."""
        hold = self._hold(step, action)
        writing = self.hive.begin(action.sql)
        try:
            met = self._until_met(hold, writing)
            if met and step.mode == "held":
                self.counts["writers held"] += 1
                self.said[-1] = (step.root, f"{self.said[-1][1]}  -- held at {met[0]}")
                time.sleep(HELD_SECONDS)
                # others lock readers out, or should: without locks Hive 4 takes the base of a running INSERT OVERWRITE
                # for valid (docs/testing.md)
                if step.kind in SHARED:
                    self._same(action.table.root, f"beside a writer held at {met[0]}")
            if step.mode == "held":
                hold.release()
            self._result(writing, action)
        except HiveError:
            if step.mode == "fails" and hold.met():
                self.counts["writers failed"] += 1
                for manifests in self._place(action.table).rglob(
                    "-tmp.*"
                ):  # Hive 4 leaves them, and then can't read where there is no base
                    shutil.rmtree(manifests, ignore_errors=True)
                made = step.kind == "ctas" and self.daemon.location(action.table.database, action.table.name)
                return action.undone if made else _nothing  # a CTAS of Hive 4 may fail when its table is in the catalog
            raise
        finally:
            hold.release()
        return action.effect

    def _hold(self, step: Step, action: Action) -> Hold:
        draw = self.world.draw(-step.number)
        fails = step.mode == "fails"
        if step.kind in {"select", "overwrite-select"} and draw.random() < 0.5:
            return self.hive.hold("udf", f"^step {step.number}$", fails=fails)
        operation, path = _POINTS[draw.choice(_POINTS_OF.get(step.kind, tuple(_POINTS)))]
        there = re.escape(str(self._place(action.table))) + (r"(\.v\d+)?" if step.kind == "ctas" else "")
        return self.hive.hold(operation, path.format(place=there), fails=fails)

    def _beside_reader(self, step: Step, action: Action) -> Callable[[], None]:
        """A reader that is held between listing and reading while the statement runs, and what our daemon then does."""
        table = action.table
        before, place = (
            self._known[table.root],
            self._place(table),
        )  # which the catalog forgets where the statement drops the table
        listed = _listing(place)
        hold = self.readers.hold(
            "open", f"{re.escape(str(place))}/.*(bucket_|/0000)"
        )  # not in the middle of listing: see docs/testing.md
        reading = self.readers.begin(table.query(), "held reader")
        met = self._until_met(hold, reading)
        writing = self.hive.begin(action.sql)
        wait([writing], STATEMENT_SECONDS if step.kind in SHARED or self.world.lockless else 8)
        if met:
            self.counts["readers held"] += 1
            time.sleep(HELD_SECONDS)
            listed = _listing(place)  # what it has yet to list, partition by partition, may lose a directory just then
        hold.release()
        try:
            found = table.read([tuple(row) for row in reading.result(STATEMENT_SECONDS)["rows"]])
        except HiveError as error:
            if not MIDWAY.search(str(error)):
                raise Difference(
                    table.root,
                    f"a reader that was held at {met} failed: {error}\n{self.hive.said()}\n{self._evidence(table.root)}",
                ) from error
            self._excuse("readers that were held and met a directory that went", table.root, error, waits=False)
        else:
            if found != before:
                gone = sorted(listed - _listing(place))
                difference = f"a reader that was held at {met} read:\n{_difference(before, found)}\ngone meanwhile: {gone}\n{self._evidence(table.root)}"
                if not gone or not table.keys:
                    raise Difference(table.root, difference)
                self._excuse(
                    "readers that were held and read less where a directory went", table.root, difference, waits=False
                )
        self._result(writing, action)
        return action.effect

    def _until_met(self, hold: Hold, running: "Future") -> list[str]:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not running.done():
            if met := hold.met(0.1):
                return met
        return hold.met()

    def _result(self, running: "Future", action: Action) -> None:
        try:
            running.result(STATEMENT_SECONDS)
        except TimeoutError as error:
            raise Difference(
                action.table.root,
                f"a statement doesn't end: {action.sql}\n{self.hive.said()}\n{self._evidence(action.table.root)}",
            ) from error

    def _compare(self, table: Table, *, keeps: bool) -> None:
        """Read a table that a statement was about, and remember how it reads."""
        self._seen[table.root] = self._listing(table.root)
        expected = table.expected()
        try:
            found = self._read(table, self.hive, "main", lambda found: [row for _, row in found] == expected)
        except HiveError as error:
            raise self._unreadable(table, "after its statement", error) from error
        if [row for _, row in found] != expected:
            raise Difference(
                table.root,
                f"{table.full_name} reads:\n{_difference([(None, row) for row in expected], [(None, row) for _, row in found])}\n{self._evidence(table.root)}",
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
            found = self._read(table, self.readers, "beside", lambda found: found == self._known[root])
        except HiveError as error:
            if _MANIFEST.search(str(error)):
                self.counts["readers that met the manifests of a writer"] += 1
                return
            raise self._unreadable(table, when, error) from error
        self.counts["rows compared"] += len(found)
        if found != self._known[root]:
            raise Difference(
                root,
                f"{table.full_name} reads {when}:\n{_difference(self._known[root], found)}\n{self._evidence(root)}",
            )
        self._seen[root] = listing

    def _unreadable(self, table: Table, when: str, error: HiveError) -> Difference:
        return Difference(
            table.root,
            f"{table.full_name} can't be read {when}: {error}\n{self.hive.said()}\n{self._evidence(table.root)}",
        )

    def _read(self, table: Table, server: HiveServer, session: str, right: Callable[[Rows], bool]) -> Rows:
        """
        Read a table, and again where it isn't right and a directory went meanwhile: if Hive was about to list it, it
        took the partition for empty, or failed (docs/testing.md).

        So too where Hive 3.1 began before a base appeared, and listed after; and where the only base is of an INSERT
        OVERWRITE that was undone, until our daemon cleaned.
        """
        for tries in itertools.count():
            before = self._listing(table.root)
            try:
                found = table.read(server.rows(table.query(), session))
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
        return _listing(self._place(self.world.tables[root]))

    def _write(self, step: Step, action: Action) -> None:
        columns = list(zip(*action.file, strict=True))[: len(_LOADED)]
        arrays = [
            pa.array([None if value is None else value for value in column]).cast(pa.string()) for column in columns
        ]
        arrays = [array.cast(kind) for array, kind in zip(arrays, _LOADED.types, strict=True)]
        pa.orc.write_table(pa.table(arrays, schema=_LOADED), f"{self.world.places}/load-{step.number}.orc")


def _listing(place: Path) -> frozenset[str]:
    """What is there, to the third level."""
    found = set()
    for folder, folders, files in os.walk(place):  # passes over what goes meanwhile
        below = Path(folder).relative_to(place)
        found.update(str(below / name) for name in (*folders, *files))
        if len(below.parts) == 2:
            folders.clear()
    return frozenset(found)


def _difference(expected: Rows, found: Rows) -> str:
    lost, more = [one for one in expected if one not in found], [one for one in found if one not in expected]
    twice = [one for one, count in Counter(found).items() if count > 1]
    return f"  lost ({len(lost)}): {lost[:10]}\n  not expected ({len(more)}): {more[:10]}\n  twice: {twice[:10]}"
