"""
Run as a program: Spark writes Parquet files in several manners, they are joined, and Spark reads the joined ones by
both of its readers, with and without push-down; prints what differed, and how many rows the filters left out.
"""

import datetime as dt
import json
import math
import sys
from decimal import Decimal
from pathlib import Path

from pyspark.sql import SparkSession

from compactor.parquet import fields, thrift
from compactor.parquet.checking import check
from compactor.parquet.footer import read_footer
from compactor.parquet.joining import Piece, join
from compactor.storage.local_fs.files import LocalReader, LocalWriter

COLUMNS = """
    n int, g bigint, s string, x double, f float, d date, t timestamp, m decimal(12,2), k decimal(7,3), w decimal(30,5),
    b boolean, y binary, l array<int>, p map<string,bigint>, r struct<a: int, q: array<string>>
"""
ROWS, FILES = 3000, 4
MANNERS = {
    "int96": {"spark.sql.parquet.outputTimestampType": "INT96"},
    "legacy": {
        "spark.sql.parquet.writeLegacyFormat": "true",
        "spark.sql.parquet.outputTimestampType": "INT96",
        "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    },
    "micros": {
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.compression.codec": "zstd",
        "parquet.page.row.count.limit": "100",
    },
    "bloom": {"parquet.bloom.filter.enabled#g": "true", "parquet.page.row.count.limit": "100"},
    "version 2": {"parquet.writer.version": "PARQUET_2_0", "spark.sql.parquet.compression.codec": "gzip"},
}


def row(n):
    """A row whose columns ascend with its number, but for `g`; now and then NULL or NaN."""
    moment = dt.datetime(1500 if n < 20 else 1970, 1, 1) + dt.timedelta(hours=n, microseconds=n)  # noqa: DTZ001 - UTC
    gap = n % 97 == 0
    return (
        n,
        n * 7919 % 100_003 * 2,
        None if gap else f"text {n:06}",
        math.nan if n % 500 == 7 else (-0.0 if n % 11 == 0 else n / 7),
        -n / 3,
        dt.date(1500 if n < 20 else 1970, 1, 1) + dt.timedelta(days=n),
        None if gap else moment,
        Decimal(f"{n - 1500}.25"),
        Decimal(f"{n - 1500}.125"),
        Decimal(f"{(n - 1500) * 10**15}.5"),
        None if gap else n % 2 == 0,
        b"\xff\x00" + n.to_bytes(2, "big"),
        [None, n][: n % 3] if not gap else None,
        {f"k{n % 5}": n, "z": None} if n % 4 else {},
        (n, [f"q{n}", None]) if not gap else None,
    )


def predicates():
    for n in (7, 1501):
        values = row(n)
        found = {
            "n": n,
            "g": values[1],
            "s": f"'text {n:06}'",
            "x": f"double({n}) / 7",
            "f": f"float({-n / 3})",
            "d": f"date'{values[5]}'",
            "t": f"timestamp'{values[6] or dt.datetime(1971, 1, 1)}'",  # noqa: DTZ001 - UTC
            "m": f"{values[7]}",
            "k": f"{values[8]}",
            "w": f"{values[9]}",
            "y": f"X'{values[11].hex()}'",
        }
        for column, value in found.items():
            yield f"{column} {'=' if n == 7 else '<'} {value}"
            yield f"{column} {'>=' if n == 7 else '='} {value}"
    yield from ("s is null", "t is not null", "b = true", "x = double('NaN')", "x > 1e300", "x = 0.0", "x <= -0.0")
    yield from ("g = 5", "g in (1, 3)", "r.a = 5", "l is null", "k < -1400.0", "w > 1e18")


def rows_of(frame):
    """Sorted here: Spark would read each file twice to sort."""
    return [repr(found) for found in sorted(frame.collect(), key=lambda found: found[0])]


def answers(spark, path):
    """How the rows count that each predicate finds, with and without push-down."""
    spark.read.parquet(str(path)).createOrReplaceTempView("joined")
    asked = list(predicates())
    unpruned = spark.sql(f"select n, {', '.join(f'({predicate})' for predicate in asked)} from joined").collect()
    branches = (f"select {number} i, n from joined where {predicate}" for number, predicate in enumerate(asked))
    pruned = {(i, n) for i, n in spark.sql(" union all ".join(branches)).collect()}
    expected = {(number, one[0]) for one in unpruned for number in range(len(asked)) if one[number + 1]}
    differing = sorted({asked[number] for number, _ in pruned ^ expected})
    return len(asked), differing


def scanned(spark, predicate):
    frame = spark.sql(f"select n from joined where {predicate}")
    frame.collect()
    return (
        frame._jdf.queryExecution().executedPlan().collectLeaves().head().metrics().get("numOutputRows").get().value()
    )


def join_files(source, target, *, recode):
    paths = sorted(source.glob("*.parquet"))
    readers = [LocalReader(str(path)) for path in paths]
    footers = [read_footer(reader) for reader in readers]
    for footer in footers:
        struct, _ = thrift.decode(footer.data, 0, {4: {1: {3: {12: {}}}}, 2: {10: {}}})
        assert thrift.encode(struct) == footer.data
    pieces = [
        Piece(reader, footer, tuple(range(len(footer.row_groups))), recode)
        for reader, footer in zip(readers, footers, strict=True)
    ]
    target.mkdir()
    with LocalWriter(str(target / "joined.parquet")) as sink:
        made = join(pieces, sink)
    check(LocalReader(str(target / "joined.parquet")), pieces)
    return {"row_groups": made.row_groups, "kept": footers[0].kept, "recoded": made.recoded_bytes > 0}


def types(path):
    """Physical type, and whether there is a range, of each column's first chunk."""
    footer = read_footer(LocalReader(str(path / "joined.parquet")))
    chunks = footer.describe(0)[fields.GROUP_COLUMNS][1]
    return [chunk[fields.CHUNK_META][1][fields.META_TYPE][1] for chunk in chunks]


def main(directory):
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.ansi.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    frame = spark.createDataFrame([row(n) for n in range(ROWS)], COLUMNS).repartitionByRange(FILES, "n").cache()
    found = {}
    for manner, options in MANNERS.items():
        source = directory / manner.replace(" ", "_")
        settings = {key: value for key, value in options.items() if key.startswith("spark.")}
        for key, value in settings.items():
            spark.conf.set(key, value)
        writer = frame.sortWithinPartitions("n").write
        for key, value in options.items():
            if key not in settings:
                writer = writer.option(key, value)
        writer.parquet(str(source))
        for key in settings:
            spark.conf.unset(key)
        for recode in (False, True):
            target = directory / f"{source.name}_{recode}"
            said = join_files(source, target, recode=recode)
            said["rows_differ"] = []
            for vectorized in ("true", "false"):
                spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
                before, after = (rows_of(spark.read.parquet(str(path))) for path in (source, target))
                if before != after or len(before) != ROWS:
                    said["rows_differ"].append(vectorized)
            spark.conf.unset("spark.sql.parquet.enableVectorizedReader")
            said["asked"], said["differing"] = answers(spark, target)
            said["scanned"] = [scanned(spark, predicate) for predicate in ("n = 1234", "g = 5", "s = 'text 001234'")]
            said["types"] = types(target)
            found[f"{manner}, {'encoded' if recode else 'copied'}"] = said
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
