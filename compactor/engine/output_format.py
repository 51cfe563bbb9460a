"""Converts the plan's description of an output file into the ORC package's `OutputFormat`."""

from collections.abc import Sequence

from compactor.acid.types import acid_type, row_type
from compactor.orc.format.codec import Compression
from compactor.orc.writing.output import OutputFormat
from compactor.planning.document import FormatSpec


def output_format(columns: Sequence[tuple[str, str]], spec: FormatSpec) -> OutputFormat:
    """
    The format of a file of the full-ACID table with these columns.

    Raises:
        RefusedError: SCHEMA_MISMATCH, a column's type can't be held by ORC.
    """
    return OutputFormat(
        types=acid_type(row_type(columns)),
        compression=Compression[spec.codec.upper()],
        block_size=spec.block_size,
        stride=spec.stride,
        stripe_bytes=spec.stripe_bytes,
        stripe_rows=spec.stripe_rows,
        bloom_columns=spec.bloom_columns,
        bloom_fpp=spec.bloom_fpp,
        one_zone=spec.one_zone,
        columns_by=spec.columns_by,
    )
