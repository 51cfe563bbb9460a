"""
The footer of a Parquet file: what it says, whether it may be believed, and what may become of the file's row groups.

Reads and judges. Distrusts what it reads: a file that isn't sound is a CorruptFileError that says what is wrong. A row
group's description is decoded here, judged and forgotten, so that the footers of thousands of files take little
memory; what copies a row group decodes it again.
Source: parquet.thrift; docs/parquet.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

import pyarrow as pa
from pyarrow import parquet

from compactor.errors import CorruptFileError
from compactor.handles import RandomReader
from compactor.parquet import fields, key_values, structs, thrift, view, writers
from compactor.parquet.fields import MAGIC
from compactor.parquet.row_group import Chunk, RowGroup, packed, shared
from compactor.parquet.schema import BYTE_ARRAY, FIXED, Leaf, Schema, read_schema, type_ordered
from compactor.parquet.statistics import require_statistics
from compactor.parquet.thrift import MalformedError, Span, Struct
from compactor.parsing import parsing
from compactor.words import one_line

__all__ = ["LONGEST", "Footer", "RowGroup", "read_footer"]
LONGEST: Final = 16 << 20
"""Bytes of the longest footer that is decoded, and that a joined file gets."""
_ENCRYPTED_MAGIC: Final = b"PARE"
_FIRST_READ: Final = 64 << 10
_SIZES: Final = (fields.META_VALUES, fields.META_RAW, fields.META_STORED, fields.META_DATA_PAGE)
_INDEXES: Final = (
    (fields.CHUNK_OFFSET_INDEX, fields.CHUNK_OFFSET_INDEX_LENGTH),
    (fields.CHUNK_COLUMN_INDEX, fields.CHUNK_COLUMN_INDEX_LENGTH),
)
_JUDGED: Final[thrift.Shape] = {
    fields.GROUP_COLUMNS: {
        fields.CHUNK_META: {
            fields.META_KEY_VALUES: {},
            fields.META_STATISTICS: {},
            fields.META_ENCODING_STATISTICS: {},
            fields.META_SIZE_STATISTICS: {},
        }
    },
    fields.GROUP_SORTING: {},
}
"""What is decoded to be judged; a row group that is copied keeps what lies inside the metadata as it is."""


@dataclass(frozen=True, slots=True)
class Footer:
    """
    A file's footer.

    Args:
        name: the file, for messages.
        length: bytes of the file.
        rows: number of rows; 0 where `carried` says that they aren't known.
        row_groups: in the order of the file; empty where `carried` says that they weren't read.
        family: hex digest of everything in the footer but its row groups and what is true of its own rows only: only
            files of one family may share a file.
        carried: why the file can only be carried over whole, or None.
        kept: why its row groups can be copied but not encoded anew, or None.
        needs: what a reader must know to decode its values, see `writers.needs`; None: it has no rows, or `carried` says
            that they weren't read.
        data: the footer's bytes.
        places: wire type, begin and end of the fields in `data`.
    """

    name: str
    length: int
    rows: int
    row_groups: tuple[RowGroup, ...] = field(repr=False)
    family: str
    carried: str | None
    kept: str | None
    needs: str | None
    data: bytes = field(repr=False)
    places: dict[int, Span] = field(repr=False)

    @property
    def schema(self) -> Schema:
        return read_schema(self.value(fields.FILE_SCHEMA))

    @property
    def created_by(self) -> str:
        return _created_by(self.data, self.places)

    def value(self, number: int) -> bytes:
        """The bytes of a field of the footer; none where the footer hasn't got the field."""
        _, begin, end = self.places.get(number, (0, 0, 0))
        return self.data[begin:end]

    def shared(self, number: int) -> bytes:
        """The same in a file whose rows come from several files."""
        found = self.value(number)
        return key_values.shared(found) if number == fields.FILE_KEY_VALUES else found

    def describe(self, index: int) -> Struct:
        """Decode the description of a row group, with its chunks as structs and their metadata as structs."""
        return thrift.decode(self.data, self.row_groups[index].place, fields.GROUP_SHAPE)[0]


def read_footer(reader: RandomReader) -> Footer:
    """
    Read and judge a file's footer.

    Raises:
        CorruptFileError: the file isn't a sound Parquet file.
    """
    with parsing(reader.name):
        return _read(reader)


