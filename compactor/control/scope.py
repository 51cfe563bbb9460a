"""
Which compactions a pause, window or budget covers: all, or those of a pool, a database, or tables that fit a pattern.

Pure. Names are compared in lower case, those of pools too; patterns are those of `compactor.name_patterns`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Self

from compactor.name_patterns import fits, is_pattern

DEFAULT_POOL = "default"
"""The name here for the pool of entries without a pool."""


class Subject(NamedTuple):
    """
    What a decision is about: a table (its partitions are treated alike), and the pool in which its compaction is or
    would be queued; None: no pool.
    """

    database: str
    table: str
    pool: str | None = None

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.table}"


class ScopeKind(StrEnum):
    """What a scope selects by; UNKNOWN was written by a newer version, and covers everything."""

    ALL = "all"
    POOL = "pool"
    DATABASE = "database"
    TABLE = "table"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Scope:
    """
    The compactions that a pause covers.

    Args:
        name: the pool, or the pattern of databases or of `database.table`; empty for ALL.
    """

    kind: ScopeKind
    name: str = ""

    def covers(self, subject: Subject) -> bool:
        match self.kind:
            case ScopeKind.POOL:
                return in_pool(subject, self.name)
            case ScopeKind.DATABASE:
                return fits(subject.database, self.name)
            case ScopeKind.TABLE:
                return fits(subject.full_name, self.name)
            case _:
                return True

    def __str__(self) -> str:
        """The stored form, which is also the metric's label: `all`, `pool:etl`, `database:sales`, `table:sales.*`."""
        return (
            self.kind.value
            if self.kind is ScopeKind.ALL
            else self.name
            if self.kind is ScopeKind.UNKNOWN
            else f"{self.kind.value}:{self.name}"
        )

    @property
    def words(self) -> str:
        """The beginning of a sentence: everything is, pool etl is, database sales is, tables sales.* are."""
        match self.kind:
            case ScopeKind.ALL:
                return "everything is"
            case ScopeKind.TABLE:
                return f"tables {self.name} are" if is_pattern(self.name) else f"table {self.name} is"
            case ScopeKind.UNKNOWN:
                return f"{self.name!r}, which only a newer version understands, is"
            case _:
                return f"{self.kind.value} {self.name} is"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` of any version wrote."""
        kind, _, name = text.partition(":")
        if text == ScopeKind.ALL:
            return cls(ScopeKind.ALL)
        if name and kind in {ScopeKind.POOL, ScopeKind.DATABASE, ScopeKind.TABLE}:
            return cls(ScopeKind(kind), name if kind == ScopeKind.POOL else name.lower())
        return cls(ScopeKind.UNKNOWN, text)


@dataclass(frozen=True, slots=True)
class ScopeFilter:
    """
    The compactions that a window, a blackout or a budget covers: both the pool and the table must be among those given.

    Where no pools (or no tables) are given, all are covered.
    """

    pools: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()

    def covers(self, subject: Subject) -> bool:
        pooled = not self.pools or any(in_pool(subject, pool) for pool in self.pools)
        return pooled and (not self.tables or any(fits(subject.full_name, pattern) for pattern in self.tables))


def in_pool(subject: Subject, pool: str) -> bool:
    """
    Whether the subject belongs to a pool of this name, whatever the case of letters: to some databases, and so to the
    workers, `etl` and `ETL` are one. Subjects without a pool belong to DEFAULT_POOL.
    """
    return (subject.pool or DEFAULT_POOL).lower() == pool.lower()


def listed(names: Sequence[str]) -> str:
    """The names as a list for people: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
