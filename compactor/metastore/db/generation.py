"""
What differs between Hive 3.1 and 4.x: the one place that tells, by the name of each difference.

`schema` chooses the generation when the database is opened (`HiveSchema.generation`). Where a table or a column makes
the difference, code asks the schema whether it is there instead; pure rules go by the `layout`. Knows names and SQL
expressions; reads nothing.
Source: docs/metastore.md; the transaction handlers of Hive 3.1 and 4.x.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Final

from sqlalchemy import ColumnElement, func

from compactor.acid.compaction import LayoutVersion
from compactor.metastore.db.tables import Need
from compactor.metastore.partition_names import locked_by_3, locked_by_4, unescaped


class Generation(ABC):
    """One generation of Hive; what is False here is True where the generation says so."""

    layout: ClassVar[LayoutVersion]
    needs: ClassVar[frozenset[Need]]
    """Of tables and columns: which must be there."""
    rename_commits: ClassVar[bool] = False
    """A compaction has no transaction: the rename that publishes its result commits it, and no name tells whose it is."""
    transactions_are_statements: ClassVar[bool] = False
    """A transaction is one statement, which asks for all its locks at once."""
    notes_components_late: ClassVar[bool] = False
    """A write notes its partitions only at its end: an aborted one may have noted some (HIVE-21052)."""
    notes_aborts: ClassVar[bool] = False
    """TXN_META_INFO tells why a transaction was aborted."""
    tells_refusals: ClassVar[bool] = False
    """The history has the ends *refused* and *aborted*, and a column for a message."""
    indexes_history: ClassVar[bool] = False
    """An index leads from a table or partition to its rows of the history."""
    ready_counts_as_queued: ClassVar[bool] = False
    """A request is a duplicate, too, of an entry that is ready for cleaning and covers as much."""
    notes_cleaning: ClassVar[bool] = False
    """The queue tells whether a Cleaner has begun with an entry."""
    has_pools: ClassVar[bool] = False
    keeps_cycle_starts: ClassVar[bool] = False
    """A mutex's row keeps in MT_KEY2 when the last cycle started; otherwise only a row with 0 is the mutex's."""
    mutexes: ClassVar[Mapping[str, str]] = {}
    """By duty of the housekeeping (`Duty`), mutexes that have another name than usual."""
    initiators_duties: ClassVar[frozenset[str]] = frozenset()
    """Duties that Hive's own Initiator does, which the compactor replaces."""

    @staticmethod
    @abstractmethod
    def as_locked(name: str) -> str:
        """The spelling in which Hive's locks, and writes to static partitions, store a catalogued partition name."""

    @staticmethod
    @abstractmethod
    def locked_alike(column: ColumnElement[str], name: str) -> ColumnElement[bool]:
        """Which of the catalogued partition names in a column may be stored in a spelling of this one."""

    def stored_as(self, name: str) -> tuple[str, ...]:
        """The spellings in which a catalogued name is stored: itself first, that of locks last, one if they are equal."""
        return tuple(dict.fromkeys((name, self.as_locked(name))))


class _Hive3(Generation):
    layout = LayoutVersion.HIVE_3
    needs = frozenset({Need.ALWAYS, Need.HIVE_3})
    rename_commits = transactions_are_statements = notes_components_late = True
    mutexes: ClassVar = {"write-set": "WriteSetCleaner", "history": "CompactionHistory"}
    initiators_duties = frozenset({"write-id-mappings", "empty-transactions"})
    as_locked = staticmethod(locked_by_3)

    @staticmethod
    def locked_alike(column: ColumnElement[str], name: str) -> ColumnElement[bool]:
        # what is lower case beyond ASCII depends on the database
        return func.lower(column) == name.lower() if name.isascii() else column.is_not(None)


class _Hive4(Generation):
    layout = LayoutVersion.HIVE_4
    needs = frozenset({Need.ALWAYS, Need.HIVE_4})
    notes_aborts = tells_refusals = indexes_history = ready_counts_as_queued = True
    notes_cleaning = has_pools = keeps_cycle_starts = True
    as_locked = staticmethod(locked_by_4)

    @staticmethod
    def locked_alike(column: ColumnElement[str], name: str) -> ColumnElement[bool]:
        return column.in_({unescaped(name), locked_by_4(name)})


HIVE_3: Final[Generation] = _Hive3()
HIVE_4: Final[Generation] = _Hive4()
