"""
Counts the bytes of objects that go through this process and those that the store copies by itself: the use and cost of
S3.

Pure counting. Drivers count here all bytes that they move. Tasks in other processes report their counts with their
results, which are added under `tasks`.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class BytesMoved:
    """Bytes of objects: sent to the store, received from it, copied by the store itself."""

    sent: int = 0
    received: int = 0
    copied: int = 0

    def __add__(self, other: "BytesMoved") -> "BytesMoved":
        return BytesMoved(self.sent + other.sent, self.received + other.received, self.copied + other.copied)

    def __sub__(self, other: "BytesMoved") -> "BytesMoved":
        return BytesMoved(self.sent - other.sent, self.received - other.received, self.copied - other.copied)

    def items(self) -> Iterator[tuple[str, int]]:
        """(direction, bytes) pairs: `sent`, `received`, `copied`."""
        yield from (("sent", self.sent), ("received", self.received), ("copied", self.copied))


class IoCounters:
    """A sum of moved bytes that any thread may add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moved = BytesMoved()

    @property
    def moved(self) -> BytesMoved:
        return self._moved

    def count(self, moved: BytesMoved) -> None:
        with self._lock:
            self._moved += moved


OWN: Final = IoCounters()
"""What all clients of this process moved."""
TASKS: Final = IoCounters()
"""What tasks moved that this process had run elsewhere."""


def totals() -> Iterator[tuple[str, str, int]]:
    """(`daemon` or `tasks`, direction, bytes) since this process began."""
    for by, traffic in (("daemon", OWN), ("tasks", TASKS)):
        yield from ((by, way, count) for way, count in traffic.moved.items())


@contextmanager
def measured() -> Iterator[IoCounters]:
    """
    Counts the bytes that this process moves inside the block, other threads' included. Filled when the block ends.
    """
    before, found = OWN.moved, IoCounters()
    try:
        yield found
    finally:
        found.count(OWN.moved - before)
