"""
A major compaction of one bucket, every stripe hit: two cores against one. Of 2 GB without compression, and of 1 GB of
zlib.
"""

import statistics

from benchmarks import harness, tables

SOURCES = {"two_cores": (2 << 30, "uncompressed"), "two_cores/zlib": (1 << 30, "zlib")}


def run() -> list[harness.Result]:
    """Measure both bars."""
    return [_measured(name, size, codec) for name, (size, codec) in SOURCES.items()]


def _measured(name: str, size: int, codec: str) -> harness.Result:
    with harness.scratch() as folder:
        source = folder / "source.orc"
        tables.write_raw(source, size // tables.ROW_BYTES, 1, codec)
        one, two = [], []
        for _ in range(3):
            for cores, times in ((1, one), (2, two)):
                arguments = ("once", str(folder), str(source), str(cores), "0")
                times.append(harness.in_child("benchmarks.compaction", *arguments, cores=cores)["seconds"])
        size = source.stat().st_size
    slow, fast = statistics.median(one), statistics.median(two)
    detail = f"{size / 1e9:.1f} GB, every stripe hit: {slow:.1f} s on one core, {fast:.1f} s on two"
    return harness.at_least(name, slow / fast, 1.85, "x faster", detail)
