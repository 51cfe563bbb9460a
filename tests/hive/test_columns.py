"""
Hive's own readers, configured as their releases deliver them, on tables whose columns changed: what they see is what
the small rule of `tests.columns` says, and compactions change none of it.
"""

import shutil
import tempfile
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from compactor.acid.columns import column_rule
from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.handles import MemoryReader
from compactor.orc.format.tail import read_tail
from tests import strategies
from tests.columns import FIRST, ChangingTable, refused_for_its_columns
from tests.compacting import Attempt
from tests.compacting import settings as engine_settings
from tests.counts import count
from tests.demo.ledger import MemoryLedger
from tests.demo.warehouse import Warehouse
from tests.reference.compare import schema_of
from tests.reference.values import canonical, parse_type

pytestmark = pytest.mark.hive
LAYOUTS = {"4": LayoutVersion.HIVE_4, "3": LayoutVersion.HIVE_3}
RENAMED = [("rename", 1, "e"), ("add", "b"), ("insert",)]


@pytest.mark.parametrize("release", ["4", "3"])
def test_hive_reads_the_same_rows_after_a_compaction(release, request):
    """Vectorised and row by row, before and after it, whatever became of the columns; or it was refused for a loss."""
    judge, layout = request.getfixturevalue(f"hive_{release}"), LAYOUTS[release]
    rule = column_rule("auto", layout, {})
    ended = []

    @settings(max_examples=30, database=None, suppress_health_check=list(HealthCheck))
    @given(strategies.column_lives(), st.booleans(), st.sampled_from(["major", "major", "minor"]))
    @example(RENAMED, False, "major")
    @example(RENAMED, True, "minor")
    @example([("swap", 0, 3), ("delete", 0), ("swap", 0, 3)], False, "major")
    @example([("swap", 1, 2), ("load", ("a", "c", "b", "d"))], True, "major")
    @example([("load", ("A", "B", "C", "D")), ("load", ("_col0", "_col1"))], False, "major")
    def lives(steps, migrated, kind):
        with TemporaryDirectory() as folder:
            warehouse = Warehouse(Path(folder) / "w", MemoryLedger(layout))
            table = warehouse.create_table("db", "t", FIRST, transactional=not migrated)
            life = ChangingTable(warehouse, table)
            if migrated:
                life.original()
                warehouse.convert(table)
            life.play([("insert",), ("insert",), *steps])

            def seen(mode, query=None):
                snapshot, schema = warehouse.snapshot(table), schema_of(table)
                place = life.directory.location
                return judge.rows(place, schema, snapshot.write_ids, snapshot.txns, mode=mode, query=query)

            fits = not life.loses(rule) and not life.hinders(rule)
            if fits:
                assert seen("vector") == seen("row") == life.expected(rule)
            refused = refused_for_its_columns(Attempt(warehouse, table, CompactionKind(kind)))
            ended.append("refused" if refused else "compacted")
            assert not (refused and fits)
            if fits:
                assert seen("vector") == seen("row") == life.expected(rule)
                for place, (_, type_of) in enumerate(table.columns):
                    if not type_of.startswith("struct"):
                        mode = ("vector", "row")[place % 2]
                        _pushed(life.expected(rule), place, lambda query, mode=mode: seen(mode, query))

    lives()
    for how in set(ended):
        count(f"tables with changed columns, read by Hive {judge.version}: {how}", ended.count(how))
    assert min(ended.count("compacted"), ended.count("refused")) >= len(ended) // 10


def _pushed(expected, place, seen):
    """A predicate that is pushed down to a column's files leaves out none of the rows that meet it."""
    value = max((row[place] for _, row in expected), key=str, default=None)
    wanted = "null" if value is None else f"= {value}"
    found = seen({"judge.where": f"{place} {wanted}"})
    assert set(found) <= set(expected)
    assert [row for row in found if row[1][place] == value] == [row for row in expected if row[1][place] == value]


