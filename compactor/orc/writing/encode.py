"""
Encodes rows into stripes: a separate writer writes each output stripe into memory, and the splicer gets it unchanged.

One writer per stripe leaves the stripe's limits to this module (a C++ writer's stripe size counts buffers, not bytes on
disk) and lets each stripe choose its dictionaries anew.
"""

import io
from collections.abc import Sequence
from itertools import count
from typing import Any, Final, Protocol

import pyarrow as pa
import pyorc
from pyarrow import orc as arrow_orc

from compactor.acid.row_id import RowKey
from compactor.acid.types import HiveType, Kind, to_hive_string
from compactor.errors import RefusedError
from compactor.handles import MemoryReader
from compactor.memory import give_back
from compactor.orc.format.codec import Compression
from compactor.orc.format.tail import MAGIC, read_tail
from compactor.orc.format.zones import TIMESTAMPS, UTC, in_zone
from compactor.orc.reading.converters import CONVERTERS
from compactor.orc.reading.single_stripe import BATCH_ROWS, column_name
from compactor.orc.writing.output import OutputFormat
from compactor.orc.writing.recompress import recompress
from compactor.orc.writing.splice import Splicer
from compactor.reasons import Reason

_DICTIONARY_THRESHOLD: Final = 0.8
_ARROW_CODECS: Final = {
    Compression.NONE: "uncompressed",
    Compression.ZLIB: "uncompressed",
    Compression.SNAPPY: "snappy",
    Compression.LZ4: "uncompressed",
    Compression.ZSTD: "zstd",
}
"""
What Arrow's writer does. ZLIB and LZ4 are left to `recompress`: Arrow deflates slowly, and its LZ4 shrinks nothing.
"""
_DICTIONARY_GUARD: Final = 256 << 20
_DICTIONARY_ENTRY: Final = 8
_STREAM_BUFFER: Final = 64 << 10
"""Bytes that the writer counts for each stream, also for an empty one; it doesn't count dictionaries."""
_MANY_ROWS: Final = BATCH_ROWS
_WRITE_BYTES: Final = 16 << 20
_FIRST_ROWS: Final = 1 << 20
_HUGE: Final = 1 << 62
_KEY_COLUMNS: Final = (1, 2, 3)
"""Positions of originalTransaction, bucket and rowId among an ACID file's columns."""


