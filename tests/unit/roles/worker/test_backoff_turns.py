"""
Backoff under load, with a clock of their own: whatever comes back again and again, whatever can be compacted gets its
turn, and a store that is away isn't asked all the time.

The queue is a model (the oldest claimable first); `Backoff` decides as in the daemon.
"""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from compactor.errors import UnreachableError
from compactor.roles.worker.backoff import LONGEST_SECONDS, Backoff
from compactor.roles.worker.claim_order import ClaimOrder, QueueLook
from tests.strategies import waiting_entries
from tests.unit.roles.turns import LONGEST_ATTEMPT, POLL, Model, Waiting, row


def long_enough(model, tries):
    """Seconds in which so many claims of one pool are made, with all the pauses that others may cause meanwhile."""
    return tries * (len(model.workers) * (LONGEST_SECONDS + LONGEST_ATTEMPT) + POLL) + 2 * LONGEST_SECONDS


@given(st.lists(waiting_entries(), min_size=1, max_size=12), st.lists(st.sampled_from([None, "etl"]), max_size=2))
@example([*[Waiting(fails=10**9)] * 2, Waiting()], [])
@example([*[Waiting(fails=10**9)] * 4, Waiting()], [None])
@example([*[Waiting(store="hdfs://a")] * 4, Waiting()], [None])
@example(
    [
        Waiting(seconds=0.0),
        Waiting(waits=True, seconds=4.0),
        *[Waiting(fails=10**9, pool="etl", seconds=0.0)] * 2,
        Waiting(seconds=0.0),
    ],
    [],
)
@example([*[Waiting(fails=10**9)] * 3, Waiting(fails=1), Waiting(fails=2), Waiting()], [])
def test_whatever_can_be_compacted_gets_its_turn(entries, more):
    """
    Of the claims while it waits, its own comes after at most two for each older entry; and what has failed for a while
    is compacted within so many rounds. What is away may be away for ever: its entries stay.
    """
    workers = (None, "etl", *more)
    model = Model(dict(enumerate(entries, 1)), workers)
    tries = 2 * len(entries) * (max([entry.fails for entry in entries if entry.fails < 100], default=0) + 1)
    wanted = [
        number
        for number, entry in model.entries.items()
        if entry.store is None and entry.fails < 100 and not entry.waits
    ]
    model.run(max(entry.since for entry in entries) + (long_enough(model, tries) if wanted else 0.0), wanted)
    for number in wanted:
        entry = model.entries[number]
        assert number in model.done
        older = sum(other.pool == entry.pool for one, other in model.entries.items() if one < number)
        assert model.first(number) <= 2 * older + 1


@given(st.integers(1, 30), st.integers(1, 4), st.floats(0, 60), st.integers(0, 5))
def test_a_store_that_is_away_is_asked_at_a_bounded_rate(entries, workers, seconds, healthy):
    """
    However many entries lie on it: at most one try of each worker for each pause, once each was tried; what lies
    elsewhere isn't slowed down by a single pause.
    """
    on_it = [Waiting(store="hdfs://a", seconds=seconds)] * entries
    model = Model(dict(enumerate([*on_it, *[Waiting(seconds=1.0)] * healthy], 1)), (None,) * workers)
    model.run(3 * 3600.0)
    again = [at for at, _, number in model.claims if number <= entries and at > 3600]
    assert again
    for at in again:
        assert sum(at <= other < at + LONGEST_SECONDS for other in again) <= 2 * workers
    last = max((model.done[number] for number in range(entries + 1, entries + healthy + 1)), default=0.0)
    assert last <= (entries + healthy) * (seconds + 2) + POLL


@given(st.integers(1, 30), st.integers(1, 4), st.integers(0, 3), st.floats(0.1, 2))
def test_when_the_store_is_back_all_of_it_is_done(entries, workers, dead, hours):
    """Also beside entries that come back for another reason; within the longest wait and a turn of each."""
    mixed = [*[Waiting(fails=10**9)] * dead, *[Waiting(store="hdfs://a")] * entries]
    model = Model(dict(enumerate(mixed, 1)), (None,) * workers, back=hours * 3600.0)
    model.run(model.back + long_enough(model, 2 * len(mixed)), range(dead + 1, len(mixed) + 1))
    assert len(model.done) == entries


def test_others_at_work_are_no_trouble():
    """
    A store is away, and elsewhere something is compacted every five minutes: readiness tells only before the first; and
    again when there is nothing else.
    """
    later = [Waiting(since=300.0 * number, seconds=1.0) for number in range(24)]
    model = Model(dict(enumerate([*[Waiting(store="hdfs://a", seconds=1.0)] * 3, *later], 1)), (None,))
    model.run(7200.0)
    assert model.trouble[0] is not None
    assert set(model.trouble[4:]) == {None}
    model.run(7200.0 + 4 * LONGEST_SECONDS)
    assert "given back in a row, the latest: compaction" in model.trouble[-1]


