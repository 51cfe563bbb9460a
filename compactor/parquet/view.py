"""
What Arrow sees of row groups that it decodes: a file in memory with their pages, under a footer of physical types.

Without logical types Arrow can't interpret a value, and so can't change it: a text is bytes, a date a number, INT96
twelve bytes (as a timestamp it would overflow without a word), a list a repeated field. Two views differ in what needs
an order: to be encoded anew, floats and short decimals are themselves, for Arrow writes their minimum and maximum; to
be compared, they are the bits that they consist of.
Source: parquet.thrift; Arrow's parquet::arrow schema conversion (a repeated field without annotation is a list).
"""

import enum
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from compactor.errors import CorruptFileError
from compactor.parquet import fields, thrift
from compactor.parquet import schema as elements
from compactor.parquet.fields import MAGIC
from compactor.parquet.row_group import Chunk, Loaded
from compactor.parquet.schema import DOUBLE, FIXED, FLOAT, INT32, INT64, INT96, Leaf, Schema, read_schema
from compactor.parquet.thrift import Struct
from compactor.words import one_line

_BATCH_ROWS: Final = 64 << 10


class View(enum.Enum):
    """What Arrow is to do with the values."""

    TO_ENCODE = enum.auto()
    TO_COMPARE = enum.auto()


def table(groups: Sequence[Loaded], schema: bytes, created_by: str, view: View, names: Iterable[str]) -> Any:
    """
    Decode row groups of one family.

    Where values repeat, each row group is decoded by itself: to Arrow, which reads on from one row group to the next, a
    damaged repetition level in one would move the values of all rows after it. And each must have as many levels in
    Arrow's memory as in its pages: Arrow passes over what stands behind the last row, and over lists that go on after
    their end.

    Args:
        schema, created_by: as their footers have them.
        names: the files, for messages.

    Returns:
        pyarrow.Table: a column for each field of the root.

    Raises:
        CorruptFileError: Arrow can't decode them, a checksum is wrong, or there are more or fewer rows or values than
            described.
    """
    with _decoding(names):
        opened = _opened(groups, schema, created_by, view)
        if any(opened.schema.column(leaf).max_repetition_level for leaf in range(len(opened.schema))):
            found = pa.concat_tables([_read_apart(opened, number, loaded) for number, loaded in enumerate(groups)])
        else:
            found = opened.read(use_threads=False)
    expected = sum(loaded.group.rows for loaded in groups)
    if found.num_rows != expected:
        raise CorruptFileError(f"{_named(names)}: {found.num_rows} rows were found instead of {expected}")
    return found


def _read_apart(opened: Any, number: int, loaded: Loaded) -> Any:
    found = opened.read_row_group(number, use_threads=False)
    levels = [count for column in found.columns for count in _level_counts(column)]
    if levels != [chunk.values for chunk in loaded.chunks]:
        raise pa.ArrowInvalid("lists go on after their end")
    return found


def _level_counts(column: Any) -> Iterator[int]:
    """How many levels each leaf below a column takes: one for each value, and for each list without any."""
    kind = column.type
    if pa.types.is_struct(kind):
        for child in column.flatten():
            yield from _level_counts(child)
    elif pa.types.is_list(kind):
        filled = pc.sum(pc.greater(pc.list_value_length(column), 0)).as_py() or 0
        values = pa.chunked_array([chunk.flatten() for chunk in column.chunks], kind.value_type)
        yield from (len(column) - filled + count for count in _level_counts(values))
    else:
        yield len(column)


def batches(group: Loaded, schema: bytes, created_by: str, view: View, name: str) -> Iterator[Any]:
    """
    Decode a row group a pyarrow.RecordBatch at a time, as `table` does.

    Raises:
        CorruptFileError: Arrow can't decode it, or a checksum is wrong.
    """
    with _decoding([name]):
        yield from _opened([group], schema, created_by, view).iter_batches(_BATCH_ROWS, use_threads=False)


@contextmanager
def _decoding(names: Iterable[str]) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise CorruptFileError(f"{_named(names)} can't be decoded ({one_line(error)})") from error


def _opened(groups: Sequence[Loaded], schema: bytes, created_by: str, view: View) -> Any:
    return parquet.ParquetFile(image(groups, schema, created_by, view), page_checksum_verification=True)


def image(groups: Sequence[Loaded], schema: bytes, created_by: str, view: View) -> Any:
    """Make a file in memory of row groups of one family, as a pyarrow.Buffer."""
    starts = _chunk_starts(schema, view)
    parts: list[bytes | memoryview] = [MAGIC]
    at = len(MAGIC)
    described: list[bytes] = []
    for loaded in groups:
        columns = list[bytes]()
        for chunk, encodings, (start, path) in zip(loaded.chunks, loaded.group.encodings, starts, strict=True):
            columns += (start, encodings, path, _rest_of_chunk(chunk, at))
            at += chunk.stored
        head = thrift.list_head(len(starts))
        described += (b"\x19", head, *columns, b"\x16\0\x16", thrift.encoded_integer(loaded.group.rows), b"\0")
        parts += loaded.stored
    tail: Struct = {
        fields.FILE_VERSION: (thrift.I32, 2),
        fields.FILE_SCHEMA: (thrift.LIST, _seen_schema(schema, view)),
        fields.FILE_ROWS: (thrift.I64, sum(loaded.group.rows for loaded in groups)),
        fields.FILE_ROW_GROUPS: (thrift.LIST, thrift.list_head(len(groups)) + b"".join(described)),
        fields.FILE_CREATED_BY: (thrift.BINARY, created_by.encode()),
    }
    data = thrift.encode(tail)
    parts += (data, len(data).to_bytes(4, "little"), MAGIC)
    return pa.py_buffer(b"".join(parts))


