"""
Does the same to many things: in the caller's thread while that keeps the processor busy, in more threads once it waits.

Threads help to wait for a file system that is far away. When the file system answers at once, they only take the
interpreter from each other: twenty thousand local directories took twice as long in sixteen threads as in one. A file
system that doesn't answer is waited for once before the threads start, not once for each thing.

`ahead` reads on while what was read is worked on: the metastore's server and this process take turns otherwise.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE = 32
"""Things that a thread takes at a time: handing them over costs as much as listing a local directory."""

_PATIENCE = 3
"""How many times longer than working the waiting may take; a busy machine alone may cause that much."""

_ENOUGH = 0.25
"""Seconds of waiting beyond that, after which threads are used: one hiccup isn't a slow file system."""


def spread(
    work: Callable[[T], R], things: Iterable[T], threads: int, over: Callable[[], bool] = lambda: False
) -> Iterator[tuple[T, R]]:
    """
    Each thing with its result, in the order of the things; things that weren't begun are missing. An error of `work`
    ends the iteration.

    Args:
        threads: the most threads to use.
        over: called before each thing, in the thread that is about to work on it; True: nothing is begun any more. Once
            True, it must stay so.
    """
    rest = iter(things)
    waited = 0.0
    for thing in rest:
        if over():
            return
        began, busy = time.perf_counter(), time.thread_time()
        result = work(thing)
        waited = waiting(waited, time.perf_counter() - began, time.thread_time() - busy)
        yield thing, result
        if waited > _ENOUGH:
            break
    ended = threading.Event()

    def some(group: list[T]) -> list[tuple[T, R]]:
        done = []
        for thing in group:
            if ended.is_set() or over():
                break
            done.append((thing, work(thing)))
        return done

    with ThreadPoolExecutor(threads, thread_name_prefix="listing") as pool:
        try:
            for done in pool.map(some, _groups(rest)):
                yield from done
        finally:
            # the caller asks for no more: queued groups come to nothing, so that neither the caller nor the end of the
            # process waits for them
            ended.set()


def waiting(before: float, elapsed: float, busy: float) -> float:
    """
    Seconds of waiting so far that a busy machine doesn't explain: those before, and those of a call that took `elapsed`
    seconds, `busy` of them working.
    """
    return max(0.0, before + elapsed - busy - _PATIENCE * busy)


def _groups(things: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(things)
    while group := list(islice(rest, AT_ONCE)):
        yield group


@contextmanager
def ahead(things: Iterator[T]) -> Iterator[Iterator[T]]:
    """
    The same things, got in another thread, from now on: always the next one, and no more, while the caller works. An
    error is raised when its turn comes. At the end of the block nothing is got any more.
    """
    end = object()

    def each() -> Iterator[T]:
        following = first
        while (thing := following.result()) is not end:
            following = pool.submit(next, things, end)
            yield thing  # type: ignore[misc]  # it isn't `end`

    with ThreadPoolExecutor(1, thread_name_prefix="reading") as pool:
        first = pool.submit(next, things, end)
        yield each()
