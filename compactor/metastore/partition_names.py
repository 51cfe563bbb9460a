"""
Matches partition names in locks and writes, as Hive stored them, with the names in the catalog.

TXN_COMPONENTS, COMPLETED_TXN_COMPONENTS and HIVE_LOCKS hold a partition's name unchanged only when the client found the
partition while writing (dynamic partitions, UPDATE, DELETE). The name of a static partition passes TxnHandler.lock:
Hive 3.1 makes it lower case, values included (`p=ABC` → `p=abc`), and 4.x escapes it a second time (`t=10%3A00` →
`t=10%253A00`). Neither change can be undone, so a stored name may mean several partitions. The names in locks always
pass TxnHandler.lock. Pure.
Source: docs/metastore.md, *Names of partitions*; Hive 3.1's TxnHandler.normalizeCase, 4.x's
TxnUtils.normalizePartitionCase, FileUtils.escapePathName; HIVE-24433.
"""

import re
from functools import lru_cache
from typing import Final

from compactor.metastore.model import Entity

FoldedEntity = tuple[str, str | None]
"""A table or partition, in none of its spellings."""

_ESCAPED: Final = re.compile("%([0-9a-fA-F]{2})")
_ESCAPES: Final = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^]")
DEFAULT_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"


@lru_cache(maxsize=4096)
def spellings(name: str) -> tuple[str, ...]:
    """All spellings in which any Hive may have stored a catalogued name, the name itself first."""
    return tuple(dict.fromkeys((name, locked_by_3(name), locked_by_4(name))))


def locked_by_3(name: str) -> str:
    """A catalogued name as Hive 3.1's TxnHandler.lock changes it."""
    return name.lower()


def locked_by_4(name: str) -> str:
    """A catalogued name as 4.x's TxnHandler.lock changes it."""
    keys_and_values = (part.partition("=")[::2] for part in name.split("/"))
    return "/".join(f"{escaped(key.lower())}={escaped(value)}" for key, value in keys_and_values)


def is_plain(stored: str) -> bool:
    """Whether a stored name can mean only the partition of exactly this name, as with dates and numbers."""
    values = "/".join(part.partition("=")[2] for part in stored.split("/"))
    return "%" not in stored and values == values.upper()


@lru_cache(maxsize=4096)
def folded(name: str) -> str:
    """A key that is equal for all names that may be confused with each other, stored or catalogued."""
    while (once := unescaped(name)) != name:
        name = once
    return name.casefold()


def folded_entity(entity: Entity) -> FoldedEntity:
    """
    A key that is equal for all names that may mean one table or partition, in whatever letters and escapes.

    Two partitions whose names differ by letters only count as one.
    """
    return entity.full_name, None if entity.partition is None else folded(entity.partition)


def may_mean(stored: str, name: str) -> bool:
    """
    Whether a stored name may mean this catalogued partition.

    A name of only some partition keys counts, as in the lock of an insert with dynamic partitions (`db@t@p=1`).
    """
    return folded(stored) == folded(name) or _keys(stored) != _keys(name)


def unescaped(name: str) -> str:
    """Remove one layer of Hive's escapes."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), name)


def escaped(value: str) -> str:
    """A key, or a value, as Hive writes it in names and paths; an empty one is Hive's default partition."""
    return _ESCAPES.sub(lambda found: f"%{ord(found[0]):02X}", value) or DEFAULT_PARTITION


def _keys(name: str) -> list[str]:
    return [folded(part.partition("=")[0]) for part in name.split("/")]
