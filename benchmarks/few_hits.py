"""The same as `untouched`, with one percent of the stripes hit by deletes."""

from benchmarks import harness, untouched


def run() -> list[harness.Result]:
    """Measure the bar."""
    return untouched.measure("few_hits", 0.01, 1.3)
