"""
One stripe of a file, as a small ORC file of its own that Arrow's and pyorc's readers can stream.

The single-stripe file holds the chosen columns' data streams, without indexes, under a new footer; those in ZLIB are
decompressed, unless they are large. Field names are replaced by column ids (`c7` is column 7 of the source), so no name
in a table can confuse a reader. The file's time zone is always UTC, also where the stripe's differs
(`compactor.orc.format.zones`).
Source: the ORC specification, "Stripes".
"""

import io
from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyarrow import dataset

from compactor.acid.types import Kind
from compactor.errors import CorruptFileError
from compactor.handles import FileRange, PiecesReader, RandomReader, ReaderFile
from compactor.orc.format import codec
from compactor.orc.format.codec import Compression
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.statistics import value_bytes
from compactor.orc.format.tail import MAGIC, Tail, read_stripe_footer
from compactor.orc.format.zones import TIMESTAMPS, UTC
from compactor.orc.reading.counts import ValueCounts

BATCH_ROWS: Final = 1 << 16
_BATCH_BYTES: Final = 16 << 20
_FEWEST_ROWS: Final = 64
_DIRECT: Final = 0
_DATA_STREAM: Final = 1
_FIRST_INDEX_STREAM: Final = 6
_LAST_INDEX_STREAM: Final = 8
_WHOLE: Final = (Kind.MAP, Kind.UNION)
"""Types that lose their meaning without one of the columns inside."""
_IN_MEMORY: Final = 96 << 20
_IN_MEMORY_TWICE: Final = 16 << 20
_MOST_VALUES: Final = 1 << 31
"""Most values that a column can have in one batch of Arrow's."""
Piece = bytes | FileRange


def column_name(column: int) -> str:
    """Name of the struct field with this column id in the single-stripe file."""
    return f"c{column}"


def stripe_image(
    reader: RandomReader,
    tail: Tail,
    index: int,
    columns: Collection[int] | None = None,
    *,
    shift: int = 0,
    without_seconds: bool = False,
) -> io.BufferedIOBase | pa.Buffer:
    """
    Make a file of one stripe.

    Args:
        index: the stripe, from 0.
        columns: ids of columns to keep, together with the columns that enclose them; None keeps all.
        shift: added to column ids in names (6 gives the columns of a plain file the names they have in an ACID file).
        without_seconds: set the seconds of every timestamp to zero (2015-01-01) and keep its nanoseconds, so that
            decoding can't lose the nanoseconds among the seconds.

    Returns:
        A buffer, or for a stripe of more than 96 MiB a file object that reads from `reader` on demand.

    Raises:
        CorruptFileError: the stripe's footer or bytes can't be read.
    """
    stripe, footer = tail.stripes[index], read_stripe_footer(reader, tail, index)
    kept, types = _kept_columns(tail, columns), tail.footer.types
    place = {column: number for number, column in enumerate(kept)}
    taken: list[tuple[pb.Stream, Piece]] = []
    for stream, piece in _taken(reader, stripe, footer, place):
        zeros = without_seconds and stream.kind == _DATA_STREAM and types[stream.column].kind in TIMESTAMPS
        taken.append(
            (stream, _zeros(tail, index, stream.column, footer.columns[stream.column].kind) if zeros else piece)
        )
    kind, pieces = _inflated(tail, [piece for _, piece in taken], _undecodable(tail, index))
    said = [(stream, len(piece)) for (stream, _), piece in zip(taken, pieces, strict=True)]
    packed, made = _stripe(tail, kind, kept, footer, said, rows=stripe.number_of_rows)
    pieces = [MAGIC, *pieces, packed + _image_tail(tail, kind, kept, [made], shift)]
    if made.data_length > _IN_MEMORY:
        return io.BufferedReader(ReaderFile(PiecesReader(_joined(pieces), reader.name)), buffer_size=1 << 20)
    return pa.py_buffer(b"".join(piece[:] for piece in pieces))


@dataclass(frozen=True, slots=True, eq=False)
class FoundStripe:
    """A stripe of some file, with its footer."""

    reader: RandomReader
    tail: Tail
    index: int
    footer: pb.StripeFooter

    @property
    def rows(self) -> int:
        return self.tail.stripes[self.index].number_of_rows


def image_of_several(stripes: Sequence[FoundStripe], most: int) -> pa.Buffer:
    """
    Make a file of several small stripes, as `stripe_image` does of one.

    Args:
        stripes: of files with one `Tail.shape`.
        most: bytes of their streams that may be in memory.

    Raises:
        CorruptFileError: the bytes of one can't be read, or all together are more than `most`.
    """
    tail = stripes[0].tail
    kept = list(range(len(tail.footer.types)))
    places = dict(zip(kept, kept, strict=True))
    at, pieces = len(MAGIC), [MAGIC]
    made: list[pb.StripeInformation] = []
    for stripe in stripes:
        taken = _taken(stripe.reader, stripe.tail.stripes[stripe.index], stripe.footer, places)
        where = _undecodable(stripe.tail, stripe.index)
        kind, found = _inflated(stripe.tail, [piece for _, piece in taken], where)
        said = [(stream, len(piece)) for (stream, _), piece in zip(taken, found, strict=True)]
        packed, described = _stripe(tail, kind, kept, stripe.footer, said, rows=stripe.rows, at=at)
        made.append(described)
        pieces += [*(piece[:] for piece in found), packed]
        at += described.data_length + len(packed)
        if kind is Compression.ZLIB or at > most:  # ZLIB that isn't inflated is larger still
            raise CorruptFileError(f"{stripe.tail.name}: small stripes hold more than {most} bytes together")
    return pa.py_buffer(b"".join([*pieces, _image_tail(tail, kind, kept, made, 0)]))


