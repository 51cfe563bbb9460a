"""
Hive's TxnHandler and ours on one database, statement by statement in any order.

Whatever the order: no id is handed out twice; watermarks never fall; what we call committed, open and aborted is what Hive calls so; no write that was rolled back
ever counts as committed while the files it may have left were never looked at; an exclusive lock of Hive's and a shared one of ours are never held together.
"""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from compactor.acid.compaction import CompactionKind
from compactor.acid.write_ids import ValidTxnList, ValidWriteIdList
from compactor.errors import CompactorError
from compactor.metastore.database import Database
from compactor.metastore.housekeeping import Duty, Housekeeping
from compactor.metastore.locks import Locks
from compactor.metastore.model import Entity
from compactor.metastore.queue import Queue
from compactor.metastore.transactions import Transactions, TxnState
from tests.counts import count
from tests.hive.party import HiveError
from tests.metastore.real import RealHive
from tests.metastore.stepping import Stepped, interleave

pytestmark = [pytest.mark.hive, pytest.mark.postgres]
EXAMPLES = 24
T = Entity("db", "t")
_TURNS = st.lists(st.integers(0, 1), min_size=1, max_size=24)
_DUTIES = (Duty.TIME_OUTS, Duty.WRITE_SET, Duty.WRITE_ID_MAPPINGS, Duty.EMPTY_TRANSACTIONS, Duty.DUPLICATE_COMPONENTS)


