"""
Takes rows out of one stripe: streams without the removed values, a row index that points into them, and statistics.

Source: docs/orc.md, "Cutting"; the ORC specification, "Stripes" and "Row Index".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from isal import isal_zlib

from compactor.handles import PiecesReader, RandomReader
from compactor.orc.cutting.columns import Column, ValueCut, cut_column
from compactor.orc.cutting.groups import Groups
from compactor.orc.cutting.runs import MOST_VALUES, UncutError
from compactor.orc.cutting.streams import MemoryRoom, Stream
from compactor.orc.events.keys import stripe_bounds
from compactor.orc.format import codec
from compactor.orc.format.key_columns import KeyColumns
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.statistics import merge_column
from compactor.orc.format.tail import MAGIC, Tail, read_stripe_footer
from compactor.orc.format.zones import TIMESTAMPS, UTC, zone_of
from compactor.orc.writing.writer_choice import needs_pyorc

_ROW_INDEX: Final = 6
_DATA: Final = range(_ROW_INDEX)
_KEYS: Final = range(1, 6)
_CONTRADICTIONS: Final = (ArithmeticError, LookupError, TypeError, ValueError)
"""
Errors that numbers of a damaged stripe lead to: a shift too far, a place behind the end, a date beyond 32 bits. The
recoder decodes the stripe as a whole then, and says what is wrong with it.
"""
_FEW: Final = 128
"""Rows of a stripe for each removed one from which cutting takes less than encoding; more where they are scattered."""
MISSING: Final = 8
"""
A stripe that lacks one row for each of so many is encoded anew: the bounds of row groups then fit their rows again.
"""
_RUN: Final = MOST_VALUES
"""Rows in which a removed one costs a run of each stream."""
_TOGETHER: Final = 4 << 20
"""Bytes that are read at once for a checksum; memory for more is new for each stripe, which costs more than the sum."""
_MOST_ROWS: Final = 2 << 20
"""Rows of a stripe; while it is cut each takes about 130 bytes, those of its key among them."""
_MOST_BYTES: Final = 128 << 20
"""Bytes of a stripe as it is stored, and of its chunks that are inflated; both are in memory."""


@dataclass(frozen=True, slots=True)
class CutStripe:
    """A stripe without some of its rows, as a file of one stripe in memory."""

    reader: PiecesReader
    tail: Tail

    @property
    def checksum(self) -> int:
        """CRC-32 of the stripe."""
        return stripe_checksum(self.reader, self.tail, 0)


def stripe_checksum(reader: RandomReader, tail: Tail, index: int) -> int:
    """CRC-32 of a stripe's bytes."""
    start = tail.stripes[index].offset
    end, found = start + tail.stripe_length(index), 0
    for at in range(start, end, _TOGETHER):
        found = isal_zlib.crc32(reader.read_at(at, min(_TOGETHER, end - at)), found)
    return found