@lru_cache(maxsize=64)
def _chunk_starts(schema: bytes, view: View) -> list[tuple[bytes, bytes]]:
    """For each leaf: a chunk's description as far as its encodings, and from there as far as its codec."""
    return [
        (
            b"\x26\0\x1c\x15" + thrift.encoded_integer(_physical(leaf, view)) + b"\x19",
            b"\x19" + leaf.path + b"\x15",
        )
        for leaf in read_schema(schema).leaves
    ]


def _rest_of_chunk(chunk: Chunk, at: int) -> bytes:
    """
    A chunk's description from its codec on, when the chunk begins at `at`. Encoded by hand, for thousands of small
    files spend most of their time here otherwise: an I32 and three I64 in a row, the next but one, the next but one.
    """
    number = thrift.encoded_integer
    data_page = number(chunk.data_page - chunk.begin + at)
    dictionary = b"\x26" + number(at) if chunk.data_page != chunk.begin else b""
    sizes = b"\x16".join((number(chunk.codec), number(chunk.values), number(chunk.raw), number(chunk.stored)))
    return sizes + b"\x26" + data_page + dictionary + b"\0\0"


@lru_cache(maxsize=64)
def unlike(schema: bytes) -> str | None:
    """Why Arrow would write other columns than it reads, or None."""
    leaves = read_schema(schema).leaves
    try:
        seen = parquet.ParquetFile(image((), schema, "", View.TO_ENCODE)).schema_arrow
        _, written = written_leaves(seen)
    except (pa.ArrowException, OSError) as error:
        return f"Arrow can't represent its schema ({one_line(error)})"
    for leaf, found in zip(leaves, written, strict=False):
        if found != (leaf.levels, _physical(leaf, View.TO_ENCODE), leaf.width):
            return f"Arrow can't represent its column {leaf.name}"
    return None if len(leaves) == len(written) else "Arrow can't represent its schema"


@lru_cache(maxsize=64)
def written_leaves(schema: Any) -> tuple[tuple[str, ...], tuple[tuple[str, int, int], ...]]:
    """What Arrow makes of an Arrow schema: path of each leaf, and its levels, physical type and width."""
    empty = io.BytesIO()
    parquet.write_table(schema.empty_table(), empty, store_schema=False)
    data = empty.getvalue()
    tail = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    leaves = read_schema(tail[slice(*thrift.spans(tail, {})[fields.FILE_SCHEMA][1:])]).leaves
    return tuple(leaf.name for leaf in leaves), tuple((leaf.levels, leaf.physical, leaf.width) for leaf in leaves)


def _physical(leaf: Leaf, view: View) -> int:
    if leaf.physical == INT96:
        return FIXED
    if view is View.TO_COMPARE:
        return {FLOAT: INT32, DOUBLE: INT64}.get(leaf.physical, leaf.physical)
    return leaf.physical


@lru_cache(maxsize=64)
def _seen_schema(data: bytes, view: View) -> bytes:
    """The schema's elements as Arrow is to see them, with plain names."""
    schema = read_schema(data)
    leaves = {leaf.element: leaf for leaf in schema.leaves}
    return thrift.encoded_list(
        [_seen_element(number, schema, leaves.get(number), view) for number in range(len(schema.elements))]
    )


def _seen_element(number: int, schema: Schema, leaf: Leaf | None, view: View) -> bytes:
    element, seen = schema.elements[number], Struct()
    if leaf is not None:
        seen[elements.TYPE] = thrift.I32, _physical(leaf, view)
        if seen[elements.TYPE][1] == FIXED:
            seen[elements.TYPE_LENGTH] = thrift.I32, leaf.width
    if number:
        seen[elements.REPETITION] = element[elements.REPETITION]
    seen[elements.NAME] = thrift.BINARY, f"c{number}".encode()
    if leaf is None:
        seen[elements.CHILDREN] = element[elements.CHILDREN]
    elif leaf.decimal and view is View.TO_ENCODE:
        for field in (elements.CONVERTED, elements.SCALE, elements.PRECISION):
            if field in element:
                seen[field] = element[field]
    return thrift.encode(seen)


def _named(names: Iterable[str]) -> str:
    found = list(dict.fromkeys(names))
    return found[0] if len(found) == 1 else f"{found[0]} or one of the {len(found) - 1} files after it"
