"""
Rows that Arrow decoded become one row group of the file that is being made.

Arrow writes pages in the manner of the sources: codec, dictionaries, encodings, version of the data pages, checksums,
page index. What it then says about them is put into the sources' words: their types, paths and offsets; and of the
statistics only what is true in the order that readers assume.
Source: parquet.thrift (Statistics, ColumnOrder); parquet-mr's Statistics, which has no range where there is a NaN.
"""

import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from compactor.errors import VerificationError
from compactor.handles import Sink
from compactor.parquet import fields, thrift
from compactor.parquet.assembly import Assembly, shifted_index
from compactor.parquet.fields import MAGIC, extent
from compactor.parquet.footer import Footer, read_footer
from compactor.parquet.pages import DATA_PAGE_1, DATA_PAGE_2, pages
from compactor.parquet.row_group import Loaded
from compactor.parquet.schema import Leaf, type_ordered
from compactor.parquet.thrift import Struct
from compactor.parquet.view import written_leaves
from compactor.parquet.writers import CODECS, DICTIONARIES, ENCODINGS, FITTING, PLAIN_DICTIONARY

_LEVELS: Final = {"gzip": 6, "zstd": 3}
"""Compression levels of Java's writers; Arrow's own are 9 and 1."""
_NULLS: Final = 3
_VALUE_RANGE: Final = (5, 6, 7, 8)
"""Fields of Statistics that have a meaning only beside a column order."""


@dataclass(slots=True)
class Manner:
    """How row groups of a family were written, gathered from those that become one."""

    codecs: list[Counter[int]] = field(default_factory=list)
    encodings: list[set[bytes]] = field(default_factory=list)
    page_index: bool = False
    version_2: bool = False
    checksums: bool = False

    def gather(self, group: Loaded) -> None:
        """
        Add a row group.

        Raises:
            MalformedError: its first pages make no sense.
        """
        if not self.codecs:
            self.codecs = [Counter() for _ in group.chunks]
            self.encodings = [set() for _ in group.chunks]
            page = next((page for page in pages(group.stored[0]) if page.kind in {DATA_PAGE_1, DATA_PAGE_2}), None)
            self.version_2 = page is not None and page.kind == DATA_PAGE_2
            self.checksums = page is not None and page.crc is not None
        for chunk, found, codecs, encodings in zip(
            group.chunks, group.group.encodings, self.codecs, self.encodings, strict=True
        ):
            codecs[chunk.codec] += chunk.stored
            encodings.add(found)
        self.page_index = self.page_index or group.group.has_page_index

    def options(self, paths: Sequence[str], leaves: Sequence[Leaf]) -> dict[str, Any]:
        """Arrow's options, for columns that Arrow calls by these paths."""
        used = [{number for found in each for number in thrift.integers(found)} for each in self.encodings]
        codecs = [CODECS[each.most_common(1)[0][0]] for each in self.codecs]
        with_dictionary = [not DICTIONARIES.isdisjoint(found) for found in used]
        others = {}
        for path, leaf, found, dictionary in zip(paths, leaves, used, with_dictionary, strict=True):
            fitting = [number for number in found if leaf.physical in FITTING.get(number, ())]
            if fitting and not dictionary:
                others[path] = ENCODINGS[min(fitting)]
        return {
            "version": "1.0" if any(PLAIN_DICTIONARY in found for found in used) else "2.6",
            "data_page_version": "2.0" if self.version_2 else "1.0",
            "compression": dict(zip(paths, codecs, strict=True)),
            "compression_level": {
                path: _LEVELS[codec] for path, codec in zip(paths, codecs, strict=True) if codec in _LEVELS
            },
            "use_dictionary": [path for path, dictionary in zip(paths, with_dictionary, strict=True) if dictionary],
            "column_encoding": others or None,
            "write_page_index": self.page_index,
            "write_page_checksum": self.checksums,
            "store_schema": False,
        }


