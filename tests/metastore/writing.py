"""Hive's writing transactions on a database of both TxnHandlers."""

from sqlalchemy import update

from compactor.metastore.clean.aborts import Aborts
from compactor.metastore.clean.purge import Proof
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.housekeeping import Housekeeping
from compactor.metastore.txn.locks import Locks
from compactor.metastore.txn.transactions import Transactions, TxnState
from tests.hive.party import HiveError
from tests.metastore.model import Attempt, Place, Txn, Write


class Writing:
    """Both tables, the transactions on them, and what each writes."""

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

    def choose(self, several):
        return several[self.drawn % len(several)]

    def place(self):
        """One of the tables, with one of its partitions."""
        return self.choose([(place, partition) for place in (self.t, self.u) for partition in place.partitions])

    def place_of(self, entity):
        """By its present name; None: there is none."""
        return next((place for place in (self.t, self.u) if place.name == entity.full_name), None)

    def open(self, *, writing=None):
        """Open transactions that are no compaction's."""
        found = [number for number, txn in self.txns.items() if txn.state is TxnState.OPEN and not txn.compaction]
        return [number for number in found if writing is None or bool(self.txns[number].writes) == writing]

    def open_txns(self):
        return [number for number, txn in self.txns.items() if txn.state is TxnState.OPEN]

    def plain_locks(self):
        return {lock.lock_id for lock in self.locks.all() if not lock.txn_id and lock.state == "a"}

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