def _read(reader: RandomReader) -> Footer:
    name, length = reader.name, reader.size
    if length < 12:
        raise _corrupt(name, f"it has only {length} bytes")
    tail = reader.read_at(max(0, length - _FIRST_READ), min(length, _FIRST_READ))
    magic = tail[-4:]
    if magic not in {MAGIC, _ENCRYPTED_MAGIC}:
        raise _corrupt(name, f"it ends with {magic!r} instead of {MAGIC!r}")
    footer_length = int.from_bytes(tail[-8:-4], "little")
    begin = length - 8 - footer_length
    if begin < len(MAGIC):
        raise _corrupt(name, f"its footer claims {footer_length} of its {length} bytes")
    if magic == _ENCRYPTED_MAGIC:
        return _unread(name, length, 0, "its footer is encrypted, and its number of rows with it")
    try:
        if footer_length > LONGEST:
            rows = thrift.leading_integer(reader.read_at(begin, LONGEST), fields.FILE_ROWS)
            return _unread(name, length, rows, f"its footer has {footer_length >> 20} MiB")
        if len(tail) < footer_length + 8:
            tail = reader.read_at(begin, footer_length + 8)
        if len(tail) < footer_length + 8:
            raise MalformedError("it became shorter while it was read")
        return _judged(name, length, begin, tail[-8 - footer_length : -8])
    except MalformedError as error:
        raise _corrupt(name, f"its footer makes no sense: {error}") from error


def _judged(name: str, length: int, begin: int, data: bytes) -> Footer:
    judge = _Judge(data, begin)
    places = thrift.spans(data, {fields.FILE_ROW_GROUPS: judge.row_groups})
    if fields.FILE_ROW_GROUPS not in places:
        raise MalformedError("it describes no row groups")
    structs.FILE.require({number: (kind, None) for number, (kind, *_) in places.items()})
    _require_key_values(data, places)
    rows, groups = thrift.integer(data, places[fields.FILE_ROWS][1]), tuple(judge.groups)
    family, created_by = _family(data, places), _created_by(data, places)
    type_ordered(data[slice(*places.get(fields.FILE_COLUMN_ORDERS, (0, 0, 0))[1:])], len(judge.leaves))
    if not judge.leaves:
        return Footer(name, length, rows, (), family, "it has no columns", None, None, data, places)
    if sum(group.rows for group in groups) != rows:
        raise MalformedError(f"its row groups have {sum(group.rows for group in groups)} rows instead of {rows}")
    if sum(group.bytes for group in groups) > begin:
        raise MalformedError("its row groups claim more bytes than the file has")
    if any(number in places for number in fields.FILE_ENCRYPTION):
        judge.carried = "its columns are encrypted"
    # of several row groups Arrow reads the last one's alone then
    if unknown := [leaf.name for leaf in judge.leaves if leaf.unknown and leaf.physical in {BYTE_ARRAY, FIXED}]:
        judge.carried = (
            f"its column {unknown[0]} has texts of the type UNKNOWN, which Arrow reads of one row group only"
        )
    if judge.carried is None:
        _require_arrow(data, rows, [group.rows for group in groups])
    carried = (
        judge.carried
        or writers.carried(created_by, judge.codecs, judge.encodings)
        or key_values.carried(data[slice(*places.get(fields.FILE_KEY_VALUES, (0, 0, 0))[1:])])
    )
    kept = (
        judge.kept
        or writers.kept(created_by, judge.codecs)
        or view.unlike(data[slice(*places[fields.FILE_SCHEMA][1:])])
    )
    return Footer(name, length, rows, groups, family, carried, kept, judge.needs, data, places)