def image_of(
    tail: Tail, footer: pb.StripeFooter, streams: Sequence[tuple[pb.Stream, Sequence[bytes]]], rows: int
) -> io.BufferedIOBase | pa.Buffer:
    """
    Make a file of one stripe from streams without compression, as `stripe_image` does.

    Args:
        footer: whose encodings they have.
        streams: those of values, each with its pieces.
    """
    sizes = [sum(map(len, pieces)) for _, pieces in streams]
    said = [(stream, size) for (stream, _), size in zip(streams, sizes, strict=True)]
    kept = list(range(len(tail.footer.types)))
    packed, made = _stripe(tail, Compression.NONE, kept, footer, said, rows=rows)
    end = packed + _image_tail(tail, Compression.NONE, kept, [made], 0)
    pieces = [MAGIC, *(piece for _, found in streams for piece in found), end]
    if sum(sizes) > _IN_MEMORY_TWICE:
        return io.BufferedReader(ReaderFile(PiecesReader(pieces, tail.name)), buffer_size=1 << 20)
    return pa.py_buffer(b"".join(pieces))


def read_batches(
    reader: RandomReader,
    tail: Tail,
    index: int,
    columns: Collection[int] | None = None,
    *,
    rows: int = BATCH_ROWS,
    shift: int = 0,
    without_seconds: bool = False,
) -> Iterator[Any]:
    """
    Decode one stripe with Arrow, a batch at a time.

    Args:
        columns, shift, without_seconds: as for `stripe_image`. Names in the batches are `column_name` of their ids plus
            `shift`.
        rows: most rows of a batch.

    Yields:
        pyarrow.RecordBatch, together as many rows as the stripe has.

    Raises:
        CorruptFileError: Arrow can't decode the stripe, the stripe has more or fewer rows than the footer says, or a
            column has more or fewer values than its statistics count.
    """
    image = stripe_image(reader, tail, index, columns, shift=shift, without_seconds=without_seconds)
    counts = ValueCounts(tail, index, shift)
    for batch in batches_of(image, tail.stripes[index].number_of_rows, rows, _undecodable(tail, index)):
        counts.add(batch)
        yield batch
    counts.check()


def batches_of(image: io.BufferedIOBase | pa.Buffer, expected: int, rows: int, where: str) -> Iterator[Any]:
    """
    Like `read_batches`, from a file of one stripe.

    Args:
        expected: its rows.
        where: what a message says first.
    """
    source = pa.BufferReader(image) if isinstance(image, pa.Buffer) else pa.PythonFile(image, mode="r")
    seen = 0
    try:
        fragment = dataset.OrcFileFormat().make_fragment(source)
        for batch in fragment.to_batches(batch_size=rows, batch_readahead=1, fragment_readahead=0, use_threads=False):
            seen += batch.num_rows
            if batch.num_rows:
                yield batch
    except (pa.ArrowException, OSError) as error:
        said = [*str(error).strip().splitlines(), type(error).__name__][0]
        raise CorruptFileError(f"{where} ({said})") from error
    if seen != expected:
        raise CorruptFileError(f"{where}: it holds {seen} rows instead of {expected}")


