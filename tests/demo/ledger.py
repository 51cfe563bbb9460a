"""
Keeps transactions, their states and their write ids, as Hive's DML uses them.

`Ledger` is the interface that the warehouse builder calls. `MemoryLedger` keeps the state in memory, for tests of files
alone; `rows.MetastoreLedger` keeps it in Hive's own tables. A snapshot consists of the strings that Hive hands its
readers.
Source: Hive's TxnCommonUtils, ValidReaderWriteIdList, ValidReadTxnList.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from compactor.acid.compaction import LayoutVersion

NEVER = 9223372036854775807
"""Java's Long.MAX_VALUE, which stands for "nothing is open" in the strings."""

OPEN, ABORTED, COMMITTED = "o", "a", "c"


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """
    The transactions and write ids that a reader of one table may see.

    `txns` is None for Hive 3.1, whose readers look at write ids only.
    """

    write_ids: str
    txns: str | None


class Ledger(Protocol):
    """The part of a metastore that writers use."""

    layout: LayoutVersion

    def open(self) -> int:
        """Open a transaction and return its id."""

    def write_id(self, txn: int, database: str, table: str) -> int:
        """Return the transaction's write id of a table, allocated at the first call."""

    def touch(self, txn: int, database: str, table: str, partition: str | None, operation: str) -> None:
        """
        Record that an open transaction writes into a table or partition.

        `operation` is `i`, `u`, `d`, or `o` for an overwrite (an insert with an exclusive lock).
        """

    def commit(self, txn: int) -> None:
        """Commit a transaction: readers see its writes."""

    def abort(self, txn: int) -> None:
        """Abort a transaction: readers never see its writes; their records stay until they are cleaned."""

    def seed(self, database: str, table: str, next_write_id: int) -> None:
        """Set the next write id, as making a plain table transactional does."""

    def snapshot(self, database: str, table: str) -> LedgerSnapshot:
        """The snapshot of a reader that starts now."""

    def compactor_snapshot(self, database: str, table: str) -> LedgerSnapshot:
        """The snapshot of a compactor that starts now: nothing at or above the lowest open write id."""


@dataclass(slots=True)
class MemoryLedger:
    """A ledger without a database."""

    layout: LayoutVersion = LayoutVersion.HIVE_4
    states: dict[int, str] = field(default_factory=dict)
    # of a table: write id -> transaction
    write_ids: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)
    first_write_ids: dict[tuple[str, str], int] = field(default_factory=dict)

    def open(self) -> int:
        txn = len(self.states) + 1
        self.states[txn] = OPEN
        return txn

    def write_id(self, txn: int, database: str, table: str) -> int:
        ids = self.write_ids.setdefault((database, table), {})
        for write_id, writer in ids.items():
            if writer == txn:
                return write_id
        write_id = max(ids, default=self.first_write_ids.get((database, table), 1) - 1) + 1
        ids[write_id] = txn
        return write_id

    def touch(self, txn: int, database: str, table: str, partition: str | None, operation: str) -> None:
        """Do nothing: a snapshot depends only on the states of write ids."""

    def commit(self, txn: int) -> None:
        self.states[txn] = COMMITTED

    def abort(self, txn: int) -> None:
        self.states[txn] = ABORTED

    def seed(self, database: str, table: str, next_write_id: int) -> None:
        self.first_write_ids[(database, table)] = next_write_id

    def snapshot(self, database: str, table: str) -> LedgerSnapshot:
        high = max(self._ids(database, table), default=self.first_write_ids.get((database, table), 1) - 1)
        return LedgerSnapshot(
            write_ids_string(
                f"{database}.{table}",
                high,
                self._in_state(database, table, OPEN),
                self._in_state(database, table, ABORTED),
            ),
            self._txns(),
        )

    def compactor_snapshot(self, database: str, table: str) -> LedgerSnapshot:
        open_ids = self._in_state(database, table, OPEN)
        high = max(self._ids(database, table), default=self.first_write_ids.get((database, table), 1) - 1)
        if open_ids:
            high = min(high, min(open_ids) - 1)
        aborted = [write_id for write_id in self._in_state(database, table, ABORTED) if write_id <= high]
        return LedgerSnapshot(
            compactor_write_ids_string(f"{database}.{table}", high, min(open_ids, default=None), aborted), self._txns()
        )

    def _ids(self, database: str, table: str) -> Mapping[int, int]:
        return self.write_ids.get((database, table), {})

    def _in_state(self, database: str, table: str, state: str) -> list[int]:
        return [write_id for write_id, txn in self._ids(database, table).items() if self.states[txn] == state]

    def _txns(self) -> str | None:
        if self.layout is LayoutVersion.HIVE_3:
            return None
        by_state = {state: [txn for txn, value in self.states.items() if value == state] for state in (OPEN, ABORTED)}
        return txns_string(len(self.states), by_state[OPEN], by_state[ABORTED])


def txns_string(high: int, open_txns: Iterable[int], aborted: Iterable[int]) -> str:
    """The string form of a ValidTxnList: `high:lowest open:open,...:aborted,...`."""
    opened = sorted(open_txns)
    return f"{high}:{opened[0] if opened else NEVER}:{_joined(opened)}:{_joined(aborted)}"


def write_ids_string(table: str, high: int, open_ids: Iterable[int], aborted: Iterable[int]) -> str:
    """The string form of a reader's ValidWriteIdList: `db.table:high:lowest open:open,...:aborted,...`."""
    opened = sorted(open_ids)
    return f"{table}:{high}:{opened[0] if opened else NEVER}:{_joined(opened)}:{_joined(aborted)}"


def compactor_write_ids_string(table: str, high: int, lowest_open: int | None, aborted: Iterable[int]) -> str:
    """The string form of a compactor's list: the lowest open id is kept though it lies above the high watermark."""
    return f"{table}:{high}:{NEVER if lowest_open is None else lowest_open}::{_joined(aborted)}"


def _joined(ids: Iterable[int]) -> str:
    return ",".join(map(str, sorted(ids)))
