"""
Major with every stripe hit, zlib: what verifying the values, not only the keys, adds to the CPU of everything we start.
"""

from benchmarks import harness, tables

BYTES = 3 << 26


def run() -> list[harness.Result]:
    """The bar."""
    with harness.scratch() as folder:
        got = harness.in_child("benchmarks.compaction", "digest", str(folder), str(BYTES // tables.ROW_BYTES), "5")
    more = got["with"] / got["without"] - 1
    detail = f"{got['bytes'] / 1e9:.2f} GB zlib, {got['stripes']:g} stripes, all hit: {got['with']:.1f} CPU s, {got['without']:.1f} without"
    return [harness.at_most("digest", more, 0.15, "of the CPU", detail)]