class Encoder:
    """
    Cuts a stream of rows into stripes and appends them to a splicer.

    Args:
        splicer: of the output.
        bytes_per_row: compressed size of a row, estimated from the inputs; None: the encoder learns it from the first
            stripe.
        calendar: the calendar that dates count in, as in a footer.
        stripe_rows: most rows of a stripe; None: only bytes limit a stripe.
    """

    def __init__(self, splicer: Splicer, bytes_per_row: float | None, calendar: int, stripe_rows: int | None) -> None:
        self._splicer, self._output, self._bytes_per_row, self._calendar = (
            splicer,
            splicer.output,
            bytes_per_row,
            calendar,
        )
        self.zone = UTC
        self._stripe: _Stripe | None = None
        self._last: RowKey | None = None
        self._waiting: list[Any] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._waiting_last: RowKey | None = None
        texts = sum(node.kind in {Kind.STRING, Kind.VARCHAR, Kind.CHAR} for node in self._output.types.walk())
        self._most_rows = _DICTIONARY_GUARD // (_DICTIONARY_ENTRY * max(1, texts))
        self._stripe_rows = stripe_rows or _HUGE

    def begin(self, zone: str) -> None:
        """
        Set the time zone (`compactor.orc.format.zones`) of the timestamps in the following rows. A stripe has one zone, so a
        change finishes the current stripe.
        """
        if zone != self.zone:
            self.finish()
            self.zone = zone

    def arrow(self, batches: Sequence[Any], last: RowKey | None) -> None:
        """
        Append record batches of the output's columns.

        Args:
            last: key of the last row; None: the rows have none.
        """
        self._append(_ArrowStripe, pa.Table.from_batches(batches), last)

    def gather(self, batches: Sequence[Any], last: RowKey | None) -> None:
        """
        As `arrow`, in writes of 64 Ki rows or 16 MiB, so that thousands of small batches don't cost a write each. They
        are written at the latest before other rows, or another zone's.
        """
        rows = sum(batch.num_rows for batch in batches)
        if self._waiting_rows + rows > BATCH_ROWS:
            self._flush()
        self._waiting += batches
        self._waiting_rows += rows
        self._waiting_bytes += sum(batch.nbytes for batch in batches)
        self._waiting_last = last
        if self._waiting_rows >= BATCH_ROWS or self._waiting_bytes >= _WRITE_BYTES:
            self._flush()

    def python(self, rows: Sequence[tuple[Any, ...]], last: RowKey | None) -> None:
        """Append rows in the form that pyorc takes (see `converters`)."""
        self._flush()
        self._append(_PyorcStripe, rows, last)

    def _flush(self) -> None:
        batches, self._waiting, self._waiting_rows, self._waiting_bytes = self._waiting, [], 0, 0
        if batches:
            self.arrow(batches, self._waiting_last)

    def finish(self) -> None:
        """Write the rows that are not yet in a finished stripe."""
        self._flush()
        if self._stripe is None:
            return
        if self._stripe.rows >= _MANY_ROWS:
            give_back()  # to close a stripe takes most memory: what decoding has left free is in the way
        data, rows = self._stripe.close(), self._stripe.rows
        self._stripe = None
        reader = MemoryReader(data, "a recoded stripe")
        tail = read_tail(reader)
        if self.zone != UTC and len(tail.stripes) == 1:
            reader, tail = in_zone(data, tail, self.zone)
        if tail.compression is not self._output.compression:
            reader, tail = recompress(reader, tail, self._output.compression, self._output.block_size)
        self._splicer.add_recoded(reader, tail, self._last, self._calendar)
        self._bytes_per_row = max(1, reader.size) / max(1, rows)

    def _append(self, kind: "type[_ArrowStripe | _PyorcStripe]", rows: Any, last: RowKey | None) -> None:
        """Append rows in the form that this kind of stripe takes, cut where a stripe has its most rows."""
        while True:
            stripe = self._open(kind)
            room = self._stripe_rows - stripe.rows
            if len(rows) <= room:
                break
            stripe.write(rows[:room])
            self._after(stripe, None if last is None else kind.last_key(rows[:room]))
            rows = rows[room:]
        stripe.write(rows)
        self._after(stripe, last)

    def _open(self, kind: "type[_ArrowStripe | _PyorcStripe]") -> "_Stripe":
        if self._stripe is not None and not isinstance(self._stripe, kind):
            self.finish()
        if self._stripe is None:
            self._stripe = kind(self._output, _bloom_columns(self._output, timestamps=self.zone == UTC))
        return self._stripe

    def _after(self, stripe: "_Stripe", last: RowKey | None) -> None:
        self._last = last
        limit = (
            min(self._most_rows, _FIRST_ROWS)
            if self._bytes_per_row is None
            else min(self._most_rows, int(self._output.stripe_bytes / self._bytes_per_row))
        )
        if stripe.rows >= min(limit, self._stripe_rows) or stripe.full:
            self.finish()


class _Stripe(Protocol):
    rows: int

    @property
    def full(self) -> bool: ...

    def write(self, data: Any) -> None: ...

    def close(self) -> memoryview: ...


