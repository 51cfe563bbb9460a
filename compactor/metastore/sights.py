"""
Who was there when the Cleaner first saw an entry ready: at its commit or later, so holding back for longer than needed is all it can do wrong.

Pure. Source: docs/metastore.md; Hive 3.1's Cleaner, which remembers locks.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sight:
    """
    One moment.

    Args:
        at_ms: the database clock.
        high_watermark: the last transaction that had been opened.
        locks: on the entry's table or partition.
    """

    at_ms: int
    high_watermark: int
    locks: frozenset[int]


def together(sights: Iterable[Sight]) -> Sight:
    """Whoever was there at one of these moments, at least one."""
    moments = list(sights)
    locks = frozenset(lock for moment in moments for lock in moment.locks)
    return Sight(max(moment.at_ms for moment in moments), max(moment.high_watermark for moment in moments), locks)
