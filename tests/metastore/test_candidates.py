"""What the Initiator is told to look at."""

import pytest
from sqlalchemy import delete, event

from compactor.metastore.candidates import Initiating
from compactor.metastore.model import Entity, QueueState
from tests.metastore.actor import P, T

HOUR_MS = 3_600_000


def names(candidates):
    return sorted(str(candidate.entity) for candidate in candidates)


def test_everything_uncleaned_is_a_candidate(database, hive):
    """
    Each table and partition with commits, with its newest write id, transaction and count; dynamic-partition rows are
    their table's own.
    """
    hive.write("db.t", "p=1")
    txn_id, write_id = hive.write("db.t", "p=1")
    hive.write("db.t", None)
    found = {candidate.entity: candidate for candidate in Initiating(database).candidates()}
    assert set(found) == {P, T}
    assert (found[P].newest_write_id, found[P].newest_txn_id, found[P].commits, found[P].aborted_count) == (
        write_id,
        txn_id,
        2,
        0,
    )


def test_only_what_was_written_since_the_last_look(database, hive):
    """
    Of an earlier look's candidates only those come back that were written to since, however old the transaction's
    start.
    """
    hive.write("db.old")
    slow = hive.begin(age=10 * HOUR_MS)
    hive.touch(slow, "db.slow")
    initiating = Initiating(database)
    look = initiating.look(None)
    assert names(look.whole().candidates) == ["db.old"]
    hive.write("db.new", age=0)
    hive.commit(slow)
    assert names(initiating.look(look.reached).whole().candidates) == ["db.new", "db.slow"]


def test_nothing_is_lost_when_a_cycle_failed(database, hive):
    """
    A look whose cycle didn't complete moves nothing: asked again from where an earlier one reached, everything since
    then is told again.
    """
    initiating = Initiating(database)
    completed = initiating.look(None).reached
    hive.write("db.new", age=0)
    assert names(initiating.look(completed).whole().candidates) == ["db.new"]
    assert names(initiating.look(completed).whole().candidates) == ["db.new"]


@pytest.mark.parametrize("after", ["sizes", "read"])
def test_what_ends_while_a_look_is_taken_is_told_by_the_next(shared_database, shared_hive, monkeypatch, after):
    """A transaction that commits after the commits were read, or any part of them, isn't among those that had ended."""
    shared_hive.write("db.t")
    slow = shared_hive.begin()
    shared_hive.touch(slow, "db.slow")
    initiating = Initiating(shared_database)
    real = getattr(initiating._commits, after)

    def commits(*arguments):
        found = real(*arguments)
        shared_hive.commit(slow)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(initiating._commits, after, commits)
        look = initiating.look(None)
        assert names(look.whole().candidates) == ["db.t"]
    assert names(initiating.look(look.reached).whole().candidates) == ["db.slow"]


def test_a_part_says_what_is_so_when_it_is_read(shared_database, shared_hive):
    """A commit between the beginning of a look and its part is told, and told again by the next look."""
    shared_hive.write("db.t")
    slow = shared_hive.begin()
    shared_hive.touch(slow, "db.t", "p=1")
    initiating = Initiating(shared_database)
    look = initiating.look(None)
    shared_hive.commit(slow)
    assert names(look.whole().candidates) == ["db.t", "db.t/p=1"]
    assert names(initiating.look(look.reached).whole().candidates) == ["db.t/p=1"]


def unnamed(hive, name, *, age=60_000):
    """
    Begin an INSERT into a table from which it reads: it has a write id, and neither a component nor, later, a commit of
    one.
    """
    txn = hive.begin(age=age)
    return txn, hive.allocate(txn, name)


@pytest.mark.parametrize("few", [1000, 0])
def test_a_write_without_a_component_is_told_by_its_id(database, hive, monkeypatch, few):
    """
    A look returns such a write of a table without partitions once: when it has ended, however long it ran; none that
    had ended before the first look.
    """
    monkeypatch.setattr("compactor.metastore.candidates.unnamed._FEW", few)
    for name in ("db.t", "db.u", "db.v"):
        hive.create_table(name)
    hive.create_table("db.p", keys=(("p", "string"),))
    hive.commit(unnamed(hive, "db.v")[0])
    initiating = Initiating(database)
    slow, first = unnamed(hive, "db.t")
    look = initiating.look(None)
    assert names(look.whole().candidates) == []
    for name in ("db.u", "db.p", "db.gone"):
        hive.commit(unnamed(hive, name, age=0)[0])
    hive.write("db.t", age=0)
    look = initiating.look(look.reached, handed_out=look.handed_out)
    assert (names(look.whole().candidates), look.whole().unnamed) == (["db.t", "db.u"], {Entity("db", "u")})
    look = initiating.look(look.reached, handed_out=look.handed_out)
    assert look.whole().unnamed == set()
    hive.change(delete(database.schema.completed_txn_components))  # compacted and cleaned
    _, open_still = unnamed(hive, "db.t")
    hive.commit(slow)
    look = initiating.look(look.reached, handed_out=look.handed_out)
    assert [(one.entity, one.newest_write_id) for one in look.whole().candidates] == [(T, first)]
    assert look.whole().unnamed == {T}
    assert open_still not in {one.newest_write_id for one in look.whole().candidates}
    assert initiating.look(look.reached, handed_out=look.handed_out).whole().candidates == []


