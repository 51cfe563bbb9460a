"""Parquet files for the tests, written by pyarrow, joined, and read back."""

import base64
import io
import json
import struct

import pyarrow as pa
from pyarrow import parquet

from compactor.handles import MemoryReader
from compactor.parquet import fields, thrift
from compactor.parquet.checking import check
from compactor.parquet.footer import read_footer
from compactor.parquet.joining import Piece, join
from tests.unit.orc.files import MemorySink


def written(table, **options):
    """A file's bytes."""
    buffer = io.BytesIO()
    parquet.write_table(table, buffer, **options)
    return buffer.getvalue()


def by_pandas(table, index, categories=None):
    """A table with the metadata of pandas, as `DataFrame.to_parquet` gives it to Arrow; `index` is its index_columns."""
    kinds = [
        {"name": name, "field_name": name, "pandas_type": "int64", "numpy_type": "int64", "metadata": None}
        for name in table.column_names
    ]
    if categories is not None:
        told = {"num_categories": categories, "ordered": False}
        kinds[-1] |= {"pandas_type": "categorical", "numpy_type": "int8", "metadata": told}
    said = {"index_columns": index, "column_indexes": [], "columns": kinds, "attributes": {}, "pandas_version": "3.1.1"}
    return table.replace_schema_metadata({"pandas": json.dumps(said)})


def counted(start, stop, name=None):
    """How pandas describes an index that it only counts."""
    return [{"kind": "range", "name": name, "start": start, "stop": stop, "step": 1}]


def told_by_pandas(data):
    """What a file says to pandas: in its own metadata, and in Arrow's schema."""
    metadata = opened(data).metadata.metadata
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(metadata[b"ARROW:schema"])))
    return [json.loads(found[b"pandas"]) for found in (metadata, schema.metadata)]


def piece(data, *, recode, name="memory", row_groups=None):
    """All row groups of a file, or some."""
    reader = MemoryReader(data, name)
    footer = read_footer(reader)
    return Piece(reader, footer, tuple(range(len(footer.row_groups)) if row_groups is None else row_groups), recode)


def joined(pieces, **options):
    """The file that the pieces make, which `check` has found to be right, and what `join` says of it."""
    sink = MemorySink()
    result = join(pieces, sink, **options)
    check(MemoryReader(sink.getvalue(), "result"), pieces)
    assert result.length == len(sink.getvalue())
    return sink.getvalue(), result


def opened(data):
    return parquet.ParquetFile(io.BytesIO(data))


def bits(array):
    """Values as Python objects that are equal only when every bit is: a float is its bytes."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in bits(chunk)]
    kind = array.type
    if pa.types.is_floating(kind):
        raw = array.view({2: pa.uint16(), 4: pa.uint32(), 8: pa.uint64()}[kind.bit_width // 8])
        return [("bits", value) if value is not None else None for value in raw.to_pylist()]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return array.cast(pa.large_binary()).to_pylist()  # a damaged file's text may be no UTF-8
    valid = array.is_valid().to_pylist()
    if pa.types.is_struct(kind):
        columns = [bits(array.field(number)) for number in range(kind.num_fields)]
        rows = zip(*columns, strict=True) if columns else [()] * len(array)
        return [row if there else None for row, there in zip(rows, valid, strict=True)]
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        offsets, values = array.offsets.to_pylist(), bits(array.values)
        ranges = zip(offsets, offsets[1:], valid, strict=False)
        return [values[begin:end] if there else None for begin, end, there in ranges]
    if pa.types.is_temporal(kind):
        return array.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    return array.to_pylist()


def rows(table):
    """A table's values by column, as `bits` gives them."""
    return [bits(table.column(number)) for number in range(table.num_columns)]


def with_footer(data, change):
    """The same file after `change` has changed the fields of its footer, a dict as `thrift.decode` makes it."""
    length = int.from_bytes(data[-8:-4], "little")
    shape = {fields.FILE_SCHEMA: {}, fields.FILE_ROW_GROUPS: {**fields.GROUP_SHAPE}}
    footer, _ = thrift.decode(data[-8 - length : -8], 0, shape)
    change(footer)
    encoded = thrift.encode(footer)
    return data[: -8 - length] + encoded + struct.pack("<I", len(encoded)) + data[-4:]


def lies(whole):
    """
    Give each field of a decoded struct and of the structs in it another type, then leave it out. A number stays the
    same number, a text becomes one, all else is empty.

    Yields:
        The way to the field, and whether it is left out now. Afterwards the struct is as before.
    """
    for path, fields_here in list(_structs_in(whole)):
        before = dict(fields_here)
        for number, (kind, value) in before.items():
            fields_here[number] = _another(kind, value)
            yield (*path, number), False
            del fields_here[number]
            yield (*path, number), True
            fields_here.clear()
            fields_here.update(before)


def _another(kind, value):
    if kind == thrift.BINARY:
        return thrift.I32, 1
    numbers = {thrift.I16: thrift.I32, thrift.I32: thrift.I64, thrift.I64: thrift.I32}
    return (numbers[kind], value) if kind in numbers else (thrift.BINARY, b"")


def _structs_in(whole, path=()):
    yield path, whole
    for number, (_, value) in whole.items():
        if isinstance(value, dict):
            yield from _structs_in(value, (*path, number))
        elif isinstance(value, list):
            for place, inner in enumerate(value):
                yield from _structs_in(inner, (*path, number, place))