@pytest.mark.parametrize("release", ["4", "3"])
def test_insert_only_files_whose_decimals_are_converted_stay_apart(release, request, tmp_path):
    """
    Where a decimal column has become another type, ORC's reader may take the first value of a batch for all of them,
    if a stripe without NULL follows one of NULLs alone in the same file (ORC-1266; Hive 3.1.3 to 4.1.0): in files of their
    own both are read right, before and after a compaction.
    """
    warehouse = Warehouse(tmp_path / "w", MemoryLedger(LAYOUTS[release]))
    columns = (("a", "int"), ("n", "decimal(10,2)"), ("s", "struct<x:decimal(5,1)>"))
    table = warehouse.create_table("db", "t", columns, insert_only=True)
    some = [(number, Decimal(number) / 4, (Decimal(number),)) for number in range(3, 9)]
    for rows in ([(1, None, None), (2, None, None)], some):
        with warehouse.begin() as txn:
            txn.insert(table, rows)
    table.columns = (("a", "int"), ("n", "decimal(20,4)"), ("s", "struct<x:string>"))

    def seen(mode):
        return seen_in(table, schema_of(table), request.getfixturevalue(f"hive_{release}"), tmp_path, mode)

    before = {mode: sorted(seen(mode), key=repr) for mode in ("vector", "row")}
    assert len({row[1] for row in before["row"]}) == len(some) + 1
    attempt = Attempt(warehouse, table, settings=engine_settings(splice={"min_stripe_bytes": 1}))
    published = attempt.run()
    assert {mode: sorted(seen(mode), key=repr) for mode in before} == before
    assert len(published.staged.files) == 2


def seen_in(table, schema, judge, folder, mode):
    """
    What a release reads of an insert-only table's newest files, as originals of a table, of which the judge knows the
    rows' order.
    """
    (found,) = table.directories.values()
    plain = Path(tempfile.mkdtemp(dir=folder))
    newest = max(found.location.glob("base_*"), default=found.location)
    for number, file in enumerate(sorted(newest.rglob("0*_0*"))):
        shutil.copy(file, plain / f"{number:06}_0")
    return [values for _, values in judge.rows(plain, schema, mode=mode)]


@pytest.mark.parametrize(
    ("release", "setting", "files"),
    [("4", "auto", 1), ("4", "both", 3), ("4", "name", 3), ("3", "auto", 3), ("3", "position", 1)],
)
def test_insert_only_files_are_joined_where_names_say_nothing(release, setting, files, request, tmp_path):
    """
    After a rename and an added column, files differ in the names of their columns. Where all readers go by places the
    files share one, which has the table's names; Hive reads each value as before. Elsewhere they stay apart.
    """
    layout = LAYOUTS[release]
    warehouse = Warehouse(tmp_path / "w", MemoryLedger(layout))
    table = warehouse.create_table("db", "t", FIRST[:3], insert_only=True)
    rows = [[(10 * number + row, f"{number}{row}", "x") for row in range(3)] for number in range(4)]
    for some, names in zip(rows, ("abc", "aec", "abc", "acb"), strict=True):
        table.columns = tuple(zip(names, ("int", "string", "string"), strict=True))
        with warehouse.begin() as txn:
            txn.insert(table, some)
    table.columns = (("a", "int"), ("e", "string"), ("b", "string"), ("new", "string"))
    expected = [tuple(map(canonical, map(parse_type, ("int", "string", "string")), row)) for one in rows for row in one]

    def seen(mode):
        return seen_in(table, schema_of(table), request.getfixturevalue(f"hive_{release}"), tmp_path, mode)

    before = {mode: sorted(seen(mode), key=repr) for mode in ("vector", "row")}
    if release == "4":
        assert before["row"] == sorted(((*row, None) for row in expected), key=repr)
    attempt = Attempt(warehouse, table, settings=engine_settings(readers={"orc_columns": setting}))
    published = attempt.run()
    assert len(published.staged.files) == files
    (base,) = attempt.location.glob("base_*")
    if files == 1:
        joined = read_tail(MemoryReader((base / "000000_0").read_bytes()))
        assert list(joined.row_tree.names) == ["a", "e", "b"]
    if release == "4" or setting != "position":
        assert {mode: sorted(seen(mode), key=repr) for mode in before} == before