def test_a_table_made_anew_begins_with_the_first_write_id(database, hive):
    """Its writes are new ones, though those of the dropped one had higher ids."""
    hive.create_table("db.t")
    for _ in range(5):
        hive.write("db.t")
    initiating = Initiating(database)
    look = initiating.look(None)
    schema = database.schema
    for table in (schema.next_write_id, schema.txn_to_write_id, schema.completed_txn_components):
        hive.change(delete(table))
    hive.commit(unnamed(hive, "db.t")[0])
    assert initiating.look(look.reached, handed_out=look.handed_out).whole().unnamed == {T}


def test_others_can_be_asked_for(database, hive):
    """Entities that were skipped are told again when asked for, unless there is nothing of them any more."""
    hive.write("db.t")
    initiating = Initiating(database)
    reached = initiating.look(None).reached
    assert names(initiating.look(reached).whole().candidates) == []
    assert names(initiating.look(reached, also=[T, P]).whole().candidates) == ["db.t"]


@pytest.mark.parametrize("more", [0, 1200])
def test_asking_for_others_brings_nothing_else(database, hive, more):
    """
    Beside new writes come those that were asked for, partition by partition, however many they are; not what else was
    written before.
    """
    for name, partition in (("db.t", "p=1"), ("db.t", "p=2"), ("db.t", None), ("db.u", None), ("other.t", "p=1")):
        hive.write(name, partition)
    initiating = Initiating(database)
    reached = initiating.look(None).reached
    hive.write("db.new", age=0)
    also = [P, T, *(Entity("db", "absent", f"p={number}") for number in range(more))]
    assert names(initiating.look(reached, also=also).whole().candidates) == ["db.new", "db.t", "db.t/p=1"]


def test_nothing_is_read_of_what_waits_in_the_queue(database, hive):
    """
    What was asked for and is still initiated or working is only named, though it was written meanwhile; of everything
    else, and once its entry has ended, there are candidates as ever.
    """
    for name in ("db.a", "db.b", "db.c"):
        hive.write(name, "p=1")
    initiating = Initiating(database)
    reached = initiating.look(None).reached
    first = hive.queued("db.a/p=1")
    hive.queued("db.b/p=1", state="w", worker_id="x", start=1)
    hive.write("db.b", "p=1", age=0)
    also = [Entity("db", name, "p=1") for name in "abc"]
    look = initiating.look(reached, also=also)
    assert (look.waiting, names(look.whole().candidates)) == (set(also[:2]), ["db.c/p=1"])
    assert names(initiating.look(None, also=also).whole().candidates) == ["db.a/p=1", "db.b/p=1", "db.c/p=1"]
    hive.change(delete(hive.schema.compaction_queue).where(hive.schema.compaction_queue.c.cq_id == first))
    assert names(initiating.look(reached, also=also).whole().candidates) == ["db.a/p=1", "db.c/p=1"]


def test_what_failed_or_did_not_initiate_is_told_again(database, hive):
    """
    An entity whose newest compaction failed or didn't initiate is looked at without a new write; one that succeeded
    since isn't.
    """
    for name, states in (("db.a", "sf"), ("db.b", "sa"), ("db.c", "fs")):
        hive.write(name)
        for state in states:
            hive.finished(name, state=state)
    initiating = Initiating(database)
    reached = initiating.look(None).reached
    assert names(initiating.look(reached).whole().candidates) == ["db.a", "db.b"]


def test_aborts_are_counted_beside_commits(database, hive):
    """
    A candidate knows how many aborted components it has and when the oldest started; leftovers of compactions don't
    count.
    """
    hive.write("db.t", "p=1")
    hive.fail_write("db.t", "p=1", age=9 * HOUR_MS)
    failed, _ = hive.fail_write("db.t", "p=1", age=1000)
    hive.touch(failed, "db.t", "p=1", operation="c", write_id=9)
    hive.fail_write("db.u")
    found = {str(candidate.entity): candidate for candidate in Initiating(database).candidates()}
    assert found["db.t/p=1"].aborted_count == 2
    assert abs(database.read(database.now_ms) - 9 * HOUR_MS - found["db.t/p=1"].oldest_abort_ms) < 60_000
    assert (found["db.u"].aborted_count, found["db.u"].newest_write_id) == (1, 0)


