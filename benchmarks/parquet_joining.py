"""
Joining Parquet files: 2 GB in row groups that are copied, against pyarrow's reading and writing; and 10,000 small files
that are encoded anew, against Spark's coalesce, with the time that Spark then needs to scan either.
"""

import multiprocessing
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import parquet

from benchmarks import harness
from compactor.parquet.checking import check
from compactor.parquet.footer import read_footer
from compactor.parquet.joining import Piece, join
from compactor.storage.local_fs.files import LocalReader, LocalWriter
from tests.hive.server.hive import hive_server
from tests.metastore.servers import postgres_server

TEXTS = [f"{word} {number}" for number in range(400) for word in ("berth", "quay", "mole", "pier", "dock")]
TARGET = 256 << 20
SMALL, SMALL_BYTES = 10_000, 50 << 10
HIVE_COLUMNS = (
    "id bigint, `user` bigint, kind string, place string, address string, note string, code string, `at` timestamp, "
    "day date, price decimal(19, 0), weight double, `share` float, `count` int, level int, good boolean"
)
HIVE_SCAN = (
    "select count(*), sum(id), sum(`user`), max(kind), max(place), max(address), max(note), max(code), max(`at`), "
    "max(day), sum(price), max(weight), max(`share`), sum(`count`), sum(level), max(good) from {}"
)


