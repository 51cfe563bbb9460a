"""
The file that is being made: row groups one after the other, their indexes, and the footer.

The only writer of footers. A row group that is copied keeps every byte of its pages and everything that its footer
says but places. Bloom filters follow their row group; column and offset indexes stand before the footer, where readers
expect them.
Source: parquet.thrift; PageIndex.md; BloomFilter.md; parquet-mr's ParquetFileWriter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from compactor.errors import CorruptFileError, RefusedError
from compactor.handles import RandomReader, Sink
from compactor.parquet import fields, thrift
from compactor.parquet.fields import MAGIC, extent
from compactor.parquet.footer import LONGEST, Footer
from compactor.parquet.thrift import MalformedError, Struct
from compactor.reasons import Reason

_INDEXES: Final = (
    (fields.CHUNK_COLUMN_INDEX, fields.CHUNK_COLUMN_INDEX_LENGTH),
    (fields.CHUNK_OFFSET_INDEX, fields.CHUNK_OFFSET_INDEX_LENGTH),
)
_LOCATIONS: Final = 1
_LOCATION_OFFSET: Final = 1
_LOCATION_SIZE: Final = 2
_BLOOM_BYTES: Final = 1
_BLOOM_HEADER: Final = 256
_LONGEST_BLOOM: Final = 128 << 20
_LONGEST_INDEX: Final = 64 << 20
_LAST_ORDINAL: Final = 0x7FFF
_TOGETHER: Final = 1 << 20
"""Indexes that lie in so many bytes are read at once."""


@dataclass(frozen=True, slots=True)
class _Described:
    """A row group's description but for its number and its indexes, which are (column, offset) index of each chunk."""

    data: bytes
    indexes: tuple[tuple[bytes, bytes], ...]


class Assembly:
    """
    A file made of row groups of one family.

    Args:
        sink: a new file; nothing else may write to it.
        model: the footer from which the new one takes everything but the row groups.
    """

    def __init__(self, sink: Sink, model: Footer) -> None:
        self.rows = 0
        self._sink = sink
        self._model = model
        self._groups: list[_Described] = []
        sink.write(MAGIC)

    @property
    def row_groups(self) -> int:
        return len(self._groups)

    def copy(self, reader: RandomReader, footer: Footer, index: int) -> None:
        """
        Append a row group of another file as bytes.

        Raises:
            CorruptFileError: an index or Bloom filter of the row group lies outside the file or makes no sense.
        """
        group = footer.describe(index)
        chunks: list[Struct] = group[fields.GROUP_COLUMNS][1]
        found = indexes(reader, chunks)
        extents = [extent(chunk[fields.CHUNK_META][1]) for chunk in chunks]
        begins = self._copy_ranges(reader, extents)
        moved = []
        for chunk, (begin, end), new, (column_index, offset_index) in zip(chunks, extents, begins, found, strict=True):
            meta: Struct = chunk[fields.CHUNK_META][1]
            shift = new - begin
            for number in (fields.META_DATA_PAGE, fields.META_INDEX_PAGE, fields.META_DICTIONARY_PAGE):
                _move(meta, number, shift)
            offset = chunk.get(fields.CHUNK_FILE_OFFSET, (0, 0))[1]
            if offset:
                chunk[fields.CHUNK_FILE_OFFSET] = thrift.I64, offset + shift if begin <= offset < end else 0
            bloom = bloom_filter(reader, meta)
            if bloom:
                meta[fields.META_BLOOM] = thrift.I64, self._sink.position
                self._sink.write(bloom)
            moved.append((column_index, shifted_index(reader.name, offset_index, (begin, end), shift)))
        self.append(group, begins[0], moved)

    def append(self, group: Struct, begin: int, indexes: Sequence[tuple[bytes, bytes]]) -> None:
        """
        Note a row group whose pages are in the file already.

        Args:
            group: its description; offsets are those of this file.
            begin: where its first column begins.
            indexes: column index and offset index of each chunk, empty where there is none.
        """
        offset = group.get(fields.GROUP_FILE_OFFSET, (0, 0))[1]
        if offset:
            group[fields.GROUP_FILE_OFFSET] = thrift.I64, begin
        for chunk in group[fields.GROUP_COLUMNS][1]:
            for pair in _INDEXES:
                for number in pair:
                    chunk.pop(number, None)
        self.rows += group[fields.GROUP_ROWS][1]
        self._groups.append(_Described(thrift.encode(group), tuple(indexes) if any(map(any, indexes)) else ()))

    def finish(self) -> None:
        """
        Write indexes and footer.

        Raises:
            RefusedError: LIMIT_EXCEEDED, the footer would be longer than `read_footer` reads.
        """
        places = [self._write_indexes(kind) for kind in (0, 1)]
        numbered = len(self._groups) - 1 <= _LAST_ORDINAL
        groups = [
            _completed(group, number if numbered else None, [place[number] for place in places])
            for number, group in enumerate(self._groups)
        ]
        model, parts, before = self._model, list[bytes](), 0
        for number, (kind, *_) in model.places.items():
            value = model.shared(number)
            if number == fields.FILE_ROWS:
                value = thrift.encoded_integer(self.rows)
            elif number == fields.FILE_ROW_GROUPS:
                value = thrift.encoded_list(groups)
            parts.append(thrift.encoded_field(number, kind, value, before))
            before = number
        data = b"".join(parts) + b"\0"
        if len(data) > LONGEST:
            raise RefusedError(Reason.LIMIT_EXCEEDED, f"the joined file's footer would have {len(data) >> 20} MiB")
        self._sink.write(data + len(data).to_bytes(4, "little") + MAGIC)

    def _copy_ranges(self, reader: RandomReader, extents: Sequence[tuple[int, int]]) -> list[int]:
        """Copy column chunks, those at once that follow each other; returns where each one begins now."""
        begins = list[int]()
        run = end = extents[0][0]
        position = self._sink.position
        for begin, stop in extents:
            if begin != end:
                self._sink.copy_from(reader, run, end - run)
                run = begin
            begins.append(position)
            position += stop - begin
            end = stop
        self._sink.copy_from(reader, run, end - run)
        return begins

    def _write_indexes(self, kind: int) -> list[list[tuple[int, int]]]:
        """Write the column indexes (0) or offset indexes (1); returns offset and length of each by row group."""
        places = []
        for group in self._groups:
            found = []
            for pair in group.indexes:
                found.append((self._sink.position, len(pair[kind])))
                self._sink.write(pair[kind])
            places.append(found)
        return places