class _Judge:
    """Goes through the row groups of one footer; `carried` and `kept` are the first reasons that it found."""

    def __init__(self, data: bytes, end: int) -> None:
        self.carried: str | None = None
        self.kept: str | None = None
        self.codecs = set[int]()
        self.groups = list[RowGroup]()
        self.leaves: tuple[Leaf, ...] = ()
        self._data = data
        self._end = end
        self._encodings = set[bytes]()
        self._filled = set[tuple[int, bytes]]()
        """Codecs and encodings of row groups with rows."""

    @property
    def encodings(self) -> set[int]:
        return {encoding for found in self._encodings for encoding in thrift.integers(found)}

    @property
    def needs(self) -> str | None:
        """See `Footer`."""
        encodings = {encoding for _, found in self._filled for encoding in thrift.integers(found)}
        return writers.needs({codec for codec, _ in self._filled}, encodings) if self._filled else None

    def row_groups(self, places: dict[int, Span], here: Span) -> int:
        """Judge the list of row groups; returns where it ends."""
        if places.get(fields.FILE_SCHEMA, here)[0] != thrift.LIST or fields.FILE_SCHEMA not in places:
            raise MalformedError("it has no schema")
        if fields.FILE_ROWS not in places or places[fields.FILE_ROWS][0] != thrift.I64:
            raise MalformedError("it has no number of rows")
        self.leaves = read_schema(self._data[slice(*places[fields.FILE_SCHEMA][1:])]).leaves
        count, kind, at = thrift.list_header(self._data, here[1])
        if here[0] != thrift.LIST or (count and kind != thrift.STRUCT):
            raise MalformedError("its row groups aren't a list of structs")
        for _ in range(count):
            group, end = thrift.decode(self._data, at, _JUDGED)
            if self.leaves:
                self.groups.append(self._row_group(group, at))
            at = end
        return at

    def _row_group(self, group: Struct, place: int) -> RowGroup:
        columns, rows = group.get(fields.GROUP_COLUMNS), group.get(fields.GROUP_ROWS)
        if columns is None or not isinstance(columns[1], list) or len(columns[1]) != len(self.leaves):
            raise MalformedError(f"a row group doesn't describe all {len(self.leaves)} columns")
        if rows is None or rows[0] != thrift.I64 or rows[1] < 0:
            raise MalformedError("a row group has no number of rows")
        structs.ROW_GROUP.require(group)
        for sorting in group.get(fields.GROUP_SORTING, (0, ()))[1]:
            structs.SORTING.require(sorting)
        described, encodings = [], []
        for chunk, leaf in zip(columns[1], self.leaves, strict=True):
            meta = self._chunk(chunk, leaf)
            found = Chunk(
                fields.extent(meta)[0],
                meta[fields.META_DATA_PAGE][1],
                meta[fields.META_CODEC][1],
                meta[fields.META_VALUES][1],
                meta[fields.META_RAW][1],
                meta[fields.META_STORED][1],
            )
            if found.values != rows[1] and "R" not in leaf.levels:
                raise MalformedError(f"column {leaf.name} has {found.values} values in a row group of {rows[1]} rows")
            described.append(found)
            encodings.append(shared(meta[fields.META_ENCODINGS][1]))
        if rows[1]:
            self._filled.update(zip([chunk.codec for chunk in described], encodings, strict=True))
        stored = sum([chunk.stored for chunk in described])
        # Java's readers find the row groups of a split by it
        if group.get(fields.GROUP_STORED, (0, stored))[1] != stored:
            raise MalformedError(f"a row group of {stored} bytes claims {group[fields.GROUP_STORED][1]}")
        return RowGroup(
            rows[1],
            stored,
            sum([chunk.raw for chunk in described]),
            place,
            packed(described),
            tuple(encodings),
            fields.CHUNK_OFFSET_INDEX in columns[1][0],
        )

    def _chunk(self, chunk: Struct, leaf: Leaf) -> Struct:
        if fields.CHUNK_FILE_PATH in chunk:
            self.carried = "its data lies in another file"
        if any(number in chunk for number in fields.CHUNK_ENCRYPTION):
            self.carried = "its columns are encrypted"
        found = chunk.get(fields.CHUNK_META)
        if found is None or not isinstance(found[1], dict):
            raise MalformedError(f"column {leaf.name} has no metadata")
        meta: Struct = found[1]
        if any(number not in meta or meta[number][0] != thrift.I64 or meta[number][1] < 0 for number in _SIZES):
            raise MalformedError(f"column {leaf.name} has no sizes")
        if fields.META_CODEC not in meta or fields.META_ENCODINGS not in meta:
            raise MalformedError(f"column {leaf.name} has no codec or no encodings")
        structs.CHUNK.require(chunk)
        structs.META.require(meta)
        begin, end = fields.extent(meta)
        outside = begin < len(MAGIC) or end > self._end or meta[fields.META_DATA_PAGE][1] > end
        if outside and end > begin and self.carried is None:
            raise MalformedError(f"column {leaf.name} would lie at bytes {begin} to {end}, before or behind the data")
        elsewhere = any(not 0 <= meta.get(number, (0, 0))[1] <= self._end for number in fields.META_OTHER_PAGES)
        if elsewhere and self.carried is None:
            raise MalformedError(f"column {leaf.name} has pages before or behind the data")
        if meta[fields.META_TYPE][1] != leaf.physical:
            raise MalformedError(f"column {leaf.name} has another type than in the schema")
        if meta[fields.META_PATH][1] != leaf.path:
            self.carried = "its columns aren't in the order of its schema"
        if self.carried is None:
            self._require_index_places(chunk, leaf)
        require_statistics(meta, leaf)
        if fields.META_BLOOM in meta:
            self.kept = "it has Bloom filters"
        elif fields.META_KEY_VALUES in meta:
            self.kept = "its columns have metadata of their own"
        self.codecs.add(meta[fields.META_CODEC][1])
        self._encodings.add(meta[fields.META_ENCODINGS][1])
        return meta

    def _require_index_places(self, chunk: Struct, leaf: Leaf) -> None:
        """A page index has a place and a length: readers disagree about half of that, and about zeros."""
        for place, length in _INDEXES:
            at, size = (chunk.get(number, (0, None))[1] for number in (place, length))
            if (at is None) != (size is None) or (at is not None and not (0 < at <= self._end - size and size > 0)):
                raise MalformedError(f"column {leaf.name} has a page index of {size} bytes at byte {at}")


