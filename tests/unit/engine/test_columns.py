"""Columns that were renamed, swapped, reordered, added and widened: what a reader finds where, compactions keep."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.orc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from compactor.acid.columns import ColumnRule, column_rule, disputed, places, unread
from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.types import ACID_NAMES, parse_hive_type
from compactor.errors import RefusedError, VerificationError
from compactor.orc.digests.moved import source_ids
from compactor.orc.writing import schema_evolution
from compactor.reasons import Reason
from tests import compacting, strategies
from tests.columns import FIRST, ChangingTable, refused_for_its_columns
from tests.compacting import Attempt, compact_directory
from tests.demo.ledger import MemoryLedger
from tests.demo.warehouse import Warehouse
from tests.reference.compare import read_directory, schema_of

RENAMED = [("rename", 1, "e"), ("add", "b"), ("insert",)]
"""A column is renamed, and a new one gets its old name."""


@pytest.mark.parametrize(
    ("setting", "layout", "rule"),
    [
        ("auto", LayoutVersion.HIVE_4, ColumnRule.POSITION),
        ("auto", LayoutVersion.HIVE_3, ColumnRule.NAME),
        ("name", LayoutVersion.HIVE_4, ColumnRule.NAME),
        ("position", LayoutVersion.HIVE_3, ColumnRule.POSITION),
        ("both", LayoutVersion.HIVE_4, ColumnRule.BOTH),
    ],
)
def test_the_rule_is_the_release_s_unless_a_site_has_its_own(setting, layout, rule):
    """`auto` is what HiveConf says of the release; any other setting counts on both."""
    assert column_rule(setting, layout, {}) is rule


@pytest.mark.parametrize(
    ("setting", "layout", "value", "rule"),
    [
        ("auto", LayoutVersion.HIVE_3, "true", ColumnRule.POSITION),
        ("auto", LayoutVersion.HIVE_3, " TRUE ", ColumnRule.POSITION),
        ("auto", LayoutVersion.HIVE_3, "false", ColumnRule.NAME),
        ("auto", LayoutVersion.HIVE_3, "yes", ColumnRule.NAME),
        ("auto", LayoutVersion.HIVE_4, "false", ColumnRule.POSITION),
        ("name", LayoutVersion.HIVE_3, "true", ColumnRule.BOTH),
        ("position", LayoutVersion.HIVE_3, "true", ColumnRule.POSITION),
        ("both", LayoutVersion.HIVE_3, "true", ColumnRule.BOTH),
        ("name", LayoutVersion.HIVE_4, "true", ColumnRule.NAME),
    ],
)
def test_a_table_has_a_rule_of_its_own_on_hive_3(setting, layout, value, rule):
    """
    A table's property counts where the readers' configuration has none: HiveConf 4 always has. Where the site says
    otherwise, which of the two counts depends on where it says so, and only what is the same by both is taken.
    """
    assert column_rule(setting, layout, {"orc.force.positional.evolution": value}) is rule


@pytest.mark.parametrize(
    ("file", "table", "position", "name", "lost", "apart"),
    [
        ("a:int,b:int", "a:int,b:int", (0, 1), (0, 1), ((), ()), ()),
        ("a:int,b:int", "a:int,c:int,b:int", (0, 1, None), (0, None, 1), ((), ()), ("c", "b")),
        ("a:int,b:int", "b:int,a:int", (0, 1), (1, 0), ((), ()), ("b", "a")),
        ("A:int", "a:int", (0,), (None,), ((), ("A",)), ("a",)),
        ("a:int,b:int", "b:int", (0,), (1,), (("b",), ("a",)), ("b",)),
        ("a:int", "a:int,b:int", (0, None), (0, None), ((), ()), ()),
        ("_col0:int,_col1:int", "a:int", (0,), (None,), (("_col1",), ("_col1",)), ()),
        ("_col0:int,a:int", "a:int,b:int", (0, 1), (1, None), ((), ("_col0",)), ("a", "b")),
        ("s:struct<x:int>", "t:struct<X:int>", (0,), (None,), (("s.x",), ("s",)), ("t",)),
        ("l:array<struct<x:int>>", "l:array<struct<y:int>>", (0,), (0,), (("l.x",), ("l.x",)), ()),
    ],
)
def test_where_a_reader_finds_a_column(file, table, position, name, lost, apart):  # noqa: PLR0917 - a table's columns
    """The row's own columns by the rule, or by place where they have no names; fields of structs by name always."""
    before, after = (parse_hive_type(f"struct<{columns}>") for columns in (file, table))
    assert places(before, after, by_position=True) == position
    assert places(before, after, by_position=False) == name
    assert (unread(before, after, ColumnRule.POSITION), unread(before, after, ColumnRule.NAME)) == lost
    assert disputed(before, after) == apart


