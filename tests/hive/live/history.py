"""
One live history: statement by statement through HiveServer2, while our daemon compacts and cleans; after each, Hive is
asked for every row.

What must hold: the rows are the model's; a table that no statement changed reads the same, ROW__IDs too, however often
it was compacted and cleaned in between; a reader and a writer that were held midway end as if nothing had happened; no
statement fails but those made to.
"""

import json
import time
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.orc

from tests.hive.live.compared import MIDWAY, Difference
from tests.hive.live.kinds import Parsed, nested, parsed
from tests.hive.live.performing import Performing, nothing
from tests.hive.live.steps import SHARED, build
from tests.hive.live.world import Action, Step
from tests.hive.server.hive import HiveError

_REFUSED = (
    "Error while compiling",
    "SemanticException",
    "not allowed",
    "ParseException",
    "InvalidOperationException",
    "Unable to alter",
    "Unable to rename",
)

_NEVER = ("verification-failed", "duplicate-range")
"""Reasons for which our daemon refuses what is its own fault, or Hive's."""
_ARROW = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("ns"),
}


class History(Performing):
    """A history that goes on for as long as steps are given."""

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
        if wrong := self.twins.judge():
            raise Difference(self.twins.root or "", "\n".join(wrong))
        refusals = self.daemon.refusals(self.world.databases)
        if wrong := [what for what in refusals if what.endswith(_NEVER)]:
            raise Difference("", f"{wrong}\n{self.daemon.told_of('')}")
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
        outcome, listing, name = nothing, self._listing_of(action.table), action.table.full_name
        try:
            for statement in action.first:
                self.hive.sql(statement)
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
            self._compare(action.table, listing, keeps=action.keeps)
        else:
            self._known.pop(action.table.root, None)
        if action.also is not None:
            self._compare(action.also, frozenset(), keeps=action.keeps)
        self.twins.follow(step, action, name, outcome)

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

    def _write(self, step: Step, action: Action) -> None:
        arrays = [
            _array(list(values), kind)
            for values, (_, kind) in zip(zip(*action.file, strict=True), action.columns, strict=True)
        ]
        table = pa.table(arrays, names=[name for name, _ in action.columns])
        pa.orc.write_table(table, f"{self.world.places}/load-{step.number}.orc")


def _array(values: list[str | None], kind: str) -> pa.Array:
    """A column of a file."""
    arrow = _arrow(parsed(kind))
    if not nested(kind):
        return pa.array(values, pa.string()).cast(arrow)
    found = [None if value is None else json.loads(value) for value in values]
    if nested(kind) == "map":
        found = [None if one is None else list(one.items()) for one in found]
    return pa.array(found, arrow)


def _arrow(kind: Parsed) -> pa.DataType:
    if not isinstance(kind, str):
        word, parts = kind
        if word == "struct":
            return pa.struct([(name, _arrow(part)) for name, part in parts])
        return pa.list_(_arrow(parts[0][1])) if word == "array" else pa.map_(_arrow(parts[0][1]), _arrow(parts[1][1]))
    if kind.startswith("decimal"):
        precision, scale = map(int, kind[8:-1].split(","))
        return pa.decimal128(precision, scale)
    return _ARROW[kind]
