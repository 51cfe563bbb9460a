"""
What living Hives have shown to go wrong, each as a history of its own: Hive must read the rows that it committed, and
no others.
"""

import contextlib
import time

import pyarrow as pa
import pyarrow.orc
import pytest

from tests.daemon.lab import until
from tests.hive.live.compared import MIDWAY, vectorized
from tests.hive.server.hive import HiveError

pytestmark = [pytest.mark.live, pytest.mark.timeout(0)]


def left_to_hive(tables):
    """Windows in which our daemon takes none of these tables."""
    return {"blackouts": [{"name": "left to Hive", "tables": [tables], "start": "00:00", "end": "24:00"}]}


ACID = "stored as orc tblproperties ('transactional'='true')"

MANIFESTS_READ = ("open", r"/r\.db/b/-tmp\.delta_")
"""Where Hive 4 has written the manifests of an INSERT and begins to read them."""
MOVED = ("rename", r"/r\.db/b/")
"""Where Hive 3.1 moves what it wrote."""


@pytest.fixture(
    params=[pytest.param(version, marks=pytest.mark.xdist_group(f"hive-{version}")) for version in ("4", "3")]
)
def living(request, pair):
    """Each release in turn, with our daemon beside it and an empty database `r`."""
    found = pair(request.param)
    found.hive.sql("create database r")
    yield found
    found.hive.sql("drop database r cascade")


def ids(living, table):
    """
    Read again where a directory went midway: a plain select of Hive 3.1 has given back its locks by then
    (docs/testing.md).
    """
    for left in reversed(range(3)):
        try:
            return sorted(int(row) for (row,) in living.hive.rows(f"select id from r.{table}"))
        except HiveError as error:
            if not left or not MIDWAY.search(str(error)):
                raise
    raise AssertionError


def some(first, count, letter):
    """A query that returns so many rows."""
    numbers = ",".join(str(number) for number in range(first, first + count))
    return f"select cast(x.id as int), concat('{letter}', x.id) from (select explode(split('{numbers}', ',')) as id) x"


def directories(living, table):
    return [path.name for path in (living.hive.warehouse / "r.db" / table).iterdir()]


def test_manifests_of_a_running_insert_stay(living):
    """
    An INSERT lays down a manifest for each bucket; a cleaning that comes while they lie there leaves them alone, and
    the INSERT's rows are all there.
    """
    with living.daemon.told(cleaner={"retention_seconds": 3600}):
        living.hive.sql(f"create table r.b (id int, v string) clustered by (id) into 16 buckets {ACID}")
        living.hive.sql(f"insert into r.b {some(1, 24, 'a')}", f"insert into r.b {some(101, 12, 'b')}")
        with contextlib.suppress(HiveError):  # refused where our Initiator was quicker
            living.hive.sql("alter table r.b compact 'major'")
        until(lambda: any(name.startswith("base_") for name in directories(living, "b")), "compacted")
        expected = ids(living, "b")
        time.sleep(
            1.5
        )  # for a second Hive 4 takes a finished transaction for open, and whoever begins then holds up the cleaning
        hold = living.hive.hold(*MANIFESTS_READ if living.hive.version == "4" else MOVED)
        writing = living.hive.begin(f"insert into r.b {some(301, 24, 'c')}")
        until(lambda: writing.done() or hold.met(), "at the break point")
    until(lambda: not any(name.startswith("delta_0000001_") for name in directories(living, "b")), "cleaned")
    time.sleep(1)
    hold.release()
    writing.result()
    assert ids(living, "b") == sorted([*expected, *range(301, 325)])


def test_a_reader_that_is_listing_is_waited_for(living):
    """
    Between a table's listing and that of its directories nothing is removed: Hive 4 would take the table for empty
    where one is gone (FetchOperator).
    """
    if living.hive.version == "3":
        return  # it has given back its locks by then: docs/operations.md
    waits = {"listing_wait_seconds": 600}
    with living.daemon.told(cleaner={"retention_seconds": 3600} | waits):
        living.hive.sql(f"create table r.l (id int) {ACID}", "insert into r.l values (1)", "insert into r.l values (2)")
        with contextlib.suppress(HiveError):  # refused where our Initiator was quicker
            living.hive.sql("alter table r.l compact 'major'")
        until(lambda: any(name.startswith("base_") for name in directories(living, "l")), "compacted")
        time.sleep(1.5)  # nothing but the reader's lock may be in the way
        hold = living.readers.hold("listed", r"/r\.db/l$")
        reading = living.readers.begin("select id from r.l", "held reader")
        until(lambda: reading.done() or hold.met(), "listed")
        with living.daemon.told(cleaner={"retention_seconds": 0}):
            time.sleep(2)
            there = directories(living, "l")
            hold.release()
            rows = sorted(row[0] for row in reading.result()["rows"])
            assert any(name.startswith("delta_0000001_") for name in there), (
                f"a reader that was listing has read {rows}"
            )
            assert rows == ["1", "2"]
            until(lambda: not any(name.startswith("delta_0000001_") for name in directories(living, "l")), "cleaned")


