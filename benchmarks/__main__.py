"""`make bench`: runs the bars, all that don't take long or the named ones, prints a line for each, and writes results.json."""

import importlib
import sys

from benchmarks import harness

BARS = (
    "untouched",
    "few_hits",
    "every_stripe",
    "digest",
    "two_cores",
    "memory",
    "initiator",
    "latency",
    "many_small",
    "failover",
    "hdfs_listing",
    "hdfs_untouched",
    "hdfs_spread",
    "s3_untouched",
    "warm_yarn",
    "at_rest",
    "orc_joining",
    "parquet_joining",
    "fixed_point",
    "first_hour",
)
LONG = ("beside_hive", "scale")


def main() -> int:
    """Run the bars; returns the exit code: 1 when a bar is missed, 2 for an unknown name."""
    wanted = sys.argv[1:] or list(BARS)
    if unknown := set(wanted) - {*BARS, *LONG}:
        sys.stderr.write(f"no benchmark named {', '.join(sorted(unknown))}; there are: {', '.join(BARS + LONG)}\n")
        return 2
    results = []
    for name in wanted:
        fresh = importlib.import_module(f"benchmarks.{name}").run()
        for result in fresh:
            print(result.line(), flush=True)
        harness.write(fresh)
        results += fresh
    return 0 if all(result.holds for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
