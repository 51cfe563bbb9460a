"""Words that every part shares: which compaction, on which generation of the layout."""

from enum import StrEnum


class CompactionKind(StrEnum):
    """
    What a queue entry asks for. Codes in COMPACTION_QUEUE.CQ_TYPE: a, i, r, c, d.

    A deferred clean-up (HIVE-29587, DEFERRED_CLEANUP) is no compaction: a dropped table whose directory is left to the Cleaner, as in entries of type major before.
    """

    MAJOR = "major"
    MINOR = "minor"
    REBALANCE = "rebalance"
    ABORT_CLEANUP = "abort-cleanup"
    DEFERRED_CLEANUP = "deferred-cleanup"


SUPPORTED = frozenset({CompactionKind.MAJOR, CompactionKind.MINOR})
"""What our workers do. Entries of other kinds that wait for a worker are left to Hive's."""


class LayoutVersion(StrEnum):
    """Hive 3.1 knows no visibility suffix: a rename is the commit there. Hive 4 has `_v<txn>`."""

    HIVE_3 = "hive-3"
    HIVE_4 = "hive-4"
