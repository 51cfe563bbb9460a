"""Where the Initiator's listing is done: in its own thread, or in many while the file system keeps it waiting."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from compactor.roles.initiator.spread import AT_ONCE, spread, waiting


def test_what_keeps_the_processor_busy_stays_in_one_thread():
    """Work that doesn't wait is done by whoever asks, in order."""
    me = threading.get_ident()
    done = list(spread(lambda _: threading.get_ident(), range(5 * AT_ONCE + 1), 8))
    assert done == [(number, me) for number in range(5 * AT_ONCE + 1)]


def test_what_keeps_us_waiting_is_done_by_many():
    """
    A file system that takes its time for the first ones: of the others, several are on the way at once; results keep
    their order.
    """
    together = threading.Barrier(4)

    def slow(number):
        if number == 0:
            time.sleep(0.3)
        elif number % AT_ONCE == 1:
            together.wait(30)
        return -number

    assert list(spread(slow, range(4 * AT_ONCE + 1), 4)) == [(number, -number) for number in range(4 * AT_ONCE + 1)]


def test_an_exception_reaches_the_caller():
    """Wherever the work is done."""

    def bad(number):
        if number == AT_ONCE:
            raise LookupError(number)
        if number == 0:
            time.sleep(0.3)

    with pytest.raises(LookupError):
        list(spread(bad, range(AT_ONCE + 1), 2))


def test_one_thing_that_keeps_us_waiting_is_enough():
    """
    A store that is down is waited for once before threads are taken, not thirty-two times: a call to it may take ten
    minutes.
    """
    me, here = threading.get_ident(), []

    def slow(number):
        if threading.get_ident() == me:
            here.append(number)
        if number == 3:
            time.sleep(0.3)

    assert len(list(spread(slow, range(2 * AT_ONCE), 2))) == 2 * AT_ONCE
    assert here == [0, 1, 2, 3]


@pytest.mark.parametrize("threads", [False, True])
def test_what_was_not_begun_when_it_is_over_is_missing(threads):
    """Told to end early, wherever the work is done: what was begun has its result, and nothing else is begun."""
    begun, enough = [], threading.Event()

    def work(number):
        begun.append(number)
        if number == 0 and threads:
            time.sleep(0.3)
        if number == 5:
            enough.set()
        return -number

    done = list(spread(work, range(AT_ONCE), 1, enough.is_set))
    assert begun == [0, 1, 2, 3, 4, 5]
    assert done == [(number, -number) for number in begun]


@pytest.mark.parametrize("how", ["closed", "raised"])
def test_what_is_queued_delays_nobody(monkeypatch, how):
    """
    Who asks for no more results, or meets an error, waits for what is underway alone: not for thousands of groups
    behind it.
    """
    begun, underway, go = [], threading.Event(), threading.Event()
    shutdown = ThreadPoolExecutor.shutdown

    def ending(pool, *arguments, **named):
        go.set()
        shutdown(pool, *arguments, **named)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", ending)

    def work(number):
        begun.append(number)
        if number == 0:
            time.sleep(0.3)
        if number == 1 and how == "raised":
            raise LookupError
        if number == AT_ONCE + 1:
            underway.set()
            assert go.wait(30)

    results = spread(work, range(100 * AT_ONCE), 1)
    next(results)
    if how == "raised":
        with pytest.raises(LookupError):
            next(results)
    else:
        next(results)
        assert underway.wait(30)
        results.close()
    assert set(begun) <= set(range(AT_ONCE + 2))


def test_a_busy_machine_is_not_a_slow_file_system():
    """
    Waiting three times as long as working counts for nothing, and one long pause is forgotten over work that follows.
    """
    assert waiting(0.0, elapsed=0.4, busy=0.1) == 0.0
    assert waiting(0.0, elapsed=0.6, busy=0.1) == pytest.approx(0.2)
    assert waiting(0.2, elapsed=0.1, busy=0.1) == 0.0
