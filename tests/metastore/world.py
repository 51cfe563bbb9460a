"""
What is true on a database on which Hive's TxnHandler and ours work: transactions, what may lie in files, entries of the
queue; `truths` says what must be so of it.

There are no files here. A write has some in each partition it named from its beginning until a cleaner removes them, an
attempt of a compaction from when its state is stored; what removes them looks at the lists that the real one looks at.
"""

from collections.abc import Callable

from sqlalchemy import select, update

from compactor.acid.write_ids import CleanerWriteIdList
from compactor.metastore.clean.purge import Proof
from compactor.metastore.txn.transactions import TxnState
from compactor.planning.forgetting import Search
from tests.counts import count
from tests.metastore.model import STATES, Place
from tests.metastore.proofs import LATE_MS
from tests.metastore.working import Working


class World(Working):
    """
    The two, and what is known of what they did.

    Args:
        drawn: chooses among several.
    """

    def __init__(self, database, hive):
        super().__init__(database, hive)
        self.forget_step()
        self.look()

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
        listed_ms = self.database.read(self.database.now_ms)
        return Proof(place.entity(), place.tbl_id, Search(txns, partition, gone, listed_ms, LATE_MS))

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

    def settle(self):
        """After a step: what became of transactions."""
        states = dict(self.hive.rows(self.hive.schema.txns, "txn_id", "txn_state"))
        for number, txn in self.txns.items():
            now = STATES[states.get(number)]
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
