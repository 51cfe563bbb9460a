"""What a live history is made of: a step, what it does now (`Action`), and the world in which it does so. Pure."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from tests.hive.live.kinds import drawn
from tests.hive.live.tables import Columns, Key, Row, Table

WORDS = ["x", "ü", "it's", "a\\b", "雪", "", "long " * 20]
ASCII_VALUES: list[str | None] = ["Abc", "abc", "a b", "c/d", "e=f%:#\"'", "10:00", "100%", "plain", None]
VALUES: list[str | None] = [*ASCII_VALUES, "ü雪"]
NUMBERS: list[str | None] = ["1", "2", None]
LOCKLESS = "hive.acid.lockless.reads.enabled"
"""Readers take no locks, and nothing excludes them; means all that `SOFT` names, too."""
SOFT = {
    "truncate": "hive.acid.truncate.usebase",
    "drop": "hive.acid.createtable.softdelete",
    "drop-partition": "hive.acid.droppartition.usebase",
    "rename-partition": "hive.acid.renamepartition.makecopy",
}
"""
By which of Hive 4's settings such a statement leaves directories to the Cleaner; all but the first are off as
delivered.
"""


MORE = (
    ("hive.exec.orc.split.strategy", "HYBRID", ("BI", "ETL"), "34"),
    ("hive.txn.strict.locking.mode", "true", ("false",), "34"),
    ("hive.txn.xlock.iow", "true", ("false",), "34"),
    ("hive.exec.orc.base.delta.ratio", "8", ("1",), "34"),
    ("hive.acid.direct.insert.enabled", "true", ("false",), "4"),
    ("hive.txn.write.acid.version.file", "true", ("false",), "4"),
    ("hive.txn.acid.dir.cache.duration", "120", ("0",), "4"),
    ("hive.txn.filter.delete.events", "true", ("false",), "4"),
    ("hive.optimize.acid.meta.columns", "true", ("false",), "4"),
    ("hive.txn.xlock.write", "true", ("false",), "4"),
    ("hive.txn.xlock.mergeinsert", "false", ("true",), "4"),
)
"""
More settings of sessions, of which compactor/cli/hive_settings.yaml says that they have no effect: the default, other
values, the releases that know it.
"""


@dataclass(frozen=True)
class Step:
    """
    One step.

    Args:
        kind: see `KINDS`.
        root: the table it is about.
        mode: "plain"; "rolled back" at its end; "fails" or "held" at a break point; "reader" (one is held while it
            runs).
    """

    number: int
    kind: str
    root: str
    mode: str = "plain"


@dataclass
class Action:
    """
    What a step does now.

    Args:
        sql: the statement.
        effect: changes the model when the statement succeeded.
        undone: changes it when the statement was rolled back: what Hive changes in its catalog stays.
        keeps: rows whose values stay keep their ROW__ID.
        refused: Hive may refuse it.
        file: rows that LOAD DATA finds in a file, whose columns are `columns`.
        first: statements that run before it.
        also: another table that it changes.
        alone: of a statement that changes several tables, the part of each, by root.
        stream: instead of a statement, lines for Hive's streaming API (Stream.java), into the partition `key`.
    """

    table: Table
    sql: str
    effect: Callable[[], None] = lambda: None
    undone: Callable[[], None] = lambda: None
    keeps: bool = True
    refused: bool = False
    file: list[Row] = field(default_factory=list)
    columns: Columns = field(default_factory=list)
    first: list[str] = field(default_factory=list)
    also: Table | None = None
    alone: dict[str, str] = field(default_factory=dict)
    stream: list[str] = field(default_factory=list)
    key: Key = ()


@dataclass
class World:
    """
    Every table, by root; ids handed out; what this history may use.

    Args:
        version: "3" or "4".
        forgets: whether a purge of Hive's may bring back the rows of a writer that it knows nothing of, before our
            Cleaner has noted it.
        both: Hive's own compactor runs too.
    """

    seed: int
    version: str
    places: str
    databases: tuple[str, ...]
    values: list[str | None]
    tables: dict[str, Table] = field(default_factory=dict)
    last_id: int = 0
    forgets: bool = False
    both: bool = False

    @cached_property
    def settings(self) -> dict[str, str]:
        """
        Of sessions, by the seed: some of `MORE`; of Hive 4 as delivered, all of `SOFT`, without locks for readers, or
        some of `SOFT`, too.
        """
        draw = random.Random(f"{self.seed}/more settings")
        more = {
            name: draw.choice(others) if draw.random() < 0.25 else default
            for name, default, others, versions in MORE
            if self.version in versions
        }
        if self.version == "3":
            return more
        draw = random.Random(f"{self.seed}/settings")
        some = (
            [True, False, False, False],
            [True] * 4,
            [True, False, False, False],
            [draw.random() < 0.5 for _ in SOFT],
        )[self.seed % 4]
        return more | {
            name: str(on).lower()
            for name, on in zip((*SOFT.values(), LOCKLESS), (*some, self.seed % 4 == 2), strict=True)
        }

    @property
    def by_position(self) -> bool:
        """
        Whether readers find the columns of ORC files by their places (`orc.force.positional.evolution`: true in Hive
        4's HiveConf; Hive 3.1 doesn't know it).
        """
        return self.version == "4"

    @property
    def listing_wait(self) -> int:
        """
        Seconds for which our Cleaner waits for those that may be listing; then no reader with a lock may meet a
        directory that goes.
        """
        return 4 if self.seed % 3 == 1 else 0

    @property
    def lockless(self) -> bool:
        """Whether readers have no locks."""
        return self.settings.get(LOCKLESS) == "true"

    def soft(self, kind: str) -> bool:
        """Whether such a statement leaves what it removes to the Cleaner."""
        return self.lockless or self.settings.get(SOFT.get(kind, "")) == "true"

    def cascades(self, table: Table) -> int | None:
        """
        1 where partitions must get each change of their table's columns: of a full ACID table Hive 3.1's own job
        writes only those of the partition's list (docs/testing.md).
        """
        return 1 if self.both and self.version == "3" and table.style != "insert-only" else None

    def draw(self, number: int) -> random.Random:
        """Random numbers of a step."""
        return random.Random(f"{self.seed}/{number}")

    def ids(self, count: int) -> list[int]:
        """New ones."""
        self.last_id += count
        return list(range(self.last_id - count + 1, self.last_id + 1))


def draw_key(world: World, table: Table, draw: random.Random, *, known: bool = False) -> Key:
    """Partition values, often those of a partition that is there."""
    if not table.keys:
        return ()
    if table.partitions and (known or draw.random() < 0.7):
        return draw.choice(sorted(table.partitions, key=repr))
    return tuple(draw.choice(world.values if kind == "string" else NUMBERS) for _, kind in table.keys)


def draw_rows(world: World, table: Table, draw: random.Random, step: Step, keys: list[Key]) -> list[Row]:
    """New ones, in these partitions."""
    return [_row(table, number, draw.choice(keys), draw, step) for number in world.ids(draw.randrange(1, 6))]


def _row(table: Table, number: int, key: Key, draw: random.Random, step: Step) -> Row:
    values: list[str | None] = []
    for name, kind in table.columns:
        if name == "id":
            values.append(str(number))
        elif name == "v":
            values.append(f"{draw.choice(WORDS)}{number}.{step.number}")
        else:
            values.append(drawn(kind, draw) if draw.random() < 0.8 else None)
    return (*values, *key)