def test_an_overwrite_is_exclusive(living):
    """
    An INSERT OVERWRITE asks for EXCLUSIVE, of both releases as they are delivered: it and a compaction wait for each
    other, and neither fails (docs/metastore.md, Locks).
    """
    living.hive.sql(f"create table r.o (id int) {ACID}", "insert into r.o values (1)", "insert into r.o values (2)")
    living.daemon.settle(15)
    living.hive.sql("create temporary function hold as 'Hold'")
    hold = living.hive.hold("udf", "overwriting")
    writing = living.hive.begin(
        "insert overwrite table r.o select cast(hold('overwriting', cast(id as string)) as int) from r.o"
    )
    until(lambda: writing.done() or hold.met(), "overwriting")
    assert "e" in living.daemon.locks("o")
    hold.release()
    writing.result()
    living.hive.sql("insert into r.o values (4)")
    living.daemon.settle(15)
    assert ids(living, "o") == [1, 2, 4]


def test_static_inserts_rolled_back_stay_away(living):
    """
    Rolled-back INSERTs into partitions whose names Hive stores in another spelling: their rows are never read, also
    when all bookkeeping was forgotten.
    """
    values = ["ABC", "10:00", "a b", "ü"]
    living.hive.sql(f"create table r.s (id int) partitioned by (p string) {ACID}")
    every = [
        ", ".join(f"({first + number}, '{value}')" for number, value in enumerate(values)) for first in (0, 10, 20)
    ]
    living.hive.sql(f"insert into r.s partition(p) values {every[0]}")
    for value in values:
        living.hive.roll_back(f"insert into r.s partition(p='{value}') values (99)")
    for rows in every[1:]:
        living.hive.sql(f"insert into r.s partition(p) values {rows}")
        living.daemon.settle(15)
    assert ids(living, "s") == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]


def test_a_dynamic_insert_rolled_back_stays_away(living):
    """The same of a dynamic one, of which Hive 3.1 has a write id but no component (HIVE-21052)."""
    living.hive.sql(
        f"create table r.d (id int) partitioned by (p string) {ACID}",
        "insert into r.d partition(p) values (1, 'A'), (2, 'b')",
    )
    living.hive.roll_back("insert into r.d partition(p) values (3, 'A'), (4, 'new')")
    for number in (5, 6):
        living.hive.sql(f"insert into r.d partition(p) values ({number}, 'A')")
        living.daemon.settle(15)
    living.hive.sql("insert into r.d partition(p) values (7, 'new')")
    assert ids(living, "d") == [1, 2, 5, 6, 7]


def test_a_table_inserted_into_itself_rolled_back_stays_as_it_was(living):
    """
    An INSERT into a table from which it reads has no component, in no release: Hive keeps the reader's lock of the two
    (LockRequestBuilder).
    """
    living.hive.sql(f"create table r.i (id int) {ACID}", "insert into r.i values (1), (2)")
    living.hive.sql(
        f"create table r.j (id int) partitioned by (p string) {ACID}",
        "insert into r.j partition(p='A') values (1), (2)",
    )
    for number in (10, 20):
        living.hive.roll_back(f"insert into r.i select id + {number} from r.i")
        living.hive.roll_back(f"insert into r.j partition(p='A') select id + {number} from r.j")
    living.hive.sql("insert into r.i values (3)", "insert into r.j partition(p='A') values (3)")
    for _ in range(2):
        living.daemon.age_transactions()
        living.daemon.settle(15)
        time.sleep(3)
        assert ids(living, "i") == ids(living, "j") == [1, 2, 3]
    until(
        lambda: not any(name.startswith(("delta_0000002_", "delta_0000003_")) for name in directories(living, "i")),
        "cleaned",
    )
    assert ids(living, "i") == ids(living, "j") == [1, 2, 3]


