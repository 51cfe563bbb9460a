"""
Has Arrow's reader decode the runs that were looked at, before and after: what it finds is compared, and counted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import orc

from compactor.acid.types import Kind
from compactor.orc.cutting.runs import UncutError
from compactor.orc.format.codec import Compression
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.tail import CPP_WRITER, Tail
from compactor.orc.reading.single_stripe import image_of

Pieces = Sequence[bytes]


def decoded(kind: pb.Type, encoding: pb.ColumnEncoding, streams: Mapping[int, Pieces], rows: int) -> Any:
    """
    The values of a column without NULLs, as Arrow's array.

    Args:
        streams: without compression, by their kinds.

    Raises:
        UncutError: they can't be decoded.
    """
    root = pb.Type(kind=Kind.STRUCT, subtypes=[1], field_names=["c1"])
    postscript = pb.PostScript(compression=Compression.NONE, version=(0, 12), writer_version=6)
    tail = Tail("runs", postscript, pb.Footer(types=[root, kind], writer=CPP_WRITER), pb.Metadata(), 0)
    footer = pb.StripeFooter(columns=[pb.ColumnEncoding(kind=0), encoding])
    placed = [(pb.Stream(column=1, kind=number), pieces) for number, pieces in streams.items()]
    image = image_of(tail, footer, placed, rows)
    source = pa.BufferReader(image) if isinstance(image, pa.Buffer) else pa.PythonFile(image, mode="r")
    try:
        values = orc.ORCFile(source).read_stripe(0).column(0)
    except (pa.ArrowException, OSError) as error:
        raise UncutError from error
    if len(values) != rows:
        raise UncutError
    return values


def require_same(before: Any, after: Any) -> None:
    """
    Compare two arrays.

    Raises:
        UncutError: they differ.
    """
    if len(before) != len(after) or (len(before) and not before.equals(after)):
        raise UncutError
