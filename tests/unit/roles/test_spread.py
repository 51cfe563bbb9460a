"""Where the Initiator's listing is done: in its own thread, or in many while the file system keeps it waiting."""

import threading
import time

import pytest

from compactor.roles.spread import AT_ONCE, spread, waiting


def test_what_keeps_the_processor_busy_stays_in_one_thread():
    """Work that doesn't wait is done by whoever asks, in order."""
    me = threading.get_ident()
    done = list(spread(lambda number: (number, threading.get_ident()), range(5 * AT_ONCE + 1), 8))
    assert done == [(number, me) for number in range(5 * AT_ONCE + 1)]


def test_what_keeps_us_waiting_is_done_by_many():
    """A file system that takes its time for the first ones: of the others, several are on the way at once; results keep their order."""
    together = threading.Barrier(4)

    def slow(number):
        if number < AT_ONCE:
            time.sleep(0.02)
        elif number % AT_ONCE == 0:
            together.wait(30)
        return number

    assert list(spread(slow, range(5 * AT_ONCE), 4)) == list(range(5 * AT_ONCE))


def test_an_exception_reaches_the_caller():
    """Wherever the work is done."""

    def bad(number):
        if number == AT_ONCE:
            raise LookupError(number)
        if number == 0:
            time.sleep(0.3)

    with pytest.raises(LookupError):
        list(spread(bad, range(AT_ONCE + 1), 2))


def test_a_busy_machine_is_not_a_slow_file_system():
    """Waiting three times as long as working counts for nothing, and one long pause is forgotten over work that follows."""
    assert waiting(0.0, elapsed=0.4, busy=0.1) == 0.0
    assert waiting(0.0, elapsed=0.6, busy=0.1) == pytest.approx(0.2)
    assert waiting(0.2, elapsed=0.1, busy=0.1) == 0.0
