"""
Large ACID bucket files, made quickly: Arrow writes them, random payload so that no codec can cheat.

A row is `id bigint, amount decimal(12,2), kind string (few values), payload string (96 random letters)`: a little over
100 bytes.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import orc

COLUMNS = (("id", "bigint"), ("amount", "decimal(12,2)"), ("kind", "string"), ("payload", "string"))
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


def batches(rows: int, write_id: int, seed: int = 1) -> Iterator[pa.RecordBatch]:
    """
    Rows of one insert as the six ACID columns, 64 Ki rows a batch.

    Args:
        rows: how many in all.
        write_id: of all of them.
        seed: of the random payload.
    """
    random = np.random.default_rng(seed)
    pool = _ALPHABET[random.integers(0, 64, BATCH * PAYLOAD * 2, dtype=np.uint8)]
    for start in range(0, rows, BATCH):
        count = min(BATCH, rows - start)
        row_ids = np.arange(start, start + count, dtype=np.int64)
        amounts = pa.array(random.integers(0, 10**9, count)).cast(pa.decimal128(19, 0))
        cents = pa.Array.from_buffers(pa.decimal128(12, 2), count, amounts.buffers())
        user = pa.StructArray.from_arrays(
            [
                pa.array(row_ids * 7 % 1_000_003),
                cents,
                _KINDS.take(pa.array(random.integers(0, 8, count))),
                _strings(pool, int(random.integers(0, BATCH * PAYLOAD)), count),
            ],
            names=[name for name, _ in COLUMNS],
        )
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(np.zeros(count, np.int32)),
                pa.array(np.full(count, write_id, np.int64)),
                pa.array(np.full(count, BUCKET_PROPERTY, np.int32)),
                pa.array(row_ids),
                pa.array(np.full(count, write_id, np.int64)),
                user,
            ],
            names=["operation", "originalTransaction", "bucket", "rowId", "currentTransaction", "row"],
        )


def write_raw(path: Path, rows: int, write_id: int, codec: str = "uncompressed", stripe_bytes: int = 64 << 20) -> None:
    """Write one ACID-shaped ORC file without Hive's user metadata (see `write_bucket` for the whole thing)."""
    with orc.ORCWriter(
        str(path),
        compression=codec,
        compression_block_size=256 << 10,
        stripe_size=stripe_bytes,
        dictionary_key_size_threshold=0.8,
        batch_size=16_384,
    ) as writer:
        for batch in batches(rows, write_id):
            writer.write(pa.Table.from_batches([batch]))
