"""
Maintenance windows and blackouts: at which moments they hold, and when that changes next.

Pure, and independent of the machine's own zone. A recurring window belongs to the local day on which it starts; one that ends at or before the time it starts at
ends on the next day. Where clocks are changed (see `times`): what doesn't exist on that day doesn't take place; where the time of the end comes twice, a maintenance
window ends with the first and a blackout with the second (`wide`), so that in doubt nothing begins.
Source: docs/control.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, tzinfo

from compactor.control.scope import Selection
from compactor.control.times import first, last, local_at

DAY = 24 * 60
_HORIZON = 400
"""Days that are looked ahead: a year, and what a leap year and a zone may add."""
_ENDLESS = 8
"""Days that windows may follow each other without a gap before no end is seen."""


@dataclass(frozen=True, slots=True)
class Recurring:
    """
    On which days, and between which times.

    Args:
        weekdays: 0 is Monday.
        dates: single days.
        yearly: (month, day) of every year.
        month_days: days of every month; -1 is the last one.
        start, end: minutes of the day, `end` up to 24:00; not after `start`: on the next day.

    Days are those that fit any of the four; where none is given, every day.
    """

    weekdays: frozenset[int] = frozenset()
    dates: frozenset[date] = frozenset()
    yearly: frozenset[tuple[int, int]] = frozenset()
    month_days: frozenset[int] = frozenset()
    start: int = 0
    end: int = DAY

    def on(self, day: date) -> bool:
        if not (self.weekdays or self.dates or self.yearly or self.month_days):
            return True
        if day.weekday() in self.weekdays or day in self.dates or (day.month, day.day) in self.yearly:
            return True
        left = ((day.replace(day=1) + timedelta(days=32)).replace(day=1) - day).days
        return day.day in self.month_days or -left in self.month_days


@dataclass(frozen=True, slots=True)
class Once:
    """From one local time to another."""

    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Window:
    """
    A maintenance window or a blackout.

    Args:
        wide: a blackout.
    """

    name: str
    zone: tzinfo
    times: Recurring | Once
    selection: Selection = field(default_factory=Selection)
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """
    How a window stands at a moment.

    Args:
        until_ms: when that changes next; None: not within a year (inside: it goes on without a gap, for all that can be seen).
    """

    inside: bool
    until_ms: int | None


def standing(window: Window, now_ms: int) -> Standing:
    """Whether the moment is inside, from the start on and before the end, and until when that stays so."""
    end: int | None = None
    for begins, ends in _intervals(window, local_at(now_ms, window.zone).date()):
        if end is None:
            if ends <= now_ms:
                continue
            if begins > now_ms:
                return Standing(False, begins)
            end = ends
        elif begins > end:
            break
        else:
            end = max(end, ends)
        if end - now_ms > _ENDLESS * DAY * 60_000 and isinstance(window.times, Recurring):
            return Standing(True, None)
    return Standing(end is not None, end)


def _intervals(window: Window, today: date) -> Iterator[tuple[int, int]]:
    """Those that may touch today and later ones, by their start."""
    times = window.times
    if isinstance(times, Once):
        begins, ends = _moments(window, times.begin, times.end)
        if begins < ends:
            yield begins, ends
        return
    for ahead in range(-2, _HORIZON):
        day = today + timedelta(days=ahead)
        if not times.on(day):
            continue
        midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001 - local
        length = times.end if times.end > times.start else times.end + DAY
        begins, ends = _moments(window, midnight + timedelta(minutes=times.start), midnight + timedelta(minutes=length))
        if begins < ends:
            yield begins, ends


def _moments(window: Window, begin: datetime, end: datetime) -> tuple[int, int]:
    return first(begin, window.zone), (last if window.wide else first)(end, window.zone)
