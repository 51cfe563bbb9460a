"""
The end of an ORC file: postscript, footer, and the statistics of each stripe.

Reads and checks; only `compactor.orc.writing.splice` writes. Distrusts what it reads: every inconsistency is a CorruptFileError
that says what is wrong and where.
Source: the ORC specification, "File tail"; docs/orc.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise
from typing import Final, TypeVar

from google.protobuf.message import DecodeError

from compactor.acid.row_id import RowKey
from compactor.acid.types import HiveType
from compactor.errors import CorruptFileError, RefusedError
from compactor.handles import RandomReader
from compactor.orc.format import codec
from compactor.orc.format.codec import Compression
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.schema import is_acid_tree, tree_of
from compactor.reasons import Reason

MAGIC: Final = b"ORC"
KEY_INDEX: Final = "hive.acid.key.index"
JAVA_WRITER: Final = 0
CPP_WRITER: Final = 1
LONGEST_FOOTER: Final = 16 << 20
"""Bytes of the longest footer, of a file or a stripe, that is read; without compression."""
LONGEST_METADATA: Final = 256 << 20
"""The same of the statistics of all stripes."""
_SHORT: Final = 1 << 20
"""Bytes of statistics whose messages aren't counted before they are parsed."""
_FIRST_READ: Final = 16 << 10
_MESSAGE = TypeVar("_MESSAGE", pb.Footer, pb.Metadata, pb.StripeFooter)


@dataclass(frozen=True, eq=False)
class Tail:
    """
    The messages at a file's end, and facts derived from them.

    Args:
        name: the file, for messages.
        postscript, footer, metadata: the messages as read; don't change them.
        length: bytes of the file that count (the logical length).
    """

    name: str
    postscript: pb.PostScript = field(repr=False)
    footer: pb.Footer = field(repr=False)
    metadata: pb.Metadata = field(repr=False)
    length: int

    @cached_property
    def compression(self) -> Compression:
        return Compression(self.postscript.compression)

    @property
    def block_size(self) -> int:
        """Largest uncompressed chunk in bytes; 0 with compression NONE where the writer left it out."""
        return self.postscript.compression_block_size

    @property
    def stride(self) -> int:
        """Rows between two row index entries; 0: the file has no indexes, and its statistics are meaningless."""
        return self.footer.row_index_stride

    @property
    def rows(self) -> int:
        return self.footer.number_of_rows

    @cached_property
    def stripes(self) -> tuple[pb.StripeInformation, ...]:
        return tuple(self.footer.stripes)

    @cached_property
    def user_metadata(self) -> Mapping[str, bytes]:
        return {item.name: item.value for item in self.footer.metadata}

    @cached_property
    def key_index(self) -> list[RowKey] | None:
        """
        `hive.acid.key.index`, the last key of each stripe, where it is plausible: one for each, ascending (HIVE-18817 left
        some out). Source: Hive's OrcRecordUpdater.parseKeyIndex.
        """
        noted = self.user_metadata.get(KEY_INDEX)
        if noted is None:
            return None
        try:
            keys = [RowKey(*map(int, entry.split(b","))) for entry in noted.split(b";")[:-1]]
        except (ValueError, TypeError):
            return None
        if len(keys) != len(self.stripes) or any(later <= earlier for earlier, later in pairwise(keys)):
            return None
        return keys

    @property
    def writer(self) -> int:
        """0 Java (also when the footer names no writer), 1 C++, 2 Presto, 3 Go, 4 Trino, 5 cuDF."""
        return self.footer.writer

    @property
    def writer_version(self) -> int:
        return self.postscript.writer_version

    @property
    def splice_class(self) -> str | None:
        """
        Class of the file's writer: stripes of one class may share a file. None: copy no stripe of this file.

        Java from ORC-135 on (versions 6 to 9) and C++ (6) agree about timestamps, Bloom filters and statistics.
        Source: the ORC specification, "writerVersion"; Java's OrcFile.WriterVersion.
        """
        if self.writer == JAVA_WRITER and 6 <= self.writer_version <= 9:
            return "apache"
        return "apache" if self.writer == CPP_WRITER and self.writer_version == 6 else None

    @property
    def proleptic(self) -> bool:
        """
        Whether dates before 1582-10-15 count in the proleptic Gregorian calendar; otherwise in the hybrid one (Hive
        reads an unknown calendar as hybrid).
        """
        return self.footer.calendar == 2

    @cached_property
    def tree(self) -> HiveType:
        return tree_of(self.footer.types, self.name)

    @cached_property
    def is_acid(self) -> bool:
        """Whether the root has the six ACID fields by name and kind."""
        return is_acid_tree(self.tree)

    @property
    def row_tree(self) -> HiveType:
        """The struct of the table's columns: the last root field of an ACID file, the root itself of any other."""
        return self.tree.children[-1] if self.is_acid else self.tree

    @cached_property
    def shape(self) -> bytes:
        """Equal for files whose stripes are decoded in the same manner."""
        written = pb.PostScript()
        written.CopyFrom(self.postscript)
        for length in ("footer_length", "metadata_length", "stripe_statistics_length"):
            written.ClearField(length)
        types = pb.Footer(types=self.footer.types, writer=self.footer.writer)
        return types.SerializeToString() + written.SerializeToString()

    def stripe_length(self, index: int) -> int:
        """Bytes of a stripe: indexes, data and its footer."""
        stripe = self.stripes[index]
        return stripe.index_length + stripe.data_length + stripe.footer_length

    def stripe_stats(self, index: int) -> tuple[pb.ColumnStatistics, ...] | None:
        """
        Statistics of one stripe by column id, or None where the stripe has no trustworthy ones.

        Statistics of a Java writer without row index are not trusted, because that writer counts nothing and still
        writes statistics (HIVE-20604); nor are statistics without counts.
        """
        if index not in self._trusted:
            self._trusted[index] = self._is_trusted(index)
        return tuple(self.metadata.stripe_stats[index].columns) if self._trusted[index] else None

    @cached_property
    def _trusted(self) -> dict[int, bool]:
        """What was found out of stripes; the statistics themselves take less memory where they are."""
        return {}

    def _is_trusted(self, index: int) -> bool:
        if self.stride == 0 or len(self.metadata.stripe_stats) != len(self.stripes):
            return False
        columns = self.metadata.stripe_stats[index].columns
        whole = len(columns) == len(self.footer.types) and all(
            column.HasField("number_of_values") for column in columns
        )
        return whole and columns[0].number_of_values == self.stripes[index].number_of_rows


