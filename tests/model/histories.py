"""
Random lives of one table: what Hive's writers do to it, in any order, with compactions, cleanings and readers between.

A `Life` is drawn (`tests.strategies.lives`) without knowing the table; a `History` is one play of it on a table of some
kind. A history keeps what each of its snapshots must see, from the builder's books and not from files; `check` reads
the files under every snapshot that a reader may still hold.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Protocol

from compactor.acid.compaction import LayoutVersion
from tests.model.option_sets import tale
from tests.model.steps import Clean, Compact, End
from tests.reference.compare import expected_rows, read_directory, schema_of
from tests.reference.reader import NotEnoughHistoryError, Txns, WriteIds, select

KINDS = ("plain", "partitioned", "two buckets", "four buckets", "migrated", "insert-only")
_OPTIONS = {
    "partitioned": {"partition_keys": [("day", "string"), ("n", "int")]},
    "two buckets": {"buckets": 2, "bucket_columns": ["id"]},
    "four buckets": {"buckets": 4, "bucket_columns": ["id"]},
    "migrated": {"transactional": False},
    "insert-only": {"insert_only": True},
}
MORE_COLUMNS = [("extra", "bigint"), ("label", "varchar(12)"), ("flags", "array<boolean>")]
COLUMNS = [
    ("id", "int"),
    ("name", "string"),
    ("amount", "decimal(20,4)"),
    ("at", "timestamp"),
    ("spot", "struct<x:double,tags:map<string,int>>"),
]


class Step(Protocol):
    """One of `tests.model.steps`."""

    def play(self, history: "History") -> str | None:
        """Do it; None where this table can't take it."""


@dataclass(frozen=True)
class Life:
    """
    What happens to a table, of whichever kind.

    Args:
        originals: files from before the table was transactional, as (rows, bucket): of migrated tables. Where one has no rows, a
            file of no bytes lies beside it.
        parameters: of the table: how its files are written.
    """

    steps: list[Step]
    originals: list[tuple[int, int]] = field(default_factory=lambda: [(3, 0)])
    parameters: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Remembered:
    """
    A reader's snapshot and what it sees, by partition; rows have as many columns as the table had then.

    Args:
        reader: whoever holds it and can still read, as `Readers.come` named it; None for a snapshot that nobody holds.
        files: what that reader has listed and will open.
    """

    moment: int
    snapshot: object
    rows: dict
    columns: int
    reader: object = None
    files: frozenset = frozenset()


class Readers(Protocol):
    """Queries that take their time."""

    def come(self, history: "History") -> object:
        """Open what a query holds: its transaction, its lock; returns its name."""

    def leave(self, name: object) -> None:
        """End it."""


