"""
Hive's writers in the fast lane: statements that go on in steps, streams, commits and aborts; their files are written by
Hive's own classes.
"""

import contextlib
import itertools
import shutil

from compactor.acid.row_id import encode
from tests.counts import count
from tests.hive.lane.model import Write
from tests.hive.lane.table import NAME, PARTITIONS, LaneTable
from tests.hive.party import HiveError

_BATCHES = itertools.count(1)
"""Their names, which no other history of the JVM has."""
_SILENT_MS = 600_000
"""For so long a transaction that Hive's reaper ends wasn't heartbeated: twice what Hive grants it."""


class Writers(LaneTable):
    """Begins, goes on with and ends statements that write."""

    def write(self, statement, commit=True):
        """A whole statement."""
        one = self.begin(statement)
        if one is not None:
            self.advance(one)
            self.advance(one)
            self.end(one, commit)

    def start(self, statement):
        """A statement that goes on later."""
        self.begin(statement)

    def go_on(self, which):
        if self.open:
            self.advance(self.open[which % len(self.open)])

    def finish(self, which, commit):
        if self.open:
            one = self.open[which % len(self.open)]
            if commit:
                self.advance(one)
                self.advance(one)
            self.end(one, commit)

    def begin(self, statement, txn=None, seen=None):
        """
        Open, choose the rows, lock: None where the locks are held by others, or the table takes no such statement.

        Args:
            txn: opened before; None: now.
            seen: the rows of each partition when it was opened.
        """
        kind, count, bucket = statement.kind, statement.count, statement.bucket
        if self.insert_only and kind in {"update", "delete"}:
            return None
        partitions = (
            tuple(PARTITIONS[place] for place in sorted(set(statement.places))) if self.partitioned else (None,)
        )
        dynamic = statement.dynamic and self.partitioned and kind != "overwrite"
        if not dynamic:
            partitions = partitions[:1]
        txn = txn or self.hive.begin(age=0)
        one = Write(
            txn,
            self.hive.allocate(txn, NAME),
            dynamic,
            partitions=partitions,
            overwrites=kind == "overwrite",
            copies=kind == "copy",
        )
        operation, lock = {
            "insert": ("i", "r"),
            "copy": ("s", "r"),
            "update": ("u", "w"),
            "delete": ("d", "w"),
            "overwrite": ("u", "e"),
        }[kind]
        component = self.hive.component(NAME, None if dynamic else partitions[0], lock, operation)
        _, held = self.hive.ask(txn, component | ({"isDynamicPartitionWrite": True} if dynamic else {}))
        if not held:
            self.hive.abort(txn)
            return None
        taken = {key for other in self.open for _, key, _ in other.deletes}
        new = 0 if kind == "delete" else 1
        # an UPDATE of Hive 3.1 is one statement, of Hive 4 a deleting and an inserting one
        statement = 1 if kind == "update" and self.party.hive_4 else 0
        for partition in partitions:
            if kind in {"update", "delete"}:
                rows = self.visible(partition) if seen is None else seen.get(partition, [])
                free = [(key, value) for key, value in rows if key not in taken]
                one.deletes += [(partition, key, value) for key, value in free[:: max(1, 3 - count)]]
            for number in range(
                new * count if kind != "update" else sum(1 for place, _, _ in one.deletes if place == partition)
            ):
                key = (one.write_id, encode(bucket, statement), number)
                one.inserts.append((partition, key, (next(self.numbers), f"{kind}-{txn}")))
        self.open.append(one)
        return one

    def write_nothing(self, place):
        """A DELETE that hits nothing: it commits a write id, and leaves no file."""
        partition = PARTITIONS[place] if self.partitioned else None
        if partition not in self.catalogued or self.insert_only:
            return
        txn = self.hive.begin(age=0)
        self.hive.allocate(txn, NAME)
        if not self.hive.ask(txn, self.hive.component(NAME, partition, "w", "d"))[1]:
            self.hive.abort(txn)
            return
        with contextlib.suppress(HiveError):  # of two writers of a partition one may lose
            self.hive.commit(txn)

    def advance(self, one):
        """The tasks write their files; then partitions are made known."""
        if one.phase == 0:
            self._files(one)
        elif one.phase == 1 and self.partitioned:
            found = [
                p
                for p in one.partitions
                if p in {place for place, _, _ in (*one.inserts, *one.deletes)} or one.overwrites
            ]
            fresh = [p for p in found if p not in self.catalogued]
            self.hive.add_partitions(self.tbl_id, fresh)
            self.catalogued += fresh
            if one.dynamic and found:
                operation = "i" if not one.deletes else "u" if one.inserts else "d"
                self.hive.add_partitions_written(one.txn, one.write_id, NAME, found, operation=operation)
        one.phase += 1

    def _files(self, one):
        for partition in one.partitions:
            directory = self.directory(partition)
            inserts = [(key, value) for place, key, value in one.inserts if place == partition]
            deletes = sorted((key, value) for place, key, value in one.deletes if place == partition)
            written = {key[1] for key, _ in inserts}
            groups = {bucket: ([(k, v) for k, v in inserts if k[1] == bucket], []) for bucket in written}
            for key, value in deletes:
                # the event lies in the file of its row's bucket, under the deleting statement, 0
                groups.setdefault(encode(key[1] >> 16 & 0xFFF, 0), ([], []))[1].append((key, value))
            if one.overwrites:
                self.overwritten.add((partition, one.write_id))
            if one.overwrites and not groups:
                groups[encode(0, 0)] = ([], [])
            for bucket, (new, old) in sorted(groups.items()):
                if self.insert_only:
                    own = directory / (
                        f"base_{one.write_id:07d}"
                        if one.overwrites
                        else f"delta_{one.write_id:07d}_{one.write_id:07d}_0000"
                    )
                    self.party.call(
                        "Lane.plain",
                        {"path": str(own / f"{bucket >> 16 & 0xFFF:06d}_0"), "rows": [list(value) for _, value in new]},
                    )
                    continue
                about = {"directory": str(directory), "base": one.overwrites, "min": one.write_id, "max": one.write_id}
                about |= {"statement": bucket & 0xFFF, "bucket": bucket >> 16 & 0xFFF}
                about["inserts"] = [[one.write_id, list(value)] for _, value in new]
                about["deletes"] = [[one.write_id, [*value, *key]] for key, value in old]
                self.party.call("Lane.write", about)

    def _take_back(self, txns):
        """As if their tasks hadn't written lately: Hive has forgotten them, and their rows would be read."""
        lost = [(one, partition) for one in self.lately if one.txn in txns for partition in one.partitions]
        self.lately = [one for one in self.lately if one.txn not in txns]
        for one, partition in lost:
            number = f"{one.write_id:07d}"
            for directory in self.directory(partition).glob(f"*_{number}*"):
                own = directory.name.removeprefix("delete_").startswith(f"delta_{number}_{number}")
                if own or (one.overwrites and directory.name == f"base_{number}"):
                    shutil.rmtree(directory)

    def stream(self, place, count, fates):
        """
        A batch of streaming transactions that share a directory; a fate of None is a transaction of the batch that
        never began. Not into an insert-only table.
        """
        if self.insert_only:
            return
        partition = PARTITIONS[place] if self.partitioned else None
        batch = []
        for fate in fates:
            txn = self.hive.begin(age=0)
            batch.append((Write(txn, self.hive.allocate(txn, NAME), False, partitions=(partition,)), fate))
        low, high = batch[0][0].write_id, batch[-1][0].write_id
        for one, fate in batch:
            if fate is None:
                continue
            if not self.hive.ask(one.txn, self.hive.component(NAME, partition, "r", "i"))[1]:
                for other, _ in batch:
                    self.hive.abort(other.txn)
                return
            for number in range(count):
                one.inserts.append(
                    (partition, (one.write_id, encode(0, 0), number), (next(self.numbers), f"stream-{one.txn}"))
                )
        about = {
            "directory": str(self.directory(partition)),
            "base": False,
            "min": low,
            "max": high,
            "statement": -1,
            "bucket": 0,
            "deletes": [],
        }
        about["inserts"] = [[one.write_id, list(value)] for one, _ in batch for _, _, value in one.inserts]
        self.party.call("Lane.write", about)
        if self.partitioned and partition not in self.catalogued:
            self.hive.add_partitions(self.tbl_id, [partition])
            self.catalogued.append(partition)
        for one, fate in batch:
            one.phase = 1
            self.open.append(one)
            self.end(one, bool(fate))

    def open_stream(self, place, count):
        """A client of the streaming API opens a batch of so many transactions. Not into an insert-only table."""
        if self.insert_only:
            return
        partition = PARTITIONS[place] if self.partitioned else None
        members = []
        for _ in range(count):
            txn = self.hive.begin(age=0)
            members.append(Write(txn, self.hive.allocate(txn, NAME), False, partitions=(partition,), phase=2))
        self.open += members
        self.batches.append((str(next(_BATCHES)), members))

    def stream_on(self, which, commit):
        """
        The client writes its next transaction; a commit hands out the file as far as it is written, and its length
        beside it.
        """
        batches = [batch for batch in self.batches if any(one in self.open for one in batch[1])]
        if not batches:
            return
        name, members = batches[which % len(batches)]
        one = next(one for one in members if one in self.open)
        (partition,) = one.partitions
        if not self.hive.ask(one.txn, self.hive.component(NAME, partition, "r", "i"))[1]:
            self.end(one, commit=False)
            return
        one.inserts.append((partition, (one.write_id, encode(0, 0), 0), (next(self.numbers), f"stream-{one.txn}")))
        about = {"name": name, "flush": commit, "directory": str(self.directory(partition)), "base": False}
        about |= {"min": members[0].write_id, "max": members[-1].write_id, "statement": -1, "bucket": 0}
        about["inserts"] = [[one.write_id, list(value)] for _, _, value in one.inserts]
        self.party.call("Lane.stream", about)
        if self.partitioned and partition not in self.catalogued:
            self.hive.add_partitions(self.tbl_id, [partition])
            self.catalogued.append(partition)
        self.end(one, commit)

    def close_stream(self, which):
        """The client goes; one that dies never does this, and leaves its file without an end."""
        if self.batches:
            name, members = self.batches.pop(which % len(self.batches))
            for one in [one for one in members if one in self.open]:
                self.end(one, commit=False)
            self.party.call("Lane.close", name)
            self.closed = True

    def end(self, one, commit):
        """Commit or abort; Hive may refuse the commit."""
        self.open.remove(one)
        if not commit:
            self.hive.abort(one.txn, silent=0)
            self._rolled_back(one)
            return
        try:
            self.hive.commit(one.txn)
        except HiveError as error:
            if error.kind != "TxnAbortedException":
                raise
        else:
            self.done.append(one)

    def reap(self, which):
        """A writer falls silent, and Hive's reaper ends its transaction."""
        if self.open:
            one = self.open.pop(which % len(self.open))
            txns = self.hive.schema.txns
            self.hive.change(txns.update().where(txns.c.txn_id == one.txn).values(txn_last_heartbeat=1_000))
            self.party.call("performTimeOuts")
            self.hive.fall_silent(one.txn, _SILENT_MS)
            self._rolled_back(one)

    def _rolled_back(self, one):
        """Its tasks, if they haven't written yet, go on: an abort stops none of them."""
        self.unnoted |= one.copies
        one.named = any(txn == one.txn for txn, _ in self._noted())
        if one.phase == 0:
            self.late.append(one)
        elif not one.named:
            self.lately.append(one)

    def write_late(self, which):
        """The tasks of a statement that was rolled back meanwhile write their files."""
        if self.late:
            one = self.late.pop(which % len(self.late))
            self._files(one)
            self.lately.append(one)
            count(f"statements of Hive {3 + self.party.hive_4} in the fast lane that wrote after their rollback")
