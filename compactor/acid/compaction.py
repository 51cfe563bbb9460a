"""Kinds of compaction and generations of the ACID layout, as every package names them."""

from enum import StrEnum


class CompactionKind(StrEnum):
    """
    What a queue entry asks for. Codes in COMPACTION_QUEUE.CQ_TYPE: a, i, r, c, d.

    A deferred clean-up (HIVE-29587, DEFERRED_CLEANUP) is no compaction: the entry leaves the directory of a dropped
    table to the Cleaner, as entries of type major did before.
    """

    MAJOR = "major"
    MINOR = "minor"
    REBALANCE = "rebalance"
    ABORT_CLEANUP = "abort-cleanup"
    DEFERRED_CLEANUP = "deferred-cleanup"

    @property
    def makes_base(self) -> bool:
        """Whether the result is a base, with the rows of what lies under the deltas; that of a minor is deltas."""
        return self in {CompactionKind.MAJOR, CompactionKind.REBALANCE}


SUPPORTED = (CompactionKind.MAJOR, CompactionKind.MINOR)
"""What this project's workers run, in the order in which it is told. Waiting entries of other kinds are left to Hive's workers."""


class LayoutVersion(StrEnum):
    """Generation of the layout. Hive 3.1 has no visibility suffix: a rename is the commit. Hive 4 has `_v<txn>`."""

    HIVE_3 = "hive-3"
    HIVE_4 = "hive-4"