def read_tail(reader: RandomReader, logical_length: int | None = None) -> Tail:
    """
    Read and check a file's end.

    Args:
        logical_length: bytes that count, from a streaming writer's side file; None: all.

    Raises:
        CorruptFileError: the file is empty, cut off, not ORC, or contradicts itself.
        RefusedError: ENCRYPTED_FILE, UNSUPPORTED_COMPRESSION.
    """
    name = reader.name
    length = reader.size if logical_length is None else logical_length
    if length == 0:
        raise _corrupt(name, "is empty (zero bytes)")
    if length > reader.size:
        raise _corrupt(name, f"has {reader.size} bytes, fewer than its logical length of {length}")
    end = reader.read_at(max(0, length - _FIRST_READ), min(length, _FIRST_READ))
    if len(end) != min(length, _FIRST_READ):
        raise _corrupt(name, f"ended while reading its last {_FIRST_READ} bytes")
    postscript_length = end[-1]
    at = length - 1 - postscript_length
    if postscript_length == 0 or at < len(MAGIC):
        raise _corrupt(
            name,
            f"is not an ORC file, or is cut off (postscript length {postscript_length} at byte {length - 1} of {length})",
        )
    postscript = pb.PostScript()
    try:
        postscript.ParseFromString(end[-1 - postscript_length : -1])
    except DecodeError as error:
        raise _corrupt(
            name, f"is not an ORC file, or is cut off (the postscript at byte {at} can't be read)"
        ) from error
    if postscript.magic != MAGIC.decode() and reader.read_at(0, len(MAGIC)) != MAGIC:
        raise _corrupt(name, f"is not an ORC file, or is cut off (no ORC magic in the postscript at byte {at})")
    kind = codec.check_supported(postscript.compression, name)
    footer_at = at - postscript.footer_length
    metadata_at = footer_at - postscript.metadata_length
    if postscript.footer_length == 0 or metadata_at - postscript.stripe_statistics_length < len(MAGIC):
        raise _corrupt(
            name,
            f"is cut off: footer of {postscript.footer_length} and metadata of {postscript.metadata_length} bytes don't fit before byte {at}",
        )
    if postscript.stripe_statistics_length:
        raise _encrypted(name)
    codec.require_length(postscript.footer_length, f"{name}: footer at byte {footer_at}", LONGEST_FOOTER)
    codec.require_length(postscript.metadata_length, f"{name}: metadata at byte {metadata_at}", LONGEST_METADATA)
    missing = (length - metadata_at) - len(end)
    if missing > 0:
        end = reader.read_at(metadata_at, missing) + end
    start = length - len(end)
    block_size = postscript.compression_block_size
    if kind is not Compression.NONE and not 0 < block_size < 1 << 23:
        raise _corrupt(
            name, f"has compression {kind.name} with a block size of {block_size} bytes in the postscript at byte {at}"
        )
    footer_bytes = end[footer_at - start : at - start]
    footer = _parse(
        pb.Footer,
        codec.decompress_section(footer_bytes, kind, block_size, f"{name}: footer at byte {footer_at}", LONGEST_FOOTER),
        name,
        f"footer at byte {footer_at}",
    )
    if footer.HasField("encryption"):
        raise _encrypted(name)
    metadata_bytes = end[metadata_at - start : footer_at - start]
    metadata_raw = codec.decompress_section(
        metadata_bytes, kind, block_size, f"{name}: metadata at byte {metadata_at}", LONGEST_METADATA
    )
    _require_few(footer, metadata_raw, f"{name}: metadata at byte {metadata_at}")
    metadata = _parse(pb.Metadata, metadata_raw, name, f"metadata at byte {metadata_at}")
    tail = Tail(name, postscript, footer, metadata, length)
    _check(tail, metadata_at)
    return tail