class _ArrowStripe:
    def __init__(self, output: OutputFormat, bloom_columns: Sequence[int]) -> None:
        streams = 3 * output.types.columns
        self.rows = 0
        self._buffer = pa.BufferOutputStream(pa.system_memory_pool())  # grows by mremap, not by copying
        self._writer = arrow_orc.ORCWriter(
            self._buffer,
            batch_size=BATCH_ROWS,
            stripe_size=output.stripe_bytes + streams * _STREAM_BUFFER,
            compression=_ARROW_CODECS[output.compression],
            compression_block_size=output.block_size,
            row_index_stride=output.stride,
            dictionary_key_size_threshold=_DICTIONARY_THRESHOLD,
            bloom_filter_columns=list(bloom_columns) or None,
            bloom_filter_fpp=output.bloom_fpp,
        )

    @property
    def full(self) -> bool:
        """
        Whether the writer has flushed a stripe because its buffers reached the guard. The writer then holds no more
        rows, because each write is one batch of its own.
        """
        return bool(self._buffer.tell() > len(MAGIC))

    @staticmethod
    def last_key(rows: Any) -> RowKey:
        return RowKey(*(rows.column(number)[-1].as_py() for number in _KEY_COLUMNS))

    def write(self, data: Any) -> None:
        self._writer.write(data)
        self.rows += data.num_rows

    def close(self) -> memoryview:
        self._writer.close()
        return memoryview(self._buffer.getvalue())


class _PyorcStripe:
    def __init__(self, output: OutputFormat, bloom_columns: Sequence[int]) -> None:
        self.rows = 0
        self._buffer = io.BytesIO()
        self._writer = pyorc.Writer(
            self._buffer,
            to_hive_string(_safe_types(output.types)),
            batch_size=1024,
            stripe_size=_HUGE,
            row_index_stride=output.stride,
            compression=pyorc.CompressionKind(int(output.compression)),
            compression_block_size=output.block_size,
            bloom_filter_columns=list(bloom_columns) or None,
            bloom_filter_fpp=output.bloom_fpp,
            struct_repr=pyorc.StructRepr.TUPLE,
            converters=CONVERTERS,
            dict_key_size_threshold=_DICTIONARY_THRESHOLD,
        )

    @property
    def full(self) -> bool:
        return False

    @staticmethod
    def last_key(rows: Sequence[tuple[Any, ...]]) -> RowKey:
        return RowKey(*(rows[-1][number] for number in _KEY_COLUMNS))

    def write(self, data: Any) -> None:
        try:
            self._writer.writerows(data)
        except (TypeError, ValueError) as error:
            raise RefusedError(
                Reason.UNSUPPORTED_FORMAT,
                f"rows with timestamps that Arrow can't write can't be written by pyorc either: {error}",
            ) from error
        self.rows += len(data)

    def close(self) -> memoryview:
        self._writer.close()
        return self._buffer.getbuffer()


def _bloom_columns(output: OutputFormat, *, timestamps: bool) -> list[int]:
    """
    Column ids of the top-level table columns that get Bloom filters, with or without columns that hold timestamps.
    """
    wanted = {name.lower() for name in output.bloom_columns}
    inside = output.row.inside(6 if output.is_acid else 0)
    return [
        column
        for name, (column, child) in zip(output.row.names, inside, strict=True)
        if name.lower() in wanted and (timestamps or not child.holds(TIMESTAMPS))
    ]


def _safe_types(tree: HiveType) -> HiveType:
    """
    The types as pyorc's writer gets them: fields named by their column ids; char and varchar as strings, whose bytes
    the writer neither pads nor cuts. The splicer restores the true types.
    """
    numbers = count()

    def rename(node: HiveType) -> tuple[int, HiveType]:
        column = next(numbers)
        inside = [rename(child) for child in node.children]
        names = tuple(column_name(number) for number, _ in inside) if node.kind is Kind.STRUCT else ()
        if node.kind in {Kind.CHAR, Kind.VARCHAR}:
            return column, HiveType(Kind.STRING)
        return column, HiveType(
            node.kind, tuple(child for _, child in inside), names, node.length, node.precision, node.scale
        )

    return rename(tree)[1]
