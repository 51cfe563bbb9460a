"""
What can happen to a table of a random life: statements of Hive's writers, ends of transactions, compactions, cleanings,
readers.

A step says only what is asked for, so that the same step can be played on every kind of table and on both layouts, and
prints as the call that makes it. `play` does it and says what came of it; None where this table can't take the step:
it is left out then.
"""

import re
import shutil
from dataclasses import dataclass

from compactor.acid.compaction import LayoutVersion
from compactor.acid.names import base_name
from tests.demo.ledger import OPEN
from tests.hive_merge import join_files
from tests.reference.reader import Txns, WriteIds, select

PARTITIONS = [(day, number) for day in ("2024-01-01", "a/b=c", None) for number in ("1", "2")]
OUTCOMES = {"commit": "committed", "abort": "aborted", "open": "left open"}


def end(history, txn, wanted):
    """The end of a writer: at once, or later by an `End`."""
    if wanted == "open":
        history.open.append(txn)
    elif wanted == "abort":
        txn.abort()
    else:
        txn.commit()
        assert history.warehouse.states[txn.id] != OPEN
    return OUTCOMES[wanted]


def leave_empty_files(history, txn):
    """
    Files of no bytes beside those that the transaction wrote, for buckets without rows, as Tez leaves them and IMPORT
    brings them.
    """
    write_id = txn.write_id(history.table)
    for directory in history.table.directories.values():
        for place in [*directory.location.glob(f"delta_*_{write_id:07d}_*"), directory.location / base_name(write_id)]:
            good = {file.name for file in place.glob("*0*")}
            names = {re.sub(r"0000\d", f"0000{number}", name, count=1) for name in good for number in range(5)}
            wanted = sorted(
                name for name in names - good if not history.table.buckets or "00000" in name or "00001" in name
            )
            for name in wanted[:1]:
                (place / name).write_bytes(b"")


def place_of(history, number):
    """The values of a partition; None for a table without."""
    return PARTITIONS[number] if history.table.partition_keys else None


def exclusive(history, wanted="commit"):
    """
    Whether a statement that takes an exclusive lock can run: not beside writers; and on Hive 3.1 an aborted base
    without another one would make every reader fail.
    """
    hive_3 = history.warehouse.ledger.layout is LayoutVersion.HIVE_3
    return not history.open and history.table.directories and not (hive_3 and wanted == "abort")


def directory_of(history, number):
    """The name of one of the directories that are there."""
    return sorted(history.table.directories, key=str)[number % len(history.table.directories)]


@dataclass(frozen=True)
class Insert:
    rows: int
    writers: int = 1
    place: int = 0
    end: str = "commit"
    empty: bool = False

    def play(self, history):
        txn, writers = history.warehouse.begin(), 1 if history.table.buckets else self.writers
        txn.insert(history.table, history.rows(self.rows), place_of(history, self.place), writers=writers)
        if self.empty:
            leave_empty_files(history, txn)
        return f"insert of {self.rows}: {end(history, txn, self.end)}"


@dataclass(frozen=True)
class Update:
    """Rows whose first column is `rest` modulo `modulus`."""

    modulus: int
    rest: int
    end: str = "commit"

    def play(self, history):
        if history.table.insert_only:
            return None
        txn, stamp = history.warehouse.begin(), f"changed at {len(history.told)}"
        count = txn.update(history.table, self._hits, lambda row: (row[0], stamp, *row[2:]))
        return f"update of {count}: {end(history, txn, self.end)}"

    def _hits(self, row):
        return row[0] % self.modulus == self.rest


@dataclass(frozen=True)
class Delete:
    """Rows whose first column is `rest` modulo `modulus`."""

    modulus: int
    rest: int
    end: str = "commit"

    def play(self, history):
        if history.table.insert_only:
            return None
        txn = history.warehouse.begin()
        count = txn.delete(history.table, lambda row: row[0] % self.modulus == self.rest)
        return f"delete of {count}: {end(history, txn, self.end)}"


@dataclass(frozen=True)
class Merge:
    """Deletes, inserts and updates in one transaction."""

    modulus: int
    place: int = 0
    end: str = "commit"

    def play(self, history):
        if history.table.insert_only:
            return None
        table, txn = history.table, history.warehouse.begin()
        gone = txn.delete(table, lambda row: row[0] % self.modulus == 0)
        txn.insert(table, history.rows(3), place_of(history, self.place))
        changed = txn.update(table, lambda row: row[0] % self.modulus == 1, lambda row: (row[0], "merged", *row[2:]))
        return f"merge: {gone} deleted, {changed} updated, 3 inserted: {end(history, txn, self.end)}"