def _require_key_values(data: bytes, places: dict[int, Span]) -> None:
    _, begin, end = places.get(fields.FILE_KEY_VALUES, (0, 0, 0))
    if end > begin:
        for pair in thrift.structs(data, begin):
            structs.KEY_VALUE.require(pair)


def _require_arrow(data: bytes, rows: int, row_groups: list[int]) -> None:
    """
    Arrow parses the whole footer, so that no file is joined with others which Arrow can't open afterwards.

    Raises:
        MalformedError: it can't, or finds other rows.
    """
    try:
        found = parquet.read_metadata(pa.BufferReader(b"".join((MAGIC, data, len(data).to_bytes(4, "little"), MAGIC))))
    except (pa.ArrowException, OSError) as error:
        raise MalformedError(f"Arrow can't open it ({one_line(error)})") from error
    require_same_rows(found, rows, row_groups)


def require_same_rows(found: parquet.FileMetaData, rows: int, row_groups: Iterable[int]) -> None:
    """
    Hold what Arrow reads of a file against what this package reads.

    Raises:
        MalformedError: other rows, in all or in a row group.
    """
    counts = [found.row_group(number).num_rows for number in range(found.num_row_groups)]
    if found.num_rows != rows or counts != list(row_groups):
        raise MalformedError(f"Arrow finds {found.num_rows} rows in {len(counts)} row groups")


def _family(data: bytes, places: dict[int, Span]) -> str:
    digest = blake2b(digest_size=8)
    for number, (kind, begin, end) in places.items():
        if number not in {fields.FILE_ROWS, fields.FILE_ROW_GROUPS}:
            value = data[begin:end]
            if number == fields.FILE_KEY_VALUES:
                value = key_values.shared(value)
            digest.update(f"{number} {kind} {len(value)};".encode())
            digest.update(value)
    return digest.hexdigest()


def _created_by(data: bytes, places: dict[int, Span]) -> str:
    kind, begin, end = places.get(fields.FILE_CREATED_BY, (0, 0, 0))
    return thrift.binary(data[begin:end]).decode(errors="backslashreplace") if kind == thrift.BINARY else ""


def _unread(name: str, length: int, rows: int, carried: str) -> Footer:
    return Footer(name, length, rows, (), "", carried, None, None, b"", {})


def _corrupt(name: str, what: str) -> CorruptFileError:
    return CorruptFileError(f"{name} isn't a sound Parquet file: {what}")
