"""
The records of a database on which Hive's TxnHandler and ours work: tables, transactions, writes, and attempts of
compactions.
"""

from dataclasses import dataclass, field

from compactor.metastore.model import Entity, QueueEntry
from compactor.metastore.txn.transactions import TxnState

OURS, HIVES = "ann-1", "hive-1"
"""Workers."""

STATES = {"o": TxnState.OPEN, "c": TxnState.COMMITTED, "a": TxnState.ABORTED, None: TxnState.ABSENT}


@dataclass(eq=False)
class Place:
    """A table, whatever its name is by now; `partitions` is (None,) for one without."""

    name: str
    tbl_id: int
    partitions: tuple[str | None, ...]

    def entity(self, partition=None):
        database, table = self.name.split(".")
        return Entity(database, table, partition)


@dataclass(eq=False)
class Write:
    """
    Args:
        files: partitions in which its rows may lie.
        noted: partitions that Hive's components name.
        lost: Hive noted nothing of it, and purged its transaction before our Cleaner looked: nothing is known of it any
            more (docs/operations.md).
    """

    place: Place
    write_id: int
    files: set[str | None]
    noted: set[str | None] = field(default_factory=set)
    lost: bool = False


@dataclass(eq=False)
class Txn:
    state: TxnState = TxnState.OPEN
    compaction: bool = False
    writes: list[Write] = field(default_factory=list)


@dataclass(eq=False)
class Attempt:
    """
    A worker at an entry, until it has ended it; the entry may be another's by then.

    Args:
        info: Hive's words for the entry; None: the worker is ours.
        files: what it wrote under its transaction may lie in the table.
        stored: it has said what it covers.
        marked: Hive's has handed the entry to the Cleaner, and not yet committed.
        over: the worker does nothing more.
    """

    entry: QueueEntry | None
    place: Place
    partition: str | None
    info: dict | None = None
    txn_id: int | None = None
    lock_id: int | None = None
    files: bool = False
    stored: bool = False
    marked: bool = False
    over: bool = False

    @property
    def number(self):
        return self.info["id"] if self.entry is None else self.entry.id
