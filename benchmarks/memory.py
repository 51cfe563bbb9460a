"""
Peak resident memory of a Python worker: a file of 1 GB and one of 4 GB, every stripe hit; 1 GB with so many rows deleted
that its stripes are encoded anew; one stripe of six million short strings. And of a process that joins 3,000 small files.

    python -m benchmarks.memory orc|parquet FOLDER
        joins the files of FOLDER into one and prints the peak of this process as JSON
"""

import json
import resource
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import orc

from benchmarks import harness, orc_joining, parquet_joining, tables

GIB = 1 << 30
SMALL, SMALL_ROWS = 3_000, 1_500
"""Files to join, and the rows of an ORC file of about 50 KB."""


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


def small_files(folder: Path, kind: str) -> None:
    """Files of about 50 KB."""
    if kind == "parquet":
        parquet_joining.make_small(folder, SMALL)
        return
    names = [name for name, _ in tables.ORDINARY.columns]
    made = tables.batches(SMALL * SMALL_ROWS, 1, content=tables.ORDINARY)
    parts = (batch.slice(at, SMALL_ROWS) for batch in made for at in range(0, len(batch), SMALL_ROWS))
    for number, batch in zip(range(SMALL), parts, strict=False):
        table = pa.Table.from_arrays(batch.column(5).flatten(), names=names)
        orc.write_table(table, folder / f"{number:06}_0", **orc_joining.OPTIONS)


def run() -> list[harness.Result]:
    """Measure all bars."""
    peaks = {}
    with harness.scratch() as folder:
        source = folder / "source.orc"
        for name, size, every in (("1 GB", GIB, 0), ("4 GB", 4 * GIB, 0), ("anew", GIB, 50), ("strings", 0, 0)):
            if size:
                tables.write_raw(source, size // tables.ROW_BYTES, 1)
            else:
                few_strings(source, 6_000_000)
            arguments = ("once", str(folder), str(source), "2", str(every))
            peaks[name] = harness.in_child("benchmarks.compaction", *arguments)["peak"]
            source.unlink()
        for kind in ("orc", "parquet"):
            (folder / kind).mkdir()
            small_files(folder / kind, kind)
            peaks[kind] = harness.in_child("benchmarks.memory", kind, str(folder / kind))["peak"]
    large, small = (peaks[name] / GIB for name in ("4 GB", "1 GB"))
    few = "6 million rows of low-cardinality strings in one stripe"
    return [
        harness.at_most("memory/4gb", large, 0.5, "GiB"),
        harness.at_most(
            "memory/4gb-against-1gb", large / small, 1.1, "x peak of 1 GB", f"{large:.2f} and {small:.2f} GiB"
        ),
        harness.at_most("memory/anew", peaks["anew"] / GIB, 0.5, "GiB", "1 GB, one row in 50 deleted"),
        harness.at_most("memory/strings", peaks["strings"] / GIB, 1, "GiB", few),
        *(
            harness.at_most(f"memory/joining-{kind}", peaks[kind] / GIB, 0.5, "GiB", f"{SMALL:,} files of 50 KB")
            for kind in ("orc", "parquet")
        ),
    ]


def main() -> None:
    kind, folder = sys.argv[1:]
    paths, target = sorted(Path(folder).iterdir()), Path(folder) / "joined"
    if kind == "orc":
        orc_joining.joined(paths, target, recode=True)
    else:
        parquet_joining.join_part((paths, target, True))
    print(json.dumps({"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


if __name__ == "__main__":
    main()
