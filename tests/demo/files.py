"""
Writes files as Hive's writers do: ACID bucket files, plain ORC files, text files, markers.

Knows the content of one file; knows nothing of transactions, tables or the metastore. pyorc writes the ORC files, so
that compaction doesn't read files of its own writer.
Source: docs/layout.md; Hive's OrcRecordUpdater, AcidUtils.
"""

import datetime as dt
import io
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyorc

INSERT: Final = 0
DELETE: Final = 2

Row = tuple[Any, ...]
"""Values of the table's columns, in order; nested structs are tuples, maps are dicts."""

Event = tuple[int, int, int, int, int, Row | None]
"""
operation, originalTransaction (write id), bucket property, rowId, currentTransaction (write id), row (None when
deleted).
"""

_EPOCH = dt.date(1970, 1, 1)
_EPOCH_TIME = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class _Days(pyorc.converters.ORCConverter):  # type: ignore[misc]  # pyorc ships no usable types
    """Converts a date, or (for dates beyond Python's calendar) the day number that the file is to hold."""

    @staticmethod
    def from_orc(days: int) -> int:
        return days

    @staticmethod
    def to_orc(value: dt.date | int) -> int:
        return value if isinstance(value, int) else (value - _EPOCH).days


class _Instant(pyorc.converters.ORCConverter):  # type: ignore[misc]
    """
    Converts a datetime with a zone, or (to the nanosecond) a pair of seconds since 1970 and nanoseconds 0..999,999,999.
    """

    @staticmethod
    def from_orc(seconds: int, nanoseconds: int, _zone: ZoneInfo) -> tuple[int, int]:
        return seconds, nanoseconds

    @staticmethod
    def to_orc(value: dt.datetime | tuple[int, int], _zone: ZoneInfo) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        passed = value - _EPOCH_TIME
        return math.floor(passed / dt.timedelta(seconds=1)), value.microsecond * 1000


_WIDE = Context(prec=80)


class _Exact(pyorc.converters.ORCConverter):  # type: ignore[misc]
    """Converts decimals exactly; pyorc's own converter rounds."""

    @staticmethod
    def from_orc(value: str) -> Decimal:
        return Decimal(value)

    @staticmethod
    def to_orc(_precision: int, scale: int, value: Decimal) -> int:
        return int(_WIDE.scaleb(value, scale))


_CONVERTERS = {pyorc.TypeKind.DATE: _Days, pyorc.TypeKind.TIMESTAMP: _Instant, pyorc.TypeKind.DECIMAL: _Exact}


@dataclass(frozen=True, slots=True)
class FileOptions:
    """
    The layout of an ORC file; sizes in bytes, stride in rows. The defaults are those of Hive's insert deltas.

    Args:
        stripe_rows: rows of each stripe; 0: `stripe_size` ends a stripe.
    """

    compression: str = "ZLIB"
    block_size: int = 32 * 1024
    stripe_size: int = 8 * 1024 * 1024
    stride: int = 10_000
    stripe_rows: int = 0
    bloom_columns: tuple[str, ...] = ()

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, str]) -> "FileOptions":
        """The options that a table's `orc.…` properties give, as Hive's writer reads them."""
        default = cls()
        return cls(
            compression=parameters.get("orc.compress", default.compression).upper(),
            block_size=int(parameters.get("orc.compress.size", default.block_size)),
            stripe_size=int(parameters.get("orc.stripe.size", default.stripe_size)),
            stride=int(parameters.get("orc.row.index.stride", default.stride)),
            stripe_rows=int(parameters.get("orc.stripe.row.count", default.stripe_rows)),
            bloom_columns=tuple(name for name in parameters.get("orc.bloom.filter.columns", "").split(",") if name),
        )


def row_struct(columns: Sequence[tuple[str, str]]) -> str:
    """The ORC schema of plain rows: `struct<...>` of (name, Hive type) pairs."""
    return "struct<" + ",".join(f"`{name}`:{kind}" for name, kind in columns) + ">"


def acid_struct(columns: Sequence[tuple[str, str]]) -> str:
    """The ORC schema of ACID files: six columns, the last of which holds the table's columns."""
    return f"struct<operation:int,originalTransaction:bigint,bucket:int,rowId:bigint,currentTransaction:bigint,row:{row_struct(columns)}>"


