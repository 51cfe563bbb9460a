"""ORC files for the tests, written by pyorc (the C++ library), and read back row by row."""

import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyorc

from compactor.acid.row_id import RowKey
from compactor.acid.types import HiveType, acid_type, row_type, to_hive_string
from compactor.errors import RefusedError
from compactor.handles import MemoryReader, RandomReader
from compactor.orc.format.tail import Tail, read_tail
from compactor.orc.reading.converters import CONVERTERS

ROW = row_type([("id", "int"), ("v", "string")])
Event = tuple[int, int, int, int, int, Any]


class MemorySink:
    """A `Sink` that keeps what is written."""

    def __init__(self) -> None:
        self._data = bytearray()

    @property
    def position(self) -> int:
        return len(self._data)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._data += data

    def gap_before(self, offset: int, length: int) -> int:
        return 0

    def copy_from(self, reader: RandomReader, offset: int, length: int) -> None:
        piece = reader.read_at(offset, length)
        assert len(piece) == length
        self._data += piece

    def getvalue(self) -> bytes:
        return bytes(self._data)


def plain_file(tree: HiveType, rows: Iterable[tuple[Any, ...]], **options: Any) -> bytes:
    """
    A file of one stripe, unless `stripe_size` says otherwise; field names are replaced by plain ones in the same order.
    """
    buffer = io.BytesIO()
    settings = {
        "stripe_size": 1 << 40,
        "batch_size": 1024,
        "row_index_stride": 10_000,
        "compression_block_size": 65_536,
        **options,
    }
    writer = pyorc.Writer(
        buffer, to_hive_string(named(tree)), struct_repr=pyorc.StructRepr.TUPLE, converters=CONVERTERS, **settings
    )
    for row in rows:
        writer.write(row)
    writer.close()
    return buffer.getvalue()


def named(tree: HiveType) -> HiveType:
    """The tree with field names that pyorc's parser takes: those that aren't words are numbered."""
    names = tuple(
        name if name.isascii() and name.isidentifier() else f"f{place}" for place, name in enumerate(tree.names)
    )
    return HiveType(
        tree.kind, tuple(named(child) for child in tree.children), names, tree.length, tree.precision, tree.scale
    )


def insert(key: RowKey, row: Any, current: int | None = None) -> Event:
    return (0, key.write_id, key.bucket, key.row_id, key.write_id if current is None else current, row)


def delete(key: RowKey, current: int) -> Event:
    return (2, key.write_id, key.bucket, key.row_id, current, None)


def acid_file(events: Sequence[Event], row: HiveType = ROW, **options: Any) -> bytes:
    """A full-ACID file of one stripe, without user metadata."""
    return plain_file(acid_type(row), events, **options)


def opened(data: bytes, name: str = "file") -> tuple[MemoryReader, Tail]:
    reader = MemoryReader(data, name)
    return reader, read_tail(reader)


def rows_of(data: bytes | MemorySink) -> list[tuple[Any, ...]]:
    """All rows, by pyorc."""
    source = data.getvalue() if isinstance(data, MemorySink) else data
    return list(pyorc.Reader(io.BytesIO(source), struct_repr=pyorc.StructRepr.TUPLE, converters=CONVERTERS))


def refusal(action: Callable[[], object]) -> str | None:
    """What an action is refused with; None when it isn't."""
    try:
        action()
    except RefusedError as error:
        return str(error)
    return None
