"""Windows, blackouts and budgets: what the settings take, and how a mistake is worded."""

import pytest

from compactor.control.configured import Configured
from compactor.control.scope import ScopeFilter
from compactor.control.windows import DAY, Once, Recurring
from compactor.errors import SettingsError
from compactor.settings import load_settings

START = "database: {url: 'sqlite:////m.db'}\n"


def load(folder, text):
    path = folder / "c.yaml"
    path.write_text(START + text, encoding="utf-8")
    return load_settings(path, {})


def test_days_and_times_as_people_write_them(tmp_path):
    """Quoted times, unquoted dates, days of the month; whole days without times; a zone of its own or the default."""
    text = """
windows:
  time_zone: Europe/Berlin
  maintenance:
    - {name: nightly, pools: [etl], tables: ["Sales.*"], days: [mon, sun], start: "22:00", end: "06:00"}
    - {name: late, start: "20:00", time_zone: utc}
  blackouts:
    - {name: days, dates: [2026-12-24, 12-31, "2026-01-01"], month_days: [1, -1]}
    - {name: once, begin: 2026-12-31 18:00:00, until: 2027-01-02T06:00}
control:
  budgets: [{name: etl, pools: [default], jobs: 4, bytes_per_hour: 200GiB}]
"""
    found = Configured.of(load(tmp_path, text))
    nightly, late = found.windows
    assert nightly.times == Recurring(weekdays=frozenset({0, 6}), start=22 * 60, end=6 * 60)
    assert (nightly.selection.pools, nightly.selection.tables, nightly.wide, str(nightly.zone)) == (
        ("etl",),
        ("sales.*",),
        False,
        "Europe/Berlin",
    )
    assert (late.times, str(late.zone)) == (Recurring(start=20 * 60, end=DAY), "UTC")
    days, once = found.blackouts
    assert isinstance(days.times, Recurring)
    assert (sorted(map(str, days.times.dates)), days.times.yearly, days.times.month_days) == (
        ["2026-01-01", "2026-12-24"],
        {(12, 31)},
        {1, -1},
    )
    assert isinstance(once.times, Once)
    assert [str(once.times.begin), str(once.times.end), once.wide] == [
        "2026-12-31 18:00:00",
        "2027-01-02 06:00:00",
        True,
    ]
    (budget,) = found.budgets
    assert (budget.jobs, budget.bytes_per_hour) == (4, 200 * 1024**3)


def window(text):
    return f"windows: {{maintenance: [{{name: w, {text}}}]}}"


MISTAKES = [
    (window("days: [mon], start: 22:00"), 'windows.maintenance.0.start: is a time of day in quotes, such as "22:00"'),
    (window('start: "25:00"'), 'is a time of day in quotes, such as "22:00"'),
    (window('start: "24:00", end: "06:00"'), 'start: a day begins at "00:00"'),
    (window('start: "06:00", end: "06:00"'), "start and end are the same time"),
    (window("days: [monday]"), "windows.maintenance.0.days.0: input should be 'mon'"),
    (window("dates: [2026-02-30]"), "c.yaml: holds a value that can't be: day is out of range for month"),
    (window("dates: ['2026-02-30']"), "'2026-02-30' is no day such as 2026-12-24"),
    (window("dates: ['02-30']"), "'02-30' is no day such as 2026-12-24"),
    (window("month_days: [0]"), "0 is no day of a month"),
    (window("month_days: [32]"), "32 is no day of a month"),
    (window("time_zone: Europe/Atlantis, days: [mon]"), "'Europe/Atlantis' is no time zone that is known here"),
    (window("tables: [orders], days: [mon]"), "'orders' is no pattern of database.table"),
    (window("begin: 2026-12-31T18:00"), "begin and until belong together"),
    (window("begin: 2026-12-31T18:00, until: 2026-12-31T18:00"), "until isn't after begin"),
    (window("begin: 2026-12-31, until: 2027-01-02"), "whole days belong into dates"),
    (window("begin: '2026-12-31T18:00+01:00', until: 2027-01-02T06:00"), "is a local time, without an offset"),
    (
        window("begin: 0001-01-01T00:00, until: 2027-01-02T06:00"),
        "windows.maintenance.0.begin: is of a year from 1970 to 9000",
    ),
    (
        window("begin: 2026-12-31T18:00, until: 9999-12-31T23:59"),
        "windows.maintenance.0.until: is of a year from 1970 to 9000",
    ),
    (window("begin: 2026-12-31T18:00, until: 2027-01-02T06:00, days: [mon]"), "either begin and until, or days"),
    (window("pools: [etl]"), "says no time"),
    (window("days: [mon], begins: 3"), "windows.maintenance.0.begins: unknown key"),
    ("windows: {time_zone: 5}", "windows.time_zone: input should be a valid string"),
    ("windows: {time_zone: '../etc/passwd'}", "is no time zone that is known here"),
    ("control: {only: [shop]}", "control.only: 'shop' is no pattern of database.table, such as sales.* or *.staging_?"),
    ("control: {only: shop.*}", "control.only: input should be a valid list"),
    ("control: {budgets: [{name: b}]}", "control.budgets.0: limits nothing: give jobs or bytes_per_hour"),
    ("control: {budgets: [{name: b, jobs: 0}]}", "control.budgets.0.jobs: input should be greater than or equal to 1"),
    ("control: {budgets: [{name: b, jobs: 1}, {name: b, jobs: 2}]}", "control.budgets: the name b stands twice"),
    ("control: {refresh_seconds: 0}", "control.refresh_seconds: input should be greater than 0"),
]


@pytest.mark.parametrize(("text", "said"), MISTAKES, ids=[said for _, said in MISTAKES])
def test_a_mistake_is_one_line_naming_the_key(tmp_path, text, said):
    """What can't be meant: the place and what is allowed."""
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_they_may_be_changed_while_a_daemon_runs(tmp_path):
    """None of them needs a restart."""
    other = load(tmp_path, window("days: [mon]") + "\ncontrol: {trust_seconds: 5, only: [shop.*]}")
    changed, fixed = load(tmp_path, "").changes(other)
    assert (changed, fixed) == (("control.only", "control.trust_seconds", "windows.maintenance"), ())


def test_the_tables_that_are_worked_on_are_patterns(tmp_path):
    """In lower case, as names are compared; without any, all tables are; the Initiator judges anew by another list."""
    before, other = load(tmp_path, ""), load(tmp_path, "control: {only: [Shop.*, hr.pay]}")
    assert (Configured.of(before).only, Configured.of(other).only) == (
        ScopeFilter(),
        ScopeFilter(tables=("shop.*", "hr.pay")),
    )
    assert before.rules_of_judging != other.rules_of_judging
