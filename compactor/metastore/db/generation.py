"""
What differs between Hive 3.1 and 4.x: the one place that tells, by the name of each difference.

`schema` chooses the generation when the database is opened (`HiveSchema.generation`). Where a table or a column makes
the difference, code asks the schema whether it is there instead; pure rules go by the `layout`. Knows names and SQL
expressions; reads nothing.
Source: docs/metastore.md; the transaction handlers of Hive 3.1 and 4.x.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import ColumnElement, func

from compactor.acid.compaction import LayoutVersion
from compactor.metastore.db.tables import Need
from compactor.metastore.partition_names import locked_by_3, locked_by_4, unescaped


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Generation:
    """One generation of Hive; what is False here is True where the generation says so."""

    layout: LayoutVersion
    needs: frozenset[Need]
    """Of tables and columns: which must be there."""
    rename_commits: bool = False
    """A compaction has no transaction: the rename that publishes its result commits it, and no name tells whose it is."""
    transactions_are_statements: bool = False
    """A transaction is one statement, which asks for all its locks at once."""
    notes_components_late: bool = False
    """A write notes its partitions only at its end: an aborted one may have noted some (HIVE-21052)."""
    notes_aborts: bool = False
    """TXN_META_INFO tells why a transaction was aborted."""
    tells_refusals: bool = False
    """The history has the ends *refused* and *aborted*, and a column for a message."""
    indexes_history: bool = False
    """An index leads from a table or partition to its rows of the history."""
    ready_counts_as_queued: bool = False
    """A request is a duplicate, too, of an entry that is ready for cleaning and covers as much."""
    notes_cleaning: bool = False
    """The queue tells whether a Cleaner has begun with an entry."""
    has_pools: bool = False
    keeps_cycle_starts: bool = False
    """A mutex's row keeps in MT_KEY2 when the last cycle started; otherwise only a row with 0 is the mutex's."""
    mutexes: Mapping[str, str] = field(default_factory=dict)
    """By duty of the housekeeping (`Duty`), mutexes that have another name than usual."""
    initiators_duties: frozenset[str] = frozenset()
    """Duties that Hive's own Initiator does, which the compactor replaces."""
    as_locked: Callable[[str], str]
    """The spelling in which Hive's locks, and writes to static partitions, store a catalogued partition name."""
    locked_alike: Callable[[ColumnElement[str], str], ColumnElement[bool]]
    """Which of the catalogued partition names in a column may be stored in a spelling of this one."""

    def stored_as(self, name: str) -> tuple[str, ...]:
        """The spellings in which a catalogued name is stored: itself first, that of locks last, one if they are equal."""
        return tuple(dict.fromkeys((name, self.as_locked(name))))


def _locked_alike_by_3(column: ColumnElement[str], name: str) -> ColumnElement[bool]:
    # what is lower case beyond ASCII depends on the database
    return func.lower(column) == name.lower() if name.isascii() else column.is_not(None)


HIVE_3: Final = Generation(
    layout=LayoutVersion.HIVE_3,
    needs=frozenset({Need.ALWAYS, Need.HIVE_3}),
    rename_commits=True,
    transactions_are_statements=True,
    notes_components_late=True,
    mutexes={"write-set": "WriteSetCleaner", "history": "CompactionHistory"},
    initiators_duties=frozenset({"write-id-mappings", "empty-transactions"}),
    as_locked=locked_by_3,
    locked_alike=_locked_alike_by_3,
)
HIVE_4: Final = Generation(
    layout=LayoutVersion.HIVE_4,
    needs=frozenset({Need.ALWAYS, Need.HIVE_4}),
    notes_aborts=True,
    tells_refusals=True,
    indexes_history=True,
    ready_counts_as_queued=True,
    notes_cleaning=True,
    has_pools=True,
    keeps_cycle_starts=True,
    as_locked=locked_by_4,
    locked_alike=lambda column, name: column.in_({unescaped(name), locked_by_4(name)}),
)
