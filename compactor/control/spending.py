"""
Budgets, and the bytes that compactions have written in the last hour.

Pure. The stored record holds five-minute slots (their number since 1970, as text) and the bytes of each. A slot counts
as long as any part of it lies within the last hour: the sum may be too high, never too low.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from compactor.control.scope import ScopeFilter
from compactor.durations import HOUR_MS

SLOT_MS = 300_000


@dataclass(frozen=True, slots=True)
class SpendingBudget:
    """
    What the covered compactions of all daemons may use together.

    Args:
        jobs: compactions at the same time; None: any number.
        bytes_per_hour: bytes written per hour; None: any number.
    """

    name: str
    selection: ScopeFilter = field(default_factory=ScopeFilter)
    jobs: int | None = None
    bytes_per_hour: int | None = None


def slot_of(now_ms: int) -> int:
    """The slot that contains a moment."""
    return now_ms // SLOT_MS


def slots(record: Mapping[str, object], now_ms: int) -> dict[int, int]:
    """The slots that count now; keys and values that aren't slots are left out."""
    found = {
        int(key): value for key, value in record.items() if key.isdecimal() and isinstance(value, int) and value > 0
    }
    return {slot: count for slot, count in found.items() if (slot + 1) * SLOT_MS > now_ms - HOUR_MS}


def used(record: Mapping[str, object], now_ms: int) -> int:
    """Bytes written in the last hour."""
    return sum(slots(record, now_ms).values())


def room_at(record: Mapping[str, object], now_ms: int, limit: int) -> int:
    """When the used bytes fall below the limit, if no compaction writes until then."""
    left = used(record, now_ms)
    moment = now_ms
    for slot, count in sorted(slots(record, now_ms).items()):
        if left < limit:
            break
        left -= count
        moment = (slot + 1) * SLOT_MS + HOUR_MS
    return moment


def charged(record: Mapping[str, object], now_ms: int, slot: int, count: int) -> dict[str, int]:
    """The record with `count` more (or, if negative, fewer) bytes in a slot, without slots that no longer count."""
    found = slots(record, now_ms)
    found[slot] = max(0, found.get(slot, 0) + count)
    return {str(number): found[number] for number in sorted(found)}
