"""
The footer of a Parquet file: what it says, whether it may be believed, and what may become of the file's row groups.

Reads and judges. Distrusts what it reads: a file that isn't sound is a CorruptFileError that says what is wrong. A row
group's description is decoded here, judged and forgotten; whoever copies it decodes it again, so that the footers of
thousands of files take little memory.
Source: parquet.thrift; docs/parquet.md.
"""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from compactor.errors import CorruptFileError
from compactor.handles import RandomReader
from compactor.parquet import thrift, writers
from compactor.parquet.schema import Leaf, Schema, read_schema
from compactor.parquet.thrift import MalformedError, Span, Struct
from compactor.reasons import Reason

MAGIC: Final = b"PAR1"
_ENCRYPTED_MAGIC: Final = b"PARE"
_FIRST_READ: Final = 64 << 10
_LONGEST: Final = 16 << 20

FILE_SCHEMA: Final = 2
FILE_ROWS: Final = 3
FILE_ROW_GROUPS: Final = 4
FILE_CREATED_BY: Final = 6
FILE_COLUMN_ORDERS: Final = 7
_FILE_ENCRYPTION: Final = (8, 9)

GROUP_COLUMNS: Final = 1
GROUP_ROWS: Final = 3
GROUP_SORTING: Final = 4
GROUP_FILE_OFFSET: Final = 5
GROUP_STORED: Final = 6
GROUP_ORDINAL: Final = 7

CHUNK_FILE_PATH: Final = 1
CHUNK_FILE_OFFSET: Final = 2
CHUNK_META: Final = 3
CHUNK_OFFSET_INDEX: Final = 4
CHUNK_OFFSET_INDEX_LENGTH: Final = 5
CHUNK_COLUMN_INDEX: Final = 6
CHUNK_COLUMN_INDEX_LENGTH: Final = 7
_CHUNK_ENCRYPTION: Final = (8, 9)

META_TYPE: Final = 1
META_ENCODINGS: Final = 2
META_PATH: Final = 3
META_CODEC: Final = 4
META_VALUES: Final = 5
META_RAW: Final = 6
META_STORED: Final = 7
META_KEY_VALUES: Final = 8
META_DATA_PAGE: Final = 9
META_INDEX_PAGE: Final = 10
META_DICTIONARY_PAGE: Final = 11
META_STATISTICS: Final = 12
META_BLOOM: Final = 14
META_BLOOM_LENGTH: Final = 15
_META_NUMBERS: Final = (META_VALUES, META_RAW, META_STORED, META_DATA_PAGE)

GROUP_SHAPE: Final[thrift.Shape] = {GROUP_COLUMNS: {CHUNK_META: {}}}


@dataclass(frozen=True, slots=True)
class RowGroup:
    """
    One row group as its footer describes it.

    Args:
        rows: number of rows.
        bytes: stored bytes of its column chunks.
        raw_bytes: the same uncompressed, as the footer states.
        place: where in the footer its description begins and ends.
    """

    rows: int
    bytes: int
    raw_bytes: int
    place: tuple[int, int] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Footer:
    """
    A file's footer.

    Args:
        name: the file, for messages.
        length: bytes of the file.
        rows: number of rows; 0 where `carried` says that they aren't known.
        row_groups: in the order of the file; empty where `carried` says that they weren't read.
        family: hex digest of everything in the footer but its row groups: only files of one family may share a file.
        carried: why the file can only be carried over whole, or None.
        kept: why its row groups can be copied but not encoded anew, or None.
        data: the footer's bytes.
        fields: where in `data` its fields stand.
    """

    name: str
    length: int
    rows: int
    row_groups: tuple[RowGroup, ...] = field(repr=False)
    family: str
    carried: str | None
    kept: str | None
    data: bytes = field(repr=False)
    fields: dict[int, Span] = field(repr=False)

    @property
    def schema(self) -> Schema:
        return read_schema(self.value(FILE_SCHEMA))

    @property
    def created_by(self) -> str:
        return _created_by(self.data, self.fields)

    def value(self, number: int) -> bytes:
        """The bytes of a field of the footer; none where the footer hasn't got the field."""
        _, begin, end = self.fields.get(number, (0, 0, 0))
        return self.data[begin:end]

    def describe(self, index: int) -> Struct:
        """Decode the description of a row group, with its chunks as structs and their metadata as structs."""
        return thrift.decode(self.data, self.row_groups[index].place[0], GROUP_SHAPE)[0]