@dataclass(frozen=True)
class Stream:
    """A streaming batch: the rows and the end of each of its transactions."""

    transactions: tuple[tuple[int, str], ...]
    place: int = 0

    def play(self, history):
        if history.table.insert_only:
            return None
        rows = [history.rows(count) for count, _ in self.transactions]
        batch = history.warehouse.stream(history.table, rows, place_of(history, self.place))
        for index, (_, wanted) in enumerate(self.transactions):
            if wanted == "open":
                history.open.append((batch, index))
            else:
                batch.finish(index, commit=wanted == "commit")
        return f"streaming batch: {', '.join(OUTCOMES[wanted] for _, wanted in self.transactions)}"


@dataclass(frozen=True)
class Overwrite:
    rows: int
    place: int = 0
    end: str = "commit"
    empty: bool = False

    def play(self, history):
        if not exclusive(history, self.end):
            return None
        txn = history.warehouse.begin()
        txn.overwrite(history.table, history.rows(self.rows), place_of(history, self.place))
        if self.empty:
            leave_empty_files(history, txn)
        return f"overwrite: {end(history, txn, self.end)}"


@dataclass(frozen=True)
class Truncate:
    place: int = 0
    end: str = "commit"

    def play(self, history):
        if not exclusive(history) or history.warehouse.ledger.layout is LayoutVersion.HIVE_3:
            return None  # 3.1 removes files under its readers
        txn = history.warehouse.begin()
        txn.truncate(history.table, place_of(history, self.place))
        return f"truncate: {end(history, txn, self.end)}"


@dataclass(frozen=True)
class Load:
    rows: int
    overwrite: bool = False
    place: int = 0
    end: str = "commit"
    empty: bool = False

    def play(self, history):
        if not exclusive(history, self.end) or history.table.insert_only or history.table.buckets:
            return None
        txn, place = history.warehouse.begin(), place_of(history, self.place)
        txn.load(history.table, history.rows(self.rows), place, overwrite=self.overwrite)
        if self.empty:
            leave_empty_files(history, txn)
        return f"load data{' overwrite' if self.overwrite else ''}: {end(history, txn, self.end)}"


@dataclass(frozen=True)
class AddColumn:
    def play(self, history):
        if not exclusive(history) or history.table.insert_only or not history.more:
            return None
        column = history.more.pop(0)
        history.warehouse.add_columns(history.table, [column])
        return f"add column {column}"


@dataclass(frozen=True)
class End:
    """One of the open transactions ends."""

    which: int = 0
    commit: bool = True

    def play(self, history):
        if not history.open:
            return None
        one = history.open.pop(self.which % len(history.open))
        if isinstance(one, tuple):
            one[0].finish(one[1], commit=self.commit)
        elif self.commit:
            one.commit()
        else:
            one.abort()
        return f"an open transaction {'commits' if self.commit else 'aborts'}"


@dataclass(frozen=True)
class Compact:
    """One of the directories is compacted; where nothing compacts, read."""

    kind: str = "major"
    which: int = 0

    def play(self, history):
        if not history.table.directories:
            return None
        return history.compact(directory_of(history, self.which), self.kind)


@dataclass(frozen=True)
class Clean:
    """What is obsolete is removed; snapshots from before are forgotten first, unless a reader holds them."""

    def play(self, history):
        history.remembered = [one for one in history.remembered if one.reader is not None]
        return history.clean()


@dataclass(frozen=True)
class Come:
    """A reader comes, and stays."""

    def play(self, history):
        return f"a reader comes: {history.reader_comes()}"


@dataclass(frozen=True)
class Leave:
    """One of the readers goes home."""

    which: int = 0

    def play(self, history):
        held = [one for one in history.remembered if one.reader is not None]
        if not held:
            return None
        gone = held[self.which % len(held)]
        history.reader_leaves(gone)
        return f"the reader of moment {gone.moment} leaves"


@dataclass(frozen=True)
class JoinFiles:
    """
    Hive's own merge compaction (`tests.hive_merge`): rows of aborted write ids stay, and only their ids' being known
    hides them.

    Where it refuses, or loses rows by itself (a base below, a stream over the watermark), nothing is done.
    """

    which: int = 0

    def play(self, history):
        if not history.table.directories or history.table.insert_only:
            return None
        warehouse, name = history.warehouse, directory_of(history, self.which)
        location, snapshot = history.table.directories[name].location, warehouse.snapshot(history.table)
        ids = WriteIds.parse(snapshot.write_ids)
        chosen = select(location, ids, Txns.parse(snapshot.txns))
        deltas = [one for one in chosen.deltas if one.high < ids.lowest_open]
        reached = max((one.high for one in deltas), default=0)
        plain = not chosen.base and not chosen.originals and all(one.kind == "delta" for one in deltas)
        over = any(one not in deltas and one.low <= reached for one in chosen.deltas)
        if not plain or over or len(deltas) < 2 or list(location.glob(f"delta_0000001_{reached:07d}_v*")):
            return None
        txn = warehouse.ledger.open()
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
            warehouse.ledger.abort(txn)
            return None
        warehouse.ledger.commit(txn)
        history.joined += 1
        return f"merge of {name}: {target.name}"