def test_what_everybody_needs_is_trouble_at_once():
    """Spark is away: told, though a minute ago something was compacted."""
    model = Model({1: Waiting(), 2: Waiting(fails=3)}, (None,))
    model.run(60.0)
    assert model.trouble[0] is None
    assert "no ResourceManager" in model.trouble[1]


def test_a_long_queue_does_not_keep_what_was_given_back_waiting():
    """
    There is always something that was never tried: what Spark's start failed for once is the next but one all the same.
    """
    model = Model(dict(enumerate([Waiting(fails=1), *[Waiting(seconds=60.0)] * 50], 1)), (None,))
    model.run(3600.0, [1])
    assert [number for _, _, number in model.claims[:3]] == [1, 2, 1]


@pytest.fixture
def at():
    """What the clock says; a test sets it."""
    return [0.0]


@pytest.fixture
def backoff(at):
    return Backoff(lambda: at[0])


def away(store="hdfs://a"):
    error = UnreachableError("no answer")
    error.store = store
    return error


def claimed(backoff, *queue):
    """The next of these entries, by its number."""
    found = backoff.claim(
        None,
        lambda without, among: next(
            (row(n) for n in queue if n not in without and (among is None or n in among)), None
        ),
    )
    return None if found is None else found.id


def test_one_file_that_cannot_be_read_does_not_stand_for_its_store(backoff, at):
    """
    Two entries always find it away, the third is on it as well, and well: it is tried in turn, and shows that the store
    is there.
    """
    for number in (1, 2, 3):
        backoff.given_back(row(number), away())
    tried = []
    while len(tried) < 3:
        at[0] += 10
        if (number := claimed(backoff, 1, 2, 3)) is not None:
            tried.append(number)
            backoff.given_back(row(number), away())
    assert sorted(tried) == [1, 2, 3]
    assert backoff.waiting_for_stores() == {"hdfs://a": 3}
    backoff.ended(row(3), compacted=True)
    assert backoff.waiting_for_stores() == {"hdfs://a": 2}


def test_what_is_queued_for_a_store_meanwhile_does_not_keep_it_away(backoff, at):
    """Each finds it away once, and the others' time comes as it would have."""
    backoff.given_back(row(1), away())
    for number in range(2, 6):
        at[0] += 1
        backoff.given_back(row(number), away())
    at[0] = 9.9
    assert claimed(backoff, *range(1, 6)) is None
    at[0] = 10
    assert claimed(backoff, *range(1, 6)) == 1


def test_a_store_that_was_back_is_asked_soon_again(backoff, at):
    """It was away for so long that pauses were long, came back, and is away again: they begin anew."""
    backoff.given_back(row(3), away())
    for _ in range(6):
        at[0] += 640
        backoff.given_back(row(1), away())
    backoff.ended(row(1), compacted=True)
    backoff.given_back(row(2), away())
    at[0] += 10
    assert claimed(backoff, 2) == 2


def test_a_round_that_two_workers_begin_at_once_is_begun_once():
    """
    Both saw that all had their turn; what the quicker one took isn't in the next round again before the other had its
    turn.
    """
    rotation = ClaimOrder()
    tried = {1: rotation.number(), 2: rotation.number()}
    one, other = rotation.looks(None, (), tried), rotation.looks(None, (), tried)
    assert one == other == (QueueLook(without=frozenset({1, 2})), QueueLook(among=frozenset({1, 2}), round_over=0))
    tried[1] = rotation.found(None, one[-1])
    tried[2] = rotation.found(None, other[-1])
    assert rotation.looks(None, (), tried)[1:] == (QueueLook(among=frozenset({1, 2}), round_over=tried[1]),)


def test_a_pool_that_always_fails_does_not_hold_up_another(at, backoff):
    """Each pool finds out for itself what is away; a pool whose tries end at once would else begin every pause."""
    backoff.given_back(row(1), UnreachableError("no ResourceManager"), "etl")
    assert backoff.pause("etl") is not None
    assert backoff.pause(None) is None
    backoff.given_back(row(2), UnreachableError("no ResourceManager"))
    assert backoff.pause(None) is not None
    at[0] += 5
    assert backoff.cannot_begin(UnreachableError("no Java"))
    assert backoff.pause("etl") is not None
    assert backoff.pause("night") is not None
