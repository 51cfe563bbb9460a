"""
Claims through a gate: what may not begin is left, the next that may is taken, and jobs at a time are counted exactly.
"""

from collections import Counter

import pytest
from sqlalchemy import event, select

from compactor.acid.compaction import CompactionKind
from compactor.control.judge import Judge
from compactor.control.records import Holds, Pause
from compactor.control.scope import Scope, ScopeFilter
from compactor.control.spending import SpendingBudget
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.requests import Request
from compactor.metastore.model import Entity, QueueState
from tests.metastore.actor import run_all

MAJOR = CompactionKind.MAJOR


def judge(*paused, budgets=()):
    pauses = tuple(Pause(Scope.parse(scope), "x", "ann", 0) for scope in paused)
    return Judge(now_ms=1, holds=Holds(pauses), budgets=tuple(budgets))


def enqueue(queue, *entities, pool=None):
    return [queue.enqueue(Entity(*entity), MAJOR, pool=pool).id for entity in entities]


def test_the_oldest_that_may_is_taken(database):
    """
    A paused table's entries stay initiated; the others go in their order; when only paused ones are left, nothing is
    claimed, and the gate knows why.
    """
    queue = Queue(database)
    _, second, _, fourth = enqueue(queue, ("a", "t", "p=1"), ("b", "t"), ("a", "t", "p=2"), ("c", "t"))
    gate = judge("table:a.*").gate()
    assert [queue.claim("w", "1", gate=gate).id for _ in range(2)] == [second, fourth]
    assert queue.claim("w", "1", gate=gate) is None
    assert gate.first is not None
    assert gate.first[0].full_name == "a.t"
    assert gate.first[1].reason.value == "paused"
    assert [entry.entity.database for entry in queue.entries(QueueState.INITIATED)] == ["a", "a"]
    free = judge().gate()
    assert queue.claim("w", "1", gate=free).entity == Entity("a", "t", "p=1")


def test_names_in_capitals_are_those_of_the_catalog(database, hive):
    """A client wrote them so: a pause of the table, or a list that includes it, means that entry, too."""
    queue, number = Queue(database), hive.queued("DB.T")
    assert queue.claim("w", "1", gate=judge("table:db.*").gate()) is None
    only = Judge(now_ms=0, only=ScopeFilter(tables=("db.*",)))
    assert queue.claim("w", "1", gate=only.gate()).id == number


def test_entries_to_be_left_are_left_by_a_gate_too(database):
    """`without` and the gate together: also the oldest of a table may be left for its next."""
    queue = Queue(database)
    first, second = enqueue(queue, ("a", "t", "p=1"), ("a", "t", "p=2"))
    assert queue.claim("w", "1", without={first}, gate=judge("table:b.*").gate()).id == second


@pytest.mark.parametrize("paused", [None, (), ("table:a.*",), ("pool:night",)])
@pytest.mark.parametrize("budgets", [(), (SpendingBudget("one", ScopeFilter(tables=("b.*",)), jobs=1),)])
def test_a_look_finds_what_is_claimed_next(database_4, paused, budgets):
    """By pool, gate and the entries to leave; it takes nothing, and finds nothing where nothing can be claimed."""
    queue = Queue(database_4)
    enqueue(queue, ("a", "t", "p=1"), ("b", "t", "p=1"), ("a", "t", "p=2"), ("b", "t", "p=2"), ("c", "t"))
    enqueue(queue, ("a", "u"), ("b", "u"), pool="night")
    left = {queue.entries(QueueState.INITIATED)[0].id}
    for which in ({"without": left}, {"among": left}, {}):
        for pool in (None, "night"):
            entry = ...
            while entry is not None:
                gate = None if paused is None else judge(*paused, budgets=budgets).gate()
                found = queue.claimable(pool, **which, gate=gate)
                assert queue.claimable(pool, **which, gate=gate) == found
                entry = queue.claim("w", "1", pool, **which, gate=gate)
                assert found == (None if entry is None else entry.id)


def test_a_pool_is_paused_for_its_own_workers(database_4):
    """The pool is part of what is asked; an entry of the same table in no pool isn't meant."""
    queue = Queue(database_4)
    enqueue(queue, ("a", "t", "p=1"), pool="night")
    (plain,) = enqueue(queue, ("a", "t", "p=2"))
    gate = judge("pool:night").gate()
    assert queue.claim("w", "1", "night", gate=gate) is None
    assert queue.claim("w", "1", gate=gate).id == plain


