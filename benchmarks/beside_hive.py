"""
The same compactions by a real Hive 4.0.1's own Worker and Cleaner and by ours, on a table that Hive wrote: `make
bench-hive`.

Hive writes everything: the table, later inserts, deletes. Its JVM has all of its compilers, two threads for garbage and
4 GB of heap; its local MapReduce starts no containers, is asked for its end every 20 ms and has two tasks at once for a
compaction. (Statements have one: two tasks of a query in one JVM lose rows. So have queries on Tez: two fail.) Ours has
a warm Spark session of two cores.
"""

import json
import multiprocessing
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyarrow import orc

from benchmarks import harness, tables
from benchmarks.side_by_side import HIVE, OURS, Side, SideBySide
from compactor.acid.compaction import CompactionKind
from compactor.log import configure
from tests.hive.server.hive import HiveServer, hive_server
from tests.metastore.servers import postgres_server

ROWS = 4_000_000
ROUNDS = 5
MANY = 200
PARTITIONS, DELTAS = 60, 10
COLUMNS = ", ".join(f"`{name}` {kind}" for name, kind in tables.ORDINARY.columns)
ACID = "stored as orc tblproperties ('transactional'='true')"
SAME = "select count(*), sum(hash(ROW__ID.writeid, ROW__ID.bucketid, ROW__ID.rowid, {columns})) from {table}"
SCAN = "select count(*), sum(quantity), max(ordered_at), min(city), sum(length(`comment`)), sum(price) from t"
FIND = "select count(*), sum(quantity) from t where id between {0} and {0} + 999"
BARS = {
    "untouched_first": {"commit": 10.0},
    "untouched_next": {"commit": 10.0},
    "range_first": {"commit": 8.0},
    "range_next": {"commit": 8.0},
    "every_stripe": {"commit": 3.5, "cpu": 2.0},
    "minor_4": {"commit": 2.5},
    "minor_200": {"commit": 5.0},
    "many_small": {"commit": 3.0},
}
READING = 1.02


def write_source(path: str, rows: int) -> None:
    """Write the rows of the table as one ordinary ORC file."""
    with orc.ORCWriter(path, compression="zlib") as writer:
        for batch in tables.batches(rows, 1, content=tables.ORDINARY):
            content = batch.column(5)
            writer.write(pa.Table.from_arrays(content.flatten(), names=[field.name for field in content.type]))


def fill(hive: HiveServer, rows: int) -> None:
    """Have Hive write the table `t`: one delta of four buckets. The rows are made in a process of its own."""
    source = hive.external / "source"
    source.mkdir()
    maker = multiprocessing.get_context("spawn").Process(target=write_source, args=(str(source / "rows.orc"), rows))
    maker.start()
    maker.join()
    hive.sql(
        f"create external table source ({COLUMNS}) stored as orc location 'file://{source}'",
        f"create table t ({COLUMNS}) clustered by (id) into 4 buckets {ACID}",
        "insert into t select * from source",
    )
    found = hive.rows("select count(*) from t")
    if found != [(str(rows),)]:
        raise RuntimeError(f"Hive wrote {found} of {rows} rows")


def cases(hive: HiveServer, both: SideBySide, rows: int) -> Iterator[tuple[str, dict[str, Side]]]:
    """Each case's name, and what both did."""
    names = ", ".join(f"`{name}`" for name, _ in tables.ORDINARY.columns)
    queries = {"scan": SCAN, "find": FIND.format(rows * 3 // 8)}
    few = "insert into t select * from source where id < 10"
    for name, statement in (
        ("untouched_first", few),
        ("untouched_next", few),
        ("range_first", f"delete from t where id between {rows // 4} and {rows // 4 + 99}"),
        ("range_next", f"delete from t where id between {rows // 4 + 200} and {rows // 4 + 299}"),
        ("every_stripe", "delete from t where id % 10000 = 7"),
    ):
        hive.sql(statement)
        yield name, both.run("t", CompactionKind.MAJOR, SAME.format(columns=names, table="t"), queries)
    for name, count in (("minor_4", 4), ("minor_200", MANY)):
        hive.sql(f"create table {name} (id int, v string) {ACID}")
        hive.sql(*(f"insert into {name} values ({number}, 'v{number}')" for number in range(count)))
        yield name, both.run(name, CompactionKind.MINOR, SAME.format(columns="id, v", table=name), {})
    hive.sql(f"create table many_small (id int, v string) partitioned by (p int) {ACID}")
    values = ", ".join(f"({number}, 'v{number}', {number})" for number in range(PARTITIONS))
    hive.sql(*[f"insert into many_small partition (p) values {values}"] * DELTAS)
    names = [f"p={number}" for number in range(PARTITIONS)]
    same = SAME.format(columns="id, v, p", table="many_small")
    yield "many_small", both.run_many("many_small", names, CompactionKind.MINOR, same)


def results(name: str, sides: dict[str, Side]) -> list[harness.Result]:
    """A case's bars."""
    figures = {side: measured.figures() for side, measured in sides.items()}
    theirs, ours = figures[HIVE], figures[OURS]
    made = [
        harness.at_least(
            f"beside_hive/{name}/{what}",
            theirs[what] / ours[what],
            bar,
            "x Hive's",
            f"{ours[what]:.2f} {'CPU s' if what == 'cpu' else 's'} against {theirs[what]:.2f}",
        )
        for what, bar in BARS[name].items()
    ]
    reading = [
        harness.at_most(
            f"beside_hive/{name}/{query}",
            ours[query] / theirs[query],
            READING,
            "x Hive's",
            f"{ours[query]:.2f} s against {theirs[query]:.2f}; CPU {ours[query + '_cpu'] / theirs[query + '_cpu']:.3f}",
        )
        for query in sides[OURS].queries
        if not query.endswith("_cpu")
    ]
    return [*(replace(one, sides=figures) for one in made), *reading]


def run(rows: int = ROWS, rounds: int = ROUNDS) -> list[harness.Result]:
    """Measure all bars; those of a case are written as soon as they are there, since all of it takes long."""
    configure("error", "console")
    made = []
    with (
        postgres_server() as postgres,
        hive_server("4", postgres, memory="4g", jvm=("-XX:+UseParallelGC",)) as hive,
        tempfile.TemporaryDirectory(dir=hive.folder) as folder,
    ):
        fill(hive, rows)
        both = SideBySide(hive, Path(folder), rounds)
        try:
            for name, sides in cases(hive, both, rows):
                fresh = results(name, sides)
                print(name, json.dumps(fresh[0].sides), flush=True)
                harness.write(fresh)
                made += fresh
        finally:
            both.close()
    return made
