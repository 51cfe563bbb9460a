"""
The unfinished transactions of a metastore at one moment, as a value, and the lists of transactions that follow from it.

Pure. Source: docs/metastore.md; Hive's TxnUtils.createValidReadTxnList, createValidTxnListForCleaner.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from compactor.acid.write_ids import ValidTxnList


@dataclass(frozen=True, slots=True)
class Snapshot:
    """
    The unfinished transactions at one moment, ids ascending.

    Args:
        high_watermark: the highest transaction id handed out.
        open: open transactions that may write, and young gaps.
        read_only: open transactions that only read; no transaction list names them, yet they read files.
        aborted: rolled back and not yet forgotten.
        gaps: how many of the open ones have no row (yet).
    """

    high_watermark: int
    open: tuple[int, ...]
    read_only: tuple[int, ...]
    aborted: tuple[int, ...]
    gaps: int = 0

    @property
    def min_open(self) -> int | None:
        """The smallest open id, readers and gaps included."""
        return min((*self.open[:1], *self.read_only[:1]), default=None)

    def as_seen_by(self, txn_id: int | None) -> ValidTxnList:
        """What a transaction sees: itself and every finished transaction below it; None: every finished transaction."""
        if not txn_id:
            return ValidTxnList(self.high_watermark, self.open, self.aborted)
        return ValidTxnList(
            min(txn_id, self.high_watermark),
            self.open[: bisect_left(self.open, txn_id)],
            self.aborted[: bisect_left(self.aborted, txn_id)],
        )

    def capped(self, high_watermark: int) -> ValidTxnList:
        """The transaction list for a cleaner: nothing above `high_watermark` counts."""
        return ValidTxnList(
            high_watermark,
            self.open[: bisect_right(self.open, high_watermark)],
            self.aborted[: bisect_right(self.aborted, high_watermark)],
        )