def test_a_table_that_is_only_inserted_into_itself_is_compacted(living):
    """
    Hive notes no commit of such an INSERT, and its own Initiator never learns of the table: ours does, by its write
    ids.
    """
    living.hive.sql(f"create table r.k (id int) {ACID}", "insert into r.k values (1)", "insert into r.k values (2)")
    until(
        lambda: [name[:12] for name in directories(living, "k")] == ["base_0000002"],
        "compacted and cleaned: no commit is noted any more",
    )
    for number in (10, 20):
        living.hive.sql(f"insert into r.k select id + {number} from r.k")
    until(lambda: any(name.startswith("base_0000004") for name in directories(living, "k")), "compacted")
    assert ids(living, "k") == [1, 2, 11, 12, 21, 22, 31, 32]


def test_delete_events_that_hive_repeats_are_written_once(living):
    """
    Hive's own minor compaction writes every delete event into each file of a table without buckets (`getDeltaFiles`);
    Hive 3.1's row reader fails over it, until ours has compacted.
    """
    ids_of = "select row__id, id from r.m"
    nothing_is_due = {"thresholds": {"delta_count": 1000, "delta_ratio": 1000.0, "aborted_count": 0}}
    with living.daemon.told(windows=left_to_hive("*.*"), initiator=nothing_is_due):
        living.hive.sql(
            f"create table r.m (id int) {ACID}", "insert into r.m values (1), (2)", "insert into r.m values (3), (4)"
        )
        living.hive.sql(
            "insert into r.m select id + 10 from r.m",
            "delete from r.m where id in (1, 11, 13)",
            "delete from r.m where id in (4, 14)",
        )
        expected = sorted(living.hive.rows(ids_of))
        living.hive.sql("alter table r.m compact 'minor'")
        living.compactor.threads("worker", "cleaner")
        until(
            lambda: (
                {name.split("_v")[0] for name in directories(living, "m")}
                == {"delete_delta_0000001_0000005", "delta_0000001_0000005"}
            ),
            "compacted and cleaned by Hive",
        )
        living.compactor.threads()
        assert sorted(vectorized(living.hive, ids_of)) == expected
        if living.hive.version == "3":
            with pytest.raises(HiveError, match="Two readers for"):
                living.hive.rows(ids_of)
        living.hive.sql("delete from r.m where id = 3")
        expected = [row for row in expected if row[1] != "3"]
        with living.daemon.told(windows={"blackouts": []}):
            living.hive.sql("alter table r.m compact 'minor'")
            until(
                lambda: not any(name.startswith("delete_delta_0000006") for name in directories(living, "m")),
                "compacted and cleaned by ours",
            )
            assert sorted(living.hive.rows(ids_of)) == sorted(vectorized(living.hive, ids_of)) == expected


def test_rows_of_a_failed_ctas_stay_away(living):
    """A CREATE TABLE AS SELECT that was rolled back leaves rows in no later table of that name."""
    living.hive.sql(f"create table r.source (id int) {ACID}", "insert into r.source values (1), (2)")
    living.hive.roll_back(f"create table r.c {ACID} as select id from r.source")
    time.sleep(2)
    living.hive.sql("drop table if exists r.c", f"create table r.c (id int) {ACID}", "insert into r.c values (9)")
    time.sleep(2)
    living.daemon.settle(30)
    assert ids(living, "c") == [9]


def test_floats_that_became_doubles_read_the_same(living):
    """
    Hive 3.1 reads a float in a column that became a double by its decimal digits, 1.1 as 1.1, where Hive 4 reads
    1.100000023841858: a compaction changes neither.
    """
    living.hive.sql(
        f"create table r.f (id int, x float) {ACID}",
        "insert into r.f values (1, 1.1)",
        "insert into r.f values (2, -0.3)",
    )
    living.hive.sql("alter table r.f change column x x double")
    expected = sorted(living.hive.rows("select * from r.f"))
    with contextlib.suppress(HiveError):  # refused where our Initiator was quicker
        living.hive.sql("alter table r.f compact 'major'")
    living.daemon.settle(30)
    assert sorted(living.hive.rows("select * from r.f")) == expected


