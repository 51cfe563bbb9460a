"""
Random lives of one table, from a seed: what Hive's writers do to it, in any order, with a compaction or a cleaning
whenever a hook is given.

A history keeps what each of its snapshots must see, from the builder's books and not from files; `check` reads the
files under every snapshot that a reader may still hold. Failing seeds are replayed by `History(warehouse, seed)` alone:
every choice comes from its dice.
"""

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Protocol

from compactor.acid.compaction import LayoutVersion
from compactor.demo.ledger import OPEN
from tests.hive_merge import join_files
from tests.reference.compare import expected_rows, read_directory, schema_of
from tests.reference.reader import NotEnoughHistoryError, Txns, WriteIds, select

KINDS = ("plain", "partitioned", "bucketed", "migrated", "insert-only", "streamed")
MORE_COLUMNS = [("extra", "bigint"), ("label", "varchar(12)"), ("flags", "array<boolean>")]
COLUMNS = [
    ("id", "int"),
    ("name", "string"),
    ("amount", "decimal(20,4)"),
    ("at", "timestamp"),
    ("spot", "struct<x:double,tags:map<string,int>>"),
]


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
    One table and its random life.

    Args:
        warehouse: an empty one, of either layout.
        seed: everything follows from it.
        kind: one of `KINDS`; None lets the seed choose.
        hives_compactions: Hive compacts too, in a way that keeps aborted rows.
    """

    warehouse: object
    seed: int
    kind: str | None = None
    hives_compactions: bool = False
    remembered: list[Remembered] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def __post_init__(self):
        self.dice = random.Random(self.seed)
        self.kind = self.kind or self.dice.choice(KINDS)
        self._next = 0
        self._open = []  # transactions, or (batch, index) of streaming
        self._more = list(MORE_COLUMNS)
        make = self.warehouse.create_table
        parameters = self.dice.choice(
            [{}, {"orc.compress": "SNAPPY"}, {"orc.row.index.stride": "1000"}, {"orc.compress": "NONE"}]
        )
        parameters |= self.dice.choice([{}, {"orc.stripe.row.count": "5"}, {"orc.stripe.row.count": "17"}])
        if self.kind == "partitioned":
            self.table = make(
                "h", "t", COLUMNS, partition_keys=[("day", "string"), ("n", "int")], parameters=parameters
            )
        elif self.kind == "bucketed":
            self.table = make(
                "h", "t", COLUMNS, buckets=self.dice.randint(2, 4), bucket_columns=["id"], parameters=parameters
            )
        elif self.kind == "migrated":
            self.table = make("h", "t", COLUMNS, transactional=False, parameters=parameters)
            for _ in range(self.dice.randint(1, 12)):
                self.warehouse.write_original(
                    self.table, self._rows(self.dice.randint(1, 30)), bucket=self.dice.choice([0, 0, 0, 1])
                )
            self.warehouse.convert(self.table)
        else:
            self.table = make("h", "t", COLUMNS, insert_only=self.kind == "insert-only", parameters=parameters)

    def run(
        self,
        steps: int,
        compact: Callable[["History", str | None, str], str] | None = None,
        clean: Callable[["History"], str] | None = None,
        readers: Readers | None = None,
    ) -> None:
        """
        Do `steps` random things; every snapshot on the way is remembered and checked again at the end.

        Args:
            compact: told a partition name and `major` or `minor`; returns what it did, for the tale.
            clean: removes what is obsolete; snapshots from before are forgotten first, unless a reader holds them.
            readers: lets readers come and go; None for none.
        """
        for _ in range(steps):
            chance = self.dice.random()
            if compact and chance < 0.15 and self.table.directories:
                name = self.dice.choice(sorted(self.table.directories, key=str))
                self._tell(compact(self, name, self.dice.choice(["major", "minor"])))
                self.check()
            elif clean and chance < 0.2:
                self.remembered = [one for one in self.remembered if one.reader is not None]
                self._tell(clean(self))
                self.check()
            elif readers and chance < 0.28:
                self._tell(self._reader(readers))
            else:
                self._tell(self._step())
            self.remember()
        self.check()

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

    def _reader(self, readers):
        held = [one for one in self.remembered if one.reader is not None]
        if held and self.dice.random() < 0.5:
            gone = self.dice.choice(held)
            self.remembered.remove(gone)
            readers.leave(gone.reader)
            return f"the reader of moment {gone.moment} leaves"
        name = readers.come(self)
        taken = self.remember()
        files = [
            file for directory in self.table.directories.values() for file in self._listed(directory, taken.snapshot)
        ]
        self.remembered[-1] = replace(taken, reader=name, files=frozenset(files))
        return f"a reader comes: {name}"

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
        while self._open:
            self._tell(self._end(commit=True))

    def tale(self) -> str:
        return "\n".join(f"  {number}. {line}" for number, line in enumerate(self.told, 1))

    def __str__(self):
        return f"history of seed {self.seed} ({self.kind}, {self.warehouse.ledger.layout.value})"

    def _tell(self, line: str) -> None:
        self.told.append(line)

    def _step(self) -> str:
        acts = [self._insert, self._insert, self._insert]
        if not self.table.insert_only:
            acts += [self._update, self._update, self._delete, self._delete, self._merge, self._stream]
        if self.kind == "streamed":
            acts += [self._stream] * 5
        if (
            self.hives_compactions
            and not self.table.insert_only
            and self.warehouse.ledger.layout is LayoutVersion.HIVE_4
        ):
            acts = [self._insert, self._stream, self._stream, self._stream, self._delete] + [self._merge_files] * 3
        if self._open:
            acts += [lambda: self._end(commit=self.dice.random() < 0.6)] * 3
        elif self.table.directories:  # these take an exclusive lock
            acts += [self._overwrite]
            if (
                self.dice.random() < 0.4 and self.warehouse.ledger.layout is LayoutVersion.HIVE_4
            ):  # 3.1 removes files under its readers
                acts += [self._truncate]
            if self._more and self.dice.random() < 0.5 and not self.table.insert_only:
                acts += [self._add_column]
            if not self.table.insert_only and not self.table.buckets:
                acts += [self._load]
        return self.dice.choice(acts)()

    def _insert(self):
        txn = self.warehouse.begin()
        writers = 1 if self.table.buckets else self.dice.choice([1, 1, 2, 3])
        count = self.dice.choice([1, 3, 10, 60])
        txn.insert(self.table, self._rows(count), self._partition(), writers=writers)
        return f"insert of {count}: {self._outcome(txn)}"

    def _update(self):
        txn = self.warehouse.begin()
        modulus, rest = self.dice.randint(2, 7), self.dice.randrange(7)
        stamp = self.dice.randrange(1000)
        count = txn.update(
            self.table, lambda row: row[0] % modulus == rest, lambda row: (row[0], f"changed {stamp}", *row[2:])
        )
        return f"update of {count}: {self._outcome(txn)}"

    def _delete(self):
        txn = self.warehouse.begin()
        modulus, rest = self.dice.randint(2, 9), self.dice.randrange(9)
        count = txn.delete(self.table, lambda row: row[0] % modulus == rest)
        return f"delete of {count}: {self._outcome(txn)}"

    def _merge(self):
        txn = self.warehouse.begin()
        modulus = self.dice.randint(4, 9)
        gone = txn.delete(self.table, lambda row: row[0] % modulus == 0)
        txn.insert(self.table, self._rows(3), self._partition())
        changed = txn.update(self.table, lambda row: row[0] % modulus == 1, lambda row: (row[0], "merged", *row[2:]))
        return f"merge: {gone} deleted, {changed} updated, 3 inserted: {self._outcome(txn)}"

    def _stream(self):
        count = self.dice.randint(1, 4)
        batch = self.warehouse.stream(
            self.table, [self._rows(self.dice.randint(0, 12)) for _ in range(count)], self._partition()
        )
        outcomes = []
        for index in range(count):
            outcome = self.dice.choice(["commit", "commit", "abort", "open"])
            if outcome == "open":
                self._open.append((batch, index))
            else:
                batch.finish(index, commit=outcome == "commit")
            outcomes.append(outcome)
        return f"streaming batch: {', '.join(outcomes)}"

    def _merge_files(self):
        """
        Hive's own merge compaction (`tests.hive_merge`): rows of aborted write ids stay, and only their ids' being
        known hides them.

        Where it refuses, or loses rows by itself (a base below, a stream over the watermark), nothing is done.
        """
        name = self.dice.choice(sorted(self.table.directories, key=str)) if self.table.directories else None
        if name is None and None not in self.table.directories:
            return "merge of nothing"
        location = self.table.directories[name].location
        snapshot, ids = (
            self.warehouse.snapshot(self.table),
            WriteIds.parse(self.warehouse.snapshot(self.table).write_ids),
        )
        chosen = select(location, ids, Txns.parse(snapshot.txns))
        deltas = [one for one in chosen.deltas if one.high < ids.lowest_open]
        reached = max((one.high for one in deltas), default=0)
        plain = not chosen.base and not chosen.originals and all(one.kind == "delta" for one in deltas)
        over = any(one not in deltas and one.low <= reached for one in chosen.deltas)
        if not plain or over or len(deltas) < 2 or list(location.glob(f"delta_0000001_{reached:07d}_v*")):
            return f"merge of {name}: not for this"
        txn = self.warehouse.ledger.open()
        target = location / f"delta_0000001_{reached:07d}_v{txn:07d}"
        buckets = {
            int(file.name.split("_")[1])
            for one in deltas
            for file in one.path.glob("bucket_*")
            if not file.name.endswith("_flush_length")
        }
        joined = [
            join_files(
                [file for one in deltas for file in sorted(one.path.glob(f"bucket_{bucket:05d}*"))],
                target / f"bucket_{bucket:05d}",
            )
            for bucket in sorted(buckets)
        ]
        if not joined or not all(joined):
            shutil.rmtree(target, ignore_errors=True)
            self.warehouse.ledger.abort(txn)
            return f"merge of {name}: files don't go together"
        self.warehouse.ledger.commit(txn)
        return f"merge of {name}: {target.name}"

    def _overwrite(self):
        txn = self.warehouse.begin()
        txn.overwrite(self.table, self._rows(self.dice.choice([0, 5, 20])), self._partition())
        return f"overwrite: {self._exclusive_outcome(txn)}"

    def _truncate(self):
        txn = self.warehouse.begin()
        txn.truncate(self.table, self._partition())
        return f"truncate: {self._exclusive_outcome(txn)}"

    def _load(self):
        txn = self.warehouse.begin()
        overwrite = self.dice.random() < 0.2
        txn.load(self.table, self._rows(self.dice.randint(1, 15)), self._partition(), overwrite=overwrite)
        return f"load data{' overwrite' if overwrite else ''}: {self._exclusive_outcome(txn)}"

    def _add_column(self):
        column = self._more.pop(0)
        self.warehouse.add_columns(self.table, [column])
        return f"add column {column}"

    def _end(self, *, commit):
        one = self._open.pop(self.dice.randrange(len(self._open)))
        if isinstance(one, tuple):
            one[0].finish(one[1], commit=commit)
        elif commit:
            one.commit()
        else:
            one.abort()
        return f"an open transaction {'commits' if commit else 'aborts'}"

    def _exclusive_outcome(self, txn):
        """Ends at once; and where Hive 3.1 reads, an aborted base without another one would make every reader fail."""
        if self.warehouse.ledger.layout is LayoutVersion.HIVE_3:
            txn.commit()
            return "committed"
        return self._outcome(txn, may_stay_open=False)

    def _outcome(self, txn, *, may_stay_open=True):
        chance = self.dice.random()
        if chance < 0.15:
            txn.abort()
            return "aborted"
        if may_stay_open and chance < 0.27:
            self._open.append(txn)
            return "left open"
        txn.commit()
        assert self.warehouse.states[txn.id] != OPEN
        return "committed"

    def _partition(self):
        if not self.table.partition_keys:
            return None
        return (self.dice.choice(["2024-01-01", "a/b=c", None]), self.dice.choice(["1", "2"]))

    def _rows(self, count):
        return [self._row() for _ in range(count)]

    def _row(self):
        dice = self.dice
        self._next += 1
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
        return (
            row + tuple(more[name] for name, _ in self.table.columns[len(COLUMNS) :]) if hasattr(self, "table") else row
        )