def removable(tail: Tail, index: int) -> tuple[int, int]:
    """
    How many rows may go for a stripe to be cut, as far as its tail tells: wherever they stand, and at most.

    Returns:
        (0, 0) for a stripe that is encoded anew. Values, streams and the holes between rows of several writes may rule
        the cut out all the same.
    """
    rows = tail.stripes[index].number_of_rows
    if not tail.stride or rows > _MOST_ROWS or tail.stripe_length(index) > _MOST_BYTES:
        return 0, 0
    if any(child.children for child in tail.row_tree.children):
        return 0, 0
    bounds = stripe_bounds(tail, index)
    if bounds is not None and bounds.exact and bounds.write_id[0] == bounds.write_id[1]:
        missing = bounds.row_id[1] - bounds.row_id[0] + 1 - rows
        if bounds.bucket[0] == bounds.bucket[1] and missing * MISSING > rows:
            return 0, 0
    most = max(1, rows // _FEW)
    return min(most, max(2 * _RUN, rows) // (2 * _RUN)), most


def cut(
    reader: RandomReader, tail: Tail, index: int, kept: npt.NDArray[np.bool_], keys: KeyColumns | None = None
) -> CutStripe | None:
    """
    Take rows out of a stripe whose columns, but for the row of a full-ACID file, have no columns inside.

    Args:
        kept: for each of its rows.
        keys: of its rows, in a full-ACID file; their statistics are exact then.

    Returns:
        None where the stripe is of a form that is encoded anew instead, or where that takes less, or where what was
        written anew doesn't hold the values that it should.

    Raises:
        CorruptFileError: the stripe can't be read.
    """
    removed = np.flatnonzero(~kept)
    _, most = removable(tail, index)
    if not 0 < len(removed) <= most or len(removed) == len(kept):
        return None
    if len(np.unique(removed // _RUN)) * 2 * _RUN > max(2 * _RUN, len(kept)):
        return None
    if needs_pyorc(reader, tail, index):  # timestamps of which Arrow doesn't find the values
        return None
    try:
        return _cut(reader, tail, index, kept, keys)
    except (UncutError, *_CONTRADICTIONS):
        return None


def _cut(
    reader: RandomReader, tail: Tail, index: int, kept: npt.NDArray[np.bool_], keys: KeyColumns | None
) -> CutStripe:
    footer = read_stripe_footer(reader, tail, index)
    streams, were = _read(reader, tail, index, footer)
    groups = Groups(tail.stride, kept)
    rows = ValueCut(kept, groups.starts, groups.wanted)
    in_utc = zone_of(tail, footer) == UTC
    made: dict[tuple[int, int], Sequence[bytes | memoryview]] = {}
    indexes: list[bytes] = []
    statistics: list[pb.ColumnStatistics] = []
    for number, kind in enumerate(node.kind for node in tail.tree.walk()):
        of_column = {place[1]: stream for place, stream in streams.items() if place[0] == number}
        column = Column(tail.footer.types[number], footer.columns[number], of_column)
        cut_column(column, rows)
        if len(were[number]) != -(-len(kept) // tail.stride):
            raise UncutError
        if keys is not None and number in _KEYS:
            found = groups.exact(keys.columns[number - 1][kept])
        else:
            found = groups.statistics(column, kind, were[number])
        if kind in TIMESTAMPS and not in_utc:
            for one in found:
                one.ClearField("timestamps")
        statistics.append(merge_column(found, kind))
        entries = zip(column.positions or [()] * len(found), found, strict=True)
        indexes.append(
            pb.RowIndex(
                entries=[pb.RowIndexEntry(positions=place, statistics=group) for place, group in entries]
            ).SerializeToString()
        )
        made.update({(number, place): stream.chunks for place, stream in column.streams.items()})
    order = [(number, place, made[number, place]) for number, place in streams]
    return _file(tail, index, footer, order, indexes, statistics)


def _read(
    reader: RandomReader, tail: Tail, index: int, footer: pb.StripeFooter
) -> tuple[dict[tuple[int, int], Stream], dict[int, list[pb.ColumnStatistics]]]:
    """The stripe's streams of values, by column and kind in their order; and the statistics of each row group."""
    stripe = tail.stripes[index]
    data = memoryview(reader.read_at(stripe.offset, stripe.index_length + stripe.data_length))
    found: dict[tuple[int, int], Stream] = {}
    were: dict[int, list[pb.ColumnStatistics]] = {}
    room, at = MemoryRoom(_MOST_BYTES), 0
    for stream in footer.streams:
        piece, at = data[at : at + stream.length], at + stream.length
        read = Stream.read(
            piece,
            tail.compression,
            tail.block_size,
            f"{tail.name}: stripe {index + 1}, column {stream.column}",
            room,
        )
        if stream.kind == _ROW_INDEX:
            said = pb.RowIndex()
            try:
                said.ParseFromString(read.data)
            except DecodeError as error:
                raise UncutError from error
            were[stream.column] = [entry.statistics for entry in said.entries]
        elif stream.kind not in _DATA or (stream.column, stream.kind) in found:
            raise UncutError
        else:
            found[stream.column, stream.kind] = read
    known = set(range(len(tail.footer.types)))
    if at > len(data) or set(were) != known or not {column for column, _ in found} <= known:
        raise UncutError
    return found, were


def _file(  # noqa: PLR0917 - a stripe's source, and its parts
    source: Tail,
    index: int,
    was: pb.StripeFooter,
    streams: Sequence[tuple[int, int, Sequence[bytes | memoryview]]],
    indexes: Sequence[bytes],
    statistics: Sequence[pb.ColumnStatistics],
) -> CutStripe:
    """A file of one stripe with its source's schema and labels."""
    rows = statistics[0].number_of_values
    packed = [codec.compress_section(found, source.compression, source.block_size) for found in indexes]
    placed = [*((column, _ROW_INDEX, (found,)) for column, found in enumerate(packed)), *streams]
    sizes = [sum(map(len, chunks)) for _, _, chunks in placed]
    footer = pb.StripeFooter()
    footer.CopyFrom(was)
    del footer.streams[:]
    footer.streams.extend(
        pb.Stream(column=column, kind=number, length=size)
        for (column, number, _), size in zip(placed, sizes, strict=True)
    )
    end = codec.compress_section(footer.SerializeToString(), source.compression, source.block_size)
    made = pb.Footer()
    made.CopyFrom(source.footer)
    for name in ("stripes", "statistics", "metadata"):
        made.ClearField(name)
    made.number_of_rows = rows
    made.stripes.add(
        offset=len(MAGIC),
        index_length=sum(map(len, packed)),
        data_length=sum(sizes) - sum(map(len, packed)),
        footer_length=len(end),
        number_of_rows=rows,
    )
    reader = PiecesReader(
        [MAGIC, *(chunk for _, _, chunks in placed for chunk in chunks), end], f"stripe {index + 1} of {source.name}"
    )
    metadata = pb.Metadata(stripe_stats=[pb.StripeStatistics(columns=statistics)])
    return CutStripe(reader, Tail(reader.name, source.postscript, made, metadata, reader.size))