@pytest.mark.parametrize(
    ("count", "age_ms", "told"), [(0, None, True), (5, 10 * HOUR_MS, False), (5, HOUR_MS, True), (5, -1, False)]
)
def test_aborts_alone_can_be_bounded(database, hive, count, age_ms, told):
    """
    What only aborts brought up is left out when it has neither more components nor an older transaction than asked for.
    """
    hive.fail_write(age=2 * HOUR_MS)
    found = Initiating(database).look(None, aborted_count=count, aborted_age_ms=age_ms).whole().candidates
    assert names(found) == (["db.t"] if told or age_ms is None else [])


def test_aborts_that_a_ready_entry_covers_do_not_count(database, hive):
    """
    Below the write id of an entry that is ready for cleaning, aborts are as good as gone; above it they count; other
    partitions aren't affected.
    """
    _, covered = hive.fail_write("db.t", "p=1")
    hive.fail_write("db.t", "p=1")
    hive.fail_write("db.t", "p=2")
    hive.queued("db.t/p=1", state="r", highest_write_id=covered)
    found = {str(candidate.entity): candidate for candidate in Initiating(database).candidates()}
    assert found["db.t/p=1"].aborted_count == 1
    assert found["db.t/p=1"].ready_for_cleaning_hwm == covered
    assert found["db.t/p=2"].aborted_count == 1


def test_what_is_in_the_queue_is_said(database, hive):
    """A candidate says whether its compaction is initiated or working, and what the ready ones cover."""
    for name in ("db.a", "db.b", "db.c"):
        hive.write(name)
    hive.queued("db.a")
    hive.queued("db.b", state="w", worker_id="x", start=1)
    hive.queued("db.c", state="r", highest_write_id=4)
    hive.queued("db.c", state="r", highest_write_id=7)
    found = {
        str(candidate.entity): (candidate.active, candidate.ready_for_cleaning_hwm)
        for candidate in Initiating(database).candidates()
    }
    assert found == {"db.a": (QueueState.INITIATED, None), "db.b": (QueueState.WORKING, None), "db.c": (None, 7)}


def test_candidates_take_few_statements(database, hive):
    """However many tables were written to, the database is asked as often as for one, unless they take several parts."""
    statements = []
    event.listen(database.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    asked = []
    for number in range(40):
        hive.write(f"db.t{number}")
        if number in {0, 39}:
            del statements[:]
            assert len(Initiating(database).candidates()) == number + 1
            asked.append(len(statements))
    assert asked[0] == asked[1]


@pytest.mark.parametrize(
    ("states", "blocked"),
    [("ff", True), ("sff", True), ("ffs", False), ("fsf", False), ("f", False), ("faf", True), ("", False)],
)
def test_what_keeps_failing_is_blocked(database, hive, states, blocked):
    """Blocked when the newest two that ended all failed; notes that something didn't initiate don't count."""
    now = database.read(database.now_ms)
    for state in states:
        hive.finished("db.t/p=1", state=state, start=now, enqueue_time=now)
    hive.finished("db.t/p=2", state="f", start=now, enqueue_time=now)
    assert Initiating(database).failing(2, 7) == ({P} if blocked else set())


def test_failures_are_forgiven_after_a_while(database, hive):
    """After the retry time a compaction is tried again; without one never."""
    long_ago = database.read(database.now_ms) - 8 * 24 * HOUR_MS
    for _ in range(2):
        hive.finished(state="f", start=long_ago, enqueue_time=long_ago)
    initiating = Initiating(database)
    assert initiating.failing(2, 7) == set()
    assert initiating.failing(2, 0) == {T}
    assert initiating.failing(0, 0) == set()


def test_hives_last_cycle_is_known(database_4):
    """Where Hive 4 stores the start of its Initiator's last cycle it is found, ours too."""
    initiating = Initiating(database_4)
    assert initiating.last_cycle_ms() is None
    with database_4.mutex("Initiator") as mutex:
        mutex.keep(1234)
    assert initiating.last_cycle_ms() == 1234


def test_purged_transactions_do_not_hide_commits(database_4, hive_4):
    """
    What was committed after a look is told, though the rows of its transaction and of all before it have been purged
    meanwhile.
    """
    initiating = Initiating(database_4)
    hive_4.write("db.a", age=5 * HOUR_MS)
    reached = initiating.look(None).reached
    hive_4.write("db.b", age=HOUR_MS)
    hive_4.change(delete(database_4.schema.txns))
    assert "db.b" in names(initiating.look(reached).whole().candidates)