def _completed(group: _Described, number: int | None, places: Sequence[Sequence[tuple[int, int]]]) -> bytes:
    """A row group's description with its number and the places of its indexes."""
    described, _ = thrift.decode(group.data, 0, fields.GROUP_SHAPE)
    if number is None:
        described.pop(fields.GROUP_ORDINAL, None)
    elif fields.GROUP_ORDINAL in described:
        described[fields.GROUP_ORDINAL] = thrift.I16, number
    for chunk, *found in zip(described[fields.GROUP_COLUMNS][1], *places, strict=bool(group.indexes)):
        for (offset, length), numbers in zip(found, _INDEXES, strict=True):
            if length:
                thrift.put(chunk, numbers[0], thrift.I64, offset)
                thrift.put(chunk, numbers[1], thrift.I32, length)
    return thrift.encode(described)


def _move(meta: Struct, number: int, shift: int) -> None:
    if number in meta and meta[number][1]:
        meta[number] = thrift.I64, meta[number][1] + shift


def indexes(reader: RandomReader, chunks: Sequence[Struct]) -> list[tuple[bytes, bytes]]:
    """
    Column index and offset index of each chunk of a row group, empty where there is none.

    Raises:
        CorruptFileError: one would lie outside the file.
    """
    columns, offsets = (_indexes(reader, chunks, *numbers) for numbers in _INDEXES)
    return list(zip(columns, offsets, strict=True))


def bloom_filter(reader: RandomReader, meta: Struct) -> bytes:
    """
    A chunk's Bloom filter with its header, empty where there is none.

    Raises:
        CorruptFileError: it would lie outside the file.
    """
    if fields.META_BLOOM not in meta:
        return b""
    begin = meta[fields.META_BLOOM][1]
    length = meta.get(fields.META_BLOOM_LENGTH, (0, None))[1]
    if length is None:
        length = _bloom_length(reader, begin)
    if not 0 < length <= _LONGEST_BLOOM + _BLOOM_HEADER or not 0 < begin <= reader.size - length:
        raise _corrupt(reader.name, f"a Bloom filter would lie at byte {begin}")
    return reader.read_at(begin, length)


def _indexes(reader: RandomReader, chunks: Sequence[Struct], offset: int, length: int) -> list[bytes]:
    """The column or offset index of each chunk, empty where it has none."""
    places = [
        (chunk[offset][1], chunk[length][1]) if offset in chunk and length in chunk else (0, 0) for chunk in chunks
    ]
    used = [place for place in places if place != (0, 0)]
    if not used:
        return [b""] * len(chunks)
    if any(begin < 0 or not 0 < size <= _LONGEST_INDEX or begin + size > reader.size for begin, size in used):
        raise _corrupt(reader.name, "a column or offset index would lie outside the file")
    first, last = min(begin for begin, _ in used), max(begin + size for begin, size in used)
    if last - first <= _TOGETHER:
        data = reader.read_at(first, last - first)
        return [data[begin - first : begin - first + size] if size else b"" for begin, size in places]
    return [reader.read_at(begin, size) if size else b"" for begin, size in places]


def shifted_index(name: str, index: bytes, within: tuple[int, int], shift: int) -> bytes:
    """
    An offset index whose pages have moved.

    Args:
        within: where their chunk began and ended.

    Raises:
        CorruptFileError: it is no offset index, or has pages elsewhere.
    """
    if not index:
        return index
    try:
        decoded, end = thrift.decode(index, 0, {_LOCATIONS: {}})
        locations = decoded[_LOCATIONS][1]
        for location in locations:
            begin, size = location[_LOCATION_OFFSET][1], location[_LOCATION_SIZE][1]
            if begin < within[0] or size < 0 or begin + size > within[1]:
                raise _corrupt(name, f"an offset index puts a page at byte {begin}, outside its column chunk")
            location[_LOCATION_OFFSET] = thrift.I64, begin + shift
    except (MalformedError, KeyError, TypeError) as error:
        raise _corrupt(name, f"an offset index makes no sense ({error})") from error
    return thrift.encode(decoded) + index[end:]


def _bloom_length(reader: RandomReader, begin: int) -> int:
    """Bytes of a Bloom filter with its header, for writers that didn't note them (before parquet-format 2.10)."""
    head = reader.read_at(max(0, begin), _BLOOM_HEADER)
    try:
        header, end = thrift.decode(head, 0, {})
        return end + int(header[_BLOOM_BYTES][1])
    except (MalformedError, KeyError, TypeError) as error:
        raise _corrupt(reader.name, f"there is no Bloom filter at byte {begin}") from error


def _corrupt(name: str, what: str) -> CorruptFileError:
    return CorruptFileError(f"{name} isn't a sound Parquet file: {what}")
