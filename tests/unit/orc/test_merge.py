"""Sources whose keys interleave."""

import numpy as np

from compactor.acid.row_id import RowKey, encode
from compactor.acid.types import acid_type, parse_hive_type
from compactor.orc.rows import StripeSource
from compactor.orc.writing import encode as encoding
from compactor.orc.writing.output import OutputFormat
from tests.recoding import recode
from tests.unit.orc.files import MemorySink, acid_file, insert, opened

BUCKET = encode(0, 0)
ROWS = 70_000


def test_many_rows_of_many_sources_at_once(monkeypatch):
    """
    Three files row by row in turn make three times as many rows as one batch; the stripe that the writer then flushes
    by itself stays one stripe.
    """
    monkeypatch.setattr(encoding, "_STREAM_BUFFER", 1 << 10)
    row = parse_hive_type("struct<a:bigint>")
    values = np.random.default_rng(7).integers(-(2**62), 2**62, ROWS).tolist()
    files = [
        acid_file([insert(RowKey(1, BUCKET, 3 * n + part), (values[n],)) for n in range(ROWS)], row)
        for part in range(3)
    ]
    sink = MemorySink()
    made = recode(
        [StripeSource(*opened(file)) for file in files], OutputFormat(acid_type(row), stripe_bytes=64 << 10), sink
    )
    _, tail = opened(sink.getvalue())
    assert (made.rows_out, tail.rows, made.summary.last_key) == (3 * ROWS, 3 * ROWS, RowKey(1, BUCKET, 3 * ROWS - 1))
    assert made.summary.stripes > 1
