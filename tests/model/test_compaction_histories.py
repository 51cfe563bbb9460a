"""
Random histories through the engine without Spark: its tasks run one after another in this process, so that many seeds
are cheap.
"""

import pytest

from compactor.acid.compaction import LayoutVersion
from compactor.demo.ledger import MemoryLedger
from compactor.demo.warehouse import Warehouse
from tests.compacting import InProcess
from tests.model.compacting import Engine, settings
from tests.model.histories import KINDS, History

SIZES = {"copy": 1, "mixed": 1500, "recode": 64 << 20}
"""Least size in bytes of a stripe that is copied."""


def live(tmp_path, seed, kind, steps):
    """Everything but the kind of table follows from the seed."""
    layout, size = list(LayoutVersion)[seed % 2], list(SIZES.values())[seed % 3]
    history = History(Warehouse(tmp_path / "warehouse", MemoryLedger(layout)), seed, kind)
    engine = Engine(InProcess(), settings(splice={"min_stripe_bytes": size}))
    history.run(steps, engine.hook, engine.clean)
    history.finish()
    history.remember()
    for name in history.table.directories:
        history.told.append(engine.hook(history, name, "major"))
    history.check()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_no_snapshot_loses_a_row(tmp_path, kind, seed):
    """Every kind of table, both layouts, stripes copied, recoded and both."""
    live(tmp_path, seed, kind, 25)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(100, 400))
def test_no_snapshot_loses_a_row_in_long_histories(tmp_path, seed):
    """Many seeds, longer lives."""
    live(tmp_path, seed, None, 60)