def test_the_directory_of_a_failed_ctas_goes(living):
    """Hive 4 leaves it to the Cleaner, with the manifests of the INSERT in it."""
    if living.hive.version == "3":
        return  # it leaves it there
    living.hive.sql(f"create table r.source (id int) {ACID}", "insert into r.source values (1), (2)")
    hold = living.hive.hold("listed", r"/r\.db/c/-tmp\.", fails=True)
    with pytest.raises(HiveError):
        living.hive.sql(f"create table r.c {ACID} as select id from r.source")
    assert hold.met()
    hold.release()
    until(lambda: not (living.hive.warehouse / "r.db" / "c").exists(), "removed")


def test_a_reader_of_a_dropped_partition_reads_on_beside_our_cleaner(living):
    """
    Hive 4's own Cleaner takes the directory from under readers while the DROP's transaction is open: it waits for
    readers only where an entry says until which one, and that is written at the commit
    (`TxnHandler.updateWSCommitIdAndCleanUpMetadata`). Ours waits for that transaction.
    """
    if living.hive.version == "3":
        return  # its DROP PARTITION waits for readers
    lockless = "hive.acid.lockless.reads.enabled"
    sessions = ((living.hive, "main"), (living.readers, "held reader"))
    for server, session in sessions:
        server.sql(f"set {lockless}=true", session=session)
    try:
        living.hive.sql(f"create table r.p (id int) partitioned by (p int) {ACID}")
        for cleaned_by in ("ours", "Hive's"):
            living.hive.sql("insert into r.p partition(p=1) values (1)")
            time.sleep(1.5)  # nothing but the reader and the DROP may be in the way
            opening = living.readers.hold("open", r"/r\.db/p\.v\d+/p=1/.*bucket_")
            reading = living.readers.begin("select id from r.p", "held reader")
            until(lambda: reading.done() or opening.met(), "listed")  # noqa: B023 - called in this turn
            dropping = living.hive.hold("create", r"/r\.db/p\.v\d+/p=1/.*_metadata_acid")
            dropped = living.hive.begin("alter table r.p drop partition (p=1)")
            until(lambda: dropped.done() or dropping.met(), "before the base of the DROP")  # noqa: B023
            try:
                assert dropping.met()
                if cleaned_by == "ours":
                    time.sleep(3)
                    opening.release()
                    assert reading.result()["rows"] == [["1"]]
                else:
                    living.compactor.cycle("cleaner")
                    opening.release()
                    assert reading.result()["rows"] == []
            finally:
                opening.release()
                dropping.release()
                dropped.result()
    finally:
        for server, session in sessions:
            server.sql(f"set {lockless}=false", session=session)


VIEWS = {
    "chosen": "select id, x from r.{0} where x > 0",
    "summed": "select g, sum(x) as s, count(*) as c from r.{0} group by g",
}
"""Materialized views that Hive may build anew by adding what is new in their table."""


@pytest.mark.parametrize("kind", ["", ", 'transactional_properties'='insert_only'"], ids=["full", "insert-only"])
def test_views_are_built_anew_from_compacted_tables(living, kind):
    """
    A rebuild of a materialized view adds new rows to those that it has, unless it learns that others went. Where the
    delete events are compacted and cleaned away it still learns that: 4.x finds the compaction (HIVE-26375), 3.1 the
    newest update among the commits (HIVE-24840).
    """
    table = "w" if kind else "u"
    stored = f"stored as orc tblproperties ('transactional'='true'{kind})"
    hold = {"windows": left_to_hive("*.*")}
    with living.daemon.told(**hold):
        living.hive.sql(
            f"create table r.{table} (id int, g int, x int) {stored}",
            f"insert into r.{table} values (1, 1, 10), (2, 1, 20), (3, 2, 30)",
            f"insert into r.{table} values (4, 2, 40), (5, 3, 50)",
            *(
                f"create materialized view r.{table}_{name} {ACID} as {query.format(table)}"
                for name, query in VIEWS.items()
            ),
            f"insert into r.{table} values (6, 1, 60)",
        )
        if not kind:
            living.hive.sql(f"delete from r.{table} where id in (2, 3)", f"update r.{table} set x = 7 where id = 4")
        with contextlib.suppress(HiveError):
            living.hive.sql(f"alter table r.{table} compact 'major'")
    until(
        lambda: [name[:5] for name in directories(living, table) if not name.startswith(".")] == ["base_"],
        "compacted and cleaned",
    )
    try:
        with living.daemon.told(**hold):
            for more in ("(7, 2, 70), (8, 3, -1)", "(9, 1, 90)"):
                living.hive.sql(f"insert into r.{table} values {more}")
                for name, query in VIEWS.items():
                    living.hive.sql(
                        f"alter materialized view r.{table}_{name} rebuild",
                        "set hive.materializedview.rewriting=false",
                    )
                    view, rows = f"select * from r.{table}_{name}", query.format(table)
                    assert sorted(living.hive.rows(view)) == sorted(living.hive.rows(rows)), name
                    living.hive.sql("set hive.materializedview.rewriting=true")
    finally:
        living.hive.sql("reset", *(f"drop materialized view r.{table}_{name}" for name in VIEWS))


