"""
Run as a program: Java's ORC reader pushes predicates down on a file of Java and C++ stripes, one of them recompressed;
prints how often the answer differed, and how much was skipped. With `cut` as second argument, rows are cut out of the
stripes of both writers.
"""

import datetime as dt
import json
import math
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyorc
from pyspark.sql import SparkSession

from compactor.acid.types import HiveType
from compactor.orc.cutting import stripe
from compactor.orc.cutting.stripe import cut
from compactor.orc.format.codec import Compression
from compactor.orc.format.tail import read_tail
from compactor.orc.writing.output import OutputFormat
from compactor.orc.writing.recompress import recompress
from compactor.orc.writing.splice import Splicer
from compactor.storage.local_fs.files import LocalReader, LocalWriter
from tests.unit.orc.files import opened, plain_file

COLUMNS = "n int, g bigint, s string, x double, d date, t timestamp, m decimal(12,2), b boolean"
ROWS, STRIDE = 6000, 1000
stripe._RUN = ROWS  # also where encoding anew would take less
GONE = {3, 500, 998, 1001, 1500, 1501, 1999, 2001, 2999, 3000}
CUT = sys.argv[2:] == ["cut"]
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - Spark's session is in UTC


def row(n):
    """A row whose columns ascend with its number, now and then NULL."""
    moment = (n if CUT else n - ROWS) * 3600  # stripes with fractions of seconds before 1970 aren't cut
    gap = n % 997 == 0
    return (
        n,
        -n,
        f"text {n:06}",
        math.nan if n == 4500 else n / 7,
        n - ROWS,
        (moment, 500_000_000 if n % 2 else 0),
        f"{n}.25",
        None if gap else n % 2 == 0,
    )


def for_spark(values):
    n, g, s, x, days, (seconds, nanos), m, b = values
    moment = EPOCH + dt.timedelta(seconds=seconds, microseconds=nanos // 1000)
    return n, g, s, x, dt.date(1970, 1, 1) + dt.timedelta(days=days), moment, Decimal(m), b


def predicates():
    """Comparisons of every column around the borders of the stripes and row groups."""
    for n in (0, 999, 1000, 2000, 4500):
        date, moment = for_spark(row(n))[4:6]
        values = {
            "n": n,
            "g": -n,
            "s": f"'text {n:06}'",
            "x": n / 7,
            "d": f"date'{date}'",
            "t": f"timestamp'{moment}'",
            "m": f"{n}.25",
        }
        for column, value in values.items():
            for sign in ("=", "<", ">=", "<=>"):
                yield f"{column} {sign} {value}"
    yield from (
        "b is null",
        "b is not null",
        "b = true",
        "x = double('NaN')",
        "x > 1e300",
        "s in ('text 000000', 'text 003000')",
        "t is null",
    )


def cut_out(reader, tail, index, first):
    """The stripe, with or without the rows that go; `first` is the number of its first row."""
    if not CUT:
        return reader, tail, index
    rows = range(first, first + tail.stripes[index].number_of_rows)
    made = cut(reader, tail, index, np.array([n not in GONE for n in rows]))
    return made.reader, made.tail, 0


class Gapped(LocalWriter):
    """Leaves bytes out before a stripe, as where stripes share their blocks with their source."""

    def gap_before(self, offset, length):
        return (offset + length) % 4096


def main(directory):
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    third = ROWS // 3
    made = directory / "java"
    frame = spark.createDataFrame([for_spark(row(n)) for n in range(third)], COLUMNS).coalesce(1)
    frame.write.option("compression", "zlib").option("orc.row.index.stride", STRIDE).orc(str(made))
    (java,) = made.glob("*.orc")
    reader = LocalReader(str(java))
    tail = read_tail(reader)
    tree = HiveType(tail.tree.kind, tail.tree.children, tail.tree.names)
    with Gapped(str(directory / "mixed.orc")) as sink:
        splicer = Splicer(sink, OutputFormat(tree, stride=STRIDE))
        assert len(tail.stripes) == 1
        splicer.add_stripe(*cut_out(reader, tail, 0, 0))
        for part in (1, 2):
            rows = [row(n) for n in range(part * third, (part + 1) * third)]
            if part == 1:
                splicer.add_stripe(*cut_out(*opened(plain_file(tree, rows, row_index_stride=STRIDE)), 0, third))
            else:
                plain = plain_file(tree, rows, row_index_stride=STRIDE, compression=pyorc.CompressionKind.NONE)
                splicer.add_stripe(*recompress(*opened(plain), Compression.ZLIB, 1024), 0)
        splicer.finish(None)
    label = read_tail(LocalReader(str(directory / "mixed.orc")))
    whole = spark.read.orc(str(directory / "mixed.orc"))
    whole.createOrReplaceTempView("mixed")
    asked = list(predicates())
    unpruned = spark.sql(f"select n, {', '.join(f'({predicate})' for predicate in asked)} from mixed").collect()
    differing = []
    for number, predicate in enumerate(asked, start=1):
        pruned = sorted(found[0] for found in spark.sql(f"select n from mixed where {predicate}").collect())
        expected = [found[0] for found in unpruned if found[number]]
        if pruned != expected:
            differing.append([predicate, len(pruned), len(expected)])
    scanned = spark.sql("select n from mixed where n between 4100 and 4110")
    scanned.collect()
    metrics = scanned._jdf.queryExecution().executedPlan().collectLeaves().head().metrics()
    left = [n for n in range(ROWS) if not CUT or n not in GONE]
    skipped = len(left) - metrics.get("numOutputRows").get().value()
    expected = [for_spark(row(n)) for n in left]
    same = [tuple(found) for found in whole.collect()]
    rows_differ = sum(repr(one) != repr(other) for one, other in zip(same, expected, strict=True))
    found = {
        "label": [label.writer, label.writer_version],
        "stripes": len(label.stripes),
        "asked": len(asked),
        "differing": differing,
        "skipped": skipped,
    }
    print(json.dumps(found | {"rows_differ": rows_differ}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
