"""
Which write ids and transactions count: Hive's valid lists, for readers, compactors and cleaners.

Pure values with Hive's string forms. Ids are kept as sorted tuples; ranges are counted by bisection, so a list of many
ids stays cheap.
Source: docs/layout.md; Hive's ValidReadTxnList, ValidReaderWriteIdList, ValidCompactorWriteIdList,
ValidCleanerWriteIdList, TxnUtils.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final, Self

from compactor.errors import CompactorError

_NOTHING_OPEN: Final = 2**63 - 1


class MalformedListError(CompactorError):
    """A text isn't a valid list in Hive's form."""


class RangeValidity(Enum):
    """How many ids of a range count."""

    NONE = "none"
    SOME = "some"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class ValidTxnList:
    """
    The transactions that a snapshot sees as committed.

    Args:
        high_watermark: the highest visible transaction.
        open: transactions at or below the high watermark that weren't finished.
        aborted: transactions at or below the high watermark that were rolled back. All others at or below it are
            committed.
    """

    high_watermark: int
    open: tuple[int, ...] = ()
    aborted: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "open", _ascending(self.open))
        object.__setattr__(self, "aborted", _ascending(self.aborted))

    @property
    def min_open(self) -> int | None:
        return self.open[0] if self.open else None

    def is_valid(self, txn: int) -> bool:
        return txn <= self.high_watermark and not _holds(self.open, txn) and not _holds(self.aborted, txn)

    def is_aborted(self, txn: int) -> bool:
        return _holds(self.aborted, txn)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `hwm:minOpen:open,…:aborted,…`; the smallest open id is taken from the open ids."""
        fields = text.split(":")
        if len(fields) != 4:
            raise MalformedListError(f"{text!r} isn't a transaction list: four parts separated by ':' are expected")
        return cls(_number(fields[0], text), _ids(fields[2], text), _ids(fields[3], text))

    def __str__(self) -> str:
        return f"{self.high_watermark}:{_or_nothing_open(self.min_open)}:{_joined(self.open)}:{_joined(self.aborted)}"


@dataclass(frozen=True, slots=True)
class ValidWriteIdList:
    """
    The write ids of one table that a reader sees as committed.

    Args:
        table: `database.table`.
        high_watermark: the highest visible write id.
        open: write ids at or below the high watermark whose transaction wasn't finished.
        aborted: write ids at or below the high watermark that were rolled back.
        min_open: the smallest open write id of the table; None when nothing is open. Taken from `open` when not given.
    """

    reads_rows: ClassVar[bool] = True
    """
    Whether a base above this list's high watermark is an error: it is for readers and compactors, which must produce
    rows, and isn't for a cleaner with its capped view.
    """

    table: str
    high_watermark: int
    open: tuple[int, ...] = ()
    aborted: tuple[int, ...] = ()
    min_open: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "open", _ascending(self.open))
        object.__setattr__(self, "aborted", _ascending(self.aborted))
        if self.min_open is None and self.open:
            object.__setattr__(self, "min_open", self.open[0])

    def is_valid(self, write_id: int) -> bool:
        return (
            write_id <= self.high_watermark and not _holds(self.open, write_id) and not _holds(self.aborted, write_id)
        )

    def is_aborted(self, write_id: int) -> bool:
        return _holds(self.aborted, write_id)

    def range_validity(self, low: int, high: int) -> RangeValidity:
        """How many of `low..high` are valid; ids above the high watermark are not."""
        reach = min(high, self.high_watermark)
        invalid = _count(self.open, low, reach) + _count(self.aborted, low, reach)
        return _share(reach - low + 1 - invalid, high - low + 1)

    def range_aborted(self, low: int, high: int) -> RangeValidity:
        """How many of `low..high` are aborted."""
        return _share(_count(self.aborted, low, high), high - low + 1)

    def aborted_within(self, low: int, high: int) -> tuple[int, ...]:
        """The aborted ids of `low..high`, ascending."""
        return self.aborted[bisect_left(self.aborted, low) : bisect_right(self.aborted, high)]

    def is_valid_base(self, write_id: int) -> bool:
        """
        Whether a compacted base of this write id holds only what this list sees: the id is below every open id and not
        above the high watermark.
        """
        return write_id <= self.high_watermark and (self.min_open is None or write_id < self.min_open)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `db.table:hwm:minOpen:open,…:aborted,…`; newer versions of Hive write runs of ids as `a-b`."""
        fields = text.split(":")
        if len(fields) != 5:
            raise MalformedListError(f"{text!r} isn't a write id list: five parts separated by ':' are expected")
        low = _number(fields[2], text)
        return cls(
            fields[0],
            _number(fields[1], text),
            _ids(fields[3], text),
            _ids(fields[4], text),
            None if low == _NOTHING_OPEN else low,
        )

    def __str__(self) -> str:
        return f"{self.table}:{self.high_watermark}:{_or_nothing_open(self.min_open)}:{_joined(self.open)}:{_joined(self.aborted)}"


@dataclass(frozen=True, slots=True)
class CompactorWriteIdList(ValidWriteIdList):
    """
    What a compaction may take: everything below the first open write id.

    A directory counts wholly or, when its range ends above the high watermark, not at all. The only exceptions are
    aborted ids.
    Source: Hive's ValidCompactorWriteIdList, TxnUtils.createValidCompactWriteIdList.
    """

    def __post_init__(self) -> None:
        ValidWriteIdList.__post_init__(self)
        if self.open or (self.min_open is not None and self.min_open <= self.high_watermark):
            raise ValueError("a compactor's list ends below the first open write id: build it with from_reader")

    @classmethod
    def from_reader(cls, reader: ValidWriteIdList) -> Self:
        """Lower a reader's list to just below its smallest open write id."""
        high = reader.high_watermark if reader.min_open is None else min(reader.high_watermark, reader.min_open - 1)
        return cls(reader.table, high, (), tuple(i for i in reader.aborted if i <= high), reader.min_open)

    def range_validity(self, low: int, high: int) -> RangeValidity:  # noqa: ARG002 - same signature as a reader's
        """ALL when the range ends at or below the high watermark, else NONE."""
        return RangeValidity.ALL if high <= self.high_watermark else RangeValidity.NONE


