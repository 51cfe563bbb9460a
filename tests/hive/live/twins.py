"""
Twins of tables in a live history: they get the same statements, nothing compacts them until the history ends, then
Hive's own compactor does.

So a twin is two more judges: what Hive reads from files that no compaction has touched, and what it reads after its own.
"""

import re
from collections import Counter
from collections.abc import Callable

from tests.hive.live.beside import Beside
from tests.hive.live.tables import Row, Table, partition
from tests.hive.live.world import Action, Step, World
from tests.hive.server.configuration import by_queries
from tests.hive.server.hive import HiveError, HiveServer

NOT_FOLLOWED = {"ctas", "import", "convert", "view", "open", "compact"}
"""
Steps that make other tables, or ask for a compaction. CONCATENATE asks for one of a transactional table, and waits
until it has ended (`AlterTableConcatenateAnalyzer.compactAcidTable`): of a twin that would be for ever.
"""
MOST = 2
"""Partitions of a twin that Hive's own compactor takes."""


class Twins:
    """
    The twins of a history, one at a time.

    Args:
        compactor: where Hive's own Worker runs: jobs of one JVM get into each other's way.
    """

    def __init__(
        self, hive: HiveServer, compactor: HiveServer, daemon: Beside, world: World, counts: Counter[str]
    ) -> None:
        self.hive, self.compactor, self.daemon, self.world, self.counts = hive, compactor, daemon, world, counts
        self.root: str | None = None
        self.said: list[str] = []

    def follow(self, step: Step, action: Action, name: str, outcome: Callable[[], None]) -> None:
        """
        Let a statement that has taken effect take it on the twin, too.

        Args:
            name: the table's full name when it ran.
            outcome: what it has done to the model.
        """
        took = outcome == action.effect
        if step.kind == "create" and took and self.root is None:
            self.root = action.table.root
        asks = step.kind in NOT_FOLLOWED or (step.kind == "concatenate" and action.table.style != "plain")
        if not took or asks or self.root is None:
            return
        if action.table.root != self.root and (action.also is None or action.also.root != self.root):
            return
        if action.stream:
            self._leave("streamed into")
            return
        alone = action.alone.get(self.root)
        statements = [*action.first, action.sql] if alone is None else [alone]
        if action.table.root != self.root:
            name = self.world.tables[self.root].full_name
        try:
            for statement in statements:
                self._run(_of_twin(statement, name) + ("_twin" if step.kind == "rename" else ""))
            if step.kind == "create":
                self._run(f"alter table {name}_twin set tblproperties ('no_auto_compaction'='true')")
        except HiveError as error:
            self._leave(f"{step.kind}: {' '.join(str(error).split())[-160:]}")
            return
        self.counts["statements of twins"] += 1
        if step.kind == "drop":
            self.root, self.said = None, []

    def judge(self) -> list[str]:
        """
        Read the twin, let Hive compact it, read it again.

        Returns:
            what is wrong about rows that no compaction has touched.
        """
        table = self.world.tables.get(self.root or "")
        if table is None:
            return []
        name = f"{table.full_name}_twin"
        before = self._rows(table, name)
        if [row for _, row in before] != table.expected():
            return [
                f"{name}, which nothing has compacted, reads {before}\n",
                "expected",
                str(table.expected()),
                *self.said,
            ]
        self.counts["twins that read the same before Hive's own compactor"] += 1
        if table.style == "plain" or (table.keys and not table.partitions):
            return []
        known = sorted((key for key in table.partitions if None not in key), key=repr)[:MOST] if table.keys else [()]
        by = by_queries(self.compactor.folder) if self.world.version == "4" and self.world.seed % 2 else {}
        for key in known:
            into = f" {partition(table, key)}" if table.keys else ""
            try:
                self._run(f"alter table {name}{into} compact 'major'")
                if not self.world.both:
                    self.compactor.cycle("worker", by)
            except HiveError as error:
                self.counts[f"twins: Hive's compactor: {' '.join(str(error).split())[:100]}"] += 1
        self.daemon.settle(30)
        try:
            after = self._rows(table, name)
        except HiveError as error:
            self.counts[
                f"twins that Hive can't read after its own compactor: {' '.join(str(error).split())[:160]}"
            ] += 1
            return []
        same = sorted(before, key=str) == sorted(after, key=str)
        how = "by queries" if by else "by a job"
        what = "the same" if same else f"otherwise (seed {self.world.seed})"
        self.counts[f"twins that read {what} after Hive's own compactor {how}"] += 1
        if not same:  # not ours: named, with what shows it
            print("\n".join([f"{name} after Hive's own compactor:", *self.said, f"before {before}", f"after {after}"]))
        return []

    def _rows(self, table: Table, name: str) -> list[tuple[str | None, Row]]:
        return table.read(self.hive.rows(table.query().replace(table.full_name, name)))

    def _run(self, sql: str) -> None:
        self.said.append(f"{sql};")
        self.hive.sql(sql)

    def _leave(self, why: str) -> None:
        self.counts[f"twins given up: {why}"] += 1
        self.root, self.said = None, []


def _of_twin(sql: str, name: str) -> str:
    """The statement, of the twin: another name, and another place where the statement names one."""
    told = re.sub(rf"\b{re.escape(name)}(?!\w)", f"{name}_twin", sql)
    return re.sub(r"location 'file://([^']*)'", r"location 'file://\1_twin'", told)
