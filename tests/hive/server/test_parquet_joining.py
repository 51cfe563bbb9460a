"""Real Hives read the rows of an insert-only Parquet table from the file that its files were joined to."""

from contextlib import ExitStack

import pytest

from compactor.parquet.checking import check
from compactor.parquet.footer import read_footer
from compactor.parquet.joining import Piece, join
from compactor.storage.local_fs.files import LocalReader, LocalWriter
from tests.hive.server.hive import hive_server
from tests.hive.server.jars import UnavailableError
from tests.metastore.databases import postgres  # noqa: F401 - a fixture
from tests.needs import missing

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]
COLUMNS = {
    "id": ("int", "x.n"),
    "t": ("timestamp", "cast(concat(1600 + x.n % 500, '-03-04 05:06:07.12345', x.n % 10) as timestamp)"),
    "d": ("date", "cast(concat(1500 + x.n % 500, '-12-31') as date)"),
    "m": ("decimal(10,2)", "cast(x.n - 20 as decimal(10,2)) / 4"),
    "w": ("decimal(38,6)", "cast(concat(x.n - 20, '12345678901234567890.5') as decimal(38,6))"),
    "c": ("char(5)", "cast(concat('c', x.n % 3) as char(5))"),
    "v": ("varchar(7)", "cast(if(x.n % 5 = 0, null, concat('v', x.n)) as varchar(7))"),
    "s": ("string", "concat('ü', x.n)"),
    "k": ("smallint", "cast(-x.n as smallint)"),
    "f": ("float", "cast(x.n / 3 as float)"),
    "e": ("double", "if(x.n = 7, cast('NaN' as double), x.n / 3)"),
    "b": ("boolean", "if(x.n % 4 = 0, null, x.n % 2 = 0)"),
    "y": ("binary", "cast(concat('y', x.n) as binary)"),
    "a": ("array<int>", "array(x.n, -x.n)"),
    "p": ("map<string,int>", "map(concat('k', x.n % 2), x.n)"),
    "r": ("struct<q:int,z:array<string>>", "named_struct('q', x.n, 'z', array('z', concat('z', x.n)))"),
}
PLAIN_FILES = {"fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem"}
"""Streams that the tests' own file system opens are wrapped twice, and Parquet of Hive 3.1 can't read from such."""
PREDICATES = (
    "true",
    "t < timestamp '1612-01-01 00:00:00'",
    "m > 1.5",
    "w < 0",
    "v = 'v11'",
    "e > 5",
    "c = 'c1'",
    "k >= -9",
)


@pytest.fixture(
    params=[pytest.param(version, marks=pytest.mark.xdist_group(f"hive-{version}")) for version in ("4", "3")]
)
def server(request, postgres):  # noqa: F811
    """Each release in turn."""
    with ExitStack() as stack:
        try:
            yield stack.enter_context(hive_server(request.param, postgres, PLAIN_FILES))
        except UnavailableError as error:
            missing(str(error))


def test_hive_reads_joined_files_as_it_read_their_sources(server):
    """
    Every type that Hive has for Parquet, in the files of four INSERTs, copied and encoded anew: the same rows, and the
    same rows for every predicate.
    """
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    only = "tblproperties ('transactional'='true', 'transactional_properties'='insert_only')"
    server.sql(f"create table t ({columns}) stored as parquet {only}")
    values = ", ".join(value for _, value in COLUMNS.values())
    for first in (1, 11, 21, 31):
        numbers = ",".join(map(str, range(first, first + 10)))
        query = f"select {values} from (select cast(n as int) n from (select explode(split('{numbers}', ',')) n) y) x"
        server.sql(f"insert into t {query}")
    paths = sorted(path for path in (server.warehouse / "t").rglob("0*") if path.is_file())
    assert len(paths) == 4
    expected = {predicate: sorted(server.rows(f"select * from t where {predicate}")) for predicate in PREDICATES}
    assert len(expected["true"]) == 40
    for recode in (False, True):
        name = f"joined_{recode}".lower()
        server.sql(f"create table {name} ({columns}) stored as parquet tblproperties ('transactional'='false')")
        readers = [LocalReader(str(path)) for path in paths]
        footers = [read_footer(reader) for reader in readers]
        assert {(footer.carried, footer.kept) for footer in footers} == {(None, None)}
        pieces = [Piece(reader, footer, (0,), recode) for reader, footer in zip(readers, footers, strict=True)]
        (found,) = [path for path in server.warehouse.parent.rglob(name) if path.is_dir()] or [None]
        with LocalWriter(str(found / "000000_0")) as sink:
            made = join(pieces, sink)
        assert made.row_groups == (1 if recode else 4)
        check(LocalReader(str(found / "000000_0")), pieces)
        for predicate, rows in expected.items():
            assert sorted(server.rows(f"select * from {name} where {predicate}")) == rows, predicate