def write_row_group(assembly: Assembly, sink: Sink, table: Any, manner: Manner, model: Footer) -> None:
    """
    Encode a table as one row group.

    Args:
        assembly: the file that is being made, on `sink`.
        table: rows as `view.table` made them to be encoded.
        manner: that of the row groups the rows are from.
        model: the footer of any file of their family.

    Raises:
        VerificationError: Arrow wrote another number of rows.
    """
    leaves = model.schema.leaves
    typed = type_ordered(model.value(fields.FILE_COLUMN_ORDERS), len(leaves))
    values = [array for column in table.columns for array in _leaf_values(column)]
    ranged = [_has_range(leaf, arrays) for leaf, arrays in zip(leaves, values, strict=True)]
    paths = written_leaves(table.schema)[0]
    options = manner.options(paths, leaves)
    options["write_statistics"] = [path for path, wanted in zip(paths, ranged, strict=True) if wanted]
    begin = sink.position
    written = _Written(sink)
    with parquet.ParquetWriter(written, table.schema, **options) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
        written.hold_back()
    made = read_footer(written)
    if len(made.row_groups) != 1 or made.rows != table.num_rows:
        raise VerificationError(f"Arrow wrote {made.rows} rows of {table.num_rows}")
    group = made.describe(0)
    shift = begin - len(MAGIC)
    indexes = []
    for number, (chunk, leaf) in enumerate(zip(group[fields.GROUP_COLUMNS][1], leaves, strict=True)):
        indexes.append(_indexes(written, chunk, shift, with_ranges=typed[number] and ranged[number]))
        meta: Struct = chunk[fields.CHUNK_META][1]
        for offset in (fields.META_DATA_PAGE, fields.META_DICTIONARY_PAGE):
            if offset in meta and meta[offset][1]:
                meta[offset] = thrift.I64, meta[offset][1] + shift
        meta[fields.META_TYPE] = thrift.I32, leaf.physical
        meta[fields.META_PATH] = thrift.LIST, leaf.path
        _put_statistics(meta, typed[number], None if len(leaf.levels) > 1 else _nulls(values[number]))
    assembly.append(group, begin, indexes)


def _leaf_values(column: Any) -> Iterator[list[Any]]:
    """The arrays of each leaf below a column, in the order of the schema."""
    arrays = column.chunks
    kind = column.type
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from _leaf_values(pa.chunked_array([array.field(number) for array in arrays], kind[number].type))
    elif pa.types.is_list(kind):
        yield from _leaf_values(pa.chunked_array([array.flatten() for array in arrays], kind.value_type))
    else:
        yield arrays


def _has_range(leaf: Leaf, arrays: Sequence[Any]) -> bool:
    """
    Whether Arrow's minimum and maximum are what readers take them for. Java's writers leave them out where there is a
    NaN, and Java's readers rely on it: to Spark, NaN is greater than any number.
    """
    if not (leaf.ordered or leaf.decimal):
        return False
    if arrays and pa.types.is_floating(arrays[0].type):
        return not any(pc.any(pc.is_nan(array)).as_py() for array in arrays)
    return True


def _nulls(arrays: Sequence[Any]) -> int:
    return sum(array.null_count for array in arrays)


def _put_statistics(meta: Struct, typed: bool, nulls: int | None) -> None:
    """Take out ranges without an order, and put in the number of NULLs where Arrow wrote no statistics."""
    found = meta.get(fields.META_STATISTICS)
    if found is not None:
        statistics, _ = thrift.decode(found[1], 0, {})
        if not typed:
            for number in _VALUE_RANGE:
                statistics.pop(number, None)
    elif nulls is not None:
        statistics = {_NULLS: (thrift.I64, nulls)}
    else:
        return
    thrift.put(meta, fields.META_STATISTICS, thrift.STRUCT, thrift.encode(statistics))


def _indexes(written: "_Written", chunk: Struct, shift: int, *, with_ranges: bool) -> tuple[bytes, bytes]:
    """The column index and offset index that Arrow wrote for a chunk, pages moved; empty where there is none."""
    column_index = offset_index = b""
    if fields.CHUNK_COLUMN_INDEX in chunk and with_ranges:
        column_index = written.read_at(chunk[fields.CHUNK_COLUMN_INDEX][1], chunk[fields.CHUNK_COLUMN_INDEX_LENGTH][1])
    if fields.CHUNK_OFFSET_INDEX in chunk:
        offset_index = written.read_at(chunk[fields.CHUNK_OFFSET_INDEX][1], chunk[fields.CHUNK_OFFSET_INDEX_LENGTH][1])
    within = extent(chunk[fields.CHUNK_META][1])
    return column_index, shifted_index(written.name, offset_index, within, shift)


class _Written(io.RawIOBase):
    """The file that Arrow believes to write: pages go on to the sink, what comes after them stays here, readable."""

    name = "what Arrow wrote"

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self.size = 0
        self._sink = sink
        self._held: bytearray | None = None
        self._begin = 0

    def hold_back(self) -> None:
        """Pass on nothing from here."""
        self._held, self._begin = bytearray(), self.size

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self._held is not None:
            self._held += view
        else:
            self._sink.write(view[max(0, len(MAGIC) - self.size) :])
        self.size += len(view)
        return len(view)

    def close(self) -> None:
        """Nothing: what is held stays readable."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Bytes that were held back, with zeros for those that weren't."""
        held = self._held or bytearray()
        missing = min(length, max(0, self._begin - offset))
        start = max(0, offset - self._begin)
        return bytes(missing) + bytes(held[start : start + length - missing])
