"""
The rows of one source, decoded a batch at a time, in the table's current schema, without the rows that don't count.

Source: docs/orc.md; Hive's OrcRawRecordMerger.OriginalReaderPair for rows that have no keys of their own.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyorc

from compactor.acid.row_id import RowKey, SyntheticIds
from compactor.acid.types import Kind
from compactor.errors import CorruptFileError, RefusedError
from compactor.handles import RandomReader
from compactor.orc.digests.digest import Digester
from compactor.orc.digests.digest_values import struct_of
from compactor.orc.digests.moved import MovedValues
from compactor.orc.events.deletes import DeleteEvents, visible
from compactor.orc.events.keys import INSERT, key_columns, stripe_bounds
from compactor.orc.format.key_columns import KeyColumns
from compactor.orc.format.tail import Tail
from compactor.orc.format.zones import stripe_zone
from compactor.orc.reading.arrow import arrow_type, check_recodable, has_nested
from compactor.orc.reading.chunks import ArrowRows, Chunk, PythonRows
from compactor.orc.reading.consistency import DecodedKeys
from compactor.orc.reading.converters import CONVERTERS
from compactor.orc.reading.map_entries import DecodedMaps
from compactor.orc.reading.single_stripe import batch_rows, read_batches, stripe_image
from compactor.orc.writing.output import OutputFormat
from compactor.orc.writing.schema_evolution import Conversion, conversion
from compactor.orc.writing.writer_choice import check_map_keys, check_nanoseconds, check_unions, needs_pyorc
from compactor.reasons import Reason

ROW_COLUMN: Final = 6
"""Column id of the row struct in an ACID file; the struct's fields have the ids from 7 on."""
_NO_IDS: Final = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class StripeSource:
    """
    Rows to recode: some stripes of a file.

    Args:
        stripes: indexes of the stripes, ascending; None for all.
        synthetic: keys for a file without ACID columns; None for a full-ACID file.
        trusted: every row's write id counts, regardless of the filter's aborted ids and high watermark (a base).
    """

    reader: RandomReader
    tail: Tail
    stripes: tuple[int, ...] | None = None
    synthetic: SyntheticIds | None = None
    trusted: bool = False

    @property
    def chosen(self) -> Sequence[int]:
        return range(len(self.tail.stripes)) if self.stripes is None else self.stripes

    def rows_before(self, stripe: int) -> int:
        """Rows of the file's stripes before this one."""
        return sum(found.number_of_rows for found in self.tail.stripes[:stripe])

    def spans(self) -> list[tuple[RowKey, RowKey] | None]:
        """Bounds of the keys of each chosen stripe with rows; None where it has no trustworthy statistics."""
        filled = [stripe for stripe in self.chosen if self.tail.stripes[stripe].number_of_rows]
        if (made := self.synthetic) is None:
            known = [stripe_bounds(self.tail, stripe) for stripe in filled]
            return [None if bounds is None else (bounds.first, bounds.last) for bounds in known]
        starts = [made.first_row_id + self.rows_before(stripe) for stripe in filled]
        counts = [self.tail.stripes[stripe].number_of_rows for stripe in filled]
        return [
            (
                RowKey(made.write_id, made.bucket_property, start),
                RowKey(made.write_id, made.bucket_property, start + count - 1),
            )
            for start, count in zip(starts, counts, strict=True)
        ]

    @cached_property
    def key_range(self) -> tuple[RowKey, RowKey] | None:
        """Bounds of the chosen stripes' keys; None where the file has no trustworthy statistics, or no rows."""
        filled = [stripe for stripe in self.chosen if self.tail.stripes[stripe].number_of_rows]
        if not filled:
            return None
        if (made := self.synthetic) is not None:
            after = made.first_row_id + self.rows_before(filled[-1] + 1)
            return RowKey(made.write_id, made.bucket_property, made.first_row_id + self.rows_before(filled[0])), RowKey(
                made.write_id, made.bucket_property, after - 1
            )
        first = stripe_bounds(self.tail, filled[0])
        last = first if len(filled) == 1 else stripe_bounds(self.tail, filled[-1])
        return None if first is None or last is None else (first.first, last.last)


@dataclass(frozen=True, slots=True, eq=False)
class RowFilter:
    """
    Which rows of the sources are left out.

    Args:
        deletes: rows with these keys.
        aborted: rows written by these write ids.
        high_watermark: rows of later write ids; None leaves no row out.
    """

    deletes: DeleteEvents | None = None
    aborted: npt.NDArray[np.int64] = field(default_factory=lambda: _NO_IDS)
    high_watermark: int | None = None


@dataclass(slots=True)
class RowTally:
    """Rows read, and how many of them were left out for which cause."""

    rows_in: int = 0
    aborted: int = 0
    deleted: int = 0

    def add(self, other: "RowTally") -> None:
        self.rows_in += other.rows_in
        self.aborted += other.aborted
        self.deleted += other.deleted