@dataclass(frozen=True, slots=True)
class CleanerWriteIdList(ValidWriteIdList):
    """
    What a cleaner may judge: only the write ids that its compaction knew.

    A range that ends above the high watermark counts as not valid, and no id above the high watermark counts as
    aborted, so later writers' directories stay.
    Source: Hive's ValidCleanerWriteIdList (HIVE-27526).
    """

    reads_rows: ClassVar[bool] = False

    @classmethod
    def from_reader(cls, reader: ValidWriteIdList, high_watermark: int) -> Self:
        """Cap a reader's list at a queue entry's highest write id."""
        high = min(reader.high_watermark, high_watermark)
        return cls(
            reader.table,
            high,
            tuple(i for i in reader.open if i <= high),
            tuple(i for i in reader.aborted if i <= high),
            reader.min_open,
        )

    def range_validity(self, low: int, high: int) -> RangeValidity:
        """As for a reader, but NONE for a range that ends above the high watermark."""
        return ValidWriteIdList.range_validity(self, low, high) if high <= self.high_watermark else RangeValidity.NONE

    def is_aborted(self, write_id: int) -> bool:
        return write_id <= self.high_watermark and ValidWriteIdList.is_aborted(self, write_id)

    def range_aborted(self, low: int, high: int) -> RangeValidity:
        """How many of `low..high` are aborted and at or below the high watermark."""
        return _share(len(self.aborted_within(low, high)), high - low + 1)

    def aborted_within(self, low: int, high: int) -> tuple[int, ...]:
        return ValidWriteIdList.aborted_within(self, low, min(high, self.high_watermark))


def _ascending(ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(ids)))


def _holds(ids: Sequence[int], wanted: int) -> bool:
    position = bisect_left(ids, wanted)
    return position < len(ids) and ids[position] == wanted


def _count(ids: Sequence[int], low: int, high: int) -> int:
    return max(0, bisect_right(ids, high) - bisect_left(ids, low))


def _share(part: int, whole: int) -> RangeValidity:
    if part <= 0:
        return RangeValidity.NONE
    return RangeValidity.ALL if part >= whole else RangeValidity.SOME


def _or_nothing_open(min_open: int | None) -> int:
    return _NOTHING_OPEN if min_open is None else min_open


def _joined(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))


def _number(text: str, whole: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise MalformedListError(f"{text!r} in {whole!r} isn't a number") from error


def _ids(text: str, whole: str) -> tuple[int, ...]:
    return tuple(i for part in text.split(",") if part for i in _run(part, whole))


def _run(part: str, whole: str) -> Iterator[int]:
    first, dash, last = part.partition("-")
    low = _number(first, whole)
    yield from range(low, (_number(last, whole) if dash else low) + 1)
