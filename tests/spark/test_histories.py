"""
Random lives of a table through the real Spark session, with compactions and cleanings between the writes; every
snapshot on the way keeps its rows.
"""

import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from compactor.acid.compaction import LayoutVersion
from tests import strategies
from tests.demo.ledger import MemoryLedger
from tests.demo.warehouse import Warehouse
from tests.model.compacting import Engine, settings
from tests.model.examples import OF_EVERYTHING
from tests.model.histories import KINDS, History
from tests.model.option_sets import play_lives
from tests.reference.compare import expected_rows, schema_of

pytestmark = pytest.mark.spark
LIVES, JUDGED_LIVES, LONG_LIVES = 1, 1, 1
STRIPES = {"copy": 1, "recode": 64 << 20}
"""Least size of a stripe that is copied: every stripe that can be, or none."""


@dataclass(frozen=True)
class Options:
    """What a life doesn't say."""

    kind: str
    layout: LayoutVersion
    stripes: str


ALL = [Options(*one) for one in itertools.product(KINDS, LayoutVersion, STRIPES)]
EACH = [one for one in ALL if (one.layout is LayoutVersion.HIVE_4) == (one.stripes == "copy")]
JUDGED = [one for one in ALL if one.kind != "insert-only" and one.stripes == "copy"]


def live(request, sets, lives, number, judges=None):
    """Play so many lives; under each option set something was compacted."""
    submitter = request.getfixturevalue("submitter")

    def play(options, life):
        with tempfile.TemporaryDirectory() as folder:
            engine = Engine(submitter, settings(splice={"min_stripe_bytes": STRIPES[options.stripes]}))
            warehouse = Warehouse(Path(folder), MemoryLedger(options.layout))
            history = History(warehouse, options.kind, life, engine.hook, engine.clean)
            history.run()
            history.compact_all()
            if judges:
                judge(judges[options.layout], history)
            history.read()
            return history

    play_lives(play, sets, lives, request.config.getoption("--histories") or number, OF_EVERYTHING).busy()


def judge(reader, history):
    """Hive's own reader sees what the books say."""
    table, snapshot = history.table, history.warehouse.snapshot(history.table)
    for name, rows in expected_rows(history.warehouse, table).items():
        for mode in ("vector", "row"):
            seen = reader.rows(
                table.directories[name].location,
                schema_of(table),
                snapshot.write_ids,
                snapshot.txns,
                mode=mode,
                buckets=table.buckets,
            )
            assert seen == rows, f"{history}: {name}, {mode}\n{history.tale()}"


@pytest.mark.timeout(900)
def test_no_snapshot_loses_a_row(request):
    """On each kind of table, in both layouts, stripes copied or not."""
    live(request, EACH, strategies.lives(), LIVES)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("_", range(2))
def test_no_snapshot_loses_a_row_in_long_histories(request, _):
    """More and longer lives, and all combinations of the options."""
    live(request, ALL, strategies.lives(long=True), LONG_LIVES)


@pytest.mark.hive
@pytest.mark.timeout(900)
def test_hive_reads_compacted_histories(request, hive_3, hive_4):
    """At the end of a life Hive's own readers, row and vector, see what the books say."""
    judges = {LayoutVersion.HIVE_3: hive_3, LayoutVersion.HIVE_4: hive_4}
    live(request, JUDGED, strategies.lives(), JUDGED_LIVES, judges)
