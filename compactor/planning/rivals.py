"""
Whether a compaction may publish beside the other compactions of its table or partition.

Pure: judges the entries and transactions of other compactions, and the directories that lie in the partition, by what
the compaction saw when it began. Where these come from is the business of `metastore.compaction_queue.rivals` and
`engine.publish.checks`.

Two results over the same write ids are read side by side, so each row of both twice. Of our own attempts the first that
commits wins, since each asks in its commit. Hive's own workers don't ask, so ours give way to them.
Source: docs/protocol.md, *Of two compactions of one place one publishes*; docs/metastore.md, *One compaction at a time*.
"""

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass
from enum import Enum

from compactor.acid.names import AcidDir, DirKind
from compactor.acid.write_ids import ValidTxnList


@dataclass(frozen=True, slots=True)
class Rival:
    """
    Another compaction that may publish in the same place.

    Args:
        place: equal for all names that may mean one table or partition.
        entry_id: of its queue entry; None: only its transaction, which is open, tells of it.
        working: whether its entry is claimed. An entry that isn't has been committed, or is about to be.
        worker_id: who has the claim, or opened the transaction; None where that isn't noted.
        ours: whether that is a worker of ours, which asks before it commits.
        txn_id: as stored with the entry; None before it is stored, and on Hive 3.1.
        txn_state: `o`, `a` or `c`; None: the transaction is forgotten, or there is none.
        highest_write_id: up to which directories are cleaned for the entry; 0: no limit to Hive 3.1's Cleaner.
    """

    place: Hashable
    entry_id: int | None
    working: bool
    worker_id: str | None
    ours: bool
    txn_id: int | None
    txn_state: str | None
    highest_write_id: int = 0

    def __str__(self) -> str:
        return f"compaction {self.entry_id}" if self.entry_id is not None else f"a compaction in {self.txn_id}"


def hindrance(
    place: Hashable, rivals: Iterable[Rival], lists: ValidTxnList | None, name_write_id: int | None = None
) -> str | None:
    """
    Why a compaction of this place mustn't publish, or commit; None: no rival hinders it.

    Args:
        lists: the transactions that the compaction saw as committed; None on Hive 3.1, where only claims tell of
            rivals.
        name_write_id: the highest write id in the result's name; None: there is no result. On Hive 3.1 it isn't
            published before every entry that reaches as high is cleaned: Hive's own Cleaner would remove for that
            entry, under readers that came since it saw the entry, what this result replaces (its `Cleaner.clean()`).
    """
    found = (_why(rival, lists, name_write_id) for rival in rivals if rival.place == place)
    return next((why for why in found if why is not None), None)


def _why(rival: Rival, lists: ValidTxnList | None, name_write_id: int | None) -> str | None:
    if rival.working or rival.entry_id is None:
        return (
            None if rival.ours else f"{rival} of the same place is at work, by {rival.worker_id or 'an unknown worker'}"
        )
    if lists is None:
        reached = rival.highest_write_id
        if name_write_id is None or 0 < reached < name_write_id:
            return None
        end = f"ends at write id {reached}" if reached else "has no end"
        return f"{rival} of the same place isn't cleaned yet, and {end}"
    if rival.txn_id is None or lists.is_valid(rival.txn_id) or lists.is_aborted(rival.txn_id):
        return None  # its result was among the inputs, or there is none
    if rival.txn_state == "o":
        return f"{rival} of the same place is about to be committed"
    return None if rival.txn_state == "a" else f"{rival} of the same place was committed meanwhile"


class Beside(Enum):
    """What a directory in the partition means for a result that is about to appear there."""

    READ_RIGHTLY = "read-rightly"
    """Readers read it and the result rightly, or take one of the two."""
    RIVAL = "rival"
    """The result of another compaction that the plan didn't know: readers would read both."""
    SAME_RANGE = "same-range"
    """It stands for the same write ids, and whose it is isn't known: readers would read both."""
    LEFT_OVER = "left-over"
    """The result of an aborted compaction in the same range: it goes before the new one appears."""


def beside(result: AcidDir, other: AcidDir, known: Collection[str], lists: ValidTxnList | None) -> Beside:
    """
    What another directory means for a result.

    On Hive 4 the other's name tells whose result it is, and the lists whether it counted. On 3.1 no writer can have made
    a directory of the result's range since the plan's listing, for what is written now has higher ids.

    Args:
        known: the names of directories that the plan was made with.
        lists: as in `hindrance`.
    """
    if not are_read_together(result, other):
        return Beside.READ_RIGHTLY
    aborted = lists is not None and lists.is_aborted(other.visibility_txn)
    if lists is None:
        came = other.name not in known and (other.is_base or other.statement_id is None)
    else:
        came = other.visibility_txn != 0 and not lists.is_valid(other.visibility_txn)
    if came and not aborted:
        return Beside.RIVAL
    if not has_same_range(result, other):
        return Beside.READ_RIGHTLY  # a stream's, say, across which the plan didn't reach
    return Beside.LEFT_OVER if aborted else Beside.SAME_RANGE


def are_read_together(one: AcidDir, other: AcidDir) -> bool:
    """
    Whether readers would read both of two results, though they hold rows of the same write ids.

    Of two ranges one inside the other readers take the wider one. Two bases are such, and a base and a delta that ends
    within it. Ranges that lie across each other, and equal ones of one kind, are both read.
    """
    if has_same_range(one, other):
        return True
    (low, high), (other_low, other_high) = _range(one), _range(other)
    if other_low > high or low > other_high:
        return False
    return not (low <= other_low and other_high <= high) and not (other_low <= low and high <= other_high)


def has_same_range(one: AcidDir, other: AcidDir) -> bool:
    """Whether two directories of one kind stand for exactly the same write ids."""
    if one.kind is not other.kind or one.max_write_id != other.max_write_id:
        return False
    return one.kind is DirKind.BASE or (
        one.min_write_id == other.min_write_id and one.statement_id is None and other.statement_id is None
    )


def _range(directory: AcidDir) -> tuple[int, int]:
    return (-1 if directory.is_base else directory.min_write_id), directory.max_write_id
