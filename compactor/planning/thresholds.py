"""
When a partition is due, and what its table says of cleaning: defaults from the settings, overridden per table and per database.

Pure: takes property maps as the metastore holds them. Keys are looked up in lower case, then in upper case, as Hive
does.
Source: Hive's Initiator, TableOptimizer, hive.compactor.delta.num.threshold, hive.compactor.delta.pct.threshold,
no_auto_compaction, no_cleanup.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from compactor.acid.compaction import LayoutVersion
from compactor.errors import UsageError

DELTA_COUNT_KEY: Final = "compactorthreshold.hive.compactor.delta.num.threshold"
DELTA_RATIO_KEY: Final = "compactorthreshold.hive.compactor.delta.pct.threshold"
NO_AUTO_COMPACTION_KEY: Final = "no_auto_compaction"
AUTO_COMPACTION_KEYS: Final = (NO_AUTO_COMPACTION_KEY, NO_AUTO_COMPACTION_KEY.upper())
"""The names under which `auto_compaction_off` finds its property."""
NO_CLEANUP_KEY: Final = "no_cleanup"
CLEANUP_KEYS: Final = (NO_CLEANUP_KEY, NO_CLEANUP_KEY.upper())
"""The names under which `cleanup_off` finds its property."""
QUARANTINE_HOURS_KEY: Final = "compactor.cleaner.quarantine_hours"

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """
    Limits at which a compaction is due; a value must exceed its limit, not only reach it.

    Args:
        delta_count: current deltas and delete deltas.
        delta_ratio: bytes of the deltas per byte of the base (or of the original files, where there is no base).
        aborted_count: aborted write ids whose rows lie among committed ones.
        aborted_age_ms: age of the oldest of those; negative switches the rule off.
        open_age_ms: age above which the oldest open writer is reported; negative switches the report off.
    """

    delta_count: int
    delta_ratio: float
    aborted_count: int
    aborted_age_ms: int
    open_age_ms: int


def thresholds_for(
    defaults: Thresholds, table_parameters: Mapping[str, str], database_parameters: Mapping[str, str]
) -> Thresholds:
    """
    The thresholds of one table: its own properties, else its database's, else the defaults. An empty value counts as
    not set.

    Raises:
        UsageError: a property isn't a finite number; the message names the property.
    """
    maps = (table_parameters, database_parameters)
    count = _number(maps, DELTA_COUNT_KEY, int)
    ratio = _number(maps, DELTA_RATIO_KEY, float)
    return replace(
        defaults,
        delta_count=defaults.delta_count if count is None else count,
        delta_ratio=defaults.delta_ratio if ratio is None else ratio,
    )


def auto_compaction_off(
    table_parameters: Mapping[str, str], database_parameters: Mapping[str, str], layout: LayoutVersion
) -> bool:
    """
    Whether `no_auto_compaction` keeps the Initiator from queueing compactions of a table.

    Hive 4: the database's property decides if it is set, to either value; else the table's. Hive 3.1: the table's.
    """
    database = None if layout is LayoutVersion.HIVE_3 else look_up(database_parameters, NO_AUTO_COMPACTION_KEY)
    value = look_up(table_parameters, NO_AUTO_COMPACTION_KEY) if database is None else database
    return _is_true(value)


def cleanup_off(table_parameters: Mapping[str, str], partition_parameters: Mapping[str, str]) -> bool:
    """Whether `no_cleanup` of the table or the partition keeps replaced directories in place."""
    return any(_is_true(look_up(parameters, NO_CLEANUP_KEY)) for parameters in (table_parameters, partition_parameters))


def quarantine_hours(default: float, table_parameters: Mapping[str, str]) -> float:
    """
    For how many hours what was replaced stays in quarantine; 0: it is deleted at once.

    Raises:
        UsageError: the table's property isn't a finite number of at least 0.
    """
    hours = _number((table_parameters,), QUARANTINE_HOURS_KEY, float)
    if hours is not None and hours < 0:
        raise UsageError(f"property {QUARANTINE_HOURS_KEY} is {hours:g}, which is negative: correct or unset it")
    return default if hours is None else hours


def look_up(parameters: Mapping[str, str], key: str) -> str | None:
    """A property by its lower-case key, else by the upper-case key; None when neither is there."""
    value = parameters.get(key)
    return parameters.get(key.upper()) if value is None else value


def _is_true(value: str | None) -> bool:
    return value is not None and value.strip().lower() == "true"


def _number(maps: tuple[Mapping[str, str], ...], key: str, kind: Callable[[str], _Number]) -> _Number | None:
    for parameters in maps:
        value = (look_up(parameters, key) or "").strip()
        if not value:
            continue
        try:
            found = kind(value)
        except ValueError:
            found = None
        if found is None or not math.isfinite(found):
            what = "a whole number" if kind is int else "a number"
            raise UsageError(f"property {key} is {value!r}, which isn't {what}: correct or unset it")
        return found
    return None
