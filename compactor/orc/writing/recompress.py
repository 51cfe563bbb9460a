"""
Compresses a stripe that was encoded without compression: each stream is cut into chunks, and row indexes point into
them. No value is decoded.

Arrow's writer deflates by zlib, which takes most of its time; ISA-L deflates to the same size several times faster.
Source: the ORC specification, "Compression" and "Row Index"; Java's PositionedOutputStream, C++'s recordPosition for
the order of positions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from compactor.acid.types import Kind
from compactor.errors import VerificationError
from compactor.handles import MemoryReader
from compactor.orc.format import codec
from compactor.orc.format.codec import Compression
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.tail import MAGIC, Tail, read_stripe_footer

_PRESENT, _DATA, _LENGTH, _SECONDARY, _ROW_INDEX = 0, 1, 2, 5, 6
_DICTIONARY: Final = (1, 3)
"""Encodings of texts with a dictionary, which isn't indexed."""

_BYTES, _RUNS, _BITS = 0, 1, 2
"""How many numbers follow an offset: none, values into the run, or bytes into the run and bits into the byte."""

_INTEGERS: Final = ((_DATA, _RUNS),)
_TEXTS: Final = ((_DATA, _BYTES), (_LENGTH, _RUNS))
_TWO: Final = ((_DATA, _RUNS), (_SECONDARY, _RUNS))
_INDEXED: Final = {
    Kind.BOOLEAN: ((_DATA, _BITS),),
    **dict.fromkeys((Kind.BYTE, Kind.SHORT, Kind.INT, Kind.LONG, Kind.DATE, Kind.UNION), _INTEGERS),
    **dict.fromkeys((Kind.FLOAT, Kind.DOUBLE), ((_DATA, _BYTES),)),
    **dict.fromkeys((Kind.STRING, Kind.VARCHAR, Kind.CHAR, Kind.BINARY), _TEXTS),
    **dict.fromkeys((Kind.TIMESTAMP, Kind.TIMESTAMP_INSTANT), _TWO),
    Kind.DECIMAL: ((_DATA, _BYTES), (_SECONDARY, _RUNS)),
    **dict.fromkeys((Kind.LIST, Kind.MAP), ((_LENGTH, _RUNS),)),
    Kind.STRUCT: (),
}
"""Streams that a column's positions point into, in the order of positions; PRESENT comes before them, if there is one."""


@dataclass(frozen=True, slots=True)
class _Chunks:
    """A compressed stream; `starts` are the bytes at which its chunks begin, and its length."""

    data: bytes
    starts: Sequence[int]


def recompress(reader: MemoryReader, tail: Tail, kind: Compression, block_size: int) -> tuple[MemoryReader, Tail]:
    """
    Compress the stripe of a file without compression.

    Args:
        reader, tail: of the file, written by a C++ writer; one stripe, or none.
        block_size: bytes of a stream in one chunk.

    Returns:
        The stripe in its new form, and a matching tail.

    Raises:
        VerificationError: a row index doesn't have the form that its column's streams and encoding give it.
    """
    postscript, made = pb.PostScript(), pb.Footer()
    postscript.CopyFrom(tail.postscript)
    postscript.compression, postscript.compression_block_size = kind, block_size
    made.CopyFrom(tail.footer)
    whole = MAGIC
    if tail.stripes:
        footer = read_stripe_footer(reader, tail, 0)
        streams = _compressed(reader, tail, footer, kind, block_size)
        for stream, packed in zip(footer.streams, streams, strict=True):
            stream.length = len(packed)
        packed_footer = codec.compress_section(footer.SerializeToString(), kind, block_size)
        placed, index = made.stripes[0], [stream.kind >= _ROW_INDEX for stream in footer.streams]
        placed.offset, placed.footer_length = len(MAGIC), len(packed_footer)
        placed.index_length = sum(len(packed) for packed, first in zip(streams, index, strict=True) if first)
        placed.data_length = sum(map(len, streams)) - placed.index_length
        whole = b"".join([MAGIC, *streams, packed_footer])
    return MemoryReader(whole, tail.name), Tail(tail.name, postscript, made, tail.metadata, len(whole))


def _compressed(
    reader: MemoryReader, tail: Tail, footer: pb.StripeFooter, kind: Compression, block_size: int
) -> list[bytes]:
    """The streams, in their order. Row indexes come last here, since they point into the chunks of the others."""
    at, pieces = tail.stripes[0].offset, list[memoryview]()
    for stream in footer.streams:
        pieces.append(reader.data[at : at + stream.length])
        at += stream.length
    packed: dict[tuple[int, int], _Chunks] = {}
    for stream, piece in zip(footer.streams, pieces, strict=True):
        if stream.kind != _ROW_INDEX:
            packed[stream.column, stream.kind] = _in_chunks(piece, kind, block_size)
    for stream, piece in zip(footer.streams, pieces, strict=True):
        if stream.kind == _ROW_INDEX:
            column = stream.column
            indexed = _INDEXED[tail.footer.types[column].kind]  # type: ignore[index]  # IntEnum and protobuf's number
            if footer.columns[column].kind in _DICTIONARY:
                indexed = _INTEGERS
            there = [(_PRESENT, _BITS), *indexed] if (column, _PRESENT) in packed else indexed
            streams = [(packed.get((column, stream)), inside) for stream, inside in there]
            if (index := _moved(piece, streams, block_size)) is None:
                what = f"{tail.name}: the row index of column {column} isn't that of its streams"
                raise VerificationError(what)
            packed[column, _ROW_INDEX] = _in_chunks(index, kind, block_size)
    return [packed[stream.column, stream.kind].data for stream in footer.streams]


def _in_chunks(data: bytes | memoryview, kind: Compression, block_size: int) -> _Chunks:
    chunks = list(codec.compressed_chunks(data, kind, block_size))
    starts, at = [], 0
    for chunk in chunks:
        starts.append(at)
        at += len(chunk)
    return _Chunks(b"".join(chunks), (*starts, at))


def _moved(data: memoryview, streams: Sequence[tuple[_Chunks | None, int]], block_size: int) -> bytes | None:
    """
    A row index whose positions point into chunks; None: the positions aren't those of these streams.

    Args:
        streams: those that are indexed, in the order of their positions, each with how many numbers follow an offset.
    """
    index = pb.RowIndex()
    index.ParseFromString(bytes(data))
    indexed = [(chunks, inside) for chunks, inside in streams if chunks is not None]
    count = sum(1 + inside for _, inside in streams)
    if len(indexed) < len(streams) or any(len(entry.positions) != count for entry in index.entries):
        return None
    for entry in index.entries:
        moved = list(_positions(iter(entry.positions), indexed, block_size))
        del entry.positions[:]
        entry.positions.extend(moved)
    return index.SerializeToString()


def _positions(found: Iterator[int], indexed: Sequence[tuple[_Chunks, int]], block_size: int) -> Iterator[int]:
    """Each offset becomes the start of its chunk and the offset inside; the numbers after it stay."""
    for chunks, inside in indexed:
        chunk, offset = divmod(next(found), block_size)
        yield chunks.starts[chunk]
        yield offset
        yield from islice(found, inside)
