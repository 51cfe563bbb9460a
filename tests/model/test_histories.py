"""
The random histories themselves: what was asked of the builder is what its files hold, under every snapshot taken on the
way.
"""

import pytest

from compactor.acid.compaction import LayoutVersion
from compactor.demo.ledger import MemoryLedger
from compactor.demo.warehouse import Warehouse
from tests.model.histories import KINDS, History


@pytest.mark.parametrize("layout", list(LayoutVersion))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_books_and_files_agree(tmp_path, kind, seed, layout):
    """Without any compaction, each remembered snapshot reads from the files what the books say it must."""
    History(Warehouse(tmp_path / "warehouse", MemoryLedger(layout)), seed, kind).run(25)


def test_a_seed_tells_the_same_story_twice(tmp_path):
    """A failing seed can be replayed."""
    tales = []
    for number in range(2):
        history = History(Warehouse(tmp_path / str(number), MemoryLedger()), 11)
        history.run(15)
        tales.append(history.tale())
    assert tales[0] == tales[1]
