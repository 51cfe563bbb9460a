"""A major compaction of one 2 GB bucket, every stripe hit: two cores against one."""

import statistics

from benchmarks import harness, tables

BYTES = 2 << 30


def run() -> list[harness.Result]:
    """Measure the bar."""
    with harness.scratch() as folder:
        source = folder / "source.orc"
        tables.write_raw(source, BYTES // tables.ROW_BYTES, 1)
        one, two = [], []
        for _ in range(3):
            for cores, times in ((1, one), (2, two)):
                times.append(
                    harness.in_child(
                        "benchmarks.compaction", "once", str(folder), str(source), str(cores), cores=cores
                    )["seconds"]
                )
        size = source.stat().st_size
    slow, fast = statistics.median(one), statistics.median(two)
    return [
        harness.at_least(
            "two_cores",
            slow / fast,
            1.85,
            "x faster",
            f"{size / 1e9:.1f} GB, every stripe hit: {slow:.1f} s on one core, {fast:.1f} s on two",
        )
    ]
