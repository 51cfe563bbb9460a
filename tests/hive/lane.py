"""
The fast lane: random histories of one table that Hive's own classes write, read and account for, while our roles work
on it; no servers.

Hive's part is in one JVM (`tests.hive.party`): TxnHandler on the metastore's database, OrcRecordUpdater and
OrcInputFormat on the files. A model keeps the rows of each transaction with their ROW__IDs; what a snapshot shows is
what it says of those committed then.
"""

import itertools
import queue
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import select

from compactor.acid.compaction import CompactionKind
from compactor.acid.row_id import encode
from compactor.metastore.partition_names import spellings
from compactor.roles.worker.cancellation import DrainedError
from compactor.roles.worker.older_snapshots import WAIT_SECONDS
from tests.counts import count
from tests.hive.party import HiveError
from tests.metastore.real import RealHive
from tests.unit.roles.world import World

NAME = "db.t"
PARTITIONS = ("p=1", "p=AbC", "p=10%3A00")
"""As the catalog has them: one that is always itself, one with capitals, one that is escaped."""

_ROUNDS = 12
_LIMIT_SECONDS = 120
_PAUSE_SECONDS = 3600
"""Longer than a role leaves alone what it couldn't do."""
_OVERTAKEN = re.compile(
    r"unable to complete cleaning of [^\n]*?\bid[:=](\d+),[^\n]*?highestWriteId[:=](\d+)[^\n]*? Not enough history available[^\n]*/base_(\d+)[_;\s]"
)
"""
Hive's Cleaner fails a compaction whose range lies below the base of a later one (AcidUtils.getAcidState), if the
earlier base has gone: which, up to where, that base.

Of Hive 3.1 the Cleaner itself has removed it; of Hive 4 its cleanup after aborts, which also removes what was replaced.
"""

_UNLISTED = re.compile(
    r"partName:([^,]*),[^\n]*Marking failed to avoid repeated failures[^\n]*Not enough history available[^\n]*/base_(\d+)[_;\s]"
)
"""
Hive 3.1's Initiator can't list where the only base is that of an INSERT OVERWRITE that didn't commit: which partition,
that base.
"""


@dataclass(frozen=True)
class Statement:
    """
    INSERT, UPDATE, DELETE, INSERT OVERWRITE, or "copy": an INSERT into the table from which it reads, of which Hive
    notes nothing with its lock (LockRequestBuilder).

    Args:
        places: indices of `PARTITIONS` it goes to; a static one goes to the first of them.
        count: rows an insert brings; how thickly the others choose theirs.
        dynamic: it finds its partitions while it runs.
    """

    kind: str
    places: tuple[int, ...] = (0,)
    count: int = 1
    bucket: int = 0
    dynamic: bool = False


@dataclass
class Write:
    """One transaction that writes: what it is going to leave, and how far it is."""

    txn: int
    write_id: int
    dynamic: bool
    inserts: list[tuple[str | None, tuple[int, int, int], tuple[int, str]]] = field(default_factory=list)
    deletes: list[tuple[str | None, tuple[int, int, int], tuple[int, str]]] = field(default_factory=list)
    overwrites: bool = False
    copies: bool = False
    partitions: tuple[str | None, ...] = ()
    phase: int = 0


@dataclass
class Reader:
    """
    A statement that reads: its transaction, its lists, what it must see, and what it has listed.

    Args:
        late: it has its snapshot, and lists when it is told to (Hive 3.1).
        outlived: partitions whose first base didn't wait for it any longer (Hive 3.1).
        robbed: partitions from which Hive 4's abort cleanup removed directories beside it.
    """

    name: str
    txn: int
    txns: str
    write_ids: str
    expected: dict[str | None, list[tuple]]
    listed: set[str | None] = field(default_factory=set)
    checked: dict[str | None, tuple] = field(default_factory=dict)
    late: bool = False
    outlived: set[str | None] = field(default_factory=set)
    robbed: set[str | None] = field(default_factory=set)


