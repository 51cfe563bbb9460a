"""
Random histories with compactions and cleanings between the writes, through the real Spark session; every snapshot on
the way keeps its rows.
"""

import pytest

from compactor.acid.compaction import LayoutVersion
from compactor.demo.ledger import MemoryLedger
from compactor.demo.warehouse import Warehouse
from tests.model.compacting import Engine, settings
from tests.model.histories import KINDS, History
from tests.reference.compare import expected_rows, schema_of

pytestmark = pytest.mark.spark
STRIPES = {"copy": 1, "recode": 64 << 20}
"""Least size of a stripe that is copied: every stripe that can be, or none."""


def built(tmp_path, layout):
    return Warehouse(tmp_path / "warehouse", MemoryLedger(layout))


def live(warehouse, submitter, *, seed, kind=None, stripes="copy", steps=25):
    """Run one history; at its end everything is compacted once more."""
    history = History(warehouse, seed, kind)
    engine = Engine(submitter, settings(splice={"min_stripe_bytes": STRIPES[stripes]}))
    history.run(steps, engine.hook, engine.clean)
    history.finish()
    history.remember()
    for name in history.table.directories:
        history.told.append(engine.hook(history, name, "major"))
    history.check()
    return history


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("layout", "stripes"), [(LayoutVersion.HIVE_4, "copy"), (LayoutVersion.HIVE_3, "recode")])
def test_no_snapshot_loses_a_row(tmp_path, submitter, kind, layout, stripes):
    """A dozen seeds: each kind of table, both layouts, stripes copied or not."""
    live(built(tmp_path, layout), submitter, seed=100 + KINDS.index(kind), kind=kind, stripes=stripes)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(60))
def test_no_snapshot_loses_a_row_in_long_histories(tmp_path, submitter, seed):
    """Many seeds, longer lives, everything chosen by the seed."""
    live(
        built(tmp_path, list(LayoutVersion)[seed % 2]),
        submitter,
        seed=1000 + seed,
        stripes=list(STRIPES)[seed // 2 % 2],
        steps=60,
    )


@pytest.mark.hive
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "insert-only"])
@pytest.mark.parametrize("layout", list(LayoutVersion))
def test_hive_reads_compacted_histories(tmp_path, submitter, request, kind, layout):
    """At the end of a life Hive's own readers, row and vector, see what the books say."""
    judge = request.getfixturevalue("hive_4" if layout is LayoutVersion.HIVE_4 else "hive_3")
    history = live(built(tmp_path, layout), submitter, seed=200 + KINDS.index(kind), kind=kind, steps=20)
    table, snapshot = history.table, history.warehouse.snapshot(history.table)
    for name, rows in expected_rows(history.warehouse, table).items():
        for mode in ("vector", "row"):
            seen = judge.rows(
                table.directories[name].location,
                schema_of(table),
                snapshot.write_ids,
                snapshot.txns,
                mode=mode,
                buckets=table.buckets,
            )
            assert seen == rows, f"{history}: {name}, {mode}\n{history.tale()}"