@pytest.mark.parametrize("kind", ["", ", 'transactional_properties'='insert_only'"], ids=["full", "insert-only"])
def test_rows_that_are_skipped_stay_the_same(living, kind):
    """
    To Hive 3.1 `skip.header.line.count` is the number of rows to leave out of each file, of ORC too (HIVE-24827), so no
    compaction may change which files there are; 4.0.1 skips lines of text alone.
    """
    table = "hi" if kind else "hf"
    properties = f"'transactional'='true', 'skip.header.line.count'='1'{kind}"
    with living.daemon.told(windows=left_to_hive("*.*")):
        living.hive.sql(f"create table r.{table} (id int) stored as orc tblproperties ({properties})")
        living.hive.sql(*(f"insert into r.{table} values ({number}), ({number + 1})" for number in (1, 3, 5)))
        expected = ids(living, table)
        assert expected == ([2, 4, 6] if living.hive.version == "3" else [1, 2, 3, 4, 5, 6])
        with contextlib.suppress(HiveError):  # refused where our Initiator was quicker
            living.hive.sql(f"alter table r.{table} compact 'major'")
    living.daemon.settle(30)
    assert ids(living, table) == expected
    compacted = any(name.startswith("base_") for name in directories(living, table))
    assert compacted == (living.hive.version == "4")


@pytest.mark.parametrize("where", ["tblproperties", "serdeproperties"])
def test_a_table_says_how_its_columns_are_found(living, where):
    """
    `orc.force.positional.evolution` of a table or its SerDe counts on Hive 3.1, whose HiveConf has no such setting, and
    not on 4: columns that exchanged their names keep their values.
    """
    table, told = f"of_{where}", "true" if living.hive.version == "3" else "false"
    with living.daemon.told(windows=left_to_hive("*.*")):
        living.hive.sql(
            f"create table r.{table} (id int, a string, b string) {ACID}",
            f"alter table r.{table} set {where} ('orc.force.positional.evolution'='{told}')",
            f"insert into r.{table} values (1, 'first', 'second')",
            *(f"alter table r.{table} change {change} string" for change in ("a x", "b a", "x b")),
            f"insert into r.{table} values (2, 'first', 'second')",
        )
        expected = everywhere(living, table)
        assert expected == [("1", "first", "second"), ("2", "first", "second")]
        with contextlib.suppress(HiveError):  # refused where our Initiator was quicker
            living.hive.sql(f"alter table r.{table} compact 'major'")
    until(lambda: any(name.startswith("base_") for name in directories(living, table)), "compacted")
    assert everywhere(living, table) == expected


CHANGES = {
    "an old name for a new column": ["change a a_old string CASCADE", "add columns (a string) CASCADE"],
    "two names swapped": ["change a x string CASCADE", "change b a string CASCADE", "change x b string CASCADE"],
    "reordered": ["replace columns (id int, b string, a string, s struct<x:int,y:string>, n int) CASCADE"],
    "fields of a struct reordered": ["change s s struct<y:string,x:int> CASCADE"],
    "wider": ["change n m bigint CASCADE"],
}
"""Statements that change columns; CASCADE is left out where a partition shall keep its own list."""


TWINS = ("v0",)
"""Tables with a twin that Hive's own compactor takes."""


