"""The window of a queue: one reading serves all workers of a process, and no two of them get the same entry."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.metastore.compaction_queue import window as module
from compactor.metastore.compaction_queue.window import SIZE, QueueWindow, Reading
from tests.unit.roles.world import Clock

PLACE = ("db", "t", None)


class Entries:
    """A queue that a window reads; counts the readings."""

    def __init__(self, numbers, *, at_work=(), places=lambda number: number):
        self.numbers = list(numbers)
        self.at_work = at_work
        self.readings = 0
        self._places = places

    def read(self):
        self.readings += 1
        waiting = [(number, PLACE, ("db.t", f"p={self._places(number)}")) for number in self.numbers[:SIZE]]
        return Reading(waiting, self.at_work)


def everything(_number, _place):
    return True


def test_one_reading_serves_many_claims():
    """In the order of the reading, and with nothing left the answer is that of a new one."""
    window, entries = QueueWindow(Clock()), Entries([1, 2, 3])
    assert [window.give(entries.read, everything) for _ in range(3)] == [(1, True), (2, True), (3, True)]
    assert entries.readings == 1
    assert window.give(entries.read, everything) == (None, False)
    assert entries.readings == 2


def test_what_a_worker_was_given_is_not_given_again_before_its_claim_is_done():
    """Though another reading still shows it; afterwards it may be, if it still waits."""
    window, entries = QueueWindow(Clock()), Entries([1, 2])
    assert window.give(entries.read, everything) == (1, True)
    window.forget()
    assert window.give(entries.read, everything) == (2, True)
    assert window.give(entries.read, everything) == (None, False)
    window.done([1])
    assert window.give(entries.read, everything) == (1, True)


def test_a_reading_grows_old():
    """After a second another process may have given back an entry that comes before those that are left."""
    clock, entries = Clock(), Entries([5, 6, 7])
    window = QueueWindow(clock)
    assert window.give(entries.read, everything)[0] == 5
    entries.numbers = [2, 6, 7]
    assert window.give(entries.read, everything)[0] == 6
    clock.forward(module._FRESHNESS.least)
    assert window.give(entries.read, everything)[0] == 2


@pytest.mark.parametrize(("takes", "fresh"), [(0.0, 1.0), (0.05, 1.0), (0.1, 1.0), (0.5, 5.0), (3.0, 30.0)])
def test_reading_takes_a_small_part_of_the_time(takes, fresh):
    """It is believed for a second, or ten times as long as it took: all claims of the process wait for it."""
    clock, entries = Clock(), Entries(range(9))
    window = QueueWindow(clock)

    def read():
        clock.forward(takes)
        return entries.read()

    window.give(read, everything)
    clock.forward(fresh - 0.001)
    window.give(read, everything)
    assert entries.readings == 1
    clock.forward(0.002)
    window.give(read, everything)
    assert entries.readings == 2


def test_an_entry_that_was_given_back_is_seen_at_once():
    """After `forget` the queue is read again, however fresh the reading is."""
    window, entries = QueueWindow(Clock()), Entries([5, 6])
    window.give(entries.read, everything)
    entries.numbers = [2, 6]
    window.forget()
    assert window.give(entries.read, everything)[0] == 2


def test_what_does_not_fit_stays_for_others():
    """A worker that may not take an entry passes over it."""
    window, entries = QueueWindow(Clock()), Entries([1, 2])
    assert window.give(entries.read, lambda number, _: number != 1) == (2, True)
    assert window.give(entries.read, everything) == (1, True)
    assert entries.readings == 1


def test_of_a_place_that_is_worked_on_no_other_entry_is_given():
    """Neither beside another process's claim, nor beside one that this process has just given, done or not."""
    entries = Entries([1, 2, 3, 4], at_work={("db.t", "p=1")}, places=lambda number: (number + 1) // 2)
    window = QueueWindow(Clock())
    assert window.give(entries.read, everything) == (3, True)
    assert window.give(entries.read, everything) == (None, False)
    window.done([3])
    entries.numbers = [1, 2, 4]
    assert window.give(entries.read, everything) == (4, True)
    entries.at_work = {("db.t", "p=2")}
    assert window.give(entries.read, everything) == (1, True)


@pytest.mark.parametrize(("count", "more"), [(SIZE - 1, False), (SIZE, True)])
def test_whether_entries_were_not_read_is_told(count, more):
    """A full reading may have left some out: the caller goes on behind them."""
    window, entries = QueueWindow(Clock()), Entries(range(count))
    assert window.give(entries.read, lambda *_: False) == (None, more)


@given(st.sets(st.integers(1, 1000), max_size=40), st.integers(2, 6))
def test_no_two_workers_get_the_same_entry(numbers, workers):
    """Each entry goes to one of several threads, and all of them go."""
    window, entries, taken = QueueWindow(), Entries(sorted(numbers)), []

    def work():
        while (number := window.give(entries.read, everything)[0]) is not None:
            taken.append(number)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(numbers)
