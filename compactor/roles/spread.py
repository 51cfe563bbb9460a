"""
Does the same to many things: here while that keeps the processor busy, in threads once it keeps us waiting.

Threads are for waiting on a file system that is far away. Where it answers at once they only take the interpreter from each other: twenty thousand local
directories took twice as long in sixteen threads as in one.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE = 32
"""Things that a thread takes at a time: handing over costs as much as listing a local directory."""

_PATIENCE = 3
"""Times longer than working that waiting may take; less is what a busy machine does to everybody."""

_ENOUGH = 0.25
"""Seconds of waiting beyond that, after which it takes threads: one hiccup isn't a slow file system."""


def spread(work: Callable[[T], R], things: Iterable[T], threads: int) -> Iterator[R]:
    """Results in the order of the things; `threads` at most when it takes threads. What `work` raises ends it."""
    groups = _groups(things)
    waited = 0.0
    for group in groups:
        began, busy = time.perf_counter(), time.thread_time()
        results = [work(thing) for thing in group]
        waited = waiting(waited, time.perf_counter() - began, time.thread_time() - busy)
        yield from results
        if waited > _ENOUGH:
            break
    with ThreadPoolExecutor(threads, thread_name_prefix="listing") as pool:
        for done in pool.map(lambda group: [work(thing) for thing in group], groups):
            yield from done


def waiting(before: float, elapsed: float, busy: float) -> float:
    """Seconds of waiting so far that a busy machine doesn't explain: those before, and those of a group that took `elapsed` seconds, `busy` of them working."""
    return max(0.0, before + elapsed - busy - _PATIENCE * busy)


def _groups(things: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(things)
    while group := list(islice(rest, AT_ONCE)):
        yield group
