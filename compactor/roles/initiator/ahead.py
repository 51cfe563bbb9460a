"""Reads on while what was read is worked on: the metastore's server and this process take turns otherwise."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


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