def write_acid(
    path: Path, columns: Sequence[tuple[str, str]], events: Sequence[Event], options: FileOptions | None = None
) -> None:
    """
    Write one bucket file of a base, delta or delete delta. The function sorts `events` by (write id, bucket, row id).

    The file carries the metadata that Hive's OrcRecordUpdater adds: hive.acid.key.index (last key of each stripe),
    hive.acid.stats, hive.acid.version.

    Raises:
        FileExistsError: there is a file of that name.
    """
    ordered = sorted(events, key=lambda event: event[1:4])
    counts = [sum(1 for event in ordered if event[0] == operation) for operation in (INSERT, 1, DELETE)]
    stripes = [len(ordered)] if ordered else []
    # the writer needs the key index before it tells where stripes end: assume one stripe, write again if there are more
    while True:
        ends = [ordered[end - 1] for end in itertools.accumulate(stripes)]
        data = _orc(
            acid_struct(columns),
            ordered,
            options or FileOptions(),
            {
                "hive.acid.key.index": "".join(f"{event[1]},{event[2]},{event[3]};" for event in ends),
                "hive.acid.stats": ",".join(map(str, counts)),
                "hive.acid.version": "2",
            },
            prefix="row.",
        )
        if (seen := _stripe_rows(data)) == stripes:
            break
        stripes = seen
    _write_new(path, data)


def write_plain(
    path: Path, columns: Sequence[tuple[str, str]], rows: Iterable[Row], options: FileOptions | None = None
) -> None:
    """
    Write an ORC file without ACID columns, as insert-only tables, LOAD DATA and tables not yet transactional have them.

    Raises:
        FileExistsError: there is a file of that name.
    """
    _write_new(path, _orc(row_struct(columns), rows, options or FileOptions(), {}))


def write_text(path: Path, rows: Iterable[Row]) -> None:
    r"""Write a file of Hive's default text format: fields end with ^A, NULL is `\N`."""
    text = "".join("\x01".join(r"\N" if value is None else str(value) for value in row) + "\n" for row in rows)
    _write_new(path, text.encode())


def write_version_file(directory: Path) -> None:
    """Mark a directory as written by an ACID 2 writer: `_orc_acid_version` holds the one character 2."""
    _write_new(directory / "_orc_acid_version", b"2")


def write_marker(directory: Path, data_format: str) -> None:
    """Write `_metadata_acid` with a data format: `compacted`, `truncated` or `dropped`."""
    _write_new(directory / "_metadata_acid", f'{{"thisFileVersion":"0","dataFormat":"{data_format}"}}'.encode())


def write_flush_length(bucket_file: Path, lengths: Sequence[int]) -> None:
    """
    Write the side file of a streaming writer: each flush appends the length up to which the bucket file may be read.
    """
    side = bucket_file.with_name(f"{bucket_file.name}_flush_length")
    _write_new(side, b"".join(length.to_bytes(8, "big") for length in lengths))


def _orc(
    schema: str, rows: Iterable[Any], options: FileOptions, metadata: Mapping[str, str], prefix: str = ""
) -> bytes:
    buffer = io.BytesIO()
    writer = pyorc.Writer(
        buffer,
        schema,
        batch_size=options.stripe_rows or 1024,
        stripe_size=options.stripe_size,
        row_index_stride=options.stride,
        compression=pyorc.CompressionKind[options.compression],
        compression_block_size=options.block_size,
        memory_block_size=math.gcd(options.block_size, 64 * 1024),  # has to divide the block size
        bloom_filter_columns=[f"{prefix}{name}" for name in options.bloom_columns] or None,
        converters=_CONVERTERS,
    )
    writer.set_user_metadata(**{key: value.encode() for key, value in metadata.items()})
    # a streaming client flushes like this: a footer follows each stripe, and the next stripe makes that footer void
    if options.stripe_rows:
        for group in _batched(rows, options.stripe_rows):
            writer.writerows(group)
            writer.write_intermediate_footer()
    else:
        writer.writerows(rows)
    writer.close()
    return buffer.getvalue()


def _batched(items: Iterable[Any], size: int) -> Iterator[tuple[Any, ...]]:
    """Groups of `size` items, the last of which may be smaller; itertools.batched does this from Python 3.12 on."""
    iterator = iter(items)
    while group := tuple(itertools.islice(iterator, size)):
        yield group


def _stripe_rows(data: bytes) -> list[int]:
    reader = pyorc.Reader(io.BytesIO(data))
    return [len(stripe) for stripe in reader.iter_stripes()]


def _write_new(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(data)
