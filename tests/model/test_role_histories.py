"""
Random histories under the daemon's own roles over a real metastore: Hive's writers write, queries come and go, Workers
compact, the Cleaner cleans.

Promises tested: no row changes for any snapshot; no reader loses a file that it has listed.
"""

import pytest

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.names import parse_original_file
from compactor.metastore.model import Entity
from tests.metastore.databases import kinds, metastore, postgres  # noqa: F401 - a fixture
from tests.model.histories import KINDS, History
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


_RENAME_SECONDS = 320
"""After that what is missing isn't being renamed."""


class Life:
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
        while (line := worker.run_once()) != "nothing is queued":
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


def live(world, *, seed, kind=None, steps=30, stripe=1, hives_compactions=False):
    """One life; at the end everybody leaves, and after a last compaction nothing obsolete is left."""
    world.configure(splice={"min_stripe_bytes": stripe}, initiator={"thresholds": {"aborted_count": 0}})
    history, life = History(world.warehouse, seed, kind, hives_compactions), Life(world)
    history.run(steps, life.compact, life.clean, life)
    for one in [one for one in history.remembered if one.reader is not None]:
        life.leave(one.reader)
    history.remembered.clear()
    history.finish()
    for name in history.table.directories:
        history.told.append(life.compact(history, name, "major"))
    for _ in range(20):  # entries of one table are cleaned one after another
        history.told.append(life.clean(history))
        if history.told[-1] == "nothing to clean":
            break
    history.check()
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


@pytest.fixture(params=kinds(["sqlite", "postgres-3"]))
def world(tmp_path, request):
    """Hive 4 on an embedded metastore; Hive 3.1 on PostgreSQL."""
    with metastore(request.param, request, tmp_path) as database:
        yield World(database, tmp_path)


@pytest.fixture
def hive_4(tmp_path, request):
    """Hive 4 on an embedded metastore."""
    with metastore("sqlite", request, tmp_path) as database:
        yield World(database, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_no_row_and_no_file_is_lost(world, kind):
    """Each kind of table, on both layouts; at the end each directory holds one base and nothing else."""
    history = live(world, seed=300 + KINDS.index(kind), kind=kind)
    if world.database.schema.version is LayoutVersion.HIVE_4:
        assert left_behind(history) == {}, f"{history}\n{history.tale()}"


@pytest.mark.parametrize("seed", [803, 808])
def test_results_of_hives_merge_compaction_are_compacted_and_cleaned(hive_4, seed):
    """
    Lives of Hive 4's tables in which Hive joins files too, rows of aborted write ids included: every snapshot reads its
    rows, whoever compacts and cleans.
    """
    history = live(hive_4, seed=seed, kind="streamed", steps=40, hives_compactions=True)
    assert any(line.startswith("merge of None: delta_") for line in history.told)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(80))
def test_no_row_and_no_file_is_lost_in_long_histories(world, seed):
    """Many seeds."""
    live(world, seed=5000 + seed, steps=70, stripe=[1, 1500, 64 << 20][seed % 3])
