"""
Peak resident memory of a Python worker: a file of 1 GB and one of 4 GB, every stripe hit; and one stripe of six million
short strings.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import orc

from benchmarks import harness, tables

GIB = 1 << 30


def few_strings(path: Path, rows: int) -> None:
    """Six million rows whose strings take few values, in one stripe of about 40 MB."""
    random = np.random.default_rng(7)
    kinds = pa.array([f"a value that occurs again and again, number {number:04d}" for number in range(5000)])
    with orc.ORCWriter(
        str(path), compression="zlib", stripe_size=1 << 32, dictionary_key_size_threshold=0.8, batch_size=16_384
    ) as writer:
        for batch in tables.batches(rows, 1):
            columns = [
                batch.column("row").field(0),
                batch.column("row").field(1),
                kinds.take(pa.array(random.integers(0, 5000, len(batch)))),
                kinds.take(pa.array(random.integers(0, 5000, len(batch)))),
            ]
            row = pa.StructArray.from_arrays(columns, names=[name for name, _ in tables.RANDOM.columns])
            writer.write(pa.Table.from_batches([batch.set_column(5, "row", row)]))


def run() -> list[harness.Result]:
    """Measure all three bars."""
    peaks = {}
    with harness.scratch() as folder:
        for name, size in (("1 GB", GIB), ("4 GB", 4 * GIB), ("strings", 0)):
            source = folder / "source.orc"
            if size:
                tables.write_raw(source, size // tables.ROW_BYTES, 1)
            else:
                few_strings(source, 6_000_000)
            peaks[name] = harness.in_child("benchmarks.compaction", "once", str(folder), str(source), "2")["peak"]
            source.unlink()
    return [
        harness.at_most("memory/4gb", peaks["4 GB"] / GIB, 0.5, "GiB"),
        harness.at_most(
            "memory/4gb-against-1gb",
            peaks["4 GB"] / peaks["1 GB"],
            1.1,
            "x peak of 1 GB",
            f"{peaks['4 GB'] / GIB:.2f} and {peaks['1 GB'] / GIB:.2f} GiB",
        ),
        harness.at_most(
            "memory/strings",
            peaks["strings"] / GIB,
            1,
            "GiB",
            "6 million rows of low-cardinality strings in one stripe",
        ),
    ]
