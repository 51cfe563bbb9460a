"""
Small files of insert-only tables that a living Hive wrote, in every format that it writes: joined by us, and read by it
as before.
"""

import bz2
import contextlib
import gzip
import random

import pytest

from tests.daemon.lab import until
from tests.hive.server.hive import HiveError

pytestmark = [pytest.mark.live, pytest.mark.timeout(0)]

COLUMNS = (
    "id int, t tinyint, b bigint, f float, d double, n decimal(20,4), o boolean, s string, c char(5), v varchar(9), "
    "y binary, day date, at timestamp, l array<int>, m map<string,int>, r struct<x:int,y:string>"
)
VALUES = (
    "cast({0} as tinyint), cast({0} as bigint) * 10000000000, cast({0}.25 as float), cast({0}.1 as double), "
    "cast('-{0}.1234' as decimal(20,4)), {0} % 2 = 0, 'text ü {0}', cast('c{0}' as char(5)), cast('v {0}' as varchar(9)), "
    "cast('b{0}' as binary), date '19{0}-02-28', timestamp '19{0}-12-31 23:59:59.123456', array({0}, cast(null as int)), "
    "map('k', {0}), named_struct('x', {0}, 'y', 'z')"
)
NULLS = (
    "cast(null as tinyint), cast(null as bigint), cast(null as float), cast(null as double), "
    "cast(null as decimal(20,4)), cast(null as boolean), cast(null as string), cast(null as char(5)), "
    "cast(null as varchar(9)), cast(null as binary), cast(null as date), cast(null as timestamp), array(1), "
    "map('n', 1), named_struct('x', 1, 'y', 'n')"
)
FORMATS = {
    "orc": (1, "orc"),
    "parquet": (1, "parquet"),
    "text": (1, "textfile"),
    "csv": (1, "row format delimited fields terminated by ',' stored as textfile"),
    "avro": (1, "avro"),
    "sequence": (4, "sequencefile"),
    "rc": (4, "rcfile"),
    "header": (4, "textfile"),
}
"""Files after a compaction of four, and how Hive is asked for the format."""


NOT_OF_3 = ("avro", "parquet")
"""
What this Hive 3.1.3 doesn't read, compacted or not: its class path has an Avro that is too old, and its Parquet asks a
local file for what the Hadoop beside it can't.
"""
NOT_YET = {"blackouts": [{"name": "not yet", "tables": ["*.*"], "start": "00:00", "end": "24:00"}]}


@pytest.fixture(
    params=[pytest.param(version, marks=pytest.mark.xdist_group(f"hive-{version}")) for version in ("4", "3")]
)
def living(request, pair):
    """Each release in turn, with our daemon beside it and an empty database `io`."""
    found = pair(request.param)
    found.hive.sql("create database io")
    yield found
    found.hive.sql("drop database io cascade")


def test_hive_reads_the_rows_of_its_small_files_from_one_file(living):
    """
    Four inserts are four files; after a compaction one, where the format can be joined. Hive reads the same rows, also
    where it filters by statistics.
    """
    queries = [
        "select * from io.{} order by id",
        "select count(*), sum(id), min(at), max(n) from io.{} where id > 12",
        "select id from io.{} where s = 'text ü 33' or day = date '1921-02-28' order by id",
    ]
    expected = {}
    formats = {name: of for name, of in FORMATS.items() if living.hive.version == "4" or name not in NOT_OF_3}
    with living.daemon.told(windows=NOT_YET):
        for name, (_, stored) in formats.items():
            skip = "1" if name == "header" else "0"
            living.hive.sql(
                f"create table io.{name} ({COLUMNS}) {stored if 'stored' in stored else f'stored as {stored}'} "
                "tblproperties ('transactional'='true', 'transactional_properties'='insert_only', "
                f"'skip.header.line.count'='{skip}')",
                *(f"insert into io.{name} select {number}, {VALUES.format(number)}" for number in (12, 21, 33)),
                f"insert into io.{name} select 40, {NULLS}",
            )
            expected[name] = [living.hive.rows(query.format(name)) for query in queries]
            assert not list((living.hive.warehouse / "io.db" / name).glob("base_*"))
    for name in formats:
        with contextlib.suppress(HiveError):  # refused where our Initiator was quicker
            living.hive.sql(f"alter table io.{name} compact 'major'")
    for name, (files, _) in formats.items():
        place = living.hive.warehouse / "io.db" / name
        until(lambda place=place: any(place.glob("base_*/0*")), f"{name} compacted")
        assert len(list(place.glob("base_*/0*"))) == files, name
        found = [living.hive.rows(query.format(name)) for query in queries]
        assert found == expected[name], name


@pytest.mark.parametrize(("extension", "codec"), [("gz", gzip), ("bz2", bz2)])
def test_hive_reads_compressed_text_whose_members_follow_each_other(living, tmp_path, extension, codec):
    """
    Files of several blocks, one of them without a last newline: whole, and, of bzip2, in splits that begin in the middle
    of a member.
    """
    chance = random.Random(7)
    name = f"io.packed_{extension}"
    query = f"select count(*), count(distinct id), sum(id), sum(length(word)), max(word) from {name}"
    with living.daemon.told(windows=NOT_YET):
        living.hive.sql(
            f"create table {name} (id int, word string) row format delimited fields terminated by ',' "
            "stored as textfile tblproperties ('transactional'='true', 'transactional_properties'='insert_only')"
        )
        for number in range(4):
            lines = [f"{number * 100_000 + line},{chance.getrandbits(96):x}" for line in range(60_000)]
            packed = codec.compress(("\n".join(lines) + "\n" * (number % 2)).encode())
            (tmp_path / f"f{number}.{extension}").write_bytes(packed)
            living.hive.sql(f"load data local inpath '{tmp_path}/f{number}.{extension}' into table {name}")
        expected = living.hive.rows(query)
    assert expected[0][0] == "240000"
    with contextlib.suppress(HiveError):
        living.hive.sql(f"alter table {name} compact 'major'")
    place = living.hive.warehouse / "io.db" / f"packed_{extension}"
    until(lambda: any(place.glob(f"base_*/0*.{extension}")), f"{name} compacted")
    (made,) = place.glob("base_*/0*")
    assert made.suffix == f".{extension}"
    assert living.hive.rows(query) == expected
    if extension == "bz2":
        living.hive.sql(
            "set hive.input.format=org.apache.hadoop.hive.ql.io.HiveInputFormat",
            f"set mapreduce.input.fileinputformat.split.maxsize={made.stat().st_size // 7}",
        )
        assert living.hive.rows(query) == expected
        living.hive.sql("reset")
