"""
A major compaction with every stripe hit, zlib: CPU of this process and all that it starts, against Arrow reading and
writing the same rows in one process.
"""

from benchmarks import harness, tables

BYTES = 3 << 26


def run() -> list[harness.Result]:
    """Measure the bar."""
    with harness.scratch() as folder:
        got = harness.in_child("benchmarks.compaction", "recode", str(folder), str(BYTES // tables.ROW_BYTES), "3")
    detail = f"{got['bytes'] / 1e9:.2f} GB zlib, {got['stripes']:g} stripes, all hit: {got['ours']:.1f} CPU s against Arrow's {got['peer']:.1f}"
    return [harness.at_most("every_stripe", got["ours"] / got["peer"], 1.3, "x Arrow CPU", detail)]
