"""
The time zone of a stripe's timestamps, which stays with the stored seconds.

A stripe stores the seconds from 2015-01-01 00:00:00 in its writer's zone, and names the zone in its footer; what they mean is left to the reader's rules for that
zone, and Java's are neither those of the C++ library nor those of another release of tzdata. So nothing here knows any zone: stripes are decoded and encoded
as if they were UTC, which adds and takes away the same constant, and the new stripe gets its source's zone. What the encoder made of the values as UTC, minimum,
maximum and Bloom filters, isn't true in another zone: it is left out.
Source: the ORC specification, "Timestamp Columns"; Java's TimestampTreeReader and TimestampTreeWriter; docs/orc.md.
"""

from typing import Final

from compactor.acid.types import HiveType, Kind
from compactor.orc import codec
from compactor.orc.handles import MemoryReader, RandomReader
from compactor.orc.proto import orc_pb2 as pb
from compactor.orc.schema import column_ids
from compactor.orc.tail import MAGIC, Tail, read_stripe_footer

UTC: Final = "GMT"
"""As the C++ library calls it; the one zone that needs no rules."""
UNSAID: Final = ""
"""Stripes of Hive before 1.1: each reader takes them for its own zone."""
TIMESTAMPS: Final = (Kind.TIMESTAMP, Kind.TIMESTAMP_INSTANT)
_NAMES_OF_UTC: Final = frozenset({"GMT", "UTC", "UCT", "Zulu", "Universal", "Greenwich", "Etc/UTC", "Etc/GMT", "Etc/UCT", "Etc/Zulu", "Etc/Universal"})
_ROW_INDEX: Final = 6


def timestamp_columns(tree: HiveType) -> list[int]:
    """Column ids of a file's timestamps, of both kinds and at any depth."""
    return [column for column, node in column_ids(tree) if node.kind in TIMESTAMPS]


def stripe_zone(reader: RandomReader, tail: Tail, stripe: int) -> str:
    """
    The zone that a stripe's timestamps are stored in; `UTC` under any of its names, and where no column is a timestamp.

    Raises:
        CorruptFileError: the stripe's footer can't be read.
    """
    return zone_of(tail, read_stripe_footer(reader, tail, stripe)) if tail.tree.holds(TIMESTAMPS) else UTC


def zone_of(tail: Tail, footer: pb.StripeFooter) -> str:
    """The same, where the stripe's footer is at hand."""
    said = footer.writer_timezone
    return UTC if said in _NAMES_OF_UTC or not tail.tree.holds(TIMESTAMPS) else said


def may_follow(zone: str, before: str | None, *, one_zone: bool) -> bool:
    """
    Whether readers read a stripe right after one in another zone, in the same file.

    Java takes a stripe that names no zone for one in the zone of the stripe before. Up to ORC 1.5, which is in Hive 3.1, it takes a zone that it has met before,
    be it as the reader's own, for the zone that it met last.

    Args:
        before: of the stripe before; None for the file's first.
        one_zone: the file is for readers of Hive 3.1.

    Source: Java's TreeReaderFactory.TimestampTreeReader.getBaseTimestamp, in ORC 1.5 and 1.8.
    """
    return before in (None, zone) or not (one_zone or zone == UNSAID)


def in_zone(data: memoryview, tail: Tail, zone: str) -> tuple[MemoryReader, Tail]:
    """
    A file that was encoded as if its timestamps were UTC, with the zone that they are in.

    Args:
        data: the file; it has one stripe.
        zone: as `stripe_zone` has it.

    Returns:
        The stripe under its zone, without statistics of timestamps in its row indexes, and a tail that fits it.
    """
    reader = MemoryReader(data, tail.name)
    stripe, footer = tail.stripes[0], read_stripe_footer(reader, tail, 0)
    columns = set(timestamp_columns(tail.tree))
    pieces: list[bytes | memoryview] = [MAGIC]
    at, index_length = stripe.offset, 0
    for stream in footer.streams:
        piece: bytes | memoryview = data[at : at + stream.length]
        at += stream.length
        if stream.kind == _ROW_INDEX and stream.column in columns:
            piece = _without_statistics(bytes(piece), tail)
            index_length += len(piece) - stream.length
            stream.length = len(piece)
        pieces.append(piece)
    if zone == UNSAID:
        footer.ClearField("writer_timezone")
    else:
        footer.writer_timezone = zone
    packed = codec.compress_section(footer.SerializeToString(), tail.compression, tail.block_size)
    made = pb.Footer()
    made.CopyFrom(tail.footer)
    placed = made.stripes[0]
    placed.offset, placed.footer_length = len(MAGIC), len(packed)
    placed.index_length += index_length
    metadata = pb.Metadata()
    metadata.CopyFrom(tail.metadata)
    for column in columns:
        metadata.stripe_stats[0].columns[column].ClearField("timestamps")
    whole = b"".join([*pieces, packed])
    return MemoryReader(whole, tail.name), Tail(tail.name, tail.postscript, made, metadata, len(whole))


def _without_statistics(data: bytes, tail: Tail) -> bytes:
    index = pb.RowIndex()
    index.ParseFromString(codec.decompress_section(data, tail.compression, tail.block_size, tail.name))
    for entry in index.entries:
        entry.statistics.ClearField("timestamps")
    return codec.compress_section(index.SerializeToString(), tail.compression, tail.block_size)
