"""Lengths of time in milliseconds, as Hive and the metastore's databases count it."""

from typing import Final

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
