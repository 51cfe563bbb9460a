"""
Large ACID bucket files, made quickly by Arrow, of two contents.

`RANDOM` is the worst case for copying and the codecs: `id bigint, amount decimal(12,2), kind string (few values),
payload string (96 random letters)`, a little over 100 bytes a row. `ORDINARY` are ten columns of an order as a shop has
them, with words that repeat: about 32 bytes a row in zlib.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import orc

BATCH = 65_536
PAYLOAD = 96
ROW_BYTES = 110
BUCKET_PROPERTY = 1 << 29
_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", dtype=np.uint8)
_KINDS = pa.array(["order", "return", "refund", "payment", "transfer", "fee", "interest", "correction"])


def _strings(pool: np.ndarray, start: int, rows: int) -> pa.Array:
    """Cut `rows` strings of PAYLOAD letters out of the pool, without copying per row."""
    offsets = np.arange(0, (rows + 1) * PAYLOAD, PAYLOAD, dtype=np.int32)
    data = pool[start : start + rows * PAYLOAD]
    return pa.Array.from_buffers(
        pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    )


@dataclass(frozen=True, slots=True)
class Content:
    """
    The columns and rows of a table.

    Args:
        columns: names and types.
        row: one row, for small files beside the large one.
        rows: given a source of random numbers and row ids, the rows as a pyarrow.StructArray; called once a batch.
    """

    columns: tuple[tuple[str, str], ...]
    row: tuple[object, ...]
    rows: Callable[[np.random.Generator, np.ndarray], Any]


def _payloads(random: np.random.Generator, ids: np.ndarray) -> Any:
    count, pool = len(ids), _letters()
    columns = [
        pa.array(ids * 7 % 1_000_003),
        _decimals(random.integers(0, 10**9, count), 12),
        _KINDS.take(pa.array(random.integers(0, 8, count))),
        _strings(pool, int(random.integers(0, BATCH * PAYLOAD)), count),
    ]
    return pa.StructArray.from_arrays(columns, names=[name for name, _ in RANDOM.columns])


@cache
def _letters() -> np.ndarray:
    """Random letters from which payloads are cut."""
    return _ALPHABET[np.random.default_rng(1).integers(0, 64, BATCH * PAYLOAD * 2, dtype=np.uint8)]


def _orders(random: np.random.Generator, ids: np.ndarray) -> Any:
    count, words = len(ids), _words()
    lengths = random.integers(4, 13, count)
    ends = np.cumsum(lengths)
    said = words[np.minimum(random.zipf(1.2, int(ends[-1])), len(words)) - 1]
    columns = [
        pa.array(ids),
        pa.array(random.zipf(1.3, count) % 200_000),
        pa.array((1_600_000_000_000 + ids * 137 + random.integers(0, 1000, count)) * 1_000_000, pa.timestamp("ns")),
        pa.array((18_500 + ids // 5000).astype(np.int32)).cast(pa.date32()),
        pa.array(random.integers(1, 50, count).astype(np.int32)),
        _decimals(random.integers(100, 100_000, count), 10),
        pa.array(np.round(random.random(count) * 0.3, 2)),
        _KINDS.take(pa.array(random.integers(0, 8, count))),
        pa.array(words[random.zipf(1.2, count) % 1000]),
        pa.array([" ".join(said[end - length : end]) for end, length in zip(ends, lengths, strict=True)]),
    ]
    return pa.StructArray.from_arrays(columns, names=[name for name, _ in ORDINARY.columns])


def _decimals(unscaled: np.ndarray, precision: int) -> Any:
    whole = pa.array(unscaled).cast(pa.decimal128(19, 0))
    return pa.Array.from_buffers(pa.decimal128(precision, 2), len(unscaled), whole.buffers())


@cache
def _words() -> np.ndarray:
    """2,000 words."""
    random, letters = np.random.default_rng(1), np.array(list("abcdefghijklmnopqrstuvwxyz"))
    return np.array(["".join(random.choice(letters, length)) for length in random.integers(3, 11, 2000)], dtype=object)


RANDOM: Final = Content(
    (("id", "bigint"), ("amount", "decimal(12,2)"), ("kind", "string"), ("payload", "string")),
    (1, None, "order", "one more"),
    _payloads,
)
ORDINARY: Final = Content(
    (
        ("id", "bigint"),
        ("customer", "bigint"),
        ("ordered_at", "timestamp"),
        ("day", "date"),
        ("quantity", "int"),
        ("price", "decimal(10,2)"),
        ("discount", "double"),
        ("status", "string"),
        ("city", "string"),
        ("comment", "string"),
    ),
    (1, 2, None, None, 3, None, 0.1, "order", "here", "one more"),
    _orders,
)


def batches(rows: int, write_id: int, seed: int = 1, content: Content = RANDOM) -> Iterator[pa.RecordBatch]:
    """
    Rows of one insert as the six ACID columns, 64 Ki rows a batch.

    Args:
        rows: how many in all.
        write_id: of all of them.
        seed: of the random values.
    """
    random = np.random.default_rng(seed)
    for start in range(0, rows, BATCH):
        count = min(BATCH, rows - start)
        row_ids = np.arange(start, start + count, dtype=np.int64)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(np.zeros(count, np.int32)),
                pa.array(np.full(count, write_id, np.int64)),
                pa.array(np.full(count, BUCKET_PROPERTY, np.int32)),
                pa.array(row_ids),
                pa.array(np.full(count, write_id, np.int64)),
                content.rows(random, row_ids),
            ],
            names=["operation", "originalTransaction", "bucket", "rowId", "currentTransaction", "row"],
        )


def write_raw(path: Path, rows: int, write_id: int, codec: str = "uncompressed", *, content: Content = RANDOM) -> None:
    """Write one ACID-shaped ORC file without Hive's user metadata."""
    with orc.ORCWriter(
        str(path),
        compression=codec,
        compression_block_size=256 << 10,
        stripe_size=64 << 20,
        dictionary_key_size_threshold=0.8,
        batch_size=16_384,
    ) as writer:
        for batch in batches(rows, write_id, content=content):
            writer.write(pa.Table.from_batches([batch]))
