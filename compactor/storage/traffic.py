"""
How many bytes of objects went through this process, and how many the store copied by itself: what S3 is used for, and what it costs.

Pure counting. Drivers count here whatever they move; tasks of other processes report theirs with their results, and these are added under `tasks`.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes of objects: sent to the store, received from it, copied by the store itself."""

    sent: int = 0
    received: int = 0
    copied: int = 0

    def __add__(self, other: "Moved") -> "Moved":
        return Moved(self.sent + other.sent, self.received + other.received, self.copied + other.copied)

    def __sub__(self, other: "Moved") -> "Moved":
        return Moved(self.sent - other.sent, self.received - other.received, self.copied - other.copied)

    def items(self) -> Iterator[tuple[str, int]]:
        """Way and bytes."""
        return ((field.name, getattr(self, field.name)) for field in fields(self))


class Traffic:
    """A sum that any thread may add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moved = Moved()

    @property
    def moved(self) -> Moved:
        return self._moved

    def count(self, moved: Moved) -> None:
        with self._lock:
            self._moved += moved


OWN: Final = Traffic()
"""What this process moved, by all its clients."""
TASKS: Final = Traffic()
"""What tasks moved that this process had run elsewhere."""


def totals() -> Iterator[tuple[str, str, int]]:
    """(`daemon` or `tasks`, way, bytes) since this process began."""
    for by, traffic in (("daemon", OWN), ("tasks", TASKS)):
        yield from ((by, way, count) for way, count in traffic.moved.items())


@contextmanager
def measured() -> Iterator[Traffic]:
    """Counts what this process moves inside the block; filled when the block ends. Other threads' work is counted with it."""
    before, found = OWN.moved, Traffic()
    try:
        yield found
    finally:
        found.count(OWN.moved - before)
