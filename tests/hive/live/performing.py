"""
How a live history runs a statement: plainly, rolled back, held or failing at a break point, beside a held reader, or as
a stream.
"""

import re
import shutil
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path

from tests.hive.live.compared import MIDWAY, Compared, Difference, names_below, rows_apart
from tests.hive.live.steps import SHARED
from tests.hive.live.world import Action, Step
from tests.hive.server.hive import HiveError, Hold

STATEMENT_SECONDS = 240

HELD_SECONDS = 1.5
"""How long a reader or writer is held while our daemon works."""

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

_LEFT = {"drop", "drop-partition", "rename-partition"}
"""Those that may leave directories to the Cleaner before their transaction has ended."""


def nothing() -> None:
    """What a statement does that takes no effect."""


class Performing(Compared):
    """Runs statements, each in its mode."""

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
                return action.undone if made else nothing  # a CTAS of Hive 4 may fail when its table is in the catalog
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
        listed = at_first = names_below(place)
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
            listed = names_below(
                place
            )  # what it has yet to list, partition by partition, may lose a directory just then
        hold.release()
        wrong, midway = None, False
        try:
            found = table.read([tuple(row) for row in reading.result(STATEMENT_SECONDS)["rows"]])
        except HiveError as error:
            wrong, midway = f"failed: {error}\n{self.hive.said()}", MIDWAY.search(str(error)) is not None
        else:
            if found != before:
                gone = sorted(listed - names_below(place))
                wrong, midway = f"read:\n{rows_apart(before, found)}\ngone meanwhile: {gone}", bool(gone and table.keys)
        if wrong is not None:
            wrong = f"a reader that was held at {met} {wrong}\n{self._evidence(table.root)}"
            if self._robbed_by_hive(step, place, at_first - names_below(place)):
                self.counts["readers from whom Hive's Cleaner took a directory before its DROP had ended"] += 1
            elif midway:
                self._excuse("readers that were held and met a directory that went", table.root, wrong, waits=False)
            else:
                raise Difference(table.root, wrong)
        self._result(writing, action)
        return action.effect

    def _robbed_by_hive(self, step: Step, place: Path, gone: frozenset[str]) -> bool:
        """Whether what a statement left to the Cleaner has gone, and not by ours (docs/testing.md)."""
        left = self.both and step.kind in _LEFT and self.world.soft(step.kind)
        return left and bool(gone) and self.daemon.removed().isdisjoint({place, *(place / name for name in gone)})

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
