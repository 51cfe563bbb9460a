"""Words that every part shares: which compaction, on which generation of the layout."""

from enum import StrEnum


class CompactionKind(StrEnum):
    """What a queue entry asks for. Codes in COMPACTION_QUEUE.CQ_TYPE: a, i, r, c."""

    MAJOR = "major"
    MINOR = "minor"
    REBALANCE = "rebalance"
    ABORT_CLEANUP = "abort-cleanup"


class LayoutVersion(StrEnum):
    """Hive 3.1 knows no visibility suffix: a rename is the commit there. Hive 4 has `_v<txn>`."""

    HIVE_3 = "hive-3"
    HIVE_4 = "hive-4"
