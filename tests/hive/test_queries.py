"""
Hive's own readers as users' queries run them: predicates pushed down, some of the columns, no ROW__ID, a split a
stripe, delete events that don't fit into memory. What a compaction wrote must show them the same rows.
"""

from decimal import Decimal

import pytest

from compactor.acid.compaction import CompactionKind, LayoutVersion
from tests.compacting import KIB, compact, settings
from tests.demo.ledger import MemoryLedger
from tests.demo.warehouse import Warehouse
from tests.reference.compare import expected_rows, schema_of

pytestmark = pytest.mark.hive
LAYOUTS = {"4": LayoutVersion.HIVE_4, "3": LayoutVersion.HIVE_3}
COLUMNS = [("id", "int"), ("v", "string"), ("d", "decimal(12,2)"), ("c", "char(6)"), ("a", "array<int>")]
BY_STRIPES = {"mapreduce.input.fileinputformat.split.maxsize": "1", "hive.exec.orc.split.strategy": "ETL"}
"""A split a stripe, each of which finds its delete events by the stripe's keys."""
BY_BLOCKS = {
    "fs.file.impl": "Judge$Blocks",
    "fs.file.impl.disable.cache": "true",
    "judge.block": "3000",
    "hive.exec.orc.split.strategy": "BI",
}
"""A split a block of the file system, wherever stripes begin and end."""
SETTINGS = [
    {},
    BY_STRIPES,
    BY_BLOCKS,
    {"hive.transactional.events.mem": "0"},
    {"hive.txn.filter.delete.events": "false"},
    {"hive.optimize.acid.meta.columns": "false"},
    {"hive.exec.orc.split.strategy": "BI"},
]
PREDICATES = [
    ("0 = 3001", lambda row: row[0] == 3001),
    ("0 < 40", lambda row: row[0] < 40),
    ("1 = new", lambda row: row[1] == "new"),
    ("2 >= 6170.25", lambda row: row[2] >= Decimal("6170.25")),
    ("3 = c3", lambda row: row[3] == "c3"),
    ("1 null", lambda row: row[1] is None),
]
"""As Judge.Query takes it, and which rows meet it."""
DELETED_TOO = {"hive.txn.operational.properties": "17"}
"""As a materialized view is built anew from what changed: deleted rows, too, under the write ids of their deletes."""
_COUNT = 200


def rows(first):
    """Rows of which some have no text."""
    return [
        (
            first + number,
            None if number % 50 == 7 else f"{(first + number) * 2654435761 % (1 << 32):x}" * 3,
            Decimal(f"{first + number}.25"),
            f"c{number % 7}",
            [number, None],
        )
        for number in range(_COUNT)
    ]


def lived_in(warehouse):
    """
    Two tables: deltas whose stripes are copied, with an update, deletes, and a stream of which a part is aborted; and
    one with rows from before, in files of several stripes.
    """
    bucketed = warehouse.create_table("db", "bucketed", COLUMNS, buckets=2, bucket_columns=("id",))
    stripes = {"orc.stripe.row.count": "70"}
    migrated = warehouse.create_table("db", "migrated", COLUMNS, transactional=False, parameters=stripes)
    for first in (3000, 6000):
        warehouse.write_original(migrated, rows(first))
    warehouse.convert(migrated)
    for table in (bucketed, migrated):
        for first in (0, 3000, 6000):
            with warehouse.begin() as txn:
                txn.insert(table, rows(first))
        with warehouse.begin() as txn:
            txn.update(table, lambda row: row[0] == 3100, lambda row: (row[0], "new", *row[2:]))
        with warehouse.begin() as txn:
            txn.delete(table, lambda row: row[0] % 99 == 0)
    batch = warehouse.stream(migrated, [rows(7000)[:9], rows(8000)[:9], rows(9000)[:9]])
    for number in range(3):
        batch.finish(number, commit=number != 1)
    return bucketed, migrated


@pytest.mark.parametrize("kind", [CompactionKind.MAJOR, CompactionKind.MINOR])
@pytest.mark.parametrize("release", ["4", "3"])
def test_queries_find_the_rows_of_what_was_compacted(tmp_path, request, release, kind):
    """
    After a compaction, and after a DELETE of rows that it wrote: every way to read shows exactly the rows; a pushed
    predicate leaves out none that meet it, and changes none.
    """
    judge = request.getfixturevalue(f"hive_{release}")
    warehouse = Warehouse(tmp_path / "warehouse", MemoryLedger(LAYOUTS[release]))
    for table in lived_in(warehouse):
        compact(warehouse, table, kind, settings=settings(splice={"min_stripe_bytes": KIB}))
        _judged(judge, warehouse, table)
        with warehouse.begin() as txn:
            txn.delete(table, lambda row: row[0] in {1, _COUNT - 1, 3000, 3100, 6001})
        _judged(judge, warehouse, table)


def test_more_delete_events_than_a_batch_are_found(tmp_path, hive_4):
    """
    A minor compaction writes more delete events than a reader takes at once, or reserves memory for; with a split a
    block, too. What a view built anew reads of deleted rows is as before it.
    """
    warehouse = Warehouse(tmp_path / "warehouse", MemoryLedger(LAYOUTS["4"]))
    table = warehouse.create_table("db", "t", [("id", "int")])
    with warehouse.begin() as txn:
        txn.insert(table, [(number,) for number in range(10_800)])
    for rest in (0, 1):
        with warehouse.begin() as txn:
            txn.delete(table, lambda row, rest=rest: row[0] % 100 and row[0] % 2 == rest)
    expected = expected_rows(warehouse, table)[None]

    def seen(query=None, mode="vector"):
        snapshot = warehouse.snapshot(table)
        return hive_4.rows(table.location, schema_of(table), snapshot.write_ids, snapshot.txns, mode=mode, query=query)

    deleted = seen(DELETED_TOO)
    assert len(deleted) == 10_800
    compact(warehouse, table, CompactionKind.MINOR)
    assert seen(DELETED_TOO) == deleted
    for mode in ("vector", "row"):
        assert seen(BY_BLOCKS, mode) == seen(mode=mode) == expected


def _judged(judge, warehouse, table):
    snapshot, expected = warehouse.snapshot(table), expected_rows(warehouse, table)[None]

    def seen(mode, query):
        return judge.rows(
            table.location,
            schema_of(table),
            snapshot.write_ids,
            snapshot.txns,
            mode=mode,
            buckets=table.buckets,
            query=query,
        )

    for mode in ("vector", "row"):
        for setting in SETTINGS:
            assert seen(mode, setting) == expected, (table.name, mode, setting)
        for number, (predicate, meets) in enumerate(PREDICATES):
            query = {"judge.where": predicate} | SETTINGS[number % 4]
            found = seen(mode, query)
            assert set(found) <= set(expected), (table.name, mode, query)
            assert [row for row in found if meets(row[1])] == [row for row in expected if meets(row[1])], (mode, query)
        some = seen(mode, {"judge.columns": "1,4"} | SETTINGS[1])
        assert some == [(key, (None, row[1], None, None, row[4])) for key, row in expected], (table.name, mode)
    without = seen("vector", {"judge.ids": "false"} | SETTINGS[1])
    assert sorted((row for _, row in without), key=repr) == sorted((row for _, row in expected), key=repr), table.name
