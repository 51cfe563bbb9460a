"""Many tables and partitions at once: those of the catalog that fit a pattern and a condition on partition values."""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final
from urllib.parse import unquote

from compactor.cli.naming.lookup import find_table, require_transactional
from compactor.cli.naming.patterns import keys_of, partition_fits, require_keys, require_tables
from compactor.cli.naming.target import no_database, parse_target
from compactor.cli.session import Session
from compactor.errors import NothingFitsError, UsageError
from compactor.metastore.catalog import Catalog
from compactor.metastore.model import Entity, TableFacts
from compactor.metastore.partition_names import DEFAULT_PARTITION
from compactor.name_patterns import fits, is_pattern
from compactor.status.judging import Found, partitions
from compactor.words import plural

_CONDITION: Final = re.compile(r"\s*(\w+)\s*(<=|>=|!=|<>|=|<|>)\s*('[^']*'|\"[^\"]*\"|[^\s'\"<>=!]+)\s*")
_COMPARED: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "<>": operator.ne,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?")
Values = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Condition:
    """Tests of partition values by key, all of which must hold."""

    tests: tuple[tuple[str, str, str], ...]

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(key for key, _, _ in self.tests)

    def __call__(self, values: Values) -> bool:
        return all(key in values and _compare(values[key], sign, value) for key, sign, value in self.tests)


def condition(text: str) -> Condition:
    """
    Read a condition on partition values: `dt < '2024-01-01' and region = eu`.

    Two numbers are compared as numbers, all else as text. A partition without the key, or in Hive's default partition,
    doesn't meet it.

    Raises:
        UsageError: the text is no such condition.
    """
    tests: list[tuple[str, str, str]] = []
    for part in re.split(r"\s+and\s+(?=(?:[^'\"]|'[^']*'|\"[^\"]*\")*$)", text.strip(), flags=re.IGNORECASE):
        found = _CONDITION.fullmatch(part)
        if found is None:
            raise UsageError(f"--where: {part!r} is no condition such as dt < '2024-01-01' (several with and)")
        key, sign, value = found.groups()
        tests.append((key.lower(), sign, value[1:-1] if value[0] in "'\"" else value))
    return Condition(tuple(tests))


def _compare(one: str, sign: str, other: str) -> bool:
    if _NUMBER.fullmatch(one) and _NUMBER.fullmatch(other):
        return _COMPARED[sign](Decimal(one), Decimal(other))
    return _COMPARED[sign](one, other)


def values_of(partition: str) -> Values:
    """The values in a partition's name by lower-case key, unescaped; without those of Hive's default partition."""
    pairs = (part.partition("=") for part in partition.split("/"))
    return {key.lower(): unquote(value) for key, _, value in pairs if value != DEFAULT_PARTITION}


def chosen(session: Session, pattern: str, where: Condition | None) -> list[Found]:
    """
    The transactional tables without partitions, and the partitions of the others, that fit; sorted by name.

    Args:
        pattern: `sales`, `sales.*`, `sales.orders`, `sales.*/dt=2024-*`; whatever the case of letters.
        where: also what partition values must meet; then no whole table is chosen.

    Raises:
        UsageError: the pattern names no tables, or it or `where` a partition key that none of the tables has.
        RefusedError: TABLE_MISSING, NOT_TRANSACTIONAL: a name without `*` and `?` is no such table's or database's.
        NothingFitsError: nothing is chosen; the message says of what.
    """
    catalog = Catalog(session.database())
    tables, inside = _tables(catalog, pattern)
    found = [Found(facts, None) for facts in tables if not (facts.partitioned or inside or where)]
    seen = [one for facts in tables if facts.partitioned for one in partitions(catalog, facts)]
    found += [one for one in seen if _fits(one.entity.partition or "", inside, where)]
    keys = {key.name.lower() for facts in tables for key in facts.partition_keys}
    if not tables:
        require_tables(catalog, pattern)
    if where is not None:
        require_keys(where.keys, keys, "--where")
    if not found:
        require_keys(keys_of(inside), keys, f"{pattern!r}")
        raise NothingFitsError(_nothing([str(one.entity) for one in seen], inside, where))
    return sorted(found, key=lambda one: str(one.entity))


def _tables(catalog: Catalog, pattern: str) -> tuple[list[TableFacts], str]:
    """The transactional tables that a pattern names, and what it says of their partitions; empty: nothing."""
    names, slash, inside = pattern.strip().replace("`", "").partition("/")
    database, dot, table = names.partition(".")
    if not database or (dot and not table) or "." in table or (slash and not inside):
        raise UsageError(f"{pattern!r} names no tables: write sales, 'sales.*', sales.orders or 'sales.*/dt=2024-*'")
    databases = catalog.databases()
    if not is_pattern(database) and database.lower() not in databases:
        raise no_database(database, databases, alone=not dot)
    if dot and not is_pattern(names):
        require_transactional(find_table(catalog, parse_target(names)))
    entities = [
        Entity(one, name)
        for one in databases
        if fits(one, database)
        for name in catalog.table_names(one)
        if fits(name, table or "*")
    ]
    return list(catalog.tables_for(entities).values()), inside


def _fits(partition: str, pattern: str, where: Condition | None) -> bool:
    """
    Whether a partition is among those that a pattern and a condition name.

    Args:
        pattern: of its name; empty: any.
    """
    return (not pattern or partition_fits(partition, pattern)) and (where is None or where(values_of(partition)))


def _nothing(seen: Sequence[str], inside: str, where: Condition | None) -> str:
    """
    Why none of the tables' partitions is chosen.

    Args:
        seen: all of them.
    """
    if not seen:
        return "the tables that fit have no partitions"
    there = f"{plural(len(seen), 'partition')}, such as {seen[-1]}"
    return f"no partition {'that fits meets --where' if where is not None else f'fits {inside}'} (of {there})"


def is_many(target: str) -> bool:
    """Whether a target stands for more than one table or partition."""
    return is_pattern(target) or "." not in target.partition("/")[0]
