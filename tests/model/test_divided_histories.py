"""
Random histories whose compactions are divided by tiny limits: readers see the same rows as if nothing had been divided.
"""

import pytest

from compactor.acid.compaction import LayoutVersion
from compactor.demo.ledger import MemoryLedger
from compactor.demo.warehouse import Warehouse
from compactor.planning.limits import EVENT_BYTES
from tests.compacting import InProcess
from tests.model.compacting import Engine, settings
from tests.model.histories import KINDS, History

LIMITS = [
    {"deltas": 2, "task_memory_bytes": 4 * EVENT_BYTES},
    {"deltas": 3, "task_memory_bytes": 7 * EVENT_BYTES},
    {"scratch_bytes": 4000, "task_memory_bytes": 1 << 20},
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limits", LIMITS, ids=["two deltas", "three deltas", "little room"])
def test_no_snapshot_loses_a_row_to_a_part(tmp_path, kind, limits):
    """
    Parts in between, of either kind, on both layouts; everything that readers may still hold is checked after each
    step.
    """
    layout = list(LayoutVersion)[limits.get("deltas", 0) % 2]
    history = History(Warehouse(tmp_path / "warehouse", MemoryLedger(layout)), 4711, kind)
    engine = Engine(InProcess(), settings(limits=limits))
    history.run(30, engine.hook, engine.clean)
    history.finish()
    history.remember()
    for name in history.table.directories:
        history.told += [engine.hook(history, name, "major") for _ in range(5)]
    history.check()
