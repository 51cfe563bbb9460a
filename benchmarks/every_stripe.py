"""
A major compaction with every stripe hit, in three codecs, and with so many rows deleted that stripes are encoded anew: CPU
of this process and all that it starts, against Arrow reading and writing the same rows in one process.
"""

from benchmarks import harness, tables

BYTES = 3 << 26


BARS = {
    "every_stripe": ("zlib", 0, 0.6),
    "every_stripe/zstd": ("zstd", 0, 0.9),
    "every_stripe/snappy": ("snappy", 0, 0.9),
    "every_stripe/many_rows": ("zlib", 50, 0.6),
}
"""Codec, which rows are deleted (each so-many-th; 0: one in each stripe), and the bar."""


def run() -> list[harness.Result]:
    """Measure the bars."""
    results = []
    for name, (codec, every, bar) in BARS.items():
        with harness.scratch() as folder:
            rows = str(BYTES // tables.ROW_BYTES)
            got = harness.in_child("benchmarks.compaction", "recode", str(folder), rows, "3", codec, str(every))
        detail = f"{got['bytes'] / 1e9:.2f} GB {codec}, {got['stripes']:g} stripes, {f'one row in {every}' if every else 'one row of each'} deleted: {got['ours']:.1f} CPU s against Arrow's {got['peer']:.1f}"
        results.append(harness.at_most(name, got["ours"] / got["peer"], bar, "x Arrow CPU", detail))
    return results