def batch_rows(tail: Tail, stripe: int) -> int:
    """Number of rows that take about 16 MiB decoded, as far as the statistics tell; wide rows make small batches."""
    rows = max(1, tail.stripes[stripe].number_of_rows)
    size = value_bytes(tail, stripe) or 4 * tail.stripe_length(stripe)
    return int(min(BATCH_ROWS, max(_FEWEST_ROWS, _BATCH_BYTES * rows // max(1, size))))


def _kept_columns(tail: Tail, columns: Collection[int] | None) -> list[int]:
    types = tail.footer.types
    if columns is None:
        return list(range(len(types)))
    parent = {child: column for column, found in enumerate(types) for child in found.subtypes}
    kept, whole = {0}, set[int]()
    for wanted in columns:
        column = wanted
        while column not in kept:
            kept.add(column)
            column = parent[column]
    for column in range(1, len(types)):  # parents first, so columns inside a column that is kept whole follow it
        if parent[column] in kept and (types[parent[column]].kind in _WHOLE or parent[column] in whole):
            kept.add(column)
            whole.add(column)
    return sorted(kept)


def _taken(
    reader: RandomReader, stripe: pb.StripeInformation, footer: pb.StripeFooter, columns: Container[int]
) -> list[tuple[pb.Stream, FileRange]]:
    """The streams of some columns that hold values, with their bytes in the file."""
    taken, at = [], stripe.offset
    for stream in footer.streams:
        if stream.column in columns and not _FIRST_INDEX_STREAM <= stream.kind <= _LAST_INDEX_STREAM:
            taken.append((stream, FileRange(reader, at, stream.length)))
        at += stream.length
    return taken


def _zeros(tail: Tail, index: int, column: int, encoding: int) -> bytes:
    """
    A stream of at least as many zeros as the column has values, as runs of the first or the second run length encoding.
    """
    statistics = tail.stripe_stats(index)
    count = min(_MOST_VALUES, statistics[column].number_of_values) if statistics is not None else _MOST_VALUES
    run, length = (b"\x7f\0\0", 130) if encoding == _DIRECT else (b"\xc1\xff\0\0", 512)
    runs = -(-count // length)
    if tail.compression is Compression.NONE:
        return run * runs
    together = max(1, tail.block_size // len(run))
    chunk = codec.compress_section(run * min(runs, together), tail.compression, tail.block_size)
    return chunk * -(-runs // together)


def _inflated(tail: Tail, pieces: Sequence[Piece], where: str) -> tuple[Compression, list[Piece]]:
    """
    The streams of a stripe, and their compression now: those in ZLIB are decompressed here by ISA-L, in half the time
    that Arrow's reader takes, unless they would need too much memory.
    """
    as_they_are = tail.compression, list(pieces)
    if tail.compression is not Compression.ZLIB or sum(map(len, pieces)) > _IN_MEMORY:
        return as_they_are
    found, left = list[Piece](), _IN_MEMORY
    for piece in pieces:
        chunks = []
        for chunk in codec.decompressed_chunks(piece[:], tail.compression, tail.block_size, where):
            chunks.append(chunk)
            left -= len(chunk)
            if left < 0:
                return as_they_are
        found.append(b"".join(chunks))
    return Compression.NONE, found


def _stripe(
    tail: Tail,
    kind: Compression,
    kept: list[int],
    footer: pb.StripeFooter,
    streams: Sequence[tuple[pb.Stream, int]],
    *,
    rows: int,
    at: int = len(MAGIC),
) -> tuple[bytes, pb.StripeInformation]:
    """
    What follows the streams of a stripe, and its description.

    Args:
        kept: its columns in the source, whose footer is `footer`.
        streams: those of the source, with their lengths now.
        at: where it begins.
    """
    place = {column: number for number, column in enumerate(kept)}
    made = pb.StripeFooter(
        streams=[pb.Stream(kind=stream.kind, column=place[stream.column], length=length) for stream, length in streams],
        columns=[footer.columns[column] for column in kept],
        writer_timezone=UTC,
    )
    packed = codec.compress_section(made.SerializeToString(), kind, tail.block_size)
    return packed, pb.StripeInformation(
        offset=at,
        index_length=0,
        data_length=sum(length for _, length in streams),
        footer_length=len(packed),
        number_of_rows=rows,
    )


def _image_tail(
    tail: Tail, kind: Compression, kept: list[int], stripes: Sequence[pb.StripeInformation], shift: int
) -> bytes:
    place = {column: number for number, column in enumerate(kept)}
    types: list[pb.Type] = []
    for column in kept:
        copied = pb.Type()
        copied.CopyFrom(tail.footer.types[column])
        inside = [child for child in copied.subtypes if child in place]
        del copied.subtypes[:]
        copied.subtypes.extend([place[child] for child in inside])
        if copied.field_names:
            del copied.field_names[:]
            copied.field_names.extend([column_name(child + shift) for child in inside])
        types.append(copied)
    footer = pb.Footer(
        header_length=len(MAGIC),
        content_length=stripes[-1].offset + stripes[-1].data_length + stripes[-1].footer_length,
        stripes=stripes,
        types=types,
        number_of_rows=sum(stripe.number_of_rows for stripe in stripes),
        row_index_stride=0,
        writer=tail.writer,
    )
    packed = codec.compress_section(footer.SerializeToString(), kind, tail.block_size)
    postscript = pb.PostScript()
    postscript.CopyFrom(tail.postscript)
    postscript.compression = kind
    postscript.footer_length, postscript.metadata_length, postscript.magic = len(packed), 0, MAGIC.decode()
    last = postscript.SerializeToString()
    return packed + last + bytes([len(last)])


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """The same pieces, with one range where two follow each other in the file."""
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else b""
        if isinstance(piece, FileRange) and isinstance(last, FileRange) and last.offset + last.length == piece.offset:
            joined[-1] = FileRange(last.reader, last.offset, last.length + piece.length)
        else:
            joined.append(piece)
    return joined


def _undecodable(tail: Tail, index: int) -> str:
    return f"{tail.name}: stripe {index + 1} at byte {tail.stripes[index].offset} can't be decoded"
