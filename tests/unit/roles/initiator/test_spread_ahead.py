"""Reading on while what was read is worked on: one thing ahead, in order, and no longer than it is wanted."""

import threading

import pytest

from compactor.roles.initiator.spread import ahead


def test_all_come_in_their_order():
    """None is left out, however many there are."""
    for count in (0, 1, 5):
        with ahead(iter(range(count))) as things:
            assert list(things) == list(range(count))


def test_the_next_one_is_got_meanwhile_and_no_more():
    """The first from the beginning; while one is worked on, the one after it, and not the one after that."""
    got = [threading.Event() for _ in range(4)]

    def things():
        for number, event in enumerate(got):
            event.set()
            yield number

    with ahead(things()) as numbers:
        assert got[0].wait(30)
        assert not got[1].is_set()
        for number in numbers:
            if number < 3:
                assert got[number + 1].wait(30)
            assert not any(event.is_set() for event in got[number + 2 :])


def test_an_error_comes_in_its_turn():
    """What was got before it is worked on first."""

    def things():
        yield 1
        raise LookupError(2)

    seen = []
    with pytest.raises(LookupError), ahead(things()) as numbers:
        seen.extend(iter(numbers.__next__, None))
    assert seen == [1]


def test_who_leaves_reads_no_further():
    """At the end of the block the thread has ended; at most one thing was got in vain."""
    got = []

    def things():
        for number in range(100):
            got.append(number)
            yield number

    with ahead(things()) as numbers:
        next(numbers)
    assert got in ([0], [0, 1])
    assert not any(thread.name.startswith("reading") for thread in threading.enumerate())