def test_thousands_of_paused_partitions_are_one_question(database):
    """The gate is asked once for each table, not for each entry."""
    queue = Queue(database)
    queue.enqueue_all([Request(Entity("a", "t", f"p={number}"), MAJOR) for number in range(3000)])
    (last,) = enqueue(queue, ("b", "t"))
    asked = []

    class Counting:
        counts = False

        def open(self, working):
            def may(database, table, pool):
                asked.append((database, table))
                return database != "a"

            return may

    assert queue.claim("w", "1", gate=Counting()).id == last
    assert asked == [("a", "t"), ("b", "t")]


@pytest.mark.parametrize("jobs", [None, 2])
def test_a_claim_waits_for_others_only_where_jobs_are_counted(database, jobs):
    """It takes the row of the queue's ids as a lock, and none of its ids."""
    queue, counter = Queue(database), database.schema.next_compaction_queue_id.c.ncq_next
    (first,) = enqueue(queue, ("a", "t"))
    locking = []

    def look(_connection, _cursor, statement, *_):
        if statement.upper().startswith("UPDATE") and counter.table.name.upper() in statement.upper():
            locking.append(statement)

    gate = judge(
        budgets=() if jobs is None else (SpendingBudget("two", ScopeFilter(tables=("a.*",)), jobs=jobs),)
    ).gate()
    event.listen(database.engine, "before_cursor_execute", look)
    assert queue.claim("w", "1", gate=gate).id == first
    event.remove(database.engine, "before_cursor_execute", look)
    assert bool(locking) is (jobs is not None)
    assert database.read(lambda connection: connection.scalar(select(counter))) == first + 1


def test_never_more_at_a_time_than_a_budget_allows(shared_database):
    """
    Eight workers that claim and give back at once: of the table's entries never more than two are being worked on;
    other tables aren't held up.
    """
    queue = Queue(shared_database)
    enqueue(
        queue, *(("a", "t", f"p={number}") for number in range(20)), *(("b", "t", f"p={number}") for number in range(4))
    )
    budget = SpendingBudget("two", ScopeFilter(tables=("a.*",)), jobs=2)
    running = []

    def claim(name):
        return queue.claim(name, "1", gate=judge(budgets=[budget]).gate())

    def work(name):
        for _ in range(6):
            if (entry := claim(name)) is None:
                continue
            running.append(sum(one.entity.database == "a" for one in queue.working()))
            if entry.entity.database == "a":
                queue.give_back(entry)

    run_all([lambda name=f"compactor-edge-{number}": work(name) for number in range(8)])
    assert 1 <= max(running) <= 2
    while claim("compactor-edge") is not None:
        pass
    assert Counter(entry.entity.database for entry in queue.working()) == {"a": 2, "b": 4}


def test_no_entry_is_claimed_twice_through_a_gate(shared_database):
    """Six workers claiming at once share a queue without overlap, in spite of all wanting the oldest."""
    queue = Queue(shared_database)
    enqueue(
        queue, *(("a", "t", f"p={number}") for number in range(5)), *(("b", "t", f"p={number}") for number in range(20))
    )
    claimed = []

    def work(name):
        gate = judge("table:a.*").gate()
        while (entry := queue.claim(name, "1", gate=gate)) is not None:
            claimed.append(entry.id)

    run_all([lambda name=f"compactor-edge-{number}": work(name) for number in range(6)])
    assert len(claimed) == len(set(claimed)) == 20


def test_more_entries_may_be_left_than_a_statement_has_parameters(database):
    """A store that is away may have a backlog of any size: its entries are numbers in the statement."""
    queue = Queue(database)
    first, second, third = enqueue(queue, ("a", "t"), ("b", "t"), ("c", "t"))
    gate = judge("table:a.*").gate()
    many = {second, *range(1000, 71_000)}
    assert queue.claim("w", "1", among=many - {second}, gate=gate) is None
    assert queue.claim("w", "1", without=many, gate=gate).id == third
    assert queue.claim("w", "1", among={first, second}, gate=gate).id == second
    assert queue.claim("w", "1", among=(), gate=judge("table:b.*").gate()) is None
