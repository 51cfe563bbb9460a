"""
The time zone of a stripe's timestamps, which stays with the stored seconds.

A stripe stores the seconds from 2015-01-01 00:00:00 in its writer's zone, and names the zone in its footer. The meaning
of these seconds depends on the reader's rules for that zone, and Java's rules differ from those of the C++ library and
of other releases of tzdata. So this package applies no zone's rules. It decodes and encodes stripes as if they were
UTC, which adds and subtracts the same constant, and gives the new stripe its source's zone. Minimum, maximum and Bloom
filters that the encoder computed for UTC are wrong in another zone, so they are left out.
Source: the ORC specification, "Timestamp Columns"; Java's TimestampTreeReader and TimestampTreeWriter; docs/orc.md.
"""

from typing import Final

from compactor.acid.types import HiveType, Kind
from compactor.errors import CorruptFileError
from compactor.handles import MemoryReader, RandomReader
from compactor.orc.format import codec
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.tail import LONGEST_METADATA, MAGIC, Tail, read_stripe_footer

UTC: Final = "GMT"
"""The C++ library's name of UTC, the one zone that needs no rules."""
UNSAID: Final = ""
"""Zone of stripes from Hive before 1.1, which name none: each reader takes its own zone for theirs."""
TIMESTAMPS: Final = (Kind.TIMESTAMP, Kind.TIMESTAMP_INSTANT)
_NAMES_OF_UTC: Final = frozenset(
    {
        "GMT",
        "UTC",
        "UCT",
        "Zulu",
        "Universal",
        "Greenwich",
        "Etc/UTC",
        "Etc/GMT",
        "Etc/UCT",
        "Etc/Zulu",
        "Etc/Universal",
    }
)
_ROW_INDEX: Final = 6


def timestamp_columns(tree: HiveType) -> list[int]:
    """Column ids of a file's timestamps, of both kinds and at any depth."""
    return [column for column, node in enumerate(tree.walk()) if node.kind in TIMESTAMPS]


def stripe_zone(reader: RandomReader, tail: Tail, stripe: int) -> str:
    """
    The zone that a stripe's timestamps are stored in; `UTC` for all of UTC's names, and where no column is a timestamp.

    Raises:
        CorruptFileError: the stripe's footer can't be read.
    """
    return zone_of(tail, read_stripe_footer(reader, tail, stripe)) if tail.tree.holds(TIMESTAMPS) else UTC


def zone_of(tail: Tail, footer: pb.StripeFooter) -> str:
    """
    Like `stripe_zone`, for a stripe whose footer has already been read.

    Raises:
        CorruptFileError: the name of the zone isn't UTF-8.
    """
    if not tail.tree.holds(TIMESTAMPS):
        return UTC
    said = footer.writer_timezone
    if not isinstance(said, str):  # protobuf returns a name that isn't UTF-8 as bytes
        raise CorruptFileError(f"{tail.name} names a time zone that isn't UTF-8: {said!r}")
    return UTC if said in _NAMES_OF_UTC else said


def may_follow(zone: str, before: str | None, *, one_zone: bool) -> bool:
    """
    Whether a stripe may stand right after one in another zone, in the same file, without readers mistaking its zone.

    Java takes a stripe that names no zone for one in the zone of the stripe before. Up to ORC 1.5, which is in Hive
    3.1, Java takes a zone that it has met before (including the reader's own) for the zone that it met last.

    Args:
        before: zone of the stripe before; None for the file's first stripe.
        one_zone: the file is for readers of Hive 3.1.

    Source: Java's TreeReaderFactory.TimestampTreeReader.getBaseTimestamp, in ORC 1.5 and 1.8.
    """
    return before in (None, zone) or not (one_zone or zone == UNSAID)


def in_zone(data: memoryview, tail: Tail, zone: str) -> tuple[MemoryReader, Tail]:
    """
    Label a file that was encoded as if its timestamps were UTC with their true zone.

    Args:
        data: the file; it has one stripe.
        zone: as `stripe_zone` returns it.

    Returns:
        The stripe under its zone, without statistics of timestamps in its row indexes, and a matching tail.
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
    raw = codec.decompress_section(data, tail.compression, tail.block_size, tail.name, LONGEST_METADATA)
    index.ParseFromString(raw)
    for entry in index.entries:
        entry.statistics.ClearField("timestamps")
    return codec.compress_section(index.SerializeToString(), tail.compression, tail.block_size)
