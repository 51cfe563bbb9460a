"""
What a user calls a table or a partition: `DB.TABLE` or `DB.TABLE/k=v/…`.

Partition values may be escaped as Hive escapes them, or unescaped. Hive keeps database, table and partition-key names
in lower case, and escapes special characters of partition values as %XX.
Source: Hive's FileUtils.escapePathName, Warehouse.makePartName.
"""

import difflib
import re
from collections.abc import Sequence
from urllib.parse import unquote

from compactor.errors import RefusedError, UsageError
from compactor.metastore.model import Entity
from compactor.metastore.partition_names import escaped
from compactor.name_patterns import is_pattern
from compactor.reasons import Reason

EXAMPLE = "sales.orders or sales.orders/dt=2024-01-01"


def parse_target(text: str, partition: str | None = None) -> Entity:
    """
    Parse `DB.TABLE[/k=v/…]`. The partition stays as it was written, but for slashes at its ends; `partition_names`
    tells how the metastore may have it. A name in backquotes may hold `*` and `?`, which else are those of a pattern.

    Args:
        partition: the value of the option --partition.

    Raises:
        UsageError: the database, the table or the partition's text is missing, two partitions are named, or the text is
            a pattern of tables.
    """
    name, slash, inside = text.partition("/")  # blanks at the end belong to the partition's value
    database, dot, table = name.strip().replace("`", "").partition(".")
    if not dot or not database or not table or "." in table:
        raise UsageError(f"{text!r} doesn't name a table: write DATABASE.TABLE, such as {EXAMPLE}")
    if is_pattern(name):
        raise UsageError(
            f"{name!r} is a pattern: name one table here, such as {EXAMPLE}; write a name with such letters in backquotes"
        )
    inside = inside.strip("/")
    asked = (partition or "").strip("/")
    if inside and asked and inside != asked:
        raise UsageError(f"two partitions are named, {inside!r} and {asked!r}: give one")
    if (slash and not inside) or (partition is not None and not asked):
        raise UsageError(f"the partition of {database}.{table} is empty: write it like dt=2024-01-01")
    return Entity(database, table, asked or inside or None)


def partition_names(spec: str, keys: Sequence[str]) -> tuple[str, ...]:
    """
    The partition names in the metastore that a spec may stand for, likeliest first.

    Args:
        spec: `k=v/k2=v2`; keys in any order and letter case; values escaped or raw (a raw value may hold `/` and `=`).
        keys: the table's partition keys in their order.

    Raises:
        UsageError: the spec has keys that the table hasn't, or not all of the table's keys.
    """
    values = _values(spec, keys)
    as_given = "/".join(f"{key}={values[key]}" for key in keys)
    as_raw = "/".join(f"{key}={escaped(values[key])}" for key in keys)
    as_escaped = "/".join(f"{key}={escaped(unquote(values[key]))}" for key in keys)
    return tuple(dict.fromkeys((as_given, as_raw, as_escaped)))


def _values(spec: str, keys: Sequence[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for key, value in split_at_keys(spec, keys):
        if values.setdefault(key, value) is not value:
            raise UsageError(f"partition {spec!r} gives {key} twice")
    if set(values) != {key.lower() for key in keys}:
        wanted = "/".join(f"{key}=…" for key in keys)
        raise UsageError(f"partition {spec!r} doesn't fit the table's partition keys: write {wanted}")
    return {key: values[key.lower()] for key in keys}


def split_at_keys(spec: str, keys: Sequence[str]) -> list[tuple[str, str]]:
    """
    Keys in lower case with their values, in the order of the spec; empty when it doesn't begin with a known key.

    Only the `key=` of known keys splits, so raw values may hold slashes and equal signs.
    """
    known = "|".join(re.escape(key) for key in keys)
    starts = list(re.finditer(rf"(?:^|/)({known})=", spec, re.IGNORECASE)) if keys else []
    if not starts or starts[0].start() != 0:
        return []
    ends = [*(start.start() for start in starts[1:]), len(spec)]
    return [(start.group(1).lower(), spec[start.end() : end]) for start, end in zip(starts, ends, strict=True)]


def did_you_mean(wrong: str, known: Sequence[str]) -> str:
    """` (did you mean x or y?)`, or nothing when no name is near."""
    near = difflib.get_close_matches(wrong, known, n=3, cutoff=0.6)
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def no_database(name: str, known: Sequence[str], *, alone: bool = False) -> RefusedError:
    """
    The refusal of a name that the catalog has no database of, with near ones.

    Args:
        alone: the name stood without a dot, so a table may be meant.
    """
    hint = "; a table is written DATABASE.TABLE" if alone else ""
    near = did_you_mean(name.lower(), known)
    return RefusedError(Reason.TABLE_MISSING, f"there is no database {name}{near}{hint}")