class Turns:
    """
    Cycles of a worker, each in a thread of its own; and the clock of the wait before a first base
    (`compactor.roles.worker.older_snapshots`, in place of `time`): a worker that waits stands still until the history
    lets it look again.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.waits = False
        self._said, self._go = queue.SimpleQueue(), queue.SimpleQueue()

    def monotonic(self):
        return self.seconds

    def sleep(self, _):
        """In the worker's thread."""
        self._said.put(("waits", None))
        self._go.get()

    def run(self, cycle):
        """What the cycle says; None: it waits."""
        threading.Thread(target=self._run, args=(cycle,), daemon=True).start()
        return self._hear()

    def look(self):
        """The same of one that waits, after another look."""
        self._go.put(None)
        return self._hear()

    def _run(self, cycle):
        try:
            self._said.put(("ended", cycle()))
        except BaseException as error:
            self._said.put(("broke", error))

    def _hear(self):
        what, value = self._said.get(timeout=_LIMIT_SECONDS)
        self.waits = what == "waits"
        if what == "broke":
            raise value
        return value


class Lane:
    """
    One history. Each step is a method; a step for which there is nothing to do does nothing.

    Args:
        turns: of the worker.
        partitioned: whether the table has partitions; the first `PARTITIONS` are made by the writes themselves.
        insert_only: it is no full-ACID table: its rows have no ROW__ID, and no statement changes them.
        originals: how many rows it had before it was transactional.
    """

    def __init__(
        self, database, party, turns, folder: Path, *, partitioned: bool, insert_only: bool = False, originals: int = 0
    ) -> None:
        self.world, self.hive = World(database, folder), RealHive(database, party)
        self.party, self.turns = party, turns
        self.world.root(folder / "tables")
        self.location = folder / "tables" / "t"
        self.location.mkdir(parents=True)
        self.partitioned, self.insert_only = partitioned, insert_only
        keys = (("p", "string"),) if partitioned else ()
        parameters = {"transactional_properties": "insert_only" if insert_only else "default", "bucketing_version": "2"}
        columns = (("id", "int"), ("v", "string"))
        self.tbl_id = self.hive.create_table(
            NAME, columns=columns, keys=keys, parameters=parameters, location=f"file:{self.location}"
        )
        self.catalogued: list[str | None] = [] if partitioned else [None]
        self.numbers, self.names = itertools.count(1), itertools.count(1)
        self.open: list[Write] = []
        self.done: list[Write] = []
        self.readers: list[Reader] = []
        self.overwritten: set[tuple[str | None, int]] = set()
        self.originals = [
            ((0, encode(0, 0), number), (next(self.numbers), "old"))
            for number in range(0 if partitioned else originals)
        ]
        if self.originals:
            rows = [list(value) for _, value in self.originals]
            self.party.call("Lane.plain", {"path": str(self.location / "000000_0"), "rows": rows})
        self.told: list[str] = []
        self.steps = 0
        self.found: dict[tuple, list | None] = {}
        self.unlistable: set[str | None] = set()
        self.overtaken: set[int] = set()
        self.before: list[int] = []
        self.bases: set[str | None] = set()
        self.unnoted = False
        self.hives_threads = False
        party.call("Threads.restart")
        self.beside = False
        self._take_over()

    # Writers

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

    def begin(self, statement):
        """
        Open, choose the rows, lock: None where the locks are held by others, or the table takes no such statement.
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
        txn = self.hive.begin(age=0)
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
                free = [(key, value) for key, value in self.visible(partition) if key not in taken]
                one.deletes += [(partition, key, value) for key, value in free[:: max(1, 3 - count)]]
            for number in range(
                new * count if kind != "update" else sum(1 for place, _, _ in one.deletes if place == partition)
            ):
                key = (one.write_id, encode(bucket, statement), number)
                one.inserts.append((partition, key, (next(self.numbers), f"{kind}-{txn}")))
        self.open.append(one)
        return one

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
            self.open.append(one)
            self.end(one, bool(fate))

    def end(self, one, commit):
        """Commit or abort; Hive may refuse the commit."""
        self.open.remove(one)
        if not commit:
            self.hive.abort(one.txn)
            self.unnoted |= one.copies
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
            self.unnoted |= one.copies

    # Readers

    def read(self, late=False):
        """A statement begins to read: at once, or (Hive 3.1) it only has its snapshot and its locks."""
        txn = self.hive.begin(age=0, user="reader", kind=2 if self.party.hive_4 else 0)
        _, held = self.hive.ask(
            txn, self.hive.component(NAME), *(self.hive.component(NAME, place) for place in self.catalogued if place)
        )
        if not held:
            self.hive.abort(txn)
            return
        self.readers.append(self._snapshot(txn))
        self.readers[-1].late = not self.party.hive_4
        if not late:
            self.list(-1)

    def list(self, which):
        """A reader of Hive 3.1 that has only its snapshot lists now, once for all."""
        if not self.readers or not self.readers[which % len(self.readers)].late:
            return
        reader = self.readers[which % len(self.readers)]
        reader.late = False
        if not self._list(reader, [place for place in self.catalogued if place in reader.expected]):
            self.readers.remove(reader)
            self.hive.commit(reader.txn)

    def read_no_more(self, which):
        if self.readers:
            self.hive.commit(self.readers.pop(which % len(self.readers)).txn)

    def _snapshot(self, txn=0):
        txns, (write_ids,) = self.hive.snapshot(NAME, txn_id=txn)
        return Reader(
            f"r{next(self.names)}", txn, txns, write_ids, {place: self.visible(place) for place in self.catalogued}
        )

    def _list(self, reader, places):
        """Whether Hive lists them."""
        for place in places:
            if self.directory(place).is_dir():
                if not self._is_listable(place):
                    return False
                about = {
                    "name": f"{reader.name}/{place}",
                    "directory": str(self.directory(place)),
                    "write_ids": reader.write_ids,
                    "insert_only": self.insert_only,
                    "vector": self.steps % 2 == 0,
                }
                if self._reads(reader, place, "Lane.list", about | {"txns": reader.txns if self.party.hive_4 else ""}):
                    reader.listed.add(place)
        return True

    def _is_listable(self, place):
        """Hive 3.1 can't list where the only base is that of an INSERT OVERWRITE that didn't commit."""
        bases = (
            {(place, int(path.name[5:])) for path in self.directory(place).glob("base_*")}
            if not self.party.hive_4
            else set()
        )
        if not bases or not bases <= self._rolled_back_bases():
            return True
        self.unlistable.add(place)
        return False

    def _rolled_back_bases(self):
        """The bases of INSERT OVERWRITE that didn't commit, or not yet: partition and write id."""
        return self.overwritten - {(place, one.write_id) for one in self.done for place in one.partitions}

    def _sees(self, reader, place, *, done):
        if place not in reader.listed:
            return []
        found = self._reads(reader, place, "Lane.read", f"{reader.name}/{place}", done)
        return found and sorted(
            (self._key(write_id, bucket, row), (int(values[0]), values[1]))
            for write_id, bucket, row, values in found[0]
        )

    def _key(self, *key):
        """The ROW__ID of a row, if it has one."""
        return () if self.insert_only else key

    def _reads(self, reader, place, *call):
        """
        Hive's answer, in a list; None, on Hive 3.1: its snapshot is older than a first base that waited for it, and in
        vain; Hive can't read what is there.
        """
        try:
            return [self.party.call(*call)]
        except HiveError as error:
            if place not in reader.outlived or "Not enough history available" not in str(error):
                raise
        del reader.expected[place]
        reader.listed.discard(place)
        count("readers of Hive 3.1 in the fast lane older than a first base that waited five minutes for them")
        return None

    # Our roles, and Hive's threads

    def initiate(self):
        self.world.settle_time()
        self._say(self.initiator.run_once())

    def work(self):
        """A cycle; of a worker that waits before a first base the next look."""
        self.world.settle_time()
        if self.turns.waits:
            self._heard(self.turns.look())
            return
        self.before = [one.txn for one in (*self.readers, *self.open)]
        self.bases = {place for place in self.catalogued if any(self.directory(place).glob("base_*"))}
        self._heard(self.turns.run(self.worker.run_once))

    def lose_patience(self):
        """A worker that waits does so no longer."""
        if self.turns.waits:
            self.turns.seconds += WAIT_SECONDS
            self._heard(self.turns.look(), outlived=True)

    def _heard(self, sentence, *, outlived=False):
        """What the worker said; where a first base appeared, every older reader has gone, or was waited for in vain."""
        here = [one for one in (*self.readers, *self.open) if one.txn in self.before]
        if sentence is None:
            assert here, f"{self.before} are gone, and yet a compaction waits for them; {self.told}"
            count(
                f"looks at older readers and writers of Hive {3 + self.party.hive_4} before a first base in the fast lane"
            )
            return
        self._say(sentence)
        if ": published " in sentence:
            self.beside |= bool(self.readers or self.open)
        if ": published base_" in sentence and not self.party.hive_4:
            fresh = {place for place in self.catalogued if any(self.directory(place).glob("base_*"))} - self.bases
            for reader in here if fresh else ():
                assert outlived, f"a first base of {fresh} appeared beside {reader}; {self.told}"
                if reader in self.readers:
                    reader.outlived |= fresh

    def clean(self):
        self.world.settle_time()
        self._say(self.cleaner.run_once())
        self.unnoted = False

    def keep_house(self):
        self.world.settle_time()
        self._say(self.housekeeper.run_once())

    def hive_keeps_house(self):
        """Hive's purges; there was a statement elsewhere, for they leave the newest transaction alone."""
        self._come_before_hive()
        self.hive.commit(self.hive.begin())
        self.world.settle_time()
        self.hive.keep_house()

    def _come_before_hive(self):
        """
        Hive forgets a copy that was undone, and its rows come to life (docs/operations.md): our Cleaner is there
        earlier.
        """
        if self.unnoted:
            self.clean()

    def hive_initiates(self):
        """Hive's Initiator; 3.1's forgets too."""
        self._come_before_hive()
        queued = self._cycle("Initiator")[1]
        count(f"compactions queued by the Initiator of Hive {3 + self.party.hive_4} in the fast lane", max(queued, 0))

    def hive_cleans(self):
        """Hive's Cleaner."""
        # Hive 4's AbortedTxnCleaner also removes what was replaced, and looks at writers only, not at readers
        aborted = self._with_aborted_writes() if self.party.hive_4 else set()
        before = {place: self._there(place) for place in aborted.intersection(self.catalogued)}
        ended = -self._cycle("Cleaner")[1]
        count(f"compactions ended by the Cleaner of Hive {3 + self.party.hive_4} in the fast lane", max(ended, 0))
        for reader in self.readers:
            reader.robbed |= {place for place, there in before.items() if self._there(place) != there}

    def _with_aborted_writes(self):
        """
        Partitions as Hive noted them; also those that it left for later: a compaction that it cleans ends that
        (MarkCleanedFunction).
        """
        txns, components = self.hive.schema.txns, self.hive.schema.txn_components
        aborted = (
            select(components.c.tc_partition)
            .join(txns, txns.c.txn_id == components.c.tc_txnid)
            .where(txns.c.txn_state == "a")
        )
        return set(self.world.database.read(lambda connection: connection.scalars(aborted).all()))

    def _cycle(self, name):
        """How many directories and queued compactions there are more after a cycle."""
        self.hives_threads = True
        self.world.settle_time()
        before = self._size()
        said = self.party.call("Threads.cycle", name)
        grown = [after - earlier for after, earlier in zip(self._size(), before, strict=True)]
        self._say(f"Hive's {name}: {grown[0]:+} directories, {grown[1]:+} queued{said and ', ' + said}")
        failed = {int(entry): int(base) - int(highest) for entry, highest, base in _OVERTAKEN.findall(said)}
        unlisted = [(None if place == "null" else place, int(base)) for place, base in _UNLISTED.findall(said)]
        assert said.count(" ERROR ") == len(failed) + len(unlisted), self.told
        assert self._rolled_back_bases().issuperset(unlisted), self.told
        self.unlistable |= {place for place, _ in unlisted}
        assert all(above > 0 for above in failed.values()), self.told
        self.overtaken |= failed.keys()
        count(
            f"compactions that the Cleaner of Hive {3 + self.party.hive_4} failed below a later base in the fast lane",
            len(failed),
        )
        return grown

    def _size(self):
        return sum(1 for path in self.location.rglob("*") if path.is_dir()), len(self.world.services.queue.entries())

    def ask(self, place, major):
        """ALTER TABLE ... COMPACT."""
        partition = PARTITIONS[place] if self.partitioned else None
        if partition in self.catalogued:
            names = {"partitionname": partition} if partition else {}
            major |= self.insert_only and not self.party.hive_4  # which knows no minor one of such a table
            self.party.call(
                "compact", {"dbname": "db", "tablename": "t", "type": "MAJOR" if major else "MINOR"} | names
            )

    def restart(self):
        """Our daemon starts anew."""
        self.stop()
        self.world.services = self.world.new_services()
        self._take_over()

    def _take_over(self):
        self.world.configure(
            initiator={"thresholds": {"delta_count": 3, "aborted_count": 0}}, cleaner={"listing_wait_seconds": 0}
        )
        self.initiator, self.worker = self.world.initiator(), self.world.worker()
        self.cleaner, self.housekeeper = self.world.cleaner(), self.world.housekeeper()

    def stop(self):
        """Our daemon stops; a compaction that waits is given back."""
        if self.turns.waits:
            self.worker.cancel(DrainedError("the daemon stops"))
            self._heard(self.turns.look())

    def _say(self, sentence):
        self.told.append(sentence)

    # What must hold

    def directory(self, partition) -> Path:
        return self.location / partition if partition else self.location

    def visible(self, partition):
        """The rows that are committed: [(ROW__ID, (id, v))], sorted."""
        floor = max((one.write_id for one in self.done if one.overwrites and partition in one.partitions), default=0)
        rows = {} if floor or partition else dict(self.originals)
        for one in self.done:
            rows |= {key: value for place, key, value in one.inserts if place == partition and key[0] >= floor}
        for one in self.done:
            for place, key, _ in one.deletes:
                if place == partition:
                    rows.pop(key, None)
        return sorted((self._key(*key), value) for key, value in rows.items())

    def check(self):
        """Every reader sees its rows; so does one that begins now."""
        self.steps += 1
        for reader in self.readers:
            for place, rows in list(reader.expected.items()):
                self._check(reader, place, rows)
        fresh = self._snapshot()
        replaced = {place for one in self.open if one.overwrites for place in one.partitions}
        for place, rows in fresh.expected.items():
            if place in replaced:
                self._is_listable(place)
                continue  # who begins now waits for an exclusive lock; without one Hive 4 would take a base for valid whose write id is the lowest open one
            # what is there, the lists and the mode decide what Hive reads
            asked = (place, self._there(place), fresh.write_ids, fresh.txns, self.steps % 2)
            if asked not in self.found:
                listed = self._list(fresh, [place])
                self.found[asked] = self._sees(fresh, place, done=True) if listed else None
            found = self.found[asked]
            assert found in (rows, None), (
                f"a new reader of {place or 'the table'} sees {_difference(found, rows)}; {self.told}"
            )
        for entry in self.world.services.queue.history():
            said = " ".join(sentence for sentence in self.told if f"compaction {entry.id} of " in sentence)
            # Hive 3.1 itself can't list such a directory
            excused = (
                entry.id in self.overtaken
                or "refused: not-enough-to-compact" in said
                or (entry.entity.partition in self.unlistable and (not said or "not-enough-history" in said))
            )
            assert entry.state.value not in {"failed", "did not initiate", "refused"} or excused, (entry, self.told)

    def _there(self, place):
        return tuple(sorted((str(path), path.stat().st_size) for path in self.directory(place).rglob("*")))

    def _check(self, reader, place, rows):
        there = self._there(place)
        if reader.late or reader.checked.get(place) == there:
            return
        if self.party.hive_4:
            reader.listed.discard(place)
            self._list(reader, [place])
        found = self._sees(reader, place, done=False)
        if found != rows and place in reader.robbed:
            del reader.expected[place]
            count("readers whose files the abort cleanup of Hive 4's Cleaner removed in the fast lane")
            return
        assert found == rows or place not in reader.expected, (
            f"reader {reader.txn} of {place or 'the table'} sees {_difference(found, rows)}; {self.told}"
        )
        reader.checked[place] = there

    def rest(self):
        """
        There are two more inserts and a reader, in two of three histories after the open writers, below whom Hive 3.1
        compacts nothing, have gone; all is compacted beside those who are there; then writers and readers go home, and
        the roles run until they have nothing more to do.
        """
        if self.steps % 3:
            self._go_home([one.txn for one in self.open])
        for _ in range(2):
            self.write(Statement("insert"))
        self.read(self.steps % 2 == 0)
        for place in range(len(PARTITIONS) if self.partitioned else 1):
            self.ask(place, self.steps % 2 == 0)
        for _ in self.world.states():
            self.work()
            if self.turns.waits:
                self.check()
                self.read()
                if self.steps % 3:
                    self._go_home(self.before)
                    self.work()
                else:
                    self.lose_patience()
        self.check()
        if self.hives_threads:
            self.hive_cleans()
            self.check()
        self.clean()
        self.check()
        for number in range(len(self.readers)):
            self.list(number)
        self.check()
        self._go_home([one.txn for one in (*self.open, *self.readers)])
        before, now = None, self._all()
        for _ in range(_ROUNDS):
            self.world.clock.forward(_PAUSE_SECONDS)
            self._age_what_was_put_off()
            if self.hives_threads:
                self.hive_initiates()
                self.hive_cleans()
            self.initiate()
            for _ in self.world.states():
                self.work()
            self.clean()
            self.keep_house()
            self.hive_keeps_house()
            self.check()
            before, now = now, self._all()
            if before == now:
                break
        assert before == now, f"no rest: {self.told}"
        left = [entry for entry in self.world.services.queue.entries() if not self._waits_rightly(entry)]
        assert not left, (left, self.told)

    def _age_what_was_put_off(self):
        """A day goes by, by the database's clock, for what a Cleaner, ours or Hive's, wanted to try again later."""
        queued = self.hive.schema.compaction_queue
        if self.party.hive_4:  # 3.1 has no rows for it
            self.hive.change(queued.update().values(cq_commit_time=queued.c.cq_commit_time - 86_400_000))

    def _waits_rightly(self, entry):
        """
        An aborted write waits on: for a major compaction, while a stream or the result of a minor may hold its rows
        among others; for good, where it never had a directory: Hive may have moved one that is missing, so nothing says
        that it holds no file.
        """
        if entry.kind is not CompactionKind.ABORT_CLEANUP:
            return False
        committed = {one.write_id for one in self.done}
        names = [
            path.name.removeprefix("delete_").split("_") for path in self.location.rglob("*delta_*") if path.is_dir()
        ]
        mixed = any(
            low != high and not committed.issuperset(range(int(low), int(high) + 1)) for _, low, high, *_ in names
        )
        named = entry.entity.partition
        places = (
            [place for place in PARTITIONS if named is None or named in spellings(place)]
            if self.partitioned
            else [None]
        )
        return mixed or (places and not any(self.directory(place).exists() for place in places))

    def _go_home(self, txns):
        for one in [one for one in self.open if one.txn in txns]:
            self.end(one, commit=False)
        for reader in [reader for reader in self.readers if reader.txn in txns]:
            self.read_no_more(self.readers.index(reader))

    def _all(self):
        return self._there(None), self.world.states(), self.world.ended()


def _difference(found, rows):
    return {"more": [row for row in found if row not in rows], "less": [row for row in rows if row not in found]}
