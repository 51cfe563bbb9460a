"""
Run as a program: Java's ORC reader pushes predicates down on a file of Java and C++ stripes, one of them recompressed,
and on one of stripes of both writers out of which rows are cut; prints of each how often the answer differed, and how
much was skipped.
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
SIGNS = {0: ("=", "<=>"), 999: ("=", ">="), 1000: ("=", "<"), 2000: ("<=>", "<", ">="), 4500: ("=", "<")}
"""Rows around the borders of the stripes and row groups, and how each column is compared with theirs."""
GONE = {3, 500, 998, 1001, 1500, 1501, 1999, 2001, 2999, 3000}
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - Spark's session is in UTC


def row(n, cut_out):
    """A row whose columns ascend with its number, now and then NULL."""
    moment = (n if cut_out else n - ROWS) * 3600  # stripes with fractions of seconds before 1970 aren't cut
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


def predicates(cut_out):
    """Comparisons of every column."""
    for n, signs in SIGNS.items():
        date, moment = for_spark(row(n, cut_out))[4:6]
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
            for sign in signs:
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


def without_some(reader, tail, index, first):
    """The stripe without the rows that go; `first` is the number of its first row."""
    rows = range(first, first + tail.stripes[index].number_of_rows)
    made = cut(reader, tail, index, np.array([n not in GONE for n in rows]))
    return made.reader, made.tail, 0


class Gapped(LocalWriter):
    """Leaves bytes out before a stripe, as where stripes share their blocks with their source."""

    def gap_before(self, offset, length):
        return (offset + length) % 4096


def judged(spark, directory, cut_out):
    """What became of the file whose stripes are as they were written, or have lost rows."""
    third = ROWS // 3
    made = directory / "java"
    frame = spark.createDataFrame([for_spark(row(n, cut_out)) for n in range(third)], COLUMNS).coalesce(1)
    frame.write.option("compression", "zlib").option("orc.row.index.stride", STRIDE).orc(str(made))
    (java,) = made.glob("*.orc")
    reader = LocalReader(str(java))
    tail = read_tail(reader)
    tree = HiveType(tail.tree.kind, tail.tree.children, tail.tree.names)
    with Gapped(str(directory / "mixed.orc")) as sink:
        splicer = Splicer(sink, OutputFormat(tree, stride=STRIDE))
        assert len(tail.stripes) == 1
        splicer.add_stripe(*(without_some(reader, tail, 0, 0) if cut_out else (reader, tail, 0)))
        for part in (1, 2):
            rows = [row(n, cut_out) for n in range(part * third, (part + 1) * third)]
            if part == 1:
                found = (*opened(plain_file(tree, rows, row_index_stride=STRIDE)), 0)
                splicer.add_stripe(*(without_some(*found, third) if cut_out else found))
            else:
                plain = plain_file(tree, rows, row_index_stride=STRIDE, compression=pyorc.CompressionKind.NONE)
                splicer.add_stripe(*recompress(*opened(plain), Compression.ZLIB, 1024), 0)
        splicer.finish(None)
    label = read_tail(LocalReader(str(directory / "mixed.orc")))
    whole = spark.read.orc(str(directory / "mixed.orc"))
    whole.createOrReplaceTempView("mixed")
    asked = list(predicates(cut_out))
    unpruned = spark.sql(f"select n, {', '.join(f'({predicate})' for predicate in asked)} from mixed").collect()
    branches = (f"select {number} i, n from mixed where {predicate}" for number, predicate in enumerate(asked))
    spark.conf.set("spark.sql.codegen.wholeStage", "false")  # each filter's code would be compiled for itself
    pruned = {(i, n) for i, n in spark.sql(" union all ".join(branches)).collect()}
    spark.conf.unset("spark.sql.codegen.wholeStage")
    expected = {(number, one[0]) for one in unpruned for number in range(len(asked)) if one[number + 1]}
    scanned = spark.sql("select n from mixed where n between 4100 and 4110")
    scanned.collect()
    metrics = scanned._jdf.queryExecution().executedPlan().collectLeaves().head().metrics()
    left = [n for n in range(ROWS) if not cut_out or n not in GONE]
    same = [tuple(found) for found in whole.collect()]
    rows = [for_spark(row(n, cut_out)) for n in left]
    return {
        "label": [label.writer, label.writer_version],
        "stripes": len(label.stripes),
        "asked": len(asked),
        "found": len(expected),
        "differing": sorted({asked[number] for number, _ in pruned ^ expected}),
        "skipped": len(left) - metrics.get("numOutputRows").get().value(),
        "rows_differ": sum(repr(one) != repr(other) for one, other in zip(same, rows, strict=True)),
    }


def main(directory):
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    found = {}
    for manner, cut_out in (("as written", False), ("with rows cut out", True)):
        folder = directory / manner.replace(" ", "_")
        folder.mkdir()
        found[manner] = judged(spark, folder, cut_out)
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
