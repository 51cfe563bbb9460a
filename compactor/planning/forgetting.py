"""
Whether the metastore may forget what it keeps of an aborted transaction in one table.

Pure: judges a row of TXN_COMPONENTS by what a search of the table's directories has shown. Where the search comes from
is `roles.cleaner.cleared`'s business, the rows are `metastore.clean.purge`'s.

A write id whose transaction the metastore has forgotten counts as committed. That nothing of it lies in the files now
is no proof that nothing will ever lie there: an abort (ABORT TRANSACTIONS, a time-out) ends a transaction, not the
tasks of the statement, which go on and write their files later. So only a search counts that began when no task of the
statement could be running any more. No name of a result stands in for that: beside `delta_1_5` readers take a late
`base_3`, or the late `delta_0_3` of a streaming batch, and what covers an id can itself go, by a restore, or by a
TRUNCATE that deletes directories.
Source: docs/metastore.md, Forgetting; Hive's TxnHandler.abortTxn and performTimeOuts, which stop no task.
"""

from dataclasses import dataclass
from enum import Enum

from compactor.acid.write_ids import ValidTxnList


class Ground(Enum):
    """Why a component may be forgotten, or must stay."""

    OUTLIVED = "outlived"
    OF_ANOTHER_TABLE = "of-another-table"
    NOT_ABORTED = "not-aborted"
    NOT_SEARCHED = "not-searched"
    ROWS_LEFT = "rows-left"
    MAY_WRITE = "may-write"


@dataclass(frozen=True, slots=True)
class AbortedComponent:
    """
    A row of TXN_COMPONENTS of an aborted transaction, on one table.

    Args:
        operation: TC_OPERATION_TYPE; `c` marks what an aborted compaction may have left.
        write_id: as noted; None where Hive noted none.
        heartbeat_ms: of the transaction, the last; by the database clock. None where it isn't known.
        mapped_id: the write id that the transaction has of the table: by it its rows are named. Another than the noted
            one where a statement was compiled anew after it had its lock (Hive 4's Driver.validateTxnList). None: it
            wrote to another table that had the name.
        is_ours: whether a worker of ours opened the transaction.
    """

    txn_id: int
    operation: str
    partition: str | None
    write_id: int | None
    heartbeat_ms: int | None
    mapped_id: int | None
    is_ours: bool = False

    @property
    def of_another_table(self) -> bool:
        """Whether it tells of no write to this table; a compaction has no write id."""
        return self.operation != "c" and self.mapped_id is None


@dataclass(frozen=True, slots=True)
class Search:
    """
    What a search of a table's directories has shown, which were there.

    Args:
        txns: the transactions as of its beginning; what was aborted later wasn't looked for.
        partition: only the directory of this partition was searched, which tells of compactions of it and of no write:
            Hive names the partitions of a write wrongly, or not all of them. None: every directory of the table, also
            those of no partition in the catalog.
        gone: aborted write ids of which no searched directory holds a row.
        listed_ms: when it began, by the database clock.
        late_ms: how long after its last heartbeat a transaction's tasks may still write.
    """

    txns: ValidTxnList
    partition: str | None
    gone: frozenset[int]
    listed_ms: int
    late_ms: int


@dataclass(frozen=True, slots=True)
class ForgettingVerdict:
    """
    The answer.

    Args:
        until_ms: with MAY_WRITE, from when on a search counts; None where that can't be told.
    """

    ground: Ground
    until_ms: int | None = None

    @property
    def forgets(self) -> bool:
        """Whether the component may be deleted."""
        return self.ground in {Ground.OUTLIVED, Ground.OF_ANOTHER_TABLE}


def may_be_forgotten(component: AbortedComponent, search: Search) -> ForgettingVerdict:
    """
    Whether the search proves that nothing is left, and nothing can come, of what the component marks.

    The component of a write to another table that had the name guards nothing: no id of this table stands for it, so it
    goes at once.
    """
    if component.of_another_table and component.write_id is not None:
        return ForgettingVerdict(Ground.OF_ANOTHER_TABLE)
    if not search.txns.is_aborted(component.txn_id):
        return ForgettingVerdict(Ground.NOT_ABORTED)
    if search.partition is not None and (component.operation != "c" or component.partition != search.partition):
        return ForgettingVerdict(Ground.NOT_SEARCHED)
    is_gone = component.write_id is not None if component.operation == "c" else component.mapped_id in search.gone
    if not is_gone:
        return ForgettingVerdict(Ground.ROWS_LEFT)
    return by_age(component.heartbeat_ms, search.listed_ms, search.late_ms)


def by_age(heartbeat_ms: int | None, now_ms: int, late_ms: int) -> ForgettingVerdict:
    """Whether tasks of an aborted transaction may still write at a moment: MAY_WRITE, else OUTLIVED."""
    if heartbeat_ms is None:
        return ForgettingVerdict(Ground.MAY_WRITE)
    until_ms = heartbeat_ms + late_ms
    return ForgettingVerdict(Ground.OUTLIVED) if until_ms <= now_ms else ForgettingVerdict(Ground.MAY_WRITE, until_ms)
