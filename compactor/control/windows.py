"""
Maintenance windows and blackouts: whether a moment is inside, and when that changes next.

Pure, and independent of the machine's own zone. A recurring window belongs to the local day on which it starts; a
window whose end isn't after its start ends on the next day. On a day on which clocks change (see `times`), a window
that lies wholly in the gap doesn't take place; where the time of the end comes twice, a maintenance window ends with
the first and a blackout with the second (`wide`), so that in doubt no compaction begins.
Source: docs/control.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, tzinfo

from compactor.control.scope import ScopeFilter
from compactor.control.times import first, last, local_at

DAY = 24 * 60
_HORIZON = 400
"""Days to look ahead: a year, and a margin for leap years and zones."""
_ENDLESS = 8
"""After so many days of windows without a gap the search for an end stops."""


@dataclass(frozen=True, slots=True)
class Recurring:
    """
    Repeated on certain days, between two local times.

    Args:
        weekdays: 0 is Monday.
        dates: single days.
        yearly: (month, day) of every year.
        month_days: days of every month; -1 is the last one.
        start, end: minutes of the day, `end` up to 24:00; an `end` that isn't after `start` is on the next day.

    A day fits if any of the four names it; where none of the four is given, every day fits.
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
        wide: True for a blackout.
    """

    name: str
    zone: tzinfo
    times: Recurring | Once
    selection: ScopeFilter = field(default_factory=ScopeFilter)
    wide: bool = False


@dataclass(frozen=True, slots=True)
class WindowStanding:
    """
    Whether a moment is inside a window, and until when.

    Args:
        until_ms: when that changes next; None: not within a year (if inside: no gap was found).
    """

    inside: bool
    until_ms: int | None


def standing(window: Window, now_ms: int) -> WindowStanding:
    """Whether a moment is inside the window (start included, end excluded), and until when that stays so."""
    end: int | None = None
    for begins, ends in _intervals(window, local_at(now_ms, window.zone).date()):
        if end is None:
            if ends <= now_ms:
                continue
            if begins > now_ms:
                return WindowStanding(False, begins)
            end = ends
        elif begins > end:
            break
        else:
            end = max(end, ends)
        if end - now_ms > _ENDLESS * DAY * 60_000 and isinstance(window.times, Recurring):
            return WindowStanding(True, None)
    return WindowStanding(end is not None, end)


def _intervals(window: Window, today: date) -> Iterator[tuple[int, int]]:
    """The (start, end) moments of the window that may touch today or later days, ordered by start."""
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