def extent(meta: Struct) -> tuple[int, int]:
    """
    Where a column chunk begins and ends, by its metadata.

    Source: parquet-mr's ColumnChunkMetaData.getStartingPos: a dictionary's offset counts if it is before the data's.
    """
    begin: int = meta[META_DATA_PAGE][1]
    dictionary: int = meta[META_DICTIONARY_PAGE][1] if META_DICTIONARY_PAGE in meta else 0
    if 0 < dictionary < begin:
        begin = dictionary
    return begin, begin + meta[META_STORED][1]


def read_footer(reader: RandomReader) -> Footer:
    """
    Read and judge a file's footer.

    Raises:
        CorruptFileError: the file isn't a sound Parquet file.
    """
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
        return _unread(name, length, 0, "its footer is encrypted, and so is its number of rows")
    if footer_length > _LONGEST:
        head = reader.read_at(begin, _LONGEST)
        return _unread(name, length, _rows_of_long(name, head), f"its footer has {footer_length >> 20} MiB")
    if len(tail) < footer_length + 8:
        tail = reader.read_at(begin, footer_length + 8)
    if len(tail) < footer_length + 8:
        raise _corrupt(name, "it became shorter while it was read")
    try:
        return _judged(name, length, begin, tail[-8 - footer_length : -8])
    except MalformedError as error:
        raise _corrupt(name, f"its footer makes no sense, for {error}") from error


def _judged(name: str, length: int, begin: int, data: bytes) -> Footer:
    judge = _Judge(data, begin)
    fields = thrift.spans(data, {FILE_ROW_GROUPS: judge.row_groups})
    if FILE_ROW_GROUPS not in fields:
        raise MalformedError(f"field {FILE_ROW_GROUPS} is missing")
    rows = thrift.integer(data, fields[FILE_ROWS][1])
    groups = tuple(judge.groups)
    family = _family(data, fields)
    if not judge.leaves:
        return Footer(name, length, rows, (), family, "it has no columns", None, data, fields)
    if sum(group.rows for group in groups) != rows:
        raise MalformedError(f"its row groups have {sum(group.rows for group in groups)} rows instead of {rows}")
    if sum(group.bytes for group in groups) > begin:
        raise MalformedError("its row groups claim more bytes than the file has")
    if any(number in fields for number in _FILE_ENCRYPTION):
        judge.carried = "its columns are encrypted"
    created_by = _created_by(data, fields)
    carried = judge.carried or writers.carried(created_by, judge.encodings)
    kept = judge.kept or writers.kept(created_by, judge.codecs, judge.encodings)
    return Footer(name, length, rows, groups, family, carried, kept, data, fields)


