"""What the tests of every driver's promises share: making trees, and doing something many times at once."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from compactor.storage.base import Storage
from compactor.storage.location import join

Result = TypeVar("Result")


def put(storage: Storage, location: str, data: bytes = b"") -> None:
    storage.write_small(location, data)


def tree(storage: Storage, top: str, *paths: str) -> None:
    """Make files (and, with a trailing slash, directories) with their parents."""
    for path in paths:
        parts = path.split("/")
        for depth in range(1, len(parts)):
            directory = join(top, *parts[:depth])
            if not storage.exists(directory):
                storage.mkdir(directory)
        if parts[-1]:
            put(storage, join(top, path), path.encode())


def together(count: int, work: Callable[[int], Result]) -> list[Result]:
    """What each of so many threads returned, which all began at the same moment."""
    barrier = threading.Barrier(count)

    def begin(number: int) -> Result:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def won(work: Callable[[], object]) -> bool:
    """Whether it was done; not when something was there already."""
    try:
        work()
    except FileExistsError:
        return False
    return True


def meanwhile(work: Callable[[], object], look: Callable[[], Result]) -> Iterable[Result]:
    """What is seen again and again while something is done, and once when it is."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        while not done.done():
            yield look()
        done.result()
    yield look()