@given(st.data(), st.sampled_from([ColumnRule.POSITION, ColumnRule.NAME]))
def test_the_check_s_rule_is_the_conversion_s(data, rule):
    """By column ids, as ORC's readers go, each top-level column has the source that it has by fields."""
    names = st.lists(st.sampled_from("abcdAB"), min_size=1, max_size=5, unique=True)
    kinds = st.sampled_from(["int", "struct<x:int,y:string>", "array<struct<x:int>>"])

    def drawn():
        return parse_hive_type(f"struct<{','.join(f'{name}:{data.draw(kinds)}' for name in data.draw(names))}>")

    file, table = drawn(), drawn()
    ids, below = source_ids(file, table, rule), 1
    starts = [1 + sum(sum(1 for _ in child.walk()) for child in file.children[:at]) for at in range(len(file.children))]
    for child, place in zip(table.children, places(file, table, by_position=rule is ColumnRule.POSITION), strict=True):
        assert ids[below] == (None if place is None else starts[place])
        below += sum(1 for _ in child.walk())


@settings(max_examples=40)
@given(
    strategies.column_lives(),
    st.sampled_from(LayoutVersion),
    st.sampled_from(["auto", "position", "name"]),
    st.booleans(),
    st.sampled_from(["major", "minor"]),
)
@example(RENAMED, LayoutVersion.HIVE_4, "auto", False, "major")
@example(RENAMED, LayoutVersion.HIVE_4, "auto", True, "minor")
@example([("swap", 1, 2), ("load", ("a", "c", "b", "d"))], LayoutVersion.HIVE_4, "auto", True, "major")
def test_a_compaction_keeps_what_readers_find(steps, layout, orc_columns, migrated, kind):
    """
    Whatever happened to the columns: the result holds for each row what the site's readers took from its file, or the
    compaction is refused because a file holds values that none of them finds.
    """
    rule = column_rule(orc_columns, layout, {})
    with TemporaryDirectory() as folder:
        warehouse = Warehouse(Path(folder) / "w", MemoryLedger(layout))
        table = warehouse.create_table("db", "t", FIRST, transactional=not migrated)
        life = ChangingTable(warehouse, table)
        if migrated:
            life.original()
            warehouse.convert(table)
        life.play([("insert",), ("insert",), *steps])
        attempt = Attempt(
            warehouse,
            table,
            CompactionKind(kind),
            settings=compacting.settings(readers={"orc_columns": orc_columns}),
        )
        if refused_for_its_columns(attempt):
            assert life.loses(rule)
            return
        if kind == "major":
            assert not life.loses(rule)
            snapshot = warehouse.snapshot(table)
            found = read_directory(life.directory.location, schema_of(table), snapshot)
            assert [(tuple(key), row) for key, row in found] == life.expected(rule)


@pytest.mark.parametrize("fault", ["places", "order"])
def test_values_that_move_are_found(warehouse, monkeypatch, fault):
    """A conversion that takes a column from another's place: the sums of the two differ, and nothing is published."""
    table = warehouse.create_table("db", "t", [("a", "int"), ("b", "string"), ("c", "string")])
    life = ChangingTable(warehouse, table).play([("insert",), ("insert",)])
    life.replace(("a", "c", "b", "d"))
    right = places

    def wrong(file, now, *, by_position):
        if fault == "places":
            return right(file, now, by_position=False)
        return tuple(None if place == 1 else place for place in right(file, now, by_position=by_position))

    monkeypatch.setattr(schema_evolution, "places", wrong)
    attempt = Attempt(warehouse, table)
    before = attempt.names()
    with pytest.raises(VerificationError, match="would hold other values than the table's readers take from the file"):
        attempt.run()
    assert [name for name in attempt.names() if not name.startswith(".")] == before


def test_a_table_with_the_names_of_acid_columns_is_refused(tmp_path):
    """
    Hive reads its original files, and neither reads nor writes ACID files of it: ORC takes its rows for events
    (`checkAcidSchema`).
    """
    names = [name.lower() for name in ACID_NAMES]
    for number in range(2):
        rows = pa.table({name: pa.array([number], pa.int32()) for name in names})
        pa.orc.write_table(rows, str(tmp_path / f"{number:06}_0"))
    with pytest.raises(RefusedError, match="names of a full ACID file's own columns") as refused:
        compact_directory(tmp_path, [(name, "int") for name in names])
    assert refused.value.reason is Reason.UNSUPPORTED_FORMAT
    assert not list(tmp_path.glob("base_*"))
