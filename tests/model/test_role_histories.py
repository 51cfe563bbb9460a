"""
Random lives of a table under the daemon's own roles over a real metastore: Hive's writers write, queries come and go,
Workers compact, the Cleaner cleans. Each life is played on every kind of table and of metastore.

Promises tested: no row changes for any snapshot; no reader loses a file that it has listed.
"""

import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.acid.names import parse_original_file
from compactor.metastore.model import Entity
from tests import strategies
from tests.metastore.databases import mariadb, metastore, postgres  # noqa: F401 - fixtures among them
from tests.model.examples import BESIDE_READERS, OF_JOINED_FILES
from tests.model.histories import KINDS, History
from tests.model.option_sets import play_lives
from tests.model.steps import JoinFiles
from tests.unit.roles.world import World

ENOUGH = (
    "not-enough",
    "not enough",
    "duplicate-range",
    "would-not-change-anything",
    "no minor compaction of those",
    "partition-missing",
)
"""Words of the refusals that a random request may meet."""
LIVES, LIVES_WITH_JOINS, LONG_LIVES = 1, 1, 2
_RENAME_SECONDS = 320
"""After that what is missing isn't being renamed."""


class Roles:
    """The hooks of a history: queue, Worker and Cleaner; and readers with a transaction and a lock."""

    def __init__(self, world):
        self.world = world

    def compact(self, history, name, kind):
        """Enqueue and work until the queue is empty."""
        world = self.world
        world.settle_time()
        asked = world.services.queue.enqueue(
            Entity(history.table.database, history.table.name, name), CompactionKind(kind)
        )
        worker = world.worker()
        said = []
        while (line := worker.run_once().sentence) != "nothing is queued":
            said.append(line)
            if "published" not in line and "left to the Cleaner" not in line:
                assert any(word in line for word in ENOUGH), f"{history}: {line}\n{history.tale()}"
            if "given back: partition-missing" in line:
                world.clock.forward(_RENAME_SECONDS)
        return f"{kind} of {name}: {asked.message if not asked.accepted else '; '.join(said)}"

    def clean(self, history):
        return self.world.clean()

    def come(self, history):
        """A query: its transaction, then its lock, then (by the caller) its snapshot."""
        reader = self.world.hive.begin()
        self.world.hive.lock(history.table.full_name, txn_id=reader)
        return reader

    def leave(self, name):
        self.world.hive.commit(name)


@dataclass(frozen=True)
class Options:
    """What a life doesn't say; `stripe_bytes` is the least size of a stripe that is copied."""

    metastore: str
    kind: str
    stripe_bytes: int


METASTORES, SIZES = ("sqlite", "postgres-3"), (1, 1500, 64 << 20)
"""Hive 4 on an embedded metastore, Hive 3.1 on PostgreSQL."""
ALL = [Options(*one) for one in itertools.product((*METASTORES, "mariadb-3"), KINDS, SIZES)]
EACH = [
    Options(where, kind, SIZES[(number + place) % 3])
    for number, where in enumerate(METASTORES)
    for place, kind in enumerate(KINDS)
]
JOINED = [
    Options("sqlite", *one) for one in (("plain", 1), ("plain", 64 << 20), ("two buckets", 1), ("partitioned", 1))
]


def live(request, tmp_path, sets, lives, *, number, last):
    """Play so many lives; under each option set something was compacted."""

    def play(options, life):
        with (
            tempfile.TemporaryDirectory(dir=tmp_path) as folder,
            metastore(options.metastore, request, Path(folder)) as database,
        ):
            return play_under_roles(World(database, Path(folder)), options, life)

    play_lives(play, sets, lives, request.config.getoption("--histories") or number, last).busy()


def play_under_roles(world, options, life):
    """
    One life; at the end everybody leaves, and after a last compaction nothing obsolete is left: on Hive 4 each
    directory holds one base.
    """
    world.configure(splice={"min_stripe_bytes": options.stripe_bytes}, initiator={"thresholds": {"aborted_count": 0}})
    roles = Roles(world)
    history = History(world.warehouse, options.kind, life, roles.compact, roles.clean, roles)
    history.run()
    for one in [one for one in history.remembered if one.reader is not None]:
        history.reader_leaves(one)
    history.remembered.clear()
    history.finish()
    for _ in range(2):  # a minor that is ready for cleaning at the same write id stands in the way of a major
        asked = [history.compact(name, "major") for name in history.table.directories]
        history.told += asked
        for _ in range(20):  # entries of one table are cleaned one after another
            history.told.append(history.clean())
            if history.told[-1] == "nothing to clean":
                break
        if not any("already scheduled" in one for one in asked):
            break
    history.check()
    history.read()
    assert history.joined or life is not OF_JOINED_FILES, "Hive joined no files"
    if world.services.layout == "hive-4" and not any(isinstance(step, JoinFiles) for step in life.steps):
        assert left_behind(history) == {}, f"{history}\n{history.tale()}"
    return history


def left_behind(history):
    """
    Directories next to the result, and anything of ours. Original files under a base of TRUNCATE or of an overwrite are
    nobody's to remove: no list has them.
    """
    found = {}
    hidden = any(line.startswith(("truncate", "overwrite", "load data overwrite")) for line in history.told)
    for name, directory in history.table.directories.items():
        names = sorted(
            path.name for path in directory.location.iterdir() if not (hidden and parse_original_file(path.name))
        )
        if len(names) > 1:
            found[name] = names
    return found


@pytest.mark.postgres
@pytest.mark.timeout(900)
def test_no_row_and_no_file_is_lost(request, tmp_path):
    """On each kind of table, on both layouts; at the end each directory holds one base and nothing else."""
    live(request, tmp_path, EACH, strategies.lives(readers=True), number=LIVES, last=BESIDE_READERS)


@pytest.mark.timeout(900)
def test_results_of_hives_merge_compaction_are_compacted_and_cleaned(request, tmp_path):
    """
    Lives of Hive 4's tables in which Hive joins files too, rows of aborted write ids included: every snapshot reads its
    rows, whoever compacts and cleans.
    """
    lives = strategies.lives(readers=True, joins=True)
    live(request, tmp_path, JOINED, lives, number=LIVES_WITH_JOINS, last=OF_JOINED_FILES)


@pytest.mark.long
@pytest.mark.postgres
@pytest.mark.mariadb
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("_", range(2))
def test_no_row_and_no_file_is_lost_in_long_histories(request, tmp_path, _):
    """More and longer lives, and all combinations of the options."""
    live(request, tmp_path, ALL, strategies.lives(readers=True, long=True), number=LONG_LIVES, last=BESIDE_READERS)
