"""
Layouts that few tables have, but that users' Hives leave: rows loaded over others, directories of a UNION ALL, files of
an upgraded warehouse, streams whose client died. Hive's own readers see the same rows before and after a compaction.
"""

import contextlib

import pytest

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.row_id import RowKey
from compactor.errors import RefusedError
from tests.compacting import Attempt, compact
from tests.demo import files
from tests.demo.ledger import MemoryLedger
from tests.demo.warehouse import Warehouse
from tests.reference.compare import schema_of

pytestmark = pytest.mark.hive
LAYOUTS = {"4": LayoutVersion.HIVE_4, "3": LayoutVersion.HIVE_3}
COLUMNS = [("id", "int"), ("v", "string")]


def rows(first, count=6):
    """Rows of those ids."""
    return [(number, f"{number}") for number in range(first, first + count)]


def loaded_over(warehouse):
    """LOAD DATA OVERWRITE leaves a base whose rows get their ids from their places; more is loaded beside it."""
    table = _inserted(warehouse)
    for first, over in ((100, True), (200, False)):
        with warehouse.begin() as txn:
            txn.load(table, rows(first), overwrite=over)
    return table


def union_all(warehouse):
    """Of a CREATE TABLE AS SELECT … UNION ALL, made transactional: a directory for each branch."""
    return _nested(warehouse, "HIVE_UNION_SUBDIR_1", "HIVE_UNION_SUBDIR_2")


def skewed(warehouse):
    """STORED AS DIRECTORIES, made transactional."""
    return _nested(warehouse, "v=1", "HIVE_DEFAULT_LIST_BUCKETING_DIR_NAME")


def nested_beside_files(warehouse):
    """Files directly in the table sort among those of its directories."""
    table = _nested(warehouse, "0", "HIVE_UNION_SUBDIR_1")
    files.write_plain(table.location / "000000_0_copy_1", COLUMNS, rows(300), {})
    files.write_plain(table.location / "000001_0", COLUMNS, rows(400), {})
    return table


def plain_names(warehouse):
    """Without direct inserts and version files (`hive.acid.direct.insert.enabled`, `hive.txn.write.acid.version.file`)."""
    table = _inserted(warehouse)
    for file in sorted(table.location.rglob("bucket_*")):
        file.rename(file.with_name("bucket_00000"))
    for file in sorted(table.location.rglob("_orc_acid_version")):
        file.unlink()
    return table


def dead_client(warehouse):
    """A streaming client died: its last transactions are aborted, and the length that it handed out stays."""
    table = _inserted(warehouse)
    batch = warehouse.stream(table, [rows(500), rows(600), rows(700)], side_file=True)
    for number in range(3):
        batch.finish(number, commit=number == 0)
    assert list(table.location.rglob("bucket_*_flush_length"))
    return table


def _inserted(warehouse):
    table = warehouse.create_table("db", "t", COLUMNS)
    for first in (0, 10, 20):
        with warehouse.begin() as txn:
            txn.insert(table, rows(first))
    return table


def _nested(warehouse, *directories):
    table = warehouse.create_table("db", "t", COLUMNS, transactional=False)
    for number, directory in enumerate(directories):
        (table.location / directory).mkdir()
        for name in ("000000_0", "000001_0"):
            files.write_plain(table.location / directory / name, COLUMNS, rows(100 * number + 10 * int(name[5])), {})
    warehouse.convert(table)
    with warehouse.begin() as txn:
        txn.insert(table, rows(500))
    return table


def _seen(judge, warehouse, table):
    """What both of Hive's readers see."""
    snapshot = warehouse.snapshot(table)
    by_mode = [
        judge.rows(table.location, schema_of(table), snapshot.write_ids, snapshot.txns, mode=mode)
        for mode in ("vector", "row")
    ]
    assert by_mode[0] == by_mode[1]
    return by_mode[0]


def test_hive_4_reads_what_a_client_handed_out(tmp_path, hive_4):
    """
    A streaming client wrote on, and died: what lies beyond the length that it handed out is no part of the file. (Where
    events delete rows of such a file, the vectorised reader of Hive 4 fails over it, and Hive 3.1's always does.)
    """
    warehouse = Warehouse(tmp_path / "warehouse", MemoryLedger(LAYOUTS["4"]))
    table = dead_client(warehouse)
    (length,) = table.location.rglob("bucket_*_flush_length")
    with length.with_name(length.name.removesuffix("_flush_length")).open("ab") as file:
        file.write(b"a stripe that nobody may read" * 9)
    before = _seen(hive_4, warehouse, table)
    assert len(before) == 24
    compact(warehouse, table)
    assert _seen(hive_4, warehouse, table) == before


@pytest.mark.parametrize("kind", [CompactionKind.MAJOR, CompactionKind.MINOR])
@pytest.mark.parametrize("made", [loaded_over, union_all, skewed, nested_beside_files, plain_names, dead_client])
@pytest.mark.parametrize("release", ["4", "3"])
def test_hive_reads_the_same_rows_before_and_after(tmp_path, request, release, made, kind):
    """With rows deleted before the compaction and after it; ROW__IDs are the same ones."""
    judge = request.getfixturevalue(f"hive_{release}")
    warehouse = Warehouse(tmp_path / "warehouse", MemoryLedger(LAYOUTS[release]))
    table = made(warehouse)
    for first in (900, 910):
        with warehouse.begin() as txn:
            txn.insert(table, rows(first))
    keys = [key for key, _ in _seen(judge, warehouse, table)]
    (directory,) = table.directories.values()

    def delete(some):
        with warehouse.begin() as txn:
            txn.delete_keys(table, directory, [RowKey(*key) for key in some], statement=0)

    delete(keys[1::4])
    before = _seen(judge, warehouse, table)
    assert [key for key, _ in before] == [key for key in keys if key not in keys[1::4]]
    reads_all = made is skewed and (release, kind) != ("4", CompactionKind.MINOR)  # that one joins the deltas alone
    refused = pytest.raises(RefusedError, match="list-bucketing") if reads_all else contextlib.nullcontext()
    with refused:
        Attempt(warehouse, table, kind).run()
    assert _seen(judge, warehouse, table) == before
    delete(keys[2::4])
    assert _seen(judge, warehouse, table) == [(key, row) for key, row in before if key not in keys[2::4]]


def test_hive_4_reads_what_was_compacted_on_hive_3(tmp_path, hive_4):
    """After the upgrade of a warehouse: bases without a transaction in their names, before and after compactions."""
    warehouse = Warehouse(tmp_path / "warehouse", MemoryLedger(LAYOUTS["3"]))
    table = _inserted(warehouse)
    compact(warehouse, table)
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] in {3, 12})
    warehouse.ledger.layout = LAYOUTS["4"]
    before = _seen(hive_4, warehouse, table)
    assert len(before) == 16
    for kind in (CompactionKind.MINOR, CompactionKind.MAJOR):
        for _ in range(2):
            with warehouse.begin() as txn:
                txn.insert(table, rows(700))
        with warehouse.begin() as txn:
            txn.delete(table, lambda row: row[0] == 704)
        before = _seen(hive_4, warehouse, table)
        compact(warehouse, table, kind)
        assert _seen(hive_4, warehouse, table) == before
