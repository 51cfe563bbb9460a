"""A major compaction of untouched data: 8 GB in one bucket, claim to commit, against cp and fsync of the same bytes."""

from benchmarks import harness, tables

BYTES = 8 << 30


def measure(name: str, share: float, bar: float) -> list[harness.Result]:
    """Measure with one delete in each stripe of a share of all stripes."""
    with harness.scratch() as folder:
        got = harness.in_child(
            "benchmarks.compaction", "copy", str(folder), str(BYTES // tables.ROW_BYTES), str(share), "3"
        )
    detail = f"{got['bytes'] / 1e9:.1f} GB, {got['hit']:g} of {got['stripes']:g} stripes hit: {got['ours']:.2f} s against cp + fsync {got['peer']:.2f} s"
    return [harness.at_most(name, got["ours"] / got["peer"], bar, "x cp time", detail)]


def run() -> list[harness.Result]:
    """Measure the bar."""
    return measure("untouched", 0, 1.15)