def footer_place(tail: Tail, index: int) -> tuple[int, int]:
    """Offset and length of a stripe's footer."""
    stripe = tail.stripes[index]
    return stripe.offset + stripe.index_length + stripe.data_length, stripe.footer_length


def read_stripe_footer(reader: RandomReader, tail: Tail, index: int) -> pb.StripeFooter:
    """
    Streams and encodings of one stripe.

    Raises:
        CorruptFileError: the footer can't be read, or its streams don't fit the stripe's lengths.
    """
    stripe, (at, length) = tail.stripes[index], footer_place(tail, index)
    where = f"footer of stripe {index + 1} at byte {at}"
    codec.require_length(length, f"{tail.name}: {where}", LONGEST_FOOTER)
    data = reader.read_at(at, length)
    if len(data) != length:
        raise _corrupt(tail.name, f"ended inside the {where}")
    raw = codec.decompress_section(data, tail.compression, tail.block_size, f"{tail.name}: {where}", LONGEST_FOOTER)
    footer = _parse(pb.StripeFooter, raw, tail.name, where)
    if footer.encryption:
        raise _encrypted(tail.name)
    if sum(stream.length for stream in footer.streams) > stripe.index_length + stripe.data_length or len(
        footer.columns
    ) != len(tail.footer.types):
        raise _corrupt(tail.name, f"has streams or encodings in the {where} that don't fit its stripe")
    return footer


def _check(tail: Tail, content_end: int) -> None:
    rows, end = 0, 0
    for number, stripe in enumerate(tail.stripes, start=1):
        stop = stripe.offset + stripe.index_length + stripe.data_length + stripe.footer_length
        if stripe.offset < max(end, len(MAGIC)) or stop > content_end or stripe.footer_length == 0:
            raise _corrupt(
                tail.name,
                f"has stripe {number} at bytes {stripe.offset} to {stop}, outside its content or in another stripe (content ends at byte {content_end})",
            )
        end = stop
        rows += stripe.number_of_rows
    if rows != tail.rows:
        raise _corrupt(tail.name, f"says {tail.rows} rows in its footer, {rows} in its stripes")
    if len(tail.footer.statistics) not in (0, len(tail.footer.types)):
        raise _corrupt(
            tail.name, f"has statistics for {len(tail.footer.statistics)} columns, types for {len(tail.footer.types)}"
        )
    _ = tail.tree


def _require_few(footer: pb.Footer, metadata: bytes, where: str) -> None:
    """
    Refuse long statistics of more stripes or columns than there are: in memory an empty message takes many times the
    two bytes that it takes in the file, and a thousand times those that are stored.
    """
    if len(metadata) <= _SHORT:
        return
    stripes, columns = len(footer.stripes), len(footer.types)
    try:
        for number, (begin, end) in enumerate(_messages(metadata, 0, len(metadata))):
            if number == stripes or next(islice(_messages(metadata, begin, end), columns, None), None) is not None:
                raise CorruptFileError(f"{where}: has statistics of more than {stripes} stripes of {columns} columns")
    except IndexError as error:
        raise CorruptFileError(f"{where}: can't be read") from error


def _messages(data: bytes, at: int, end: int) -> Iterator[tuple[int, int]]:
    """Where the fields lie, of a message between two places, that have a length."""
    while at < end:
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 2:
            length, at = _varint(data, at)
            yield at, at + length
            at += length
        elif kind == 0:
            _, at = _varint(data, at)
        else:
            at += {1: 8, 5: 4}.get(kind, end)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128 or shift > 63:
            return value, at


def _parse(kind: type[_MESSAGE], data: bytes, name: str, where: str) -> _MESSAGE:
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise _corrupt(name, f"has a {where} that can't be read") from error
    return message


def _corrupt(name: str, what: str) -> CorruptFileError:
    return CorruptFileError(f"{name} {what}")


def _encrypted(name: str) -> RefusedError:
    return RefusedError(
        Reason.ENCRYPTED_FILE, f"{name} has encrypted columns: its stripes can't be read or copied here"
    )
