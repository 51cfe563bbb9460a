"""
Hive's TxnHandler and ours on one database, statement by statement in any order.

Whatever the order, what `truths` says is so: no id is handed out twice; what was committed is valid and stays so, what
is open isn't, nor what was rolled back while its rows may lie in files; an entry of the queue is in one place and one
worker's, and changes together with its transaction; nothing is cleaned beside who was there at the commit, nor
forgotten that has to be compacted; no exclusive lock is held beside another, no lock after its transaction.
"""

import itertools

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from compactor.errors import CompactorError
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity
from tests.counts import count
from tests.hive.party import HiveError
from tests.metastore import hives_steps, our_steps, truths
from tests.metastore.databases import SHARED, kinds, require_schema, server_for
from tests.metastore.entries import working
from tests.metastore.real import RealHive
from tests.metastore.stepping import InTurn, Stepped, interleave
from tests.metastore.steps import Step
from tests.metastore.world import World

pytestmark = pytest.mark.hive
EXAMPLES = 16
_WRONG_CALLS = {
    "NoSuchFieldException",
    "NoSuchMethodException",
    "IllegalArgumentException",
    "ClassCastException",
    "NullPointerException",
    "Ended",
}
ON_THE_SAME_ROWS = {
    "open": ("commit", "snapshot", "empty-transactions", "look for ready"),
    "commit": ("snapshot", "write-id-mappings", "duplicate-components", "time-outs"),
    "abort": ("note unnamed", "clean aborts", "time-outs", "empty-transactions"),
    "abort several": ("clean aborts", "commit", "undo"),
    "heartbeat": ("time-outs",),
    "heartbeat several": ("time-outs",),
    "heartbeat lock": ("time-outs",),
    "allocate": ("write-id-mappings", "store state", "enqueue"),
    "lock to write": ("time-outs", "lock"),
    "lock exclusive": ("lock", "lock in transaction", "commit"),
    "add partitions": ("time-outs", "clean aborts"),
    "list": ("open", "empty-transactions"),
    "compact": ("enqueue", "commit", "give back"),
    "claim": ("claim", "cancel", "give back", "ask to stop"),
    "store state": ("give back Hive's", "claim"),
    "mark compacted": ("commit", "give back Hive's", "mark cleaned"),
    "commit compaction": ("commit", "give back Hive's", "look for ready"),
    "mark failed": ("commit", "give back Hive's", "mark failed", "cancel", "mark cleaned"),
    "mark refused": ("give back Hive's", "mark refused"),
    "abort entry": ("cancel", "claim"),
    "revoke late workers": ("commit", "store state", "undo", "give back", "claim", "ask to stop"),
    "revoke local workers": ("commit", "mark failed"),
    "mark cleaned": ("mark cleaned", "clean aborts", "forget", "put off cleaning", "duplicate-components", "enqueue"),
    "clear cleaner start": ("mark cleaned",),
    "put off cleaning": ("mark cleaned", "put off cleaning"),
    "clean aborts": ("clean aborts", "forget", "note unnamed", "put off aborts", "mark cleaned"),
    "put off aborts": ("put off aborts", "clean aborts", "mark cleaned"),
    "time outs": (
        "commit",
        "heartbeat",
        "undo",
        "withdraw",
        "end empty",
        "lock in transaction",
        "store state",
        "time-outs",
    ),
    "purge empty": ("note unnamed", "clean aborts", "forget", "abort", "empty-transactions", "undo"),
    "purge mappings": ("clean aborts", "write-id-mappings", "snapshot"),
    "remove duplicates": ("mark cleaned", "duplicate-components"),
    "purge history": ("mark failed", "mark cleaned", "history"),
    "drop": ("clean aborts", "note unnamed", "forget", "mark cleaned", "commit", "enqueue"),
    "rename": (
        "clean aborts",
        "note unnamed",
        "forget",
        "mark cleaned",
        "enqueue",
        "claim",
        "lock",
        "commit",
        "store state",
        "history",
        "cancel",
    ),
}
"""Of Hive's steps those of ours that may meet them."""
_NOTHING, _LOOK = Step(lambda: None), Step(("getOpenTxns",))
"""Instead of a step that can't be had."""
_TURNS = st.lists(st.integers(0, 1), min_size=1, max_size=24)


class Life(RuleBasedStateMachine):
    """Hive's steps and ours on one database."""

    lend = None
    """A context: (server, database, Hive)."""

    def __init__(self):
        super().__init__()
        self.lent = type(self).lend()
        self.server, self.database, hive = next(self.lent)
        self.world = World(self.database, hive)
        self.sound = True

    def teardown(self):
        if self.sound:
            truths.end(self.world)
        count("histories of Hive's TxnHandler beside ours")
        next(self.lent, None)

    def play(self, theirs, ours, drawn, turns):
        """A call of each, interleaved."""
        self.sound = False
        world = self.world
        world.drawn = drawn
        world.forget_step()
        mine, hives = ours(world) or _NOTHING, theirs(world) or _LOOK
        world.look()
        world.touched = hives.touches
        pending = world.hive.party.begin(*hives.call, session="stepped", gated=True)
        stepped = Stepped(self.database, mine.call)
        count("calls of Hive's TxnHandler beside ours", 2)
        count("statements of both, interleaved", interleave(self.server, self.database, [pending, stepped], turns))
        for step, call, errors in ((hives, pending, HiveError), (mine, stepped, CompactorError)):
            try:
                answer = call.result()
            except errors as error:
                if getattr(error, "kind", None) in _WRONG_CALLS:
                    raise
                if step.failed is not None:
                    step.failed(error)
                elif step is mine:
                    raise
            else:
                step.then(answer)
        world.settle()
        truths.check(world)
        self.sound = True

    @rule(
        which=st.integers(0, 2),
        how=st.sampled_from(["static", "update", "dynamic", "unnamed"]),
        end=st.sampled_from(["commit", "abort", "silence", None]),
    )
    def write(self, which, how, end):
        """A transaction of Hive's that has locked what it writes, perhaps to its end."""
        self.world.drawn = which
        number = self.world.write(*self.world.place(), how)
        if number is not None and end is not None:
            getattr(self.world, end)(number)

    @rule(which=st.integers(0, 5), how=st.sampled_from(["commit", "abort", "sweep"]))
    def end(self, which, how):
        """One of Hive's ends; or our Cleaner has looked at a table, and will forget what it proves later."""
        self.world.drawn = which
        if how == "sweep":
            self.world.prove(self.world.place()[0], {which})
        elif opened := self.world.open():
            getattr(self.world, how)(self.world.choose(opened))


