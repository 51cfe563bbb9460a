"""
A major compaction with every stripe hit, in three codecs: CPU of this process and all that it starts, against Arrow reading and
writing the same rows in one process.
"""

from benchmarks import harness, tables

BYTES = 3 << 26


BARS = {"zlib": 0.6, "zstd": 0.9, "snappy": 0.9}


def run() -> list[harness.Result]:
    """Measure the bars."""
    results = []
    for codec, bar in BARS.items():
        with harness.scratch() as folder:
            rows = str(BYTES // tables.ROW_BYTES)
            got = harness.in_child("benchmarks.compaction", "recode", str(folder), rows, "3", codec)
        detail = f"{got['bytes'] / 1e9:.2f} GB {codec}, {got['stripes']:g} stripes, all hit: {got['ours']:.1f} CPU s against Arrow's {got['peer']:.1f}"
        name = "every_stripe" if codec == "zlib" else f"every_stripe/{codec}"
        results.append(harness.at_most(name, got["ours"] / got["peer"], bar, "x Arrow CPU", detail))
    return results
