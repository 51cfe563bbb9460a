"""
Random lives of a table through the engine without Spark: its tasks run one after another in this process, so that many
are cheap.

Each life is played on tables of each kind, in both layouts, without any compaction, and with compactions whose stripes
are copied or recoded, or which are divided by tiny limits.
"""

import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from compactor.acid.compaction import LayoutVersion
from compactor.planning.limits import EVENT_BYTES
from tests import strategies
from tests.compacting import InProcess
from tests.demo.ledger import MemoryLedger
from tests.demo.warehouse import Warehouse
from tests.model.compacting import Engine, settings
from tests.model.examples import OF_A_TABLE_EMPTIED_LAST, OF_AN_EMPTIED_TABLE, OF_EVERYTHING
from tests.model.histories import KINDS, History
from tests.model.option_sets import play_lives

LIVES, LONG_LIVES = 2, 2
WAYS = {
    "no compaction": None,
    "copy": {"splice": {"min_stripe_bytes": 1}},
    "mixed": {"splice": {"min_stripe_bytes": 1500}},
    "recode": {"splice": {"min_stripe_bytes": 64 << 20}},
    "two deltas": {"limits": {"deltas": 2, "task_memory_bytes": 4 * EVENT_BYTES}},
    "three deltas": {"limits": {"deltas": 3, "task_memory_bytes": 7 * EVENT_BYTES}},
    "little room": {"limits": {"scratch_bytes": 16_000, "task_memory_bytes": 1 << 20}},
}
"""Settings of the compactions; `min_stripe_bytes` is the least size of a stripe that is copied."""


@dataclass(frozen=True)
class Options:
    """What a life doesn't say."""

    kind: str
    layout: LayoutVersion
    way: str


ALL = [Options(*one) for one in itertools.product(KINDS, LayoutVersion, WAYS)]
PAIRS = [
    Options(kind, list(LayoutVersion)[(number + place) % 2], way)
    for number, kind in enumerate(KINDS)
    for place, way in enumerate(WAYS)
]
"""Half of them, in which each two options still meet."""


def play(options, life):
    """One life under one option set; at its end everything is compacted once more."""
    with tempfile.TemporaryDirectory() as folder:
        warehouse, sections = Warehouse(Path(folder), MemoryLedger(options.layout)), WAYS[options.way]
        if sections is None:
            history = History(warehouse, options.kind, life)
        else:
            engine = Engine(InProcess(), settings(**sections))
            history = History(warehouse, options.kind, life, engine.hook, engine.clean)
        history.run()
        history.compact_all(times=5 if "limits" in (sections or {}) else 1)
        history.read()
        return history


def live(sets, lives, number):
    """Play so many lives; under each option set that compacts something was compacted."""
    play_lives(play, sets, lives, number, OF_EVERYTHING).busy([one for one in sets if one.way != "no compaction"])


@pytest.mark.timeout(900)
def test_no_snapshot_loses_a_row(request):
    """
    Whatever happens to a table: each snapshot reads what the books say, however its table is compacted; and after the
    same life the same rows are read under all option sets.
    """
    live(PAIRS, strategies.lives(), request.config.getoption("--histories") or LIVES)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("_", range(4))
def test_no_snapshot_loses_a_row_in_long_histories(request, _):
    """More and longer lives, and all combinations of the options."""
    live(ALL, strategies.lives(long=True), request.config.getoption("--histories") or LONG_LIVES)


@pytest.mark.parametrize("life", [OF_AN_EMPTIED_TABLE, OF_A_TABLE_EMPTIED_LAST])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layout", LayoutVersion)
def test_an_overwrite_with_nothing(layout, way, life):
    """
    INSERT OVERWRITE of an insert-only table that leaves no row, then inserts and a minor: no row comes or goes. Where
    it replaced some, Hive 4 still reads them and 3.1 doesn't, so nothing is compacted for one of the two.
    """
    play(Options("insert-only", layout, way), life)


def test_a_life_tells_the_same_story_twice():
    """A life that failed can be played again."""
    tales = [play(ALL[1], OF_EVERYTHING).tale() for _ in range(2)]
    assert tales[0] == tales[1]


def test_each_two_options_meet():
    """Half of the option sets are enough for it: each life of `make test` is played under these."""
    for names in itertools.combinations(("kind", "layout", "way"), 2):
        met, wanted = ({tuple(getattr(one, name) for name in names) for one in sets} for sets in (PAIRS, ALL))
        assert met == wanted
