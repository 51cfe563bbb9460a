"""
Rewrites the rows of some stripes as new stripes, without deleted and aborted rows.

Rows stream through: one batch at a time is decoded, filtered and encoded. Sources that don't overlap follow each other;
others are merged by key. The new stripes go to a splicer, which may put copied stripes before and after them.
Source: docs/orc.md; Hive's OrcRawRecordMerger for what a compacted row is.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.acid.row_id import RowKey
from compactor.acid.types import Kind
from compactor.handles import Sink
from compactor.orc import small_stripes
from compactor.orc.cutting.stripe import MISSING, CutStripe, cut
from compactor.orc.digests.digest import Digester
from compactor.orc.events.keys import INSERT, read_keys
from compactor.orc.format.key_columns import KeyColumns
from compactor.orc.format.statistics import value_bytes
from compactor.orc.merge import merged
from compactor.orc.reading.arrow import arrow_type
from compactor.orc.reading.chunks import PythonRows
from compactor.orc.rows import RowFilter, RowTally, SourceRows, StripeSource, kept_rows
from compactor.orc.writing.encode import Encoder
from compactor.orc.writing.output import OutputFormat, common_calendar, compatible
from compactor.orc.writing.splice import FileSummary, Splicer

_NO_ROWS: Final = (RowKey(0, 0, 0), RowKey(0, 0, 0))


@dataclass(frozen=True, slots=True)
class Recoded:
    """
    Counts of the rows that were read, written and left out.

    rows_in = rows_out + deleted + aborted; `aborted` includes the rows above the high watermark.

    Args:
        parts: the output's stripes, in order.
    """

    rows_in: int
    rows_out: int
    deleted: int
    aborted: int
    parts: tuple["MadeStripes", ...] = ()


@dataclass(frozen=True, slots=True)
class MadeStripes:
    """
    Neighbouring stripes that were made in the same manner.

    Args:
        checksum: CRC-32 of one stripe out of which rows were cut, and whose values were compared with those of its
            source; None of stripes that were encoded anew.
    """

    rows: int
    checksum: int | None = None


def recode_into(
    sources: Sequence[StripeSource],
    splicer: Splicer,
    row_filter: RowFilter | None = None,
    progress: Callable[[int], None] | None = None,
    digester: Digester | None = None,
) -> Recoded:
    """
    Append the rows of `sources` that count to a file of insert events, in key order, as new stripes.

    Args:
        splicer: of an ACID file; rows are converted to its columns. It stays open: more stripes may follow.
        row_filter: the rows to leave out; None keeps every row.
        progress: called with the number of rows encoded since its last call; may raise to stop.
        digester: adds up the rows that count, as they were decoded.

    Raises:
        CorruptFileError: a source can't be decoded or isn't sorted.
        RefusedError: SCHEMA_MISMATCH, UNSUPPORTED_FORMAT, DUPLICATE_RANGE.
    """
    output, chosen = splicer.output, row_filter or RowFilter()
    if not output.is_acid:
        raise ValueError(f"recoding makes full-ACID files, not {output.types}")
    tally, before = RowTally(), splicer.rows
    calendar = common_calendar([source.tail for source in sources])
    parts: list[MadeStripes] = []
    waiting: list[StripeSource] = []

    def encode() -> None:
        start = splicer.rows
        if waiting:
            _encode(waiting, splicer, _readers(waiting, output, chosen, tally, digester), calendar, progress)
            waiting.clear()
        if splicer.rows > start:
            parts.append(MadeStripes(splicer.rows - start))

    stripes = _in_order(sources)
    for source in stripes or sources:
        apart = bool(stripes) and (len(stripes) == 1 or _large(source, output))
        made = _cut(source, output, chosen, tally) if apart else None
        if made is None:
            same = bool(stripes and waiting) and waiting[-1].tail is source.tail
            waiting.append(replace(source, stripes=(*(waiting.pop().chosen if same else ()), *source.chosen)))
            continue
        encode()
        parts.append(_add(splicer, *made, calendar))
        made = None  # before the next stripe is read
        if progress is not None:
            progress(parts[-1].rows)
    encode()
    return Recoded(tally.rows_in, splicer.rows - before, tally.deleted, tally.aborted, tuple(parts))


def _add(splicer: Splicer, stripe: CutStripe, last: RowKey, calendar: int) -> MadeStripes:
    stripe.tail.footer.calendar = calendar
    splicer.add_stripe(stripe.reader, stripe.tail, 0, last)
    return MadeStripes(stripe.tail.rows, stripe.checksum)


def _encode(
    sources: Sequence[StripeSource],
    splicer: Splicer,
    readers: Sequence[SourceRows],
    calendar: int,
    progress: Callable[[int], None] | None,
) -> None:
    """Append the rows of sources as stripes that are encoded anew."""
    output = splicer.output
    encoder = Encoder(splicer, _bytes_per_row(sources, output), calendar, output.stripe_rows)
    for chunk in merged(readers):
        encoder.begin(chunk.zone)
        if isinstance(chunk.rows, PythonRows):
            encoder.python(chunk.rows.rows, chunk.keys.key(-1))
        else:
            encoder.gather(chunk.rows.writable(), chunk.keys.key(-1))
        if progress is not None:
            progress(len(chunk))
    encoder.finish()


def _in_order(sources: Sequence[StripeSource]) -> list[StripeSource]:
    """Each stripe as a source of its own, in key order; empty where two sources may overlap."""
    if len(sources) > 1:
        if _may_overlap(sources):
            return []
        sources = sorted(sources, key=lambda source: source.key_range or _NO_ROWS)
    return [replace(source, stripes=(stripe,)) for source in sources for stripe in source.chosen]


def _large(source: StripeSource, output: OutputFormat) -> bool:
    """Whether a stripe is large enough to stay one of its own among others that are recoded."""
    (stripe,) = source.chosen
    if output.stripe_rows is not None:
        return 2 * source.tail.stripes[stripe].number_of_rows >= output.stripe_rows
    return 2 * value_bytes(source.tail, stripe) >= output.stripe_bytes


def _cut(
    source: StripeSource, output: OutputFormat, row_filter: RowFilter, tally: RowTally
) -> tuple[CutStripe, RowKey] | None:
    """A source's one stripe without the rows that don't count, and its last key; None where it is to be encoded."""
    reader, tail, (index,) = source.reader, source.tail, source.chosen
    if source.synthetic is not None or compatible(tail, output, index) is not None:
        return None
    masks: list[npt.NDArray[np.bool_]] = []
    read: list[KeyColumns] = []
    seen, before, last, missing = RowTally(), None, None, 0
    for keys in read_keys(reader, tail, index):
        if (keys.operation != INSERT).any() or not keys.ascending() or (before and keys.key(0) <= before):
            return None
        read.append(keys)
        before = keys.key(-1)
        missing += keys.missing()
        kept = kept_rows(keys, row_filter, seen, trusted=source.trusted)
        masks.append(np.ones(len(keys), np.bool_) if kept is None else kept)
        if masks[-1].any():
            last = keys.key(int(np.flatnonzero(masks[-1])[-1]))
    if last is None or missing * MISSING > seen.rows_in:
        return None
    whole = KeyColumns.concat(read)
    read.clear()
    made = cut(reader, tail, index, np.concatenate(masks), whole)
    if made is None:
        return None
    tally.add(seen)
    return made, last


def write_delete_events(events: Iterable[KeyColumns], output: OutputFormat, sink: Sink) -> FileSummary:
    """
    Write delete events as one ACID file; the row struct of each event is NULL, as in Hive's files.

    Args:
        events: in key order, one a key, a block of at most `BATCH_ROWS` at a time.

    pyorc writes the events of tables with union columns, because Arrow's writer ends the process at a NULL struct with
    a union inside.
    """
    splicer = Splicer(sink, output)
    encoder = Encoder(splicer, None, 0, None)
    schema = pa.schema(list(arrow_type(splicer.output.types, 0)))
    unions = output.row.holds((Kind.UNION,))
    for keys in events:
        columns = keys.columns
        if unions:
            encoder.python(
                [(*event, None) for event in zip(*(column.tolist() for column in columns), strict=True)], keys.key(-1)
            )
            continue
        five = [pa.array(column) for column in columns]
        encoder.arrow(
            [pa.RecordBatch.from_arrays([*five, pa.nulls(len(keys), schema.field(5).type)], schema=schema)],
            keys.key(-1),
        )
    encoder.finish()
    return splicer.finish("delete")


def _readers(
    sources: Sequence[StripeSource],
    output: OutputFormat,
    row_filter: RowFilter,
    tally: RowTally,
    digester: Digester | None,
) -> list[SourceRows]:
    """
    Readers of the sources. If one of several overlapping sources needs pyorc, all use it, so that the rows to merge
    have one form.
    """
    if len(sources) > 1 and not _may_overlap(sources):
        in_order = sorted(sources, key=lambda source: source.key_range or _NO_ROWS)
        return small_stripes.readers(in_order, output, row_filter, tally, digester)
    readers = [SourceRows(source, output, row_filter, tally, digester=digester) for source in sources]
    if len(sources) > 1 and any(reader.needs_python() for reader in readers):
        return [SourceRows(source, output, row_filter, tally, python=True, digester=digester) for source in sources]
    return readers


def _may_overlap(sources: Sequence[StripeSource]) -> bool:
    """Whether the key ranges of two sources may overlap, as far as statistics tell; True where they don't tell."""
    ranges: list[tuple[RowKey, RowKey]] = []
    for source in sources:
        found = source.key_range
        if found is None:
            return True
        ranges.append(found)
    ranges.sort()
    return any(later[0] <= earlier[1] for earlier, later in pairwise(ranges))


def _bytes_per_row(sources: Sequence[StripeSource], output: OutputFormat) -> float | None:
    """
    Average compressed bytes of a row; None where an input is compressed differently from the output, or where there are
    no rows.
    """
    size = rows = 0
    for source in sources:
        if source.tail.compression is not output.compression:
            return None
        for stripe in source.chosen:
            size += source.tail.stripe_length(stripe)
            rows += source.tail.stripes[stripe].number_of_rows
    return size / rows if rows else None
