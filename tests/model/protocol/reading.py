"""
What a snapshot is, which directories its holder reads, and which rows.

The rules are Hive's (AcidUtils.getAcidState, OrcRawRecordMerger, TxnCommonUtils), written down once more and apart from
`compactor.acid.snapshot`: `tests/model/test_protocol.py` holds the two against each other.
"""

from functools import lru_cache
from typing import NamedTuple

from tests.model.protocol.values import Directory, Lists, State, bit, span, upto


class Resolved(NamedTuple):
    """
    A place as the holder of lists finds it.

    Args:
        read: base first, then deltas as they are walked.
        excluded: neither read nor replaced nor aborted.
        history: a compacted base is there that these lists may not read, and no other.
    """

    read: tuple[Directory, ...]
    obsolete: tuple[Directory, ...]
    aborted: tuple[Directory, ...]
    excluded: tuple[Directory, ...]
    history: bool = False

    @property
    def base(self) -> Directory | None:
        return self.read[0] if self.read and self.read[0].kind == "base" else None


def lists_now(state: State, up_to: int | None = None) -> Lists:
    """The lists of a snapshot now; of transactions above `up_to` nothing is valid."""
    high = state.next_txn - 1 if up_to is None else up_to
    unfinished, undone = 0, 0
    txns_open, txns_aborted = [], []
    for txn in state.txns:
        if txn.state == "purged":
            continue
        if txn.kind == "compaction":
            if txn.id <= high:
                (txns_open if txn.state == "open" else txns_aborted).append(txn.id)
        elif txn.write_id:
            if txn.id > high or txn.state == "open":
                unfinished |= bit(txn.write_id)
            else:
                undone |= bit(txn.write_id)
    return Lists(high, tuple(txns_open), tuple(txns_aborted), state.next_write_id - 1, unfinished, undone)


def compactor_lists(lists: Lists) -> Lists:
    """A compactor's end below the first open write id."""
    first = (lists.open & -lists.open).bit_length() - 1 if lists.open else lists.high + 1
    return lists._replace(high=min(lists.high, first - 1), open=0, aborted=lists.aborted & upto(first - 1))


@lru_cache(maxsize=200_000)
def resolve(directories: frozenset[Directory], place: int, lists: Lists, whole_ranges: bool = False) -> Resolved:
    """
    Sort the directories of a place.

    Args:
        whole_ranges: a directory that reaches above the lists is left out, as compactors and cleaners do.
    """
    base: Directory | None = None
    history = False
    candidates: list[Directory] = []
    obsolete: list[Directory] = []
    aborted: list[Directory] = []
    excluded: list[Directory] = []
    valid = lists.valid
    here = [directory for directory in directories if directory.place == place]
    for directory in sorted(here, key=_base_order):
        if directory.txn in lists.txns_aborted:
            aborted.append(directory)
        elif directory.txn > lists.txn_high or directory.txn in lists.txns_open:
            excluded.append(directory)
        elif directory.kind == "base":
            written = directory.statement
            if written and lists.aborted & bit(directory.high):
                aborted.append(directory)
            elif not (
                valid & bit(directory.high)
                if written
                else directory.high <= lists.high and not lists.open & upto(directory.high)
            ):
                excluded.append(directory)
                history |= not written
            elif base is None:
                base = directory
            else:
                obsolete.append(directory)
        else:
            bits = span(directory.low, directory.high)
            if lists.aborted & bits == bits:
                aborted.append(directory)
            elif not valid & bits or (whole_ranges and directory.high > lists.high):
                excluded.append(directory)
            else:
                candidates.append(directory)
    reached = base.high if base else 0
    read = [base] if base else []
    last: Directory | None = None
    for directory in sorted(candidates, key=_walk_order):
        if directory.high > reached:
            if not valid & span(reached + 1, directory.high):
                excluded.append(directory)
                continue
            reached = directory.high
        elif last is None or not (
            (directory.high == reached and last.statement)
            or (directory.low, directory.high, directory.statement) == (last.low, last.high, last.statement)
        ):
            obsolete.append(directory)
            continue
        read.append(directory)
        last = directory
    return Resolved(tuple(read), tuple(obsolete), tuple(aborted), tuple(excluded), history and base is None)


def _base_order(directory: Directory) -> tuple[bool, int, bool, int, int]:
    return directory.kind != "base", -directory.high, directory.statement, -directory.txn, directory.low


def _walk_order(directory: Directory) -> tuple[int, int, bool, str, int]:
    return directory.low, -directory.high, directory.statement, directory.kind, directory.txn


@lru_cache(maxsize=200_000)
def rows_of(read: tuple[Directory, ...], valid: int) -> tuple[int, int]:
    """The rows that these directories give, and those that they give twice."""
    rows, twice, gone = 0, 0, 0
    for directory in read:
        found = directory.rows if directory.kind == "base" else directory.rows & valid
        twice |= rows & found
        rows |= found
        for write_id, marked in directory.events:
            if valid & bit(write_id):
                gone |= marked
    return rows & ~gone, twice & ~gone