def kept_rows(
    keys: KeyColumns, row_filter: RowFilter, tally: RowTally, *, trusted: bool
) -> npt.NDArray[np.bool_] | None:
    """
    Which rows of a source count; None: all of them.

    Args:
        tally: receives the counts.
        trusted: as `StripeSource` says it.
    """
    tally.rows_in += len(keys)
    kept: npt.NDArray[np.bool_] | None = None
    if not trusted:
        kept = visible(keys, row_filter.aborted, row_filter.high_watermark)
        tally.aborted += len(keys) - int(kept.sum())
    if row_filter.deletes is not None:
        deleted = row_filter.deletes.mask(keys)
        if kept is not None:
            deleted &= kept
        tally.deleted += int(deleted.sum())
        kept = ~deleted if kept is None else kept & ~deleted
    return None if kept is None or kept.all() else kept


class SourceRows:
    """
    Iterates over a source's chunks.

    Args:
        tally: receives the counts.
        python: decode every stripe with pyorc, as needed when another source of a merge needs pyorc.
        digester: adds up the rows that count, as they were decoded.

    Raises:
        CorruptFileError: rows are out of order, can't be decoded, or aren't inserts.
        RefusedError: SCHEMA_MISMATCH, UNSUPPORTED_FORMAT.
    """

    def __init__(
        self,
        source: StripeSource,
        output: OutputFormat,
        row_filter: RowFilter,
        tally: RowTally,
        *,
        python: bool = False,
        digester: Digester | None = None,
    ) -> None:
        tail = source.tail
        if tail.is_acid != (source.synthetic is None):
            what = (
                "has no ACID columns, and no keys were given for its rows"
                if source.synthetic is None
                else "has ACID columns, and other keys were given for its rows"
            )
            raise CorruptFileError(f"{tail.name} {what}")
        check_recodable(output.row, tail.name)
        self._source, self._filter, self._tally, self._python = source, row_filter, tally, python
        self._digester, self._row = digester, output.row
        self._conversion: Conversion | None = conversion(
            tail.row_tree, output.row, tail.name, ROW_COLUMN, output.columns_by
        )
        self._moved = (
            MovedValues(tail.row_tree, output.row, output.columns_by, tail.name)
            if self._conversion is not None and digester is not None
            else None
        )
        self._schema = pa.schema(list(arrow_type(output.types, 0)))
        self._nested = has_nested(output.row)
        self._unions = tail.tree.holds((Kind.UNION,))
        self._before: RowKey | None = None

    @property
    def first(self) -> RowKey | None:
        """A bound at or below all keys; None when the file's statistics don't give one."""
        found = self._source.key_range
        return None if found is None else found[0]

    def needs_python(self) -> bool:
        """Whether a stripe holds values that Arrow can't rewrite."""
        return any(needs_pyorc(self._source.reader, self._source.tail, stripe) for stripe in self._source.chosen)

    def __iter__(self) -> Iterator[Chunk]:
        source = self._source
        for stripe in source.chosen:
            if not source.tail.stripes[stripe].number_of_rows:
                continue
            if self._unions:
                check_unions(source.reader, source.tail, stripe)
            check_map_keys(source.reader, source.tail, stripe)
            # values of Hive's ACID writers have passed through Java's Timestamp, which takes no others
            if source.synthetic is not None:
                check_nanoseconds(source.reader, source.tail, stripe)
            python = self._python or needs_pyorc(source.reader, source.tail, stripe)
            seen = DecodedKeys(source.tail, stripe) if source.synthetic is None else None
            zone = stripe_zone(source.reader, source.tail, stripe)
            for chunk in self._decode_python(stripe, zone) if python else self._decode_arrow(stripe, zone):
                self._check(chunk.keys, stripe)
                if seen is not None:
                    seen.add(chunk.keys)
                kept = self._filtered(chunk)
                if len(kept):
                    yield kept
            if seen is not None:
                seen.check()

    def _decode_arrow(self, stripe: int, zone: str) -> Iterator[Chunk]:
        source = self._source
        at = source.rows_before(stripe)
        shift = 0 if source.synthetic is None else ROW_COLUMN
        for batch in read_batches(
            source.reader, source.tail, stripe, rows=batch_rows(source.tail, stripe), shift=shift
        ):
            yield self._chunk(batch, stripe, at, zone)
            at += batch.num_rows

    def _chunk(self, batch: Any, stripe: int, at: int, zone: str) -> Chunk:
        """Decoded rows as the output has them; `at` is the number of rows before them in their file."""
        source = self._source
        if source.synthetic is None:
            keys = key_columns(batch, source.tail.name, stripe)
            five, row = batch.columns[:5], batch.column(5)
        else:
            keys = _synthetic_keys(source.synthetic, at, batch.num_rows)
            five = [pa.array(column) for column in keys.columns]
            row = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
        if row.null_count:
            raise CorruptFileError(f"{source.tail.name}: stripe {stripe + 1} has rows without values")
        if self._conversion is not None:
            before, row = row, self._conversion.array(row)
            if self._moved is not None:
                self._moved.check(keys, before, row)
        made = pa.RecordBatch.from_arrays([*five, row], schema=self._schema)
        return Chunk(keys, ArrowRows((made,), self._nested), zone)

    def _decode_python(self, stripe: int, zone: str) -> Iterator[Chunk]:
        source = self._source
        at = source.rows_before(stripe)
        name = f"{source.tail.name}: stripe {stripe + 1}"
        if self._unions:
            raise RefusedError(
                Reason.UNSUPPORTED_FORMAT,
                f"{name} has both unions and timestamps that Arrow can't rewrite; such stripes can be copied but not rewritten",
            )
        count = batch_rows(source.tail, stripe)
        for _ in read_batches(source.reader, source.tail, stripe, rows=count, without_seconds=True):
            pass  # only Arrow's arrays tell at once how many values each column has
        image = stripe_image(source.reader, source.tail, stripe)
        opened = io.BytesIO(image) if isinstance(image, pa.Buffer) else image
        maps = DecodedMaps(source.reader, source.tail, stripe, self._row, count)
        try:
            reader = pyorc.Reader(opened, struct_repr=pyorc.StructRepr.TUPLE, converters=CONVERTERS)
            while rows := reader.read(count):
                if source.synthetic is None:
                    keys = _keys_of(rows)
                    values = [row[5] for row in rows]
                else:
                    keys = _synthetic_keys(source.synthetic, at, len(rows))
                    values = rows
                at += len(rows)
                made = self._python_rows(keys, values, name)
                maps.add([row[-1] for row in made])
                yield Chunk(keys, PythonRows(made), zone)
            maps.check()
        except (pyorc.errors.ParseError, TypeError) as error:
            raise CorruptFileError(f"{name} can't be decoded ({error})") from error
        except UnicodeDecodeError as error:
            raise RefusedError(
                Reason.UNSUPPORTED_FORMAT,
                f"{name} has timestamps that Arrow can't rewrite, and text that isn't UTF-8, which pyorc can't: {error}",
            ) from error

    def _python_rows(self, keys: KeyColumns, values: Sequence[tuple[Any, ...]], name: str) -> list[tuple[Any, ...]]:
        if any(value is None for value in values):
            raise CorruptFileError(f"{name} has rows without values")
        rows = values if self._conversion is None else [self._conversion.value(value) for value in values]
        if self._moved is not None:
            before = struct_of(PythonRows([(value,) for value in values]), self._source.tail.row_tree)
            self._moved.check(keys, before, struct_of(PythonRows([(row,) for row in rows]), self._row))
        return list(zip(*(column.tolist() for column in keys.columns), rows, strict=True))

    def _check(self, keys: KeyColumns, stripe: int) -> None:
        name = f"{self._source.tail.name}: stripe {stripe + 1}"
        if (keys.operation != INSERT).any():
            raise CorruptFileError(f"{name} holds events that aren't inserts")
        if not keys.ascending() or (self._before is not None and keys.key(0) <= self._before):
            raise CorruptFileError(f"{name} isn't sorted by ROW__ID")
        self._before = keys.key(-1)

    def _filtered(self, chunk: Chunk) -> Chunk:
        kept = kept_rows(chunk.keys, self._filter, self._tally, trusted=self._source.trusted)
        if self._digester is not None:
            try:
                values = struct_of(chunk.rows, self._row)
            except RefusedError as error:
                raise RefusedError(error.reason, f"{self._source.tail.name}: {error.message}") from error
            self._digester.add(chunk.keys, values, kept, chunk.zone)
        return chunk if kept is None else chunk.select(kept)


def _synthetic_keys(made: SyntheticIds, at: int, count: int) -> KeyColumns:
    write_id = np.full(count, made.write_id, np.int64)
    first = made.first_row_id + at
    return KeyColumns(
        np.full(count, INSERT, np.int32),
        write_id,
        np.full(count, made.bucket_property, np.int32),
        np.arange(first, first + count, dtype=np.int64),
        write_id,
    )


def _keys_of(rows: Sequence[tuple[Any, ...]]) -> KeyColumns:
    kinds = (np.int32, np.int64, np.int32, np.int64, np.int64)
    return KeyColumns(*(np.fromiter((row[place] for row in rows), kind, len(rows)) for place, kind in enumerate(kinds)))
