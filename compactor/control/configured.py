"""Converts the included tables, windows, blackouts and budgets of the settings into the values that decisions use."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from zoneinfo import ZoneInfo

from compactor.control.scope import ScopeFilter, Subject
from compactor.control.spending import SpendingBudget
from compactor.control.windows import DAY, Once, Recurring, Window
from compactor.settings import Settings
from compactor.settings.control import WEEKDAYS, Selected, Times


@dataclass(frozen=True, slots=True)
class Configured:
    """
    The windows, blackouts and budgets that the settings define.

    Args:
        only: the tables that this daemon works on.
    """

    windows: tuple[Window, ...]
    blackouts: tuple[Window, ...]
    budgets: tuple[SpendingBudget, ...]
    zone: tzinfo
    only: ScopeFilter

    @classmethod
    def of(cls, settings: Settings) -> "Configured":
        default = settings.windows.time_zone
        return cls(
            windows=tuple(_window(given, default, wide=False) for given in settings.windows.maintenance),
            blackouts=tuple(_window(given, default, wide=True) for given in settings.windows.blackouts),
            budgets=tuple(
                SpendingBudget(given.name, _selection(given), given.jobs, given.bytes_per_hour)
                for given in settings.control.budgets
            ),
            zone=zone_of(default),
            only=_tables(settings.control.only),
        )

    def includes(self, database: str, table: str) -> bool:
        """Whether a daemon with these settings works on that table."""
        return self.only.covers(Subject(database, table))

    @property
    def counts_bytes(self) -> bool:
        return any(budget.bytes_per_hour is not None for budget in self.budgets)


def zone_of(name: str) -> tzinfo:
    """The time zone of a name that the settings have validated."""
    return UTC if name.upper() == "UTC" else ZoneInfo(name)


def _tables(patterns: Iterable[str], pools: Iterable[str] = ()) -> ScopeFilter:
    return ScopeFilter(tuple(pools), tuple(pattern.lower() for pattern in patterns))


def _selection(given: Selected) -> ScopeFilter:
    return _tables(given.tables, given.pools)


def _window(given: Times, default: str, *, wide: bool) -> Window:
    zone = zone_of(given.time_zone or default)
    return Window(given.name, zone, _times(given), _selection(given), wide=wide)


def _times(given: Times) -> Recurring | Once:
    if given.begin is not None and given.until is not None:
        return Once(given.begin, given.until)
    days = [_day(text) for text in given.dates]
    return Recurring(
        weekdays=frozenset(WEEKDAYS.index(day) for day in given.days),
        dates=frozenset(day for day in days if isinstance(day, date)),
        yearly=frozenset(day for day in days if not isinstance(day, date)),
        month_days=frozenset(given.month_days),
        start=_minutes(given.start) if given.start else 0,
        end=_minutes(given.end) if given.end else DAY,
    )


def _day(text: str) -> date | tuple[int, int]:
    """`2026-12-24`, or `12-24` of every year."""
    if len(text) > len("12-24"):
        return datetime.strptime(text, "%Y-%m-%d").date()  # noqa: DTZ007 - a day
    month, _, day = text.partition("-")
    return int(month), int(day)


def _minutes(text: str) -> int:
    hours, _, minutes = text.partition(":")
    return int(hours) * 60 + int(minutes)
