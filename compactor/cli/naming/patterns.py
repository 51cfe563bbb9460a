"""
Patterns of tables and partitions as users write them: `sales.*`, `sales.orders/dt=2024-*`. What fits one, and what is
said when no table does.

In patterns `*` stands for any number of characters and `?` for one; the case of letters doesn't matter.
"""

import re
from collections.abc import Callable, Collection
from functools import lru_cache
from urllib.parse import unquote

from compactor.cli.naming.target import did_you_mean, no_database, split_at_keys
from compactor.errors import NothingFitsError, UsageError
from compactor.metastore.catalog import Catalog
from compactor.metastore.model import Entity
from compactor.name_patterns import fits, is_pattern

_KEY = re.compile(r"(?:^|/)(\w+)=")


def by_pattern(pattern: str) -> Callable[[Entity], bool]:
    """
    Whether a table or partition fits a pattern of databases, tables or partitions.

    Raises:
        UsageError: the pattern names no tables.
    """
    tables, slash, partitions = pattern.strip().replace("`", "").partition("/")
    if tables.count(".") > 1 or (slash and (not partitions or "." not in tables)):
        raise UsageError(f"{pattern!r} names no tables: write sales, sales.*, sales.orders or sales.*/dt=2024-*")

    def is_asked_for(entity: Entity) -> bool:
        named = fits(entity.full_name if "." in tables else entity.database, tables)
        return named and (not slash or partition_fits(entity.partition or "", partitions))

    return is_asked_for


def partition_fits(name: str, pattern: str) -> bool:
    """
    Whether a partition's name fits a pattern, its values escaped as Hive escapes them or as they are.

    The pattern's keys may come in any order, and a key that it leaves out may have any value.
    """
    if fits(name.lower(), pattern) or fits(unquote(name).lower(), pattern):
        return True
    values = dict(part.partition("=")[::2] for part in name.lower().split("/"))
    asked = _asked(pattern, tuple(values))
    return bool(asked) and all(
        fits(values[key], value) or fits(unquote(values[key]).lower(), value) for key, value in asked
    )


@lru_cache(maxsize=1024)
def _asked(pattern: str, keys: tuple[str, ...]) -> list[tuple[str, str]]:
    return split_at_keys(pattern, keys)


def require_keys(named: Collection[str], known: Collection[str], where: str) -> None:
    """
    Raises:
        UsageError: no table has a partition key of this name; the error says which there are.
    """
    if unknown := sorted(set(named) - set(known)):
        near = did_you_mean(unknown[0], sorted(known))
        has = f"keys of these tables: {', '.join(sorted(known))}" if known else "these tables have no partitions"
        raise UsageError(f"{where}: no partition has {' or '.join(unknown)}{near}; {has}")


def keys_of(pattern: str) -> list[str]:
    """The partition keys that the part of a pattern after `DB.TABLE/` names."""
    return _KEY.findall(pattern.lower())


def require_tables(catalog: Catalog, pattern: str) -> None:
    """
    Raises:
        NothingFitsError: no transactional table of the catalog fits the pattern; with near names.
        RefusedError: TABLE_MISSING: the pattern is in a database that doesn't exist.
        UsageError: its one table has no such partition key; the error says which there are.
    """
    tables, _, partitions = pattern.strip().replace("`", "").lower().partition("/")
    database, _, table = tables.partition(".")
    if not catalog.any_table_like(database, table or "*"):
        raise NothingFitsError(f"no transactional table fits {tables}{_near(catalog, database, table)}")
    if partitions and not is_pattern(tables) and (facts := catalog.find_table(database, table)) is not None:
        require_keys(keys_of(partitions), [key.name for key in facts.partition_keys], f"{pattern!r}")


def _near(catalog: Catalog, database: str, table: str) -> str:
    databases = catalog.databases()
    if not any(fits(name, database) for name in databases):
        if not is_pattern(database):
            raise no_database(database, databases)
        return did_you_mean(_bare(database), databases)
    if is_pattern(database):
        return ""
    return did_you_mean(_bare(table), catalog.table_names(database))


def _bare(pattern: str) -> str:
    return re.sub(r"[*?]", "", pattern)
