"""
A major compaction with every stripe hit, zlib: the CPU that verifying all values adds to verifying the keys alone, in
this process and all that it starts.
"""

from benchmarks import harness, tables

BYTES = 3 << 26


ORDINARY_ROWS = 3_000_000


def run() -> list[harness.Result]:
    """Measure random letters, and ordinary columns, whose rows take longer to compress and decompress."""
    results = []
    for name, rows, content in (
        ("digest", BYTES // tables.ROW_BYTES, "RANDOM"),
        ("digest/ordinary", ORDINARY_ROWS, "ORDINARY"),
    ):
        with harness.scratch() as folder:
            got = harness.in_child("benchmarks.compaction", "digest", str(folder), str(rows), "5", content)
        more, least = got["with"] / got["without"] - 1, got["read"] / got["without"]
        detail = (
            f"{got['bytes'] / 1e9:.2f} GB zlib, {got['stripes']:g} stripes, all hit: {got['with']:.1f} CPU s, "
            f"{got['without']:.1f} without; Arrow alone needs {least:.0%} to read the values once"
        )
        results.append(harness.at_most(name, more, 0.15, "of the CPU", detail))
    return results
