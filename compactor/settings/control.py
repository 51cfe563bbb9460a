"""
On which tables and when compactions may begin (the tables of a pilot, maintenance windows, blackouts, budgets), and how
often daemons read operators' pauses.
"""

import re
from datetime import UTC, date, datetime
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, ByteSize, Field, field_validator, model_validator

from compactor.settings.section import NotNegative, Seconds, Section

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d|24:00")
_DATE = re.compile(r"(\d{4}-)?\d\d-\d\d")
_PATTERN = re.compile(r"[^.\s]+\.[^.\s]+")
_NAME = r"^[A-Za-z0-9][A-Za-z0-9 _.-]*$"


def _known_zone(name: str) -> str:
    """
    Return the name of a time zone, after checking that it is known.

    Raises:
        ValueError: the zone isn't known here.
    """
    if name.upper() == "UTC":
        return name
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"{name!r} is no time zone that is known here, such as Europe/Berlin; it comes from the system's package tzdata"
        ) from None
    return name


Zone = Annotated[str, AfterValidator(_known_zone)]


def _require_patterns(value: list[str]) -> list[str]:
    if odd := next((pattern for pattern in value if not _PATTERN.fullmatch(pattern)), None):
        raise ValueError(f"{odd!r} is no pattern of database.table, such as sales.* or *.staging_?")
    return value


TablePatterns = Annotated[list[str], AfterValidator(_require_patterns)]


class Selected(Section):
    """A named rule that applies to some pools and tables, or to all."""

    name: str = Field(min_length=1, max_length=64, pattern=_NAME)
    pools: list[str] = Field(default_factory=list)
    tables: TablePatterns = Field(default_factory=list)


class Times(Selected):
    """Hours of some days, or the time from `begin` to `until`."""

    days: list[Weekday] = Field(default_factory=list)
    dates: list[str] = Field(default_factory=list)
    month_days: list[int] = Field(default_factory=list)
    start: str | None = None
    end: str | None = None
    begin: datetime | None = None
    until: datetime | None = None
    time_zone: Zone | None = None

    @field_validator("start", "end", mode="before")
    @classmethod
    def _is_a_time(cls, value: object) -> object:
        """YAML reads an unquoted 22:00 as the number 1320."""
        if value is not None and not (isinstance(value, str) and _TIME.fullmatch(value)):
            raise ValueError('is a time of day in quotes, such as "22:00"; "24:00" is the end of the day')
        return value

    @field_validator("begin", "until", mode="before")
    @classmethod
    def _has_a_time(cls, value: object) -> object:
        if (
            (isinstance(value, date) and not isinstance(value, datetime))
            or (isinstance(value, str) and ":" not in value)
            or isinstance(value, int | float)
        ):
            raise ValueError("is a day and a time, such as 2026-12-31T18:00; whole days belong into dates")
        return value

    @field_validator("begin", "until")
    @classmethod
    def _is_local(cls, value: datetime | None) -> datetime | None:
        if value is not None and value.tzinfo is not None:
            raise ValueError("is a local time, without an offset; time_zone says where")
        if value is not None and not 1970 <= value.year <= 9000:
            raise ValueError("is of a year from 1970 to 9000")
        return value

    @field_validator("dates", mode="before")
    @classmethod
    def _are_days(cls, value: object) -> object:
        """YAML reads an unquoted 2026-12-24 as a date."""
        if not isinstance(value, list):
            return value
        days = [day.isoformat() if isinstance(day, date) and not isinstance(day, datetime) else day for day in value]
        for day in days:
            if not isinstance(day, str) or not _DATE.fullmatch(day) or not _exists(day):
                raise ValueError(f"{day!r} is no day such as 2026-12-24, or 12-24 of every year")
        return days

    @field_validator("month_days")
    @classmethod
    def _are_days_of_a_month(cls, value: list[int]) -> list[int]:
        if (odd := next((day for day in value if not 1 <= abs(day) <= 31), None)) is not None:
            raise ValueError(f"{odd} is no day of a month: 1 to 31, or -1 for the last, -2 for the one before …")
        return value

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.begin is None) != (self.until is None):
            raise ValueError("begin and until belong together")
        recurring = self.days or self.dates or self.month_days or self.start or self.end
        if self.begin is not None and self.until is not None:
            if recurring:
                raise ValueError("either begin and until, or days, dates, month_days, start and end")
            if self.until <= self.begin:
                raise ValueError("until isn't after begin")
        elif not recurring:
            raise ValueError("says no time: give start and end, days, dates, month_days, or begin and until")
        if self.start is not None and self.start == self.end:
            raise ValueError("start and end are the same time; leave both out for whole days")
        if self.start == "24:00":
            raise ValueError('start: a day begins at "00:00"')
        return self


class Windows(Section):
    """When compactions may begin."""

    time_zone: Zone = "UTC"
    maintenance: list[Times] = Field(default_factory=list)
    blackouts: list[Times] = Field(default_factory=list)


class BudgetSettings(Selected):
    """The jobs and bytes that some compactions may use together, over all daemons."""

    jobs: int | None = Field(default=None, ge=1)
    bytes_per_hour: ByteSize | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.jobs is None and self.bytes_per_hour is None:
            raise ValueError("limits nothing: give jobs or bytes_per_hour")
        return self


class ControlSettings(Section):
    """Which tables the daemon works on, how operators' pauses are read, and the budgets of compactions."""

    only: TablePatterns = Field(default_factory=list)
    refresh_seconds: Seconds = 5
    trust_seconds: NotNegative = 60
    budgets: list[BudgetSettings] = Field(default_factory=list)

    @field_validator("budgets")
    @classmethod
    def _names_differ(cls, value: list[BudgetSettings]) -> list[BudgetSettings]:
        names = [budget.name for budget in value]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"the name {twice} stands twice: what was written is counted by it")
        return value


def _exists(day: str) -> bool:
    try:
        datetime.strptime(day if len(day) > len("12-24") else f"2024-{day}", "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return False
    return True