def steps_of(hive_4):
    """Hive's, ours, and the pairs that may meet."""
    hives, our = (hives_steps.STEPS_4, our_steps.STEPS_4) if hive_4 else (hives_steps.STEPS_3, our_steps.STEPS_3)
    return (
        hives,
        our,
        [(one, other) for one, others in ON_THE_SAME_ROWS.items() for other in others if one in hives and other in our],
    )


def life_of(hive_4):
    """The machine of a release."""
    hives, our, pairs = steps_of(hive_4)

    class Both(Life):
        @rule(
            theirs=st.sampled_from(list(hives)), ours=st.sampled_from(list(our)), drawn=st.integers(0, 11), turns=_TURNS
        )
        def both(self, theirs, ours, drawn, turns):
            """Any two."""
            self.play(hives[theirs], our[ours], drawn, turns)

        @rule(pair=st.sampled_from(pairs), drawn=st.integers(0, 11), turns=_TURNS)
        def both_on_the_same_rows(self, pair, drawn, turns):
            """Two that meet more often than by chance."""
            theirs, ours = pair
            self.play(hives[theirs], our[ours], drawn, turns)

    return Both


@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", kinds(SHARED))
def test_both_at_once(kind, request, parties):
    """Every order of statements that was drawn leaves one view, and a true one."""

    version, server = require_schema(kind), server_for(request, kind)
    life = life_of(version != "3.1.0")
    life.lend = staticmethod(lambda: _lend(version, server, parties))
    asked = request.config.getoption("--histories")
    phases = [phase for phase in Phase if phase is not Phase.explain]  # it traces each line
    kept = {
        "max_examples": asked or EXAMPLES,
        "derandomize": not asked,
    }  # the same lives each time, and others where more are asked for
    lives = settings(
        **kept, stateful_step_count=12, database=None, suppress_health_check=list(HealthCheck), phases=phases
    )
    run_state_machine_as_test(life, settings=lives)
    url = server.borrow(version)
    count("deadlocks of the two", server.deadlocks(url.rpartition("/")[2]))  # all of which both have dealt with
    server.give_back(version, url)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", kinds(SHARED))
def test_every_pair(kind, request, parties):
    """
    Each two steps that may meet, two times on end, in three orders of their statements: what random lives find by
    chance.
    """
    version, server = require_schema(kind), server_for(request, kind)
    life = life_of(version != "3.1.0")
    life.lend = staticmethod(lambda: _lend(version, server, parties))
    hives, our, pairs = steps_of(version != "3.1.0")
    wrong = {}
    for (theirs, ours), drawn, turns in itertools.product(pairs, (0, 1), ([1], [0], [0, 1])):
        one = life()
        try:
            one.play(hives[theirs], our[ours], drawn, turns)
            one.play(hives[theirs], our[ours], 1 - drawn, turns)
        except (AssertionError, HiveError, CompactorError) as error:
            wrong[theirs, ours, drawn, tuple(turns)] = str(error)[:300]
        one.teardown()
    assert not wrong


def _lend(version, server, parties):
    url = server.borrow(version)
    with Database(url) as database:
        yield server, database, RealHive(database, parties(version, url))
    server.give_back(version, url)


@pytest.mark.timeout(0)
def test_a_reader_that_lists_while_a_compaction_is_committed(real_hive_4, server_4):
    """
    Whoever opens and then takes the compaction for open is among those for whom the Cleaner waits, in whatever order.
    """
    database, party = real_hive_4.database, real_hive_4.party
    numbers = itertools.count()

    def begin(*call):
        return party.begin(*call, session="reader", gated=True)

    @settings(max_examples=EXAMPLES, database=None, deadline=None, phases=(Phase.generate,))
    @given(st.lists(st.integers(0, 1), min_size=8, max_size=24))
    def meet(turns):
        entry, txn_id = working(database, Entity("db", "t", f"p={next(numbers)}"))
        opened = []

        def look(answer):
            opened.extend(answer["txn_ids"])
            return begin("getOpenTxns")

        reader = InTurn(lambda _: begin("openTxns", {"num_txns": 1, "user": "ann", "hostname": "client"}), look)
        ours = Stepped(database, lambda: Queue(database).mark_compacted_and_commit(entry, entry.worker_id, txn_id))
        interleave(server_4, database, [reader, ours], turns)
        ours.result()
        sees_it_open = txn_id in reader.result()["open_txns"]
        count("snapshots taken while a compaction was committed")
        assert not sees_it_open or opened[0] <= Queue(database).entry(entry.id).next_txn_id

    meet()