class Both(RuleBasedStateMachine):
    """Hive's steps and ours on one database."""

    lend = None
    """A context: (URL, database, Hive)."""

    def __init__(self):
        super().__init__()
        self.lent = type(self).lend()
        self.url, self.database, self.hive = next(self.lent)
        self.transactions, self.locks = Transactions(self.database), Locks(self.database)
        self.queue, self.housekeeping = Queue(self.database), Housekeeping(self.database)
        self.writes: dict[int, int | None] = {}
        self.open: list[int] = []
        self.ours: list[int] = []
        self.seen: set[int] = set()
        self.aborted: set[int] = set()
        self.mark = 0

    def teardown(self):
        count("histories of Hive's TxnHandler beside ours")
        next(self.lent, None)

    # One step of Hive's, gated, or none

    def _hive(self, what):
        party, hive_4 = self.hive.party, self.hive.party.hive_4
        which = self.open[-1] if self.open else None
        component = self.hive.component("db.t", None, "e" if what == "lock exclusive" else "r", "u" if what == "lock exclusive" else "i")
        calls = {
            "open": ("openTxns", {"num_txns": 1, "user": "bob", "hostname": "client"}),
            "commit": ("commitTxn", {"txnid": which}) if which else None,
            "abort": ("abortTxn", {"txnid": which}) if which else None,
            "lock": ("lock", {"component": [component], "user": "bob", "hostname": "client", "txnid": which}) if which else None,
            "compact": ("compact", {"dbname": "db", "tablename": "t", "type": "MAJOR"}),
            "claim": ("findNextToCompact", {"workerId": "w", "workerVersion": "4.0.1"} if hive_4 else "w"),
        }
        call = calls["lock" if what == "lock exclusive" else what] if what in calls or what == "lock exclusive" else (what,)
        return call and party.begin(*call, session="stepped", gated=True)

    def _ours(self, what):
        duties = {duty.value: lambda duty=duty: self.housekeeping.run(duty) for duty in _DUTIES}
        calls = {
            "open": lambda: self.transactions.open_compaction("ann", "edge"),
            "abort": lambda: self.transactions.abort(self.ours[-1], "test"),
            "snapshot": self.transactions.valid_txns,
            "lock": lambda: self.locks.acquire_shared(T, 0, "ann", "edge"),
            "claim": lambda: self.queue.claim("ann-1", "1"),
            "enqueue": lambda: self.queue.enqueue(T, CompactionKind.MAJOR),
        } | duties
        return Stepped(self.database, calls[what])

    @rule(
        theirs=st.sampled_from(
            [
                "open",
                "open",
                "commit",
                "abort",
                "lock",
                "lock exclusive",
                "compact",
                "claim",
                "performTimeOuts",
                "cleanTxnToWriteIdTable",
                "performWriteSetGC",
                "empty",
            ]
        ),
        ours=st.sampled_from(["open", "abort", "snapshot", "snapshot", "lock", "claim", "enqueue", *(duty.value for duty in _DUTIES)]),
        turns=_TURNS,
    )
    def both(self, theirs, ours, turns):
        """A call of each, interleaved."""
        if (ours in {"open", "abort"} and not self.hive.party.hive_4) or (ours == "abort" and not self.ours):
            ours = "snapshot"
        if theirs == "empty":
            theirs = "cleanEmptyAbortedAndCommittedTxns" if self.hive.party.hive_4 else "performTimeOuts"
        before = self._committed()
        hive = self._hive(theirs)
        if hive is None:
            return
        own = Stepped(self.database, lambda: None) if ours is None else self._ours(ours)
        count("statements of both, interleaved", interleave(self.url, [hive, own], turns))
        answer = self._answer(hive)
        try:
            mine = own.result()
        except CompactorError:
            mine = None
        self._account(theirs, answer)
        if ours == "open" and mine is not None:
            self._new(mine)
            self.ours.append(mine)
        elif ours == "abort":
            self.ours.pop()
        elif ours == "snapshot":
            valid = {txn for txn in self.writes if mine.is_valid(txn)} if mine is not None else set()
            assert mine is None or before & set(self.writes) <= valid <= self._committed() | {0}, (before, mine)
        elif ours == "lock" and mine is not None:
            held = theirs == "lock exclusive" and answer is not None and answer["state"] == "ACQUIRED"
            assert not held, "an exclusive lock of Hive's and ours are held together"
            self.locks.release(mine)

    @rule(partition=st.sampled_from([None, "p=1", "p=AbC"]))
    def write(self, partition):
        """A transaction of Hive's that has locked what it writes."""
        txn = self.hive.begin(age=0)
        self._new(txn)
        write_id = self.hive.allocate(txn)
        component = self.hive.component("db.t", partition, "r", "i")
        if self.hive.ask(txn, component)[1]:
            self.writes[txn] = write_id
            self.open.append(txn)
        else:
            self.hive.abort(txn)

    @precondition(lambda self: self.open)
    @rule(commit=st.booleans(), which=st.integers(0, 5))
    def end(self, commit, which):
        """One of Hive's ends."""
        txn = self.open.pop(which % len(self.open))
        (self.hive.commit if commit else self.hive.abort)(txn)
        if not commit:
            self.aborted.add(txn)

    @precondition(lambda self: self.open)
    @rule()
    def silence(self):
        """Its client dies; a reaper may end it now."""
        txns = self.hive.schema.txns
        self.hive.change(txns.update().where(txns.c.txn_id == self.open[0]).values(txn_last_heartbeat=1_000))

    # What is known of them

    def _answer(self, pending):
        try:
            return pending.result()
        except HiveError as error:
            if error.kind not in {"NoSuchTxnException", "TxnAbortedException", "MetaException"}:
                raise
            return None

    def _new(self, txn):
        assert txn not in self.seen, f"transaction id {txn} was handed out twice"
        self.seen.add(txn)

    def _account(self, theirs, answer):
        which = self.open[-1] if self.open else None
        if theirs == "open" and answer is not None:
            self._new(answer["txn_ids"][0])
            self.writes.setdefault(answer["txn_ids"][0], None)
            self.open.append(answer["txn_ids"][0])
        elif theirs in {"commit", "abort"}:
            self.open.remove(which)
            if theirs == "abort":
                self.aborted.add(which)
        for txn in list(self.open):
            if self.transactions.state(txn) is TxnState.ABORTED:  # by a reaper, Hive's or ours
                self.open.remove(txn)
                self.aborted.add(txn)

    def _committed(self):
        return set(self.writes) - set(self.open) - self.aborted

    @invariant()
    def one_view(self):
        """Ours is Hive's, and it is true."""
        txns = self.hive.schema.txns
        self.hive.change(txns.update().values(txn_started=txns.c.txn_started - 10_000))
        for txn in list(self.open):
            if self.transactions.state(txn) is TxnState.ABORTED:
                self.open.remove(txn)
                self.aborted.add(txn)
        text, (write_ids,) = self.hive.snapshot("db.t")
        theirs, ours = ValidTxnList.parse(text), self.transactions.valid_txns()
        assert ours == theirs
        hive_ids, our_ids = ValidWriteIdList.parse(write_ids), self.transactions.valid_write_ids("db.t", ours)
        for write_id in range(1, max(hive_ids.high_watermark, our_ids.high_watermark) + 2):
            assert our_ids.is_valid(write_id) == hive_ids.is_valid(write_id), (write_id, our_ids, hive_ids)
            if write_id <= hive_ids.high_watermark:
                assert our_ids.is_aborted(write_id) == hive_ids.is_aborted(write_id), (write_id, our_ids, hive_ids)
            elif our_ids.is_aborted(write_id):  # Hive may let its list end where no write that follows committed
                assert write_id in {self.writes.get(txn) for txn in self.aborted}, (write_id, our_ids, hive_ids)
        assert ours.high_watermark >= self.mark, "the watermark fell"
        self.mark = ours.high_watermark
        for txn in self.writes:
            write_id = self.writes[txn]
            committed = txn in self._committed()
            if write_id is not None:
                assert hive_ids.is_valid(write_id) == committed, (txn, write_id, committed)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("version", ["4.0.0", "3.1.0"])
def test_both_at_once(version, request, postgres, parties):
    """Every order of statements that was drawn leaves one view, and a true one."""

    def lend():
        url = postgres.borrow(version)
        with Database(url) as database:
            yield url, database, RealHive(database, parties(version, url))
        postgres.give_back(version, url)

    Both.lend = staticmethod(lend)
    examples = request.config.getoption("--histories") or EXAMPLES
    phases = [phase for phase in Phase if phase is not Phase.explain]  # it traces each line
    lives = settings(max_examples=examples, stateful_step_count=12, database=None, suppress_health_check=list(HealthCheck), phases=phases)
    run_state_machine_as_test(Both, settings=lives)
