"""What one reading of the queue gives to many claims: each entry once, and for how long it is believed."""

from dataclasses import dataclass, field

import pytest

from compactor.metastore.compaction_queue.window import SIZE, QueueWindow, Reading
from compactor.metastore.model import Entity
from compactor.metastore.partition_names import folded_entity


@dataclass
class Queue:
    """A queue, and a clock that goes on while it is read."""

    numbers: list[int]
    takes: float = 0.0
    now: float = 100.0
    at_work: list[int] = field(default_factory=list)
    read: int = 0

    def window(self):
        return QueueWindow(lambda: self.now)

    def reading(self):
        self.read += 1
        self.now += self.takes
        return Reading(
            [(number, ("db", f"t{number}", None), place(number)) for number in self.numbers],
            [place(number) for number in self.at_work],
        )

    def given(self, window, fits=lambda *_: True):
        return window.give(self.reading, fits)


def place(number):
    """Entries whose numbers end alike are of one table."""
    return folded_entity(Entity("db", f"t{number % 10}"))


def test_one_reading_serves_many_claims_and_gives_each_entry_once():
    """In its order, of each table one entry; when nothing is left, the queue itself is asked before that is said."""
    queue = Queue([3, 1, 11, 2])
    window = queue.window()
    assert [queue.given(window) for _ in range(3)] == [(3, True), (1, True), (2, True)]
    assert queue.read == 1
    assert queue.given(window) == (None, False)
    assert queue.read == 2


def test_a_table_that_is_worked_on_gets_no_second_entry():
    """As another process works on it, or as a worker here was given an entry whose claim isn't committed yet."""
    queue = Queue([11, 21, 2], at_work=[1])
    assert queue.given(queue.window()) == (2, True)
    queue = Queue([1])
    window = queue.window()
    assert queue.given(window) == (1, True)
    queue.numbers = [1, 11]
    assert queue.given(window) == (None, False)
    window.done([1])
    queue.numbers = [11]
    assert queue.given(window) == (11, True)


def test_what_came_to_nothing_is_given_again():
    """A claim that failed leaves its entry in the queue: the next reading finds it."""
    queue = Queue([1])
    window = queue.window()
    assert queue.given(window) == (1, True)
    window.done([1, 99])
    assert queue.given(window) == (1, True)


def test_an_entry_that_does_not_fit_stays_for_others():
    """Of another pool's limit, say; only the fitting are given, by number and place."""
    queue = Queue([1, 2])
    window = queue.window()
    assert queue.given(window, lambda number, where: (number, where) == (2, ("db", "t2", None))) == (2, True)
    assert queue.given(window) == (1, True)
    assert queue.read == 1


@pytest.mark.parametrize(("takes", "fresh"), [(0.0, 1.0), (0.05, 1.0), (0.1, 1.0), (0.5, 5.0), (3.0, 30.0)])
def test_a_reading_is_believed_for_a_second_or_ten_times_as_long_as_it_took(takes, fresh):
    """An entry that another process gave back comes first again after that time."""
    queue = Queue([1, 2, 3], takes)
    window = queue.window()
    queue.given(window)
    queue.now += fresh - 0.001
    queue.given(window)
    assert queue.read == 1
    queue.now += 0.002
    queue.given(window)
    assert queue.read == 2


def test_an_entry_that_was_given_back_is_read_at_once():
    """By a worker of this process."""
    queue = Queue([2, 3])
    window = queue.window()
    queue.given(window)
    queue.numbers = [1, 3]
    window.forget()
    assert queue.given(window) == (1, True)


@pytest.mark.parametrize(("count", "more"), [(SIZE - 1, False), (SIZE, True)])
def test_a_full_reading_may_have_left_something_out(count, more):
    """Then the claim asks the queue itself."""
    queue = Queue(list(range(count)))
    assert queue.given(queue.window(), lambda *_: False) == (None, more)
