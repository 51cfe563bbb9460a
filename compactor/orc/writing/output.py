"""
Properties of an output file, and whether an input's stripes may be copied into it unchanged.

Pure decisions on tails. Source: docs/orc.md; Java's OrcFile.mergeFiles for the list of what has to agree.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from compactor.acid.columns import ColumnRule, by_place
from compactor.acid.types import HiveType, Kind
from compactor.durations import DAY_MS
from compactor.errors import RefusedError
from compactor.orc.events.keys import stripe_bounds
from compactor.orc.format.codec import Compression
from compactor.orc.format.schema import is_acid_tree, same_layout
from compactor.orc.format.tail import Tail
from compactor.reasons import Reason

DEFAULT_BLOCK: Final = 256 << 10
DEFAULT_STRIPE: Final = 64 << 20
DEFAULT_STRIDE: Final = 10_000
_VERSION: Final = (0, 12)
_CALENDAR_KINDS: Final = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_INSTANT)
_GREGORIAN_DAY: Final = -141_427
"""1582-10-15, the first day on which both calendars agree, in days from 1970."""


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """
    One output file, as far as it doesn't depend on its rows.

    Args:
        types: the root type: `acid_type(row)`, or the row itself for a file without ACID columns.
        block_size: bytes of an uncompressed chunk in recoded stripes and in the tail; copied stripes may have smaller
            or larger chunks.
        stride: rows of a row index entry; at least 1, because Hive trusts no statistics of a file without indexes
            (HIVE-20604).
        stripe_bytes: size of recoded stripes in the writer's memory, as `orc.stripe.size` counts it: encoded, and not
            compressed; where Arrow's writer compresses (Snappy, ZSTD), compressed.
        stripe_rows: most rows of a recoded stripe; None: as many as fill `stripe_bytes`.
        bloom_columns: names of top-level table columns that get Bloom filters in recoded stripes.
        bloom_fpp: rate of false positives of the Bloom filters.
        one_zone: timestamps of different time zones may not share the file (`compactor.orc.format.zones.may_follow`).
        columns_by: how the table's readers find its columns in the inputs.
    """

    types: HiveType
    compression: Compression = Compression.ZLIB
    block_size: int = DEFAULT_BLOCK
    stride: int = DEFAULT_STRIDE
    stripe_bytes: int = DEFAULT_STRIPE
    stripe_rows: int | None = None
    bloom_columns: tuple[str, ...] = ()
    bloom_fpp: float = 0.01
    one_zone: bool = False
    columns_by: ColumnRule = ColumnRule.NAME

    def __post_init__(self) -> None:
        if self.stride < 1 or not 0 < self.block_size < 1 << 23:
            raise ValueError(
                f"row index stride {self.stride} must be above 0, compression block size {self.block_size} between 1 and 8 MiB"
            )

    @property
    def is_acid(self) -> bool:
        return is_acid_tree(self.types)

    @property
    def row(self) -> HiveType:
        """The struct of the table's columns."""
        return self.types.children[-1] if self.is_acid else self.types


def compatible(tail: Tail, output: OutputFormat, stripe: int | None = None) -> str | None:
    """
    Why the stripes of a file can't be copied into an output file; None when they can.

    Args:
        stripe: index of a stripe whose statistics are checked too.
    """
    if not _same_types(tail, output):
        return f"its columns {tail.row_tree} aren't the table's {output.row}"
    if tail.compression is not output.compression:
        return f"its compression is {tail.compression.name}, the output's {output.compression.name}"
    if tail.stride != output.stride:
        return f"its row index stride is {tail.stride}, the output's {output.stride}"
    if tail.splice_class is None:
        return (
            f"its writer {tail.writer} of version {tail.writer_version} isn't one whose stripes may stand beside others"
        )
    if tuple(tail.postscript.version) != _VERSION:
        return f"its format version is {'.'.join(map(str, tail.postscript.version)) or 'unknown'}, not 0.12"
    if stripe is not None and tail.stripes[stripe].number_of_rows:
        if tail.stripe_stats(stripe) is None:
            return "it has no column statistics that can be trusted"
        if output.is_acid and stripe_bounds(tail, stripe) is None:
            return "it has no statistics of its ACID columns"
    return None


def common_calendar(tails: Iterable[Tail]) -> int:
    """
    The calendar that an output of these files is labelled with: 0 unknown, 1 hybrid, 2 proleptic.

    Files whose dates and timestamps all lie after 1582-10-15 fit both calendars. Hive reads an unknown calendar as
    hybrid, so such files join hybrid ones.

    Raises:
        RefusedError: SCHEMA_MISMATCH; two files with older values count in different calendars.
    """
    hybrid: Tail | None = None
    proleptic: Tail | None = None
    said: set[int] = set()
    for tail in tails:
        said.add(tail.footer.calendar)
        if _indifferent(tail):
            continue
        if tail.proleptic:
            proleptic = tail
        else:
            hybrid = tail
    if hybrid is not None and proleptic is not None:
        message = f"{hybrid.name} and {proleptic.name} hold dates before 1582-10-15 in different calendars; rewrite the table with one of them"
        raise RefusedError(Reason.SCHEMA_MISMATCH, message)
    if proleptic is not None or said == {2}:
        return 2
    return 1 if 1 in said or 2 in said else 0


def _same_types(tail: Tail, output: OutputFormat) -> bool:
    if tail.is_acid != output.is_acid:
        return False
    return same_layout(tail.row_tree, output.row, names=not by_place(tail.row_tree, output.columns_by))


def _indifferent(tail: Tail) -> bool:
    """Whether the file's dates and timestamps mean the same in both calendars."""
    dated = [(column, node.kind) for column, node in enumerate(tail.tree.walk()) if node.kind in _CALENDAR_KINDS]
    if not dated or not tail.rows:
        return True
    for stripe in range(len(tail.stripes)):
        columns = tail.stripe_stats(stripe)
        if columns is None:
            return False
        for column, kind in dated:
            found = columns[column]
            if not found.number_of_values:
                continue
            if kind is Kind.DATE:
                recent = found.dates.HasField("minimum") and found.dates.minimum >= _GREGORIAN_DAY
            else:
                recent = (
                    found.timestamps.HasField("minimum_utc")
                    and found.timestamps.minimum_utc >= (_GREGORIAN_DAY + 1) * DAY_MS
                )
            if not recent:
                return False
    return True
