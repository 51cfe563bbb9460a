"""
What is true on a database on which Hive's TxnHandler and ours work: transactions, what may lie in files, entries of the
queue; `truths` says what must be so of it.

There are no files here. A write has some in each partition it named from its beginning until a cleaner removes them, an
attempt of a compaction from when its state is stored; what removes them looks at the lists that the real one looks at.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy import select, update

from compactor.acid.compaction import CompactionKind
from compactor.acid.write_ids import CleanerWriteIdList
from compactor.errors import RefusedError
from compactor.metastore.clean.aborts import Aborts
from compactor.metastore.clean.purge import Proof
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.housekeeping import Housekeeping
from compactor.metastore.model import Entity, QueueEntry, QueueState
from compactor.metastore.txn.locks import Locks
from compactor.metastore.txn.transactions import Transactions, TxnState
from tests.counts import count
from tests.hive.party import HiveError

OURS, HIVES = "ann-1", "hive-1"
"""Workers."""
_STATES = {"o": TxnState.OPEN, "c": TxnState.COMMITTED, "a": TxnState.ABORTED, None: TxnState.ABSENT}


@dataclass(eq=False)
class Place:
    """A table, whatever its name is by now; `partitions` is (None,) for one without."""

    name: str
    tbl_id: int
    partitions: tuple[str | None, ...]

    def entity(self, partition=None):
        database, table = self.name.split(".")
        return Entity(database, table, partition)


@dataclass(eq=False)
class Write:
    """
    Args:
        files: partitions in which its rows may lie.
        noted: partitions that Hive's components name.
        lost: Hive noted nothing of it, and purged its transaction before our Cleaner looked: nothing is known of it any
            more (docs/operations.md).
    """

    place: Place
    write_id: int
    files: set[str | None]
    noted: set[str | None] = field(default_factory=set)
    lost: bool = False


@dataclass(eq=False)
class Txn:
    state: TxnState = TxnState.OPEN
    compaction: bool = False
    writes: list[Write] = field(default_factory=list)


@dataclass(eq=False)
class Attempt:
    """
    A worker at an entry, until it has ended it; the entry may be another's by then.

    Args:
        info: Hive's words for the entry; None: the worker is ours.
        files: what it wrote under its transaction may lie in the table.
        stored: it has said what it covers.
        marked: Hive's has handed the entry to the Cleaner, and not yet committed.
        over: the worker does nothing more.
    """

    entry: QueueEntry | None
    place: Place
    partition: str | None
    info: dict | None = None
    txn_id: int | None = None
    lock_id: int | None = None
    files: bool = False
    stored: bool = False
    marked: bool = False
    over: bool = False

    @property
    def number(self):
        return self.info["id"] if self.entry is None else self.entry.id


class World:
    """
    The two, and what is known of what they did.

    Args:
        drawn: chooses among several.
    """

    def __init__(self, database, hive):
        self.database, self.hive, self.hive_4 = database, hive, hive.party.hive_4
        self.transactions, self.locks, self.queue = Transactions(database), Locks(database), Queue(database)
        self.housekeeping, self.aborts, self.cleaning = Housekeeping(database), Aborts(database), Cleaning(database)
        self.t = Place("db.t", hive.create_table("db.t"), (None,))
        self.u = Place("db.u", hive.create_table("db.u", keys=(("p", "string"),)), ("p=1", "p=2", "p=AbC"))
        hive.add_partitions(self.u.tbl_id, self.u.partitions)
        self.drawn = 0
        self.txns: dict[int, Txn] = {}
        self.attempts: list[Attempt] = []
        self.proofs: list[Proof] = []
        self.known: set[int] = set()
        self.spoilt: set[int] = set()
        self.readers: dict[int, tuple[set[int], set[int]]] = {}
        self.covered: dict[tuple[Place, str | None], int] = {}
        self.mark = 0
        self.forget_step()
        self.look()

    # Choosing, and making what there is to choose from

    def choose(self, several):
        return several[self.drawn % len(several)]

    def place(self):
        """One of the tables, with one of its partitions."""
        return self.choose([(place, partition) for place in (self.t, self.u) for partition in place.partitions])

    def open(self, *, writing=None):
        """Open transactions that are no compaction's."""
        found = [number for number, txn in self.txns.items() if txn.state is TxnState.OPEN and not txn.compaction]
        return [number for number in found if writing is None or bool(self.txns[number].writes) == writing]

    def begin(self, kind=0):
        """A transaction of Hive's."""
        number = self.hive.begin(age=0, kind=kind)
        self.opened([number], compaction=kind != 0)
        return number

    def opened(self, numbers, *, compaction=False):
        for number in numbers:
            assert number not in self.txns, f"transaction id {number} was handed out twice"
            self.txns[number] = Txn(compaction=compaction)

    def allocated(self, number, place, write_id, files):
        """A write id of an open transaction."""
        others = {write.write_id for txn in self.txns.values() for write in txn.writes if write.place is place}
        assert write_id not in others, f"write id {write_id} was handed out twice"
        write = Write(place, write_id, set(files))
        self.txns[number].writes.append(write)
        return write

    def write(self, place, partition, how):
        """
        A transaction of Hive's that writes; None when it can't have its lock.

        Args:
            how: "static", "update", "dynamic" (its partitions are told at its end), or "unnamed": Hive notes nothing of
                an INSERT into the table from which it reads.
        """
        number = self.begin()
        dynamic = how == "dynamic"
        write = self.allocated(
            number, place, self.hive.allocate(number, place.name), place.partitions if dynamic else {partition}
        )
        operation = {"unnamed": "s", "update": "u"}.get(how, "i")
        component = self.hive.component(
            place.name, None if dynamic else partition, "w" if how == "update" else "r", operation
        )
        if not self.hive.ask(number, component | {"isDynamicPartitionWrite": dynamic})[1]:
            write.files.clear()
            self.abort(number)
            return None
        if how in {"static", "update"}:
            write.noted.add(partition)
        return number

    def writer(self, how=None):
        """An open transaction of Hive's that writes, perhaps a new one."""
        found = [] if how else self.open(writing=True)
        return self.choose(found) if found else self.write(*self.place(), how or "static")

    def commit(self, number):
        """By Hive, which may find a conflict."""
        try:
            self.hive.commit(number)
        except HiveError as error:
            if error.kind != "TxnAbortedException":
                raise
            self.txns[number].state = TxnState.ABORTED
        else:
            self.txns[number].state = TxnState.COMMITTED

    def abort(self, number):
        self.hive.abort(number)
        self.txns[number].state = TxnState.ABORTED

    def silence(self, number):
        """Its client dies; a reaper may end it now."""
        txns = self.hive.schema.txns
        self.hive.change(update(txns).where(txns.c.txn_id == number).values(txn_last_heartbeat=1_000))

    # The queue

    def asked(self):
        """An entry that waits for a worker, perhaps a new one; None: something is being done everywhere."""
        waiting = self.queue.entries(QueueState.INITIATED)
        if waiting:
            return self.choose(waiting)
        places = [(place, partition) for place in (self.t, self.u) for partition in place.partitions]
        busy = {one.number for one in self.attempts if not one.over}
        for entry in self.queue.working():
            if entry.id not in busy:  # as recovery does
                self.queue.give_back(entry)
                return self.queue.entry(entry.id)
        for place, partition in places[self.drawn % len(places) :] + places:
            answer = self.queue.enqueue(place.entity(partition), CompactionKind.MAJOR)
            if answer.accepted:
                self.known.add(answer.id)
                return self.queue.entry(answer.id)
        return None

    def place_of(self, entity):
        """By its present name; None: there is none."""
        return next((place for place in (self.t, self.u) if place.name == entity.full_name), None)

    def claimed(self, *, by, fresh=False):
        """An entry with a worker that has stored nothing yet, perhaps a new one; None: there is no other."""
        found = (
            []
            if fresh
            else [one for one in self._at_work(by) if not one.stored and one.txn_id is None and one.lock_id is None]
        )
        if found:
            return self.choose(found)
        if self.asked() is None:
            return None
        return self.took(self.hive.claim(HIVES) if by == HIVES else self.queue.claim(OURS, "1"), by=by)

    def _at_work(self, by):
        return [one for one in self.attempts if (one.info is not None) == (by == HIVES) and not one.over]

    def took(self, answer, *, by):
        """A claim's answer."""
        if answer is None:
            return None
        if by == HIVES:
            place = self.place_of(Entity(answer["dbname"], answer["tableName"]))
            attempt = Attempt(None, place, answer["partName"], answer)
        else:
            attempt = Attempt(answer, self.place_of(answer.entity.whole_table()), answer.entity.partition)
        self.attempts.append(attempt)
        self.taken.append(attempt.number)
        return attempt

    def _give_work(self, place):
        """Something to compact: its writers come to their ends, or a new one does."""
        if self.transactions.compactor_write_ids(place.name, self.transactions.valid_txns()).high_watermark:
            return
        writers = [
            number for number in self.open(writing=True) if place in {write.place for write in self.txns[number].writes}
        ]
        for number in writers or [self.write(place, place.partitions[0], "static")]:
            if number is not None:
                self.commit(number)

    def prepared(self, *, by, fresh=False):
        """
        A claimed entry that has its transaction (4.x) and lock, and what it is going to cover; None: it can't be had.
        """
        attempt = self.claimed(by=by, fresh=fresh)
        if attempt is None or attempt.place not in (self.t, self.u):
            return None
        self._give_work(attempt.place)
        if by == HIVES:
            if self.hive_4:
                attempt.txn_id = self.begin(kind=3)
            txns = self.transactions.valid_txns(attempt.txn_id)
        else:
            if self.hive_4:
                attempt.txn_id = self.transactions.open_compaction("ann", "edge", agent=OURS)
                self.opened([attempt.txn_id], compaction=True)
            try:
                attempt.lock_id = self.locks.acquire_shared(
                    attempt.place.entity(attempt.partition), attempt.txn_id or 0, "ann", "edge"
                )
            except RefusedError:
                self.leave(attempt)
                return None
            txns = self.transactions.compaction_txns(attempt.txn_id) if self.hive_4 else self.transactions.valid_txns()
        highest = self.transactions.compactor_write_ids(attempt.place.name, txns).high_watermark
        if not highest:
            self.leave(attempt)
            return None
        return attempt, highest

    def holds(self, attempt):
        """Whether the entry is still our worker's."""
        now = self.queue.entry(attempt.number)
        return now is not None and (now.state, now.worker_id) == (QueueState.WORKING, OURS)

    def leave(self, attempt):
        """The worker ends it: there is nothing to do, or it is locked."""
        self.attempts.remove(attempt)
        if attempt.lock_id is not None:
            self.locks.release(attempt.lock_id)
        if attempt.txn_id is not None:
            self.transactions.end_empty(attempt.txn_id)
            self.txns[attempt.txn_id].state = self.transactions.state(attempt.txn_id)
        now = self.queue.entry(attempt.number)
        if now is not None and now.state is QueueState.WORKING:
            self.queue.give_back(now)

    def store(self, attempt, highest):
        """Its worker says what it covers, and writes."""
        if attempt.info is None:
            self.queue.set_compactor_state(attempt.entry, attempt.txn_id, highest, "ann")
        else:
            self.hive.party.call(*self.hives_state(attempt, highest))
        attempt.stored = attempt.files = True

    def hives_state(self, attempt, highest):
        """How Hive's worker says it."""
        attempt.info |= {"highestWriteId": highest}
        return (
            ("updateCompactorState", attempt.info, attempt.txn_id)
            if self.hive_4
            else ("setCompactionHighestWriteId", attempt.info, highest)
        )

    def working(self, *, by, fresh=False):
        """An attempt that has written, perhaps a new one."""
        found = [one for one in self._at_work(by) if one.stored and not fresh]
        if found:
            return self.choose(found)
        prepared = self.prepared(by=by, fresh=fresh)
        if prepared is None:
            return None
        try:
            self.store(*prepared)
        except Exception:
            self.attempts.remove(prepared[0])
            return None
        return prepared[0]

    def ready(self):
        """What may be cleaned now, or else what waits for it, perhaps a new one; judged by our Cleaner."""
        found = self._ended_well()
        if not found:
            attempt = self.working(by=OURS, fresh=True)
            if attempt is None:
                return None
            try:
                self.queue.mark_compacted_and_commit(attempt.entry, OURS, attempt.txn_id)
            except Exception:
                return None
            self.ended(attempt)
            self._see()
            found = self._ended_well()
        return self.choose([item for item in found if not item.blockers] or found) if found else None

    def _ended_well(self):
        """What is ready, but for what Hive's worker has marked and not committed yet: nobody cleans that."""
        opened = self.open_txns()
        return [
            item for item in self.cleaning.ready_for_cleaning() if not item.failed and item.entry.txn_id not in opened
        ]

    def ended(self, attempt):
        """It was committed."""
        self.attempts.remove(attempt)
        if attempt.lock_id is not None and attempt.txn_id is None:
            self.locks.release(attempt.lock_id)
        if attempt.txn_id is not None:
            self.txns[attempt.txn_id].state = TxnState.COMMITTED
            self.committed.add(attempt.txn_id)

    # Sweeps

    def sweep(self, place, txns, write_ids, *, partition=None, held=frozenset()):
        """
        Remove what is aborted by these lists; the proof.

        Args:
            partition: of a partitioned table only this one.
            held: write ids whose rows lie among committed ones.
        """
        whole = partition is None
        left = set(held)
        for txn in self.txns.values():
            for write in txn.writes:
                if write.place is place and write_ids.is_aborted(write.write_id) and write.write_id not in held:
                    write.files -= set(place.partitions) if whole else {partition}
        for attempt in self.attempts:
            if (
                attempt.place is place
                and attempt.txn_id
                and txns.is_aborted(attempt.txn_id)
                and (whole or attempt.partition == partition)
            ):
                attempt.files = False
        gone = frozenset(write_ids.aborted) - left
        return Proof(place.entity(), place.tbl_id, partition, frozenset({"file:/w"}), 1, txns, gone)

    def prove(self, place, held=frozenset()):
        """A sweep of a table, to forget by later; the proof."""
        self.proofs.append(self.sweep(place, *self.aborts.lists(place.entity()), held=held))
        return self.proofs[-1]

    def clean_as_hive(self, item):
        """
        Hive's Cleaner removes what an entry made obsolete, and what was aborted there below its end, under all that is
        finished.
        """
        entry = item.entry
        txns = self.transactions.valid_txns()
        place = self.place_of(entry.entity.whole_table())
        reader = self.transactions.valid_write_ids(place.name, txns)
        self.sweep(
            place,
            item.txns or txns,
            CleanerWriteIdList.from_reader(reader, entry.highest_write_id or 0),
            partition=entry.entity.partition,
        )

    def rename(self, name):
        """The catalog has another name for the first table."""
        table = name.split(".")[1]
        tbls = self.hive.schema.tbls
        self.hive.change(update(tbls).where(tbls.c.tbl_id == self.t.tbl_id).values(tbl_name=table))
        self.t.name = name

    def drop(self):
        """The first table was dropped, and is made anew."""
        place = self.t
        for txn in self.txns.values():
            txn.writes = [write for write in txn.writes if write.place is not place]
        for attempt in self.attempts:
            attempt.files = attempt.files and attempt.place is not place
        self.covered = {key: value for key, value in self.covered.items() if key[0] is not place}
        self.t = Place(place.name, self.hive.create_table(place.name), (None,))

    # Before and after a step

    def forget_step(self):
        """
        What the two calls of the next step tell:

        `committed`, `alive`: transactions. `abort_later`: those that are ended after it. `locked_out`: the table that
        Hive has for itself. `taken`: claimed entries. `dropping`: the first table is being dropped. `purging`: what is
        empty is purged by Hive. `touched`: `Step.touches` of Hive's. `afterwards`: to be asked at its end.
        """
        self.committed: set[int] = set()
        self.alive: set[int] = set()
        self.abort_later: list[int] = []
        self.taken: list[int] = []
        self.touched: frozenset[int] = frozenset()
        self.locked_out: Place | None = None
        self.dropping = self.purging = False
        self.afterwards: list[Callable[[], None]] = []

    def look(self):
        """Before a step."""
        self.taken.clear()
        components = self.hive.schema.txn_components.c
        with self.database.reading() as connection:
            self.named = set(connection.scalars(select(components.tc_txnid)))
        self._see()

    def _see(self):
        self.before: tuple[set[int], set[int]] = set(self.open_txns()), self.plain_locks()
        self._note_ready()

    def open_txns(self):
        return [number for number, txn in self.txns.items() if txn.state is TxnState.OPEN]

    def plain_locks(self):
        return {lock.lock_id for lock in self.locks.all() if not lock.txn_id and lock.state == "a"}

    def _note_ready(self):
        """Who was there when an entry became ready to be cleaned."""
        opened, locks = set(self.open_txns()) & self.before[0], self.plain_locks() & self.before[1]
        for entry in self.queue.entries(QueueState.READY_FOR_CLEANING):
            if entry.id not in self.readers and (not self.hive_4 or entry.next_txn_id is not None):
                self.readers[entry.id] = opened, locks

    def settle(self):
        """After a step: what became of transactions."""
        states = dict(self.hive.rows(self.hive.schema.txns, "txn_id", "txn_state"))
        for number, txn in self.txns.items():
            now = _STATES[states.get(number)]
            if number in self.committed:
                assert now in {TxnState.COMMITTED, TxnState.ABSENT}, (number, now)
                txn.state = TxnState.COMMITTED
            elif txn.state is TxnState.OPEN:
                txn.state = TxnState.ABORTED if now is TxnState.ABSENT else now
            else:
                assert now in {txn.state, TxnState.ABSENT}, (number, txn.state, now)
            if txn.state is TxnState.ABORTED and now is TxnState.ABSENT:
                for write in txn.writes:
                    if write.files and not write.lost and self.purging and number not in self.named:
                        write.lost = True
                        count("writes of which Hive noted nothing, purged by Hive")
            assert number not in self.alive or txn.state is TxnState.OPEN, (
                f"transaction {number} was heartbeated, and is {txn.state}"
            )
        self._note_ready()
        for ask in self.afterwards:
            ask()
        if self.dropping:
            self.drop()
        for number in self.abort_later:
            self.abort(number)