class _Judge:
    """Goes through the row groups of one file; `carried` and `kept` are the first reasons it found."""

    def __init__(self, data: bytes, end: int) -> None:
        self.carried: str | None = None
        self.kept: str | None = None
        self.codecs = set[int]()
        self.groups = list[RowGroup]()
        self.leaves: tuple[Leaf, ...] = ()
        self._data = data
        self._end = end
        self._encodings = set[bytes]()

    @property
    def encodings(self) -> set[int]:
        return {encoding for found in self._encodings for encoding in thrift.integers(found)}

    def row_groups(self, fields: dict[int, Span], here: Span) -> int:
        """Judge the list of row groups; returns where it ends."""
        for wanted, kind in ((FILE_SCHEMA, thrift.LIST), (FILE_ROWS, thrift.I64)):
            if wanted not in fields or fields[wanted][0] != kind:
                raise MalformedError(f"field {wanted} is missing")
        schema = read_schema(self._data[slice(*fields[FILE_SCHEMA][1:])])
        self.leaves = schema.leaves
        if schema.has_empty_group:
            self.kept = "a group of its schema has no fields"
        count, kind, at = thrift.list_header(self._data, here[1])
        if here[0] != thrift.LIST or (count and kind != thrift.STRUCT):
            raise MalformedError("its row groups aren't a list of structs")
        for _ in range(count):
            group, end = thrift.decode(self._data, at, GROUP_SHAPE)
            if self.leaves:
                self.groups.append(self._row_group(group, (at, end)))
            at = end
        return at

    def _row_group(self, group: Struct, place: tuple[int, int]) -> RowGroup:
        columns, rows = group.get(GROUP_COLUMNS), group.get(GROUP_ROWS)
        if columns is None or not isinstance(columns[1], list) or len(columns[1]) != len(self.leaves):
            raise MalformedError(f"a row group doesn't describe all {len(self.leaves)} columns")
        if rows is None or rows[0] != thrift.I64 or rows[1] < 0:
            raise MalformedError("a row group has no number of rows")
        stored = raw = 0
        for chunk, leaf in zip(columns[1], self.leaves, strict=True):
            meta = self._chunk(chunk, leaf)
            stored += meta[META_STORED][1]
            raw += meta[META_RAW][1]
            if "R" not in leaf.levels and meta[META_VALUES][1] != rows[1]:
                values = meta[META_VALUES][1]
                raise MalformedError(f"column {leaf.name} has {values} values in a row group of {rows[1]} rows")
        return RowGroup(rows[1], stored, raw, place)

    def _chunk(self, chunk: Struct, leaf: Leaf) -> Struct:
        if CHUNK_FILE_PATH in chunk:
            self.carried = self.carried or "its data lies in another file"
        if any(number in chunk for number in _CHUNK_ENCRYPTION):
            self.carried = self.carried or "its columns are encrypted"
        found = chunk.get(CHUNK_META)
        if found is None or not isinstance(found[1], dict):
            raise MalformedError(f"column {leaf.name} has no metadata")
        meta: Struct = found[1]
        if any(meta.get(number, (0, 0))[0] != thrift.I64 or meta[number][1] < 0 for number in _META_NUMBERS):
            raise MalformedError(f"column {leaf.name} has no sizes")
        begin, end = extent(meta)
        if self.carried is None and (begin < len(MAGIC) or end > self._end):
            raise MalformedError(f"column {leaf.name} would lie at bytes {begin} to {end}, before or behind the data")
        if meta.get(META_TYPE, (0, None))[1] != leaf.physical:
            raise MalformedError(f"column {leaf.name} has another type than in the schema")
        if meta.get(META_PATH, (0, b""))[1] != leaf.path:
            self.carried = self.carried or "its columns aren't in the order of its schema"
        if META_BLOOM in meta:
            self.kept = self.kept or "it has Bloom filters"
        if META_KEY_VALUES in meta:
            self.kept = self.kept or "its columns have metadata of their own"
        if META_CODEC not in meta or META_ENCODINGS not in meta:
            raise MalformedError(f"column {leaf.name} has no codec or no encodings")
        self.codecs.add(meta[META_CODEC][1])
        self._encodings.add(meta[META_ENCODINGS][1])
        return meta


def _family(data: bytes, fields: dict[int, Span]) -> str:
    digest = blake2b(digest_size=8)
    for number, (kind, begin, end) in fields.items():
        if number not in {FILE_ROWS, FILE_ROW_GROUPS}:
            digest.update(f"{number} {kind} {end - begin};".encode())
            digest.update(data[begin:end])
    return digest.hexdigest()


def _created_by(data: bytes, fields: dict[int, Span]) -> str:
    if FILE_CREATED_BY not in fields or fields[FILE_CREATED_BY][0] != thrift.BINARY:
        return ""
    _, begin, end = fields[FILE_CREATED_BY]
    return thrift.binary(data[begin:end]).decode(errors="backslashreplace")


def _rows_of_long(name: str, head: bytes) -> int:
    """The number of rows from the beginning of a long footer: the row groups come after it."""
    try:
        return thrift.leading_integer(head, FILE_ROWS)
    except MalformedError as error:
        raise _corrupt(name, f"its footer makes no sense, for {error}") from error


def _unread(name: str, length: int, rows: int, carried: str) -> Footer:
    return Footer(name, length, rows, (), "", carried, None, b"", {})


def _corrupt(name: str, what: str) -> CorruptFileError:
    return CorruptFileError(Reason.CORRUPT_FILE, f"{name} isn't a sound Parquet file: {what}")