def table(rows: int, seed: int) -> pa.Table:
    """Fifteen columns of an event table: keys, numbers with few and many values, texts, times, prices."""
    chance = np.random.default_rng(seed)
    numbers = np.arange(seed * rows, (seed + 1) * rows)
    texts = pa.array(TEXTS)

    def some(most: int) -> pa.Array:
        return texts.take(pa.array(chance.integers(0, most, rows)))

    columns = {
        "id": numbers,
        "user": chance.integers(0, 50_000, rows),
        "kind": some(12),
        "place": some(len(TEXTS)),
        "address": pa.array(chance.integers(0, 1 << 48, rows)).cast(pa.string()),
        "note": pc.binary_join_element_wise(some(len(TEXTS)), some(len(TEXTS)), " of "),
        "code": some(200),
        "at": pa.array(1_700_000_000_000_000 + numbers * 1_000_003, pa.timestamp("us", "UTC")),
        "day": pa.array(19_000 + numbers // 100_000, pa.int32()).cast(pa.date32()),
        "price": pa.array(chance.integers(0, 10**6, rows)).cast(pa.decimal128(19, 0)),
        "weight": chance.random(rows),
        "share": chance.integers(0, 100, rows).astype("f4") / 100,
        "count": chance.integers(0, 100, rows).astype("i4"),
        "level": chance.integers(0, 5, rows).astype("i4"),
        "good": chance.random(rows) < 0.9,
    }
    return pa.table(columns)


def make_large(folder: Path) -> None:
    """64 files of about 32 MB, in row groups of 8 to 32 MB."""
    one = table(100_000, 1)
    rows = one.num_rows
    size = len(_bytes(one)) / rows
    for number in range(64):
        wanted = (8, 16, 32)[number % 3] << 20
        groups = max(1, (32 << 20) // wanted)
        with parquet.ParquetWriter(folder / f"{number:06}_0", one.schema) as writer:
            for _ in range(groups):
                repeats = max(1, round(1.25 * wanted / size / rows))  # dictionaries are there once
                writer.write_table(pa.concat_tables([one] * repeats), row_group_size=1 << 30)


def make_small(folder: Path, count: int = SMALL) -> None:
    """Files of about 50 KB, each with a row group of its own."""
    rows = 500
    while len(_bytes(table(rows, 0))) < SMALL_BYTES:
        rows += 50
    for number in range(count):
        parquet.write_table(table(rows, number), folder / f"{number:06}_0")


def _bytes(one: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    parquet.write_table(one, sink)
    return sink.getvalue()


def parts(folder: Path, target: int) -> list[list[Path]]:
    """The files of a folder by name, so many together as fill a file."""
    found: list[list[Path]] = [[]]
    filled = 0
    for path in sorted(folder.iterdir()):
        size = path.stat().st_size
        if found[-1] and filled + size > target:
            found.append([])
            filled = 0
        found[-1].append(path)
        filled += size
    return found


def join_part(task: tuple[list[Path], Path, bool]) -> int:
    """Join some files into one, and check it; returns the rows."""
    paths, target, recode = task
    readers = [LocalReader(str(path)) for path in paths]
    footers = [read_footer(reader) for reader in readers]
    pieces = [
        Piece(reader, footer, tuple(range(len(footer.row_groups))), recode)
        for reader, footer in zip(readers, footers, strict=True)
    ]
    with LocalWriter(str(target)) as sink:
        made = join(pieces, sink)
    result = LocalReader(str(target))
    check(result, pieces)
    for reader in (*readers, result):
        reader.close()
    return made.rows


def rewrite_part(task: tuple[list[Path], Path]) -> None:
    """What pyarrow makes of the same: read batches, write them in row groups of 128 MB or so."""
    paths, target = task
    writer = None
    for path in paths:
        opened = parquet.ParquetFile(path)
        for number in range(opened.num_row_groups):
            rows = opened.read_row_group(number, use_threads=False)
            if writer is None:
                writer = parquet.ParquetWriter(target, rows.schema)
            writer.write_table(rows, row_group_size=1 << 30)
    assert writer is not None
    writer.close()


def large(folder: Path) -> list[harness.Result]:
    """CPU time of pyarrow's rewriting against that of joining with its check."""
    source = folder / "large"
    source.mkdir()
    make_large(source)
    some = parts(source, TARGET)

    def cpu(name: str) -> float:
        target = folder / name
        target.mkdir(exist_ok=True)
        begin = time.process_time()
        for number, paths in enumerate(some):
            made = target / f"{number:06}_0"
            made.unlink(missing_ok=True)
            if name == "joined":
                join_part((paths, made, False))
            else:
                rewrite_part((paths, made))
        return time.process_time() - begin

    peer, ours = harness.alternate(lambda: cpu("rewritten"), lambda: cpu("joined"))
    size = sum(path.stat().st_size for path in source.iterdir())
    detail = f"{size / 1e9:.1f} GB in 64 files to {len(some)}: {ours:.2f} s against pyarrow's {peer:.2f} s of CPU"
    return [harness.at_least("parquet_joining/copied", peer / max(ours, 0.01), 6, "x less CPU", detail)]


def small(folder: Path) -> list[harness.Result]:
    """Wall time of Spark's coalesce against that of two processes that join and check; then Spark's scans of both."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only this bar needs Java

    source = folder / "small"
    source.mkdir()
    make_small(source)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # as in the source; INT96 by default
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    some = parts(source, TARGET)

    def by_spark() -> float:
        return harness.seconds(
            lambda: (
                spark.read.parquet(str(source))
                .coalesce(max(2, len(some)))
                .write.mode("overwrite")
                .parquet(str(folder / "coalesced"))
            )
        )

    wanted = ds.dataset(source, format="parquet").count_rows()

    def by_joining() -> float:
        target = folder / "joined"
        target.mkdir(exist_ok=True)
        for path in target.iterdir():
            path.unlink()
        total = sum(path.stat().st_size for path in source.iterdir())
        halves = parts(source, round(1.01 * total / max(2, len(some))))
        tasks = [(paths, target / f"{number:06}_0", True) for number, paths in enumerate(halves)]

        def work() -> None:
            with multiprocessing.get_context("spawn").Pool(2) as pool:
                assert sum(pool.map(join_part, tasks, chunksize=1)) == wanted

        return harness.seconds(work)

    peer, ours = harness.alternate(by_spark, by_joining)
    count = sum(1 for _ in (folder / "joined").iterdir())
    detail = f"{SMALL} files to {count}: {ours:.1f} s against Spark's {peer:.1f} s"
    results = [harness.at_least("parquet_joining/encoded", peer / ours, 3, "x faster", detail)]

    def scan(name: str) -> float:
        frame = spark.read.parquet(str(folder / name))
        return harness.seconds(lambda: frame.write.format("noop").mode("overwrite").save())

    scan("coalesced"), scan("joined")
    theirs, mine = harness.alternate(lambda: scan("coalesced"), lambda: scan("joined"), rounds=5)
    detail = f"joined {mine:.2f} s, coalesced {theirs:.2f} s"
    results.append(harness.at_most("parquet_joining/scanned", mine / theirs, 1.05, "x Spark's", detail))
    spark.stop()
    return [*results, scanned_by_hive(folder)]


def scanned_by_hive(folder: Path) -> harness.Result:
    """Time of Hive's scan of all columns, of the joined files and of those that Spark made."""
    with postgres_server() as postgres, hive_server("4", postgres, memory="4g") as hive:
        for name in ("coalesced", "joined"):
            hive.sql(
                f"create external table {name} ({HIVE_COLUMNS}) stored as parquet location 'file://{folder / name}'"
            )

        def scan(name: str) -> tuple[float, object]:
            rows: list[object] = []
            took = harness.seconds(lambda: rows.extend(hive.rows(HIVE_SCAN.format(name))))
            return took, rows

        if scan("coalesced")[1] != scan("joined")[1]:
            raise RuntimeError("Hive reads other rows in the joined files")
        theirs, mine = harness.alternate(lambda: scan("coalesced")[0], lambda: scan("joined")[0], rounds=5)
    detail = f"joined {mine:.2f} s, coalesced {theirs:.2f} s"
    return harness.at_most("parquet_joining/scanned_by_hive", mine / theirs, 1.05, "x Spark's", detail)


def run() -> list[harness.Result]:
    """Measure the four bars."""
    with harness.scratch() as folder:
        return [*large(folder), *small(folder)]
