"""
Whether a file that was made holds its sources' rows: read anew and held against them.

Trusts nothing that the making of the file noted. Copied row groups must have the same description, indexes and Bloom
filters, and the same bytes where they are sampled; of encoded ones every value is compared, as the bits that it
consists of.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from compactor.errors import CorruptFileError, VerificationError
from compactor.handles import RandomReader, ReaderFile
from compactor.parquet import fields, thrift, view
from compactor.parquet.assembly import bloom_filter, indexes, shifted_index
from compactor.parquet.fields import extent
from compactor.parquet.footer import Footer, RowGroup, read_footer, require_same_rows
from compactor.parquet.joining import Piece
from compactor.parquet.row_group import Loaded, load
from compactor.parquet.thrift import MalformedError, Struct
from compactor.parquet.view import View
from compactor.words import one_line

_WHOLE: Final = 1 << 20
_SAMPLE: Final = 4 << 10
_TOGETHER: Final = 8 << 20
_PLACES: Final = (fields.META_DATA_PAGE, fields.META_INDEX_PAGE, fields.META_DICTIONARY_PAGE)


@dataclass(frozen=True, slots=True)
class _Source:
    reader: RandomReader
    footer: Footer
    index: int
    recode: bool

    @property
    def group(self) -> RowGroup:
        return self.footer.row_groups[self.index]


def check(result: RandomReader, pieces: Sequence[Piece]) -> None:
    """
    Hold a file against the pieces that it was joined of.

    Raises:
        VerificationError: the file isn't what they make together.
        CorruptFileError: a source can't be read any more.
    """
    try:
        footer = read_footer(result)
    except CorruptFileError as error:
        raise _differs(result, str(error)) from error
    sources = [
        _Source(piece.reader, piece.footer, index, piece.recode)
        for piece in pieces
        for index in piece.row_groups
        if piece.footer.row_groups[index].rows
    ]
    if any(piece.footer.family != footer.family for piece in pieces):
        raise _differs(result, "schema, metadata or writer aren't those of its sources")
    if footer.value(fields.FILE_KEY_VALUES) != footer.shared(fields.FILE_KEY_VALUES):
        raise _differs(result, "its metadata are those of one file's rows")
    rows = sum(source.group.rows for source in sources)
    if footer.rows != rows:
        raise _differs(result, f"it has {footer.rows} rows, its sources have {rows}")
    at = 0
    for number, group in enumerate(footer.row_groups):
        if at == len(sources):
            raise _differs(result, f"row group {number + 1} comes from no source")
        described = footer.describe(number)
        source = sources[at]
        if not source.recode or _same_description(described, source.footer.describe(source.index)):
            _check_copy(result, number, described, source)
            at += 1
            continue
        taken, left = list[_Source](), group.rows
        while left > 0 and at < len(sources) and sources[at].recode:
            taken.append(sources[at])
            left -= sources[at].group.rows
            at += 1
        if left:
            raise _differs(result, f"row group {number + 1} doesn't end where a row group of the sources does")
        _check_values(result, number, load(result, group), footer, taken)
    if at < len(sources):
        raise _differs(result, "row groups of its sources are missing")
    _check_with_arrow(result, footer)


def _check_copy(result: RandomReader, number: int, described: Struct, source: _Source) -> None:
    where = f"row group {number + 1}, from row group {source.index + 1} of {source.reader.name}"
    origin = source.footer.describe(source.index)
    if not _same_description(described, origin):
        raise _differs(result, f"{where}, is described differently")
    pairs = list(zip(_chunks(described), _chunks(origin), strict=True))
    for (mine, theirs), (column, offset), (their_column, their_offset) in zip(
        pairs, indexes(result, _chunks(described)), indexes(source.reader, _chunks(origin)), strict=True
    ):
        meta, their_meta = mine[fields.CHUNK_META][1], theirs[fields.CHUNK_META][1]
        shift = extent(meta)[0] - extent(their_meta)[0]
        moved = shifted_index(source.reader.name, their_offset, extent(their_meta), shift)
        if column != their_column or offset != moved:
            raise _differs(result, f"{where}, has other page indexes")
        if bloom_filter(result, meta) != bloom_filter(source.reader, their_meta):
            raise _differs(result, f"{where}, has other Bloom filters")
    extents = [(extent(mine[fields.CHUNK_META][1]), extent(theirs[fields.CHUNK_META][1])) for mine, theirs in pairs]
    for at, their_at, length in _samples(extents):
        if result.read_at(at, length) != source.reader.read_at(their_at, length):
            raise _differs(result, f"{where}, has other bytes from byte {at} on")


def _chunks(group: Struct) -> list[Struct]:
    found: list[Struct] = group[fields.GROUP_COLUMNS][1]
    return found


def _same_description(mine: Struct, theirs: Struct) -> bool:
    return _placeless(mine) == _placeless(theirs)


def _placeless(group: Struct) -> bytes:
    """A description without anything that moves with the row group: number, offsets, length of the offset index."""
    chunks = []
    for chunk in _chunks(group):
        meta: Struct = dict(chunk[fields.CHUNK_META][1])
        begin, _ = extent(meta)
        for number in _PLACES:
            if number in meta and meta[number][1]:
                meta[number] = thrift.I64, meta[number][1] - begin
        if fields.META_BLOOM in meta:
            meta[fields.META_BLOOM] = thrift.I64, 0
        rest = dict(chunk)
        rest[fields.CHUNK_META] = thrift.STRUCT, meta
        for number in (fields.CHUNK_FILE_OFFSET, fields.CHUNK_OFFSET_INDEX, fields.CHUNK_COLUMN_INDEX):
            if number in rest:
                rest[number] = thrift.I64, 0
        if fields.CHUNK_OFFSET_INDEX_LENGTH in rest:
            rest[fields.CHUNK_OFFSET_INDEX_LENGTH] = thrift.I32, 0
        chunks.append(rest)
    whole: Struct = {**group, fields.GROUP_COLUMNS: (thrift.LIST, chunks)}
    whole.pop(fields.GROUP_ORDINAL, None)
    if fields.GROUP_FILE_OFFSET in whole:
        whole[fields.GROUP_FILE_OFFSET] = thrift.I64, int(bool(whole[fields.GROUP_FILE_OFFSET][1]))
    return thrift.encode(whole)


def _samples(extents: Sequence[tuple[tuple[int, int], tuple[int, int]]]) -> Iterator[tuple[int, int, int]]:
    """
    Ranges to compare: begin in either file, and length. All of a small row group; of a large one begin, middle and
    end of each chunk, the end of one with the begin of the next where they are neighbours in both files.
    """
    wanted: list[tuple[int, int, int]] = []
    small = sum(end - begin for (begin, end), _ in extents) <= _WHOLE
    for (begin, end), (theirs, _) in extents:
        length = end - begin
        if small or length <= 3 * _SAMPLE:
            wanted.append((begin, theirs, length))
            continue
        middle, last = (length - _SAMPLE) // 2, length - _SAMPLE
        wanted += [(begin + offset, theirs + offset, _SAMPLE) for offset in (0, middle, last)]
    held = wanted[0]
    for mine, theirs, length in wanted[1:]:
        if held[0] + held[2] == mine and held[1] + held[2] == theirs:
            held = held[0], held[1], held[2] + length
        else:
            yield held
            held = mine, theirs, length
    yield held


def _check_values(
    result: RandomReader, number: int, loaded: Loaded, footer: Footer, sources: Sequence[_Source]
) -> None:
    schema, created_by = footer.value(fields.FILE_SCHEMA), footer.created_by
    stream = view.batches(loaded, schema, created_by, View.TO_COMPARE, result.name)
    batch: Any = None
    row = 0
    for some in _together(sources):
        names = [source.reader.name for source in some]
        groups = [load(source.reader, source.group) for source in some]
        table = view.table(groups, schema, created_by, View.TO_COMPARE, names)
        at = 0
        while at < table.num_rows:
            if batch is None or batch.num_rows == 0:
                batch = _next(stream, result, number)
            count = min(batch.num_rows, table.num_rows - at)
            for column, (mine, theirs) in enumerate(
                zip(batch.slice(0, count).columns, table.slice(at, count).columns, strict=True)
            ):
                if not pa.chunked_array([mine], mine.type).equals(theirs):
                    message = f"row group {number + 1}, column {column + 1}: a value of rows {row + 1} to {row + count} isn't that of {names[0]} and what follows"
                    raise _differs(result, message)
            batch = batch.slice(count)
            at += count
            row += count
    # Arrow passes over what lists have behind the last row, to other readers the next row group begins with it
    counts = [[chunk.values for chunk in source.group.chunks] for source in sources]
    if [chunk.values for chunk in loaded.chunks] != [sum(each) for each in zip(*counts, strict=True)]:
        raise _differs(result, f"row group {number + 1} has more values than its sources, or none")


def _next(stream: Iterator[Any], result: RandomReader, number: int) -> Any:
    try:
        batch = next(stream, None)
    except CorruptFileError as error:
        raise _differs(result, str(error)) from error
    if batch is None:
        raise _differs(result, f"row group {number + 1} has fewer rows than it says")
    return batch


def _together(sources: Sequence[_Source]) -> Iterator[list[_Source]]:
    """The sources, so many at a time as are decoded at once."""
    some, stored = list[_Source](), 0
    for source in sources:
        if some and stored + source.group.bytes > _TOGETHER:
            yield some
            some, stored = [], 0
        some.append(source)
        stored += source.group.bytes
    if some:
        yield some


def _check_with_arrow(result: RandomReader, footer: Footer) -> None:
    """Arrow must open the file, and find in each row group the rows that its sources have."""
    try:
        found = parquet.read_metadata(pa.PythonFile(ReaderFile(result), mode="r"))
        require_same_rows(found, footer.rows, [group.rows for group in footer.row_groups])
    except (pa.ArrowException, OSError, MalformedError) as error:
        raise _differs(result, f"Arrow can't open it as it is meant ({one_line(error)})") from error


def _differs(result: RandomReader, what: str) -> VerificationError:
    return VerificationError(f"{result.name} differs from its sources: {what}")
