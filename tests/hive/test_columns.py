"""
Hive's own readers, configured as their releases deliver them, on tables whose columns changed: what they see is what
the small rule of `tests.columns` says, and compactions change none of it.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from compactor.acid.columns import column_rule
from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.demo.ledger import MemoryLedger
from compactor.demo.warehouse import Warehouse
from tests import strategies
from tests.columns import FIRST, ChangingTable, refused_for_its_columns
from tests.compacting import Attempt
from tests.counts import count
from tests.reference.compare import schema_of

pytestmark = pytest.mark.hive
LAYOUTS = {"4": LayoutVersion.HIVE_4, "3": LayoutVersion.HIVE_3}
RENAMED = [("rename", 1, "e"), ("add", "b"), ("insert",)]


@pytest.mark.parametrize("release", ["4", "3"])
def test_hive_reads_the_same_rows_after_a_compaction(release, request):
    """Vectorised and row by row, before and after it, whatever became of the columns; or it was refused for a loss."""
    judge, layout = request.getfixturevalue(f"hive_{release}"), LAYOUTS[release]
    rule = column_rule("auto", layout)
    ended = []

    @settings(max_examples=30, database=None, suppress_health_check=list(HealthCheck))
    @given(strategies.column_lives(), st.booleans(), st.sampled_from(["major", "major", "minor"]))
    @example(RENAMED, False, "major")
    @example(RENAMED, True, "minor")
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

            def seen(mode):
                snapshot = warehouse.snapshot(table)
                schema = schema_of(table)
                return judge.rows(life.directory.location, schema, snapshot.write_ids, snapshot.txns, mode=mode)

            fits = not life.loses(rule)
            if fits:
                assert seen("vector") == seen("row") == life.expected(rule)
            refused = refused_for_its_columns(Attempt(warehouse, table, CompactionKind(kind)))
            ended.append("refused" if refused else "compacted")
            assert not (refused and fits)
            if fits:
                assert seen("vector") == seen("row") == life.expected(rule)

    lives()
    for how in set(ended):
        count(f"tables with changed columns, read by Hive {judge.version}: {how}", ended.count(how))
    assert min(ended.count("compacted"), ended.count("refused")) >= len(ended) // 10