@dataclass
class History:
    """
    One table and its life.

    Args:
        warehouse: of either layout, without a table of that name.
        kind: one of `KINDS`.
        compactor: told this history, a partition name and `major` or `minor`; returns what it did, for the tale. None:
            nothing is compacted.
        cleaner: removes what is obsolete; None: nothing is.
        readers: opens and closes what readers hold; None: no reader comes.
    """

    warehouse: object
    kind: str
    life: Life
    compactor: Callable[["History", str | None, str], str] | None = None
    cleaner: Callable[["History"], str] | None = None
    readers: Readers | None = None
    name: str = "t"
    remembered: list[Remembered] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    open: list[object] = field(default_factory=list)
    """Transactions, or (batch, index) of streaming."""
    left_out: list[int] = field(default_factory=list)
    """Places of the steps that this table can't take."""
    joined: int = 0
    """How often Hive joined files."""
    rows_at_end: list[object] | None = None

    def __post_init__(self):
        self._next = 0
        self.more = list(MORE_COLUMNS)
        options = {"parameters": self.life.parameters} | _OPTIONS.get(self.kind, {})
        self.table = self.warehouse.create_table("h", self.name, COLUMNS, **options)
        if self.kind == "migrated":
            for count, bucket in self.life.originals:
                self.warehouse.write_original(self.table, self.rows(count), bucket=bucket)
                if not count:  # one without rows, and behind it one without bytes
                    (directory,) = self.table.directories.values()
                    (directory.location / f"{bucket:06d}_0_copy_99").write_bytes(b"")
            self.warehouse.convert(self.table)

    def run(self) -> None:
        """
        Play every step; every snapshot on the way is remembered, and checked again after compactions and cleanings and
        at the end.
        """
        for place, step in enumerate(self.life.steps):
            line = step.play(self)
            if line is None:
                self.left_out.append(place)
            self.told.append(line or f"left out: {step}")
            if isinstance(step, Compact | Clean):
                self.check()
            self.remember()
        self.check()

    def compact(self, name: str | None, kind: str) -> str:
        return self.compactor(self, name, kind) if self.compactor else f"{kind} of {name}: nothing compacts"

    def clean(self) -> str:
        return self.cleaner(self) if self.cleaner else "nothing cleans"

    def compact_all(self, times: int = 1) -> None:
        """Commit what is still open, and compact every directory at last."""
        self.finish()
        self.remember()
        for name in self.table.directories:
            self.told += [self.compact(name, "major") for _ in range(times)]
        self.check()

    def read(self) -> None:
        """Keep what a new reader finds in the files, in order, without ROW__IDs and partitions, as `rows_at_end`."""
        snapshot, schema = self.warehouse.snapshot(self.table), schema_of(self.table)
        found = [
            row
            for directory in self.table.directories.values()
            for _, row in read_directory(directory.location, schema, snapshot, insert_only=self.table.insert_only)
        ]
        self.rows_at_end = sorted(found, key=repr)

    def remember(self) -> Remembered:
        """Take a snapshot as a reader that starts now."""
        rows = expected_rows(self.warehouse, self.table)
        self.remembered.append(
            Remembered(len(self.told), self.warehouse.snapshot(self.table), rows, len(self.table.columns))
        )
        return self.remembered[-1]

    def check(self) -> None:
        """
        Every remembered snapshot, and one taken now, must see its rows; whoever still reads must find the files listed
        at the start.
        """
        gone = [(one.moment, str(file)) for one in self.remembered for file in one.files if not file.exists()]
        assert not gone, f"{self}: files of a reader were removed: {gone}\n{self.tale()}"
        newest = self.remember()
        for one in {(one.snapshot, one.columns): one for one in self.remembered}.values():
            for name, rows in one.rows.items():
                try:
                    seen = read_directory(
                        self.table.directories[name].location,
                        schema_of(self.table),
                        one.snapshot,
                        insert_only=self.table.insert_only,
                    )
                except NotEnoughHistoryError:
                    # Hive 3.1 refuses a snapshot from before the oldest base, of whichever kind, as soon as there is
                    # one
                    if one is newest or self.warehouse.ledger.layout is LayoutVersion.HIVE_4:
                        raise
                    continue
                wanted = [(key, (*row, *[None] * (len(self.table.columns) - one.columns))) for key, row in rows]
                assert sorted(seen, key=repr) == sorted(wanted, key=repr), (
                    f"{self}: {name}, snapshot of moment {one.moment}: {one.snapshot}\n{self.tale()}"
                )

    def reader_comes(self) -> object:
        """One that stays, and will open the files that it lists now."""
        name = self.readers.come(self)
        taken = self.remember()
        files = [
            file for directory in self.table.directories.values() for file in self._listed(directory, taken.snapshot)
        ]
        self.remembered[-1] = replace(taken, reader=name, files=frozenset(files))
        return name

    def reader_leaves(self, one: Remembered) -> None:
        self.remembered.remove(one)
        self.readers.leave(one.reader)

    @staticmethod
    def _listed(directory, snapshot):
        """What a reader opens; a table that it can't read (Hive 3.1, no base for its snapshot) has nothing to lose."""
        try:
            chosen = select(
                directory.location,
                WriteIds.parse(snapshot.write_ids),
                Txns.parse(snapshot.txns) if snapshot.txns is not None else None,
            )
        except NotEnoughHistoryError:
            return []
        found = [one.path for one in (chosen.base, *chosen.deltas) if one]
        return chosen.originals + [file for path in found for file in path.rglob("*") if file.is_file()]

    def finish(self) -> None:
        """Commit what is still open."""
        while self.open:
            self.told.append(End().play(self))

    @property
    def compacted(self) -> int:
        """How many compactions were published."""
        return sum(line.startswith(("major of", "minor of")) and ": published " in line for line in self.told)

    @property
    def alike(self) -> object:
        """
        The same rows are read after a life that left out the same steps; not of tables with partitions and of those
        without, nor of those with rows from before.
        """
        return bool(self.table.partition_keys), self.kind == "migrated", tuple(self.left_out)

    def tale(self) -> str:
        return tale(self.told)

    def __str__(self):
        return f"life of a table ({self.kind}, {self.warehouse.ledger.layout.value})"

    def rows(self, count: int) -> list[tuple]:
        """The next new rows. The values of a row follow from its number: they are the same in every play of a life."""
        return [self._row() for _ in range(count)]

    def _row(self):
        self._next += 1
        dice = random.Random(self._next)
        spot = (dice.gauss(0, 1), {"a": dice.randrange(5), "b": None}) if dice.random() < 0.8 else None
        amount = Decimal(dice.randrange(-(10**15), 10**15)).scaleb(-4) if dice.random() < 0.9 else None
        row = (
            self._next,
            dice.choice(["", "x", f"name {self._next}", None, "ü雪"]),
            amount,
            (dice.randrange(-(10**9), 2 * 10**9), dice.randrange(10**9)),
            spot,
        )
        more = {"extra": dice.randrange(10**12), "label": f"l{self._next}", "flags": [True, None, False]}
        added = self.table.columns[len(COLUMNS) :] if hasattr(self, "table") else ()
        return row + tuple(more[name] for name, _ in added)