@pytest.mark.parametrize(("kind", "cascade"), [("transactional", "cascade"), ("transactional", ""), ("migrated", "")])
def test_columns_that_changed_are_read_the_same(living, kind, cascade, tmp_path):
    """
    Hive 4 finds the columns of ORC files by their places, 3.1 by their names, those of structs both by their names: a
    compaction changes no row of a table whose columns were renamed, swapped, reordered and widened, whichever queries
    read it, and whether its partition has the table's columns or its own. Neither does Hive's own; but 3.1's job leaves
    the columns out that the partition's own list doesn't have, and takes those of loaded files by their places.
    """
    tables = {f"v{number}": changes for number, changes in enumerate(CHANGES.values())}
    twins = {f"{table}_twin": tables[table] for table in TWINS}
    with living.daemon.told(windows=left_to_hive("*.*")):
        expected = {table: changed(living, table, kind, cascade, tmp_path) for table in (*tables, *twins)}
        for table in tables:
            assert table not in TWINS or expected[table] == expected[f"{table}_twin"]
            with contextlib.suppress(HiveError):  # refused where our Initiator was quicker
                living.hive.sql(f"alter table r.{table} partition(p=1) compact 'major'")
    with living.daemon.told(windows=left_to_hive("*.*_twin")):
        living.daemon.settle(60)
        for table in tables:
            assert everywhere(living, table) == expected[table], table
            if living.hive.version == "4":
                names = [path.name for path in (living.hive.warehouse / "r.db" / table / "p=1").iterdir()]
                assert any(name.startswith("base_") for name in names), f"{table} wasn't compacted"
        for table in twins:
            living.hive.sql(f"alter table r.{table} partition(p=1) compact 'major'")
            living.compactor.cycle("worker")
            if living.hive.version == "4":
                assert everywhere(living, table) == expected[table], table
            elif kind == "transactional":
                assert everywhere(living, table) != expected[table], table


def changed(living, table, kind, cascade, folder):
    """Make a table of five rows, the last one written after its columns changed; its rows."""
    number = int(table[1])
    changes = list(CHANGES.values())[number]
    properties = {"transactional": "false" if kind == "migrated" else "true"}
    if table.endswith("_twin"):
        properties = properties | {"no_auto_compaction": "true"}
    given = ", ".join(f"'{name}'='{value}'" for name, value in properties.items())
    buckets = "clustered by (id) into 2 buckets " if number % 2 else ""
    living.hive.sql(
        f"create table r.{table} (id int, a string, b string, s struct<x:int,y:string>, n int) "
        f"partitioned by (p int) {buckets}stored as orc tblproperties ({given})"
    )
    for first in (1, 2):
        living.hive.sql(
            f"insert into r.{table} partition(p=1) "
            f"select {first}, 'a{first}', 'b{first}', named_struct('x', {first}, 'y', 'y'), {first}"
        )
    if not buckets:
        file = folder / table / "000000_0"  # no other name is taken over where a table is made transactional
        file.parent.mkdir()
        rows = pa.table(
            {
                "id": pa.array([4, 5], pa.int32()),
                "a": ["a4", None],
                "b": ["b4", "b5"],
                "s": pa.array([{"x": 4, "y": "z"}, None], pa.struct([("x", pa.int32()), ("y", pa.string())])),
                "n": pa.array([None, 5], pa.int32()),
            }
        )
        pa.orc.write_table(rows, str(file))
        living.hive.sql(f"load data local inpath '{file}' into table r.{table} partition(p=1)")
    for change in changes:
        living.hive.sql(f"alter table r.{table} {change.replace('CASCADE', cascade)}")
    if kind == "migrated":
        living.hive.sql(f"alter table r.{table} set tblproperties ('transactional'='true')")
    columns = [name for name, *_ in living.hive.rows(f"describe r.{table}") if name]
    columns = columns[: columns.index("p")]
    value = {"id": "3", "s": None, "n": "3", "m": "3"}
    values = [value.get(name, "'new'") for name in columns]
    struct = "named_struct('y', 'y', 'x', 3)" if number == 3 else "named_struct('x', 3, 'y', 'y')"
    listed = ", ".join(struct if one is None else one for one in values)
    living.hive.sql(f"insert into r.{table} partition(p=1) select {listed}")
    return everywhere(living, table)


def everywhere(living, table):
    """A table's rows, in which all queries must agree: with and without a job, vectorised and row by row."""
    seen = []
    for conversion in ("more", "none"):
        living.hive.sql(f"set hive.fetch.task.conversion={conversion}")
        seen.append(sorted(living.hive.rows(f"select * from r.{table}"), key=repr))
        seen.append(sorted(vectorized(living.hive, f"select * from r.{table}"), key=repr))
    living.hive.sql("set hive.fetch.task.conversion=more")
    assert all(one == seen[0] for one in seen), seen
    return seen[0]
