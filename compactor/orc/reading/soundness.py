"""
Whether stripes that are copied can be read as their file says, without decoding their values.

A reader of a joined file reads all of it: a stripe whose streams don't fill it, or whose row index isn't one of its rows,
would take the rows of the files beside it along. So each file is opened by another library, each stream's description
and each row index are parsed, and what several places say alike is compared. Damage inside values stays what it was.
Source: the ORC specification, "Stripe Footer", "Column Encodings", "Row Group Index", "Compression".
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from google.protobuf.message import DecodeError
from pyarrow import orc

from compactor.acid.types import Kind
from compactor.errors import CorruptFileError
from compactor.handles import RandomReader, ReaderFile
from compactor.orc.format import codec
from compactor.orc.format.codec import Compression
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.tail import LONGEST_METADATA, Tail, read_stripe_footer
from compactor.words import one_line

_AT_ONCE: Final = 8 << 20
"""A stripe of so many bytes is read at once; of larger ones only footer and row indexes are looked at."""
_PRESENT, _DATA, _LENGTH, _DICTIONARY, _, _SECONDARY, _ROW_INDEX = range(7)
_INDEX_STREAMS: Final = frozenset({_ROW_INDEX, 7, 8})
"""Row indexes, and Bloom filters of both kinds."""
_DIRECT: Final = frozenset({0})
_BY_RUNS: Final = frozenset({0, 2})
"""Direct, with the first or the second run length encoding."""
_OF_SECOND: Final = frozenset({2, 3})
"""Of the second run length encoding."""
_DICTIONARIES: Final = frozenset({1, 3})
_TEXTS: Final = frozenset({Kind.STRING, Kind.CHAR, Kind.VARCHAR})
_ONLY_DIRECT: Final = frozenset({Kind.BOOLEAN, Kind.BYTE, Kind.FLOAT, Kind.DOUBLE, Kind.STRUCT, Kind.UNION})
_WITH_LENGTHS: Final = frozenset({Kind.LIST, Kind.MAP, Kind.BINARY, *_TEXTS})
_IN_TWO: Final = frozenset({Kind.DECIMAL, Kind.TIMESTAMP, Kind.TIMESTAMP_INSTANT})
"""Their values stand in two streams."""


def require_opened(reader: RandomReader, tail: Tail) -> None:
    """
    Arrow opens the file, so that it isn't joined with others which then nobody opens.

    Raises:
        CorruptFileError: it can't, or finds other rows.
    """
    try:
        found = orc.ORCFile(pa.PythonFile(ReaderFile(reader), mode="r"))
        seen = found.nrows, found.nstripes
    except (pa.ArrowException, OSError) as error:
        raise _corrupt(tail, f"can't be opened by Arrow ({one_line(error)})") from error
    if seen != (tail.rows, len(tail.stripes)):
        raise _corrupt(tail, f"has {seen[0]} rows in {seen[1]} stripes to Arrow")


def require_sound_stripes(reader: RandomReader, tail: Tail, stripes: Sequence[int]) -> None:
    """
    Judge stripes of a file.

    Raises:
        CorruptFileError: what isn't sound, and where.
    """
    for index in stripes:
        if tail.stripes[index].number_of_rows:
            _require_stripe(reader, tail, index)


def _require_stripe(reader: RandomReader, tail: Tail, index: int) -> None:
    stripe, footer = tail.stripes[index], read_stripe_footer(reader, tail, index)
    where = f"stripe {index + 1}"
    lengths = [0, 0]
    for stream in footer.streams:
        lengths[stream.kind in _INDEX_STREAMS] += stream.length
    if lengths != [stripe.data_length, stripe.index_length]:
        raise _corrupt(
            tail,
            f"has in {where} streams of {lengths[0]} bytes and indexes of {lengths[1]}, instead of {stripe.data_length} and {stripe.index_length}",
        )
    _require_encodings(tail, index, footer)
    whole = tail.stripe_length(index) <= _AT_ONCE
    data = reader.read_at(stripe.offset, stripe.index_length + (stripe.data_length if whole else 0))
    at = 0
    for stream in footer.streams:
        if at + stream.length > len(data) and not whole:
            break  # a writer may put indexes behind the values of other columns
        content = data[at : at + stream.length]
        at += stream.length
        _require_stream(tail, index, stream, content)


def _require_encodings(tail: Tail, index: int, footer: pb.StripeFooter) -> None:
    """
    Each column has an encoding that its type can have, all of them the same run length encoding, and each of the
    streams that these call for, once.
    """
    where = f"has in stripe {index + 1}"
    kinds = [Kind(found.kind) for found in tail.footer.types]
    streams: list[set[int]] = [set() for _ in kinds]
    for stream in footer.streams:
        if stream.column >= len(kinds) or stream.kind in streams[stream.column]:
            raise _corrupt(tail, f"{where} two streams of the kind {stream.kind}, or one of no column")
        streams[stream.column].add(stream.kind)
    statistics = tail.stripe_stats(index)
    runs = set[bool]()
    for column, (kind, encoding, found) in enumerate(zip(kinds, footer.columns, streams, strict=True)):
        values = statistics[column].number_of_values if statistics is not None else 0
        if kind not in _ONLY_DIRECT:
            runs.add(encoding.kind in _OF_SECOND)
        if encoding.kind not in _encodings(kind) or len(runs) > 1:
            raise _corrupt(tail, f"{where} column {column} in the encoding {encoding.kind}")
        if statistics is not None and encoding.kind in _DICTIONARIES and encoding.dictionary_size > values:
            raise _corrupt(tail, f"{where} {encoding.dictionary_size} entries for {values} values of column {column}")
        needed, others = _streams(kind, encoding)
        if (values and not needed <= found) or not found - _INDEX_STREAMS <= needed | others:
            raise _corrupt(tail, f"{where} streams of the kinds {sorted(found)} for column {column}")


def _encodings(kind: Kind) -> frozenset[int]:
    if kind in _ONLY_DIRECT:
        return _DIRECT
    return _BY_RUNS | _DICTIONARIES if kind in _TEXTS else _BY_RUNS


def _streams(kind: Kind, encoding: pb.ColumnEncoding) -> tuple[frozenset[int], frozenset[int]]:
    """The streams without which a column has no values, and those that it may have."""
    if kind is Kind.STRUCT:
        return frozenset(), frozenset({_PRESENT})
    if encoding.kind in _DICTIONARIES:
        return frozenset({_DATA, _LENGTH}), frozenset({_PRESENT, _DICTIONARY})
    if kind in _WITH_LENGTHS:
        return frozenset({_LENGTH}), frozenset({_PRESENT} if kind in {Kind.LIST, Kind.MAP} else {_PRESENT, _DATA})
    seconds = {_SECONDARY} if kind in _IN_TWO else set[int]()
    return frozenset({_DATA, *seconds}), frozenset({_PRESENT})


def _require_stream(tail: Tail, index: int, stream: pb.Stream, content: bytes) -> None:
    where = f"{tail.name}: stream {stream.kind} of column {stream.column} in stripe {index + 1}"
    if stream.kind == _ROW_INDEX:
        raw = codec.decompress_section(content, tail.compression, tail.block_size, where, LONGEST_METADATA)
        found = pb.RowIndex()
        try:
            found.ParseFromString(raw)
        except DecodeError as error:
            raise CorruptFileError(f"{where} can't be read") from error
        rows = tail.stripes[index].number_of_rows
        expected = -(-rows // tail.stride) if tail.stride else len(found.entries)
        if len(found.entries) != expected:
            raise CorruptFileError(f"{where} has {len(found.entries)} entries instead of {expected}")
    elif tail.compression is not Compression.NONE:
        for _chunk in codec.chunks(content, where):
            pass


def _corrupt(tail: Tail, what: str) -> CorruptFileError:
    return CorruptFileError(f"{tail.name} {what}")
