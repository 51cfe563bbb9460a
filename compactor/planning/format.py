"""
How the output is written: codec, rows per index entry, block size, stripe size, Bloom filters.

Pure. The request's property wins, then the table's, then codec and rows per index entry of the largest input (so that
its stripes can be copied), then ZLIB and 10,000.
Source: Hive's OrcConf (orc.compress …); HIVE-21397 for Bloom filter columns; parquet-mr's ParquetOutputFormat
(parquet.block.size).
"""

import math
from collections.abc import Iterable

from compactor.acid.compaction import LayoutVersion
from compactor.errors import RefusedError
from compactor.planning.document import FormatSpec
from compactor.planning.facts import FileFacts, TableSpec
from compactor.planning.insert_only.formats import PARQUET
from compactor.reasons import Reason

CODECS = {
    LayoutVersion.HIVE_3: ("none", "zlib", "snappy", "lz4"),
    LayoutVersion.HIVE_4: ("none", "zlib", "snappy", "lz4", "zstd"),
}
DEFAULT_STRIDE = 10_000
SMALLEST_STRIDE, LARGEST_STRIDE = 1000, 1 << 24
BLOCK_STEP = 1 << 16
"""The C++ writer's memory block: the writer takes only multiples of it as compression block size."""
LARGEST_BLOCK = 1 << 22
SMALLEST_STRIPE, LARGEST_STRIPE = 1 << 20, 1 << 30
ROW_GROUP = 128 << 20
"""Bytes of a row group as parquet-mr makes it, and the most that is made of small ones."""


def choose_format(
    spec: TableSpec, layout: LayoutVersion, files: Iterable[FileFacts], stripe_bytes: int, min_stripe: int
) -> FormatSpec:
    """
    Choose the output's format. Sizes outside the supported range are brought into it. Row indexes are always written,
    even if `orc.create.index` says otherwise: without them Hive trusts no statistics, and the next compaction could
    copy nothing (HIVE-20604).

    Args:
        files: tails of the inputs; the largest compressed ACID file with a row index is the model where no property
            asks for codec or stride.
        stripe_bytes: of recoded stripes, unless `orc.stripe.size` says otherwise.
        min_stripe: weight from which a stripe is kept. Recoded stripes get about as many rows as the largest of these
            has, so that the unit of a later change doesn't grow; not where `orc.stripe.size` asks for a size.

    Raises:
        RefusedError: UNSUPPORTED_COMPRESSION when a property asks for a codec that readers of this layout don't know;
            UNSUPPORTED_FORMAT when a property isn't a number, or `orc.bloom.filter.fpp` isn't between 0 and 1.
    """
    files = tuple(files)
    model = max(
        (
            file
            for file in files
            if file.acid and file.stride > 0 and file.codec in CODECS[layout] and file.codec != "none"
        ),
        key=_size,
        default=None,
    )
    codec = _property(spec, "orc.compress")
    if codec is not None and codec.lower() not in CODECS[layout]:
        known = ", ".join(CODECS[layout]).upper()
        raise RefusedError(
            Reason.UNSUPPORTED_COMPRESSION,
            f"{spec.name}: orc.compress is {codec}; readers of this layout know only {known}",
        )
    stride = _number(spec, "orc.row.index.stride", model.stride if model else DEFAULT_STRIDE)
    if not SMALLEST_STRIDE <= stride <= LARGEST_STRIDE:
        stride = DEFAULT_STRIDE
    columns = {name.lower() for name, _ in spec.columns}
    bloom = tuple(
        name
        for name in (part.strip().lower() for part in (_property(spec, "orc.bloom.filter.columns") or "").split(","))
        if name in columns
    )
    return FormatSpec(
        codec=codec.lower() if codec else model.codec if model else "zlib",
        block_size=_block(_number(spec, "orc.compress.size", 262_144)),
        stride=stride,
        stripe_bytes=_stripe_bytes(spec, stripe_bytes),
        stripe_rows=None if _property(spec, "orc.stripe.size") else _rows_of_the_largest(files, min_stripe),
        bloom_columns=bloom,
        bloom_fpp=_share(spec, "orc.bloom.filter.fpp", 0.01),
        one_zone=layout is LayoutVersion.HIVE_3,
        columns_by=spec.columns_by,
    )


def part_bytes(spec: TableSpec, stripe_bytes: int) -> int:
    """
    Size of the stripes or row groups that small ones of an insert-only table become.

    Args:
        stripe_bytes: of a stripe, unless `orc.stripe.size` says otherwise; `parquet.block.size` says so of a row group.

    Raises:
        RefusedError: UNSUPPORTED_FORMAT when the property isn't a number.
    """
    if spec.file_format.name == PARQUET:
        return max(SMALLEST_STRIPE, min(ROW_GROUP, _number(spec, "parquet.block.size", ROW_GROUP)))
    return _stripe_bytes(spec, stripe_bytes)


def kept_from(min_stripe: int, written: int) -> int:
    """
    The weight from which a stripe or row group is kept: where a table's are smaller on purpose, as `written` says, what
    one compaction has written the next one keeps.
    """
    return min(min_stripe, written // 2)


def _stripe_bytes(spec: TableSpec, default: int) -> int:
    return max(SMALLEST_STRIPE, min(LARGEST_STRIPE, _number(spec, "orc.stripe.size", default)))


def _rows_of_the_largest(files: Iterable[FileFacts], min_stripe: int) -> int | None:
    """Most rows of a stripe that is large enough to be kept; None: no stripe is."""
    kept = [stripe.rows for file in files if file.acid for stripe in file.stripes if stripe.weight >= min_stripe]
    return max(kept, default=None)


def _block(asked: int) -> int:
    """
    The requested block size, rounded up to one that the C++ writer takes. Copied stripes may have other block sizes:
    the tail names the largest of the file.
    """
    return -(-max(1, min(LARGEST_BLOCK, asked)) // BLOCK_STEP) * BLOCK_STEP


def _size(file: FileFacts) -> tuple[int, str]:
    return file.bytes, file.path


def _property(spec: TableSpec, name: str) -> str | None:
    """A property of the request, else of the table. Either may carry Hive's prefix for table properties."""
    for properties in (spec.properties, spec.parameters):
        lowered = {key.lower(): value for key, value in properties.items()}
        for key in (f"tblprops.{name}", name):
            if value := lowered.get(key):
                return value
    return None


def _number(spec: TableSpec, name: str, default: int) -> int:
    return int(_fraction(spec, name, default))


def _share(spec: TableSpec, name: str, default: float) -> float:
    value = _fraction(spec, name, default)
    if not 0 < value < 1:
        raise RefusedError(Reason.UNSUPPORTED_FORMAT, f"{spec.name}: {name} is {value:g}, not between 0 and 1")
    return value


def _fraction(spec: TableSpec, name: str, default: float) -> float:
    value = _property(spec, name)
    if value is None:
        return default
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise RefusedError(Reason.UNSUPPORTED_FORMAT, f"{spec.name}: {name} is {value!r}, not a number")
    return number
