"""Roles interrupted at any statement and call, on Hive's own TxnHandler, writers and readers."""

import shutil

import pytest

from compactor.metastore.db.database import Database
from compactor.roles.worker import monitor, older_snapshots
from tests.conftest import _Impatient
from tests.counts import count
from tests.hive import put_back
from tests.hive.histories import quietly
from tests.hive.java import UnavailableError as NoJavaError
from tests.hive.lane.lane import Lane
from tests.hive.lane.model import Turns
from tests.hive.preemption import Preempted
from tests.metastore.databases import parties, postgres  # noqa: F401 - fixtures
from tests.metastore.servers import UnavailableError, schema_script
from tests.needs import missing

pytestmark = [pytest.mark.hive, pytest.mark.postgres]
_FEW = 3
_FIRST = {"3.1.0": 0, "4.0.0": 1000}


_AT_MOST = 8
"""Histories in which a defect that is put back is found when they are of what happens beneath readers alone."""


@pytest.fixture
def play(request, parties, tmp_path):  # noqa: F811 - a fixture
    """A function that plays a history on the schema of a version, with a defect put back if one is named."""
    server = request.getfixturevalue("postgres")

    def one(version, seed, defect=None, **how):
        try:
            schema_script(version)
        except (UnavailableError, NoJavaError) as error:
            missing(str(error))
        url = server.borrow(version)
        with Database(url) as database, pytest.MonkeyPatch.context() as patch, quietly():
            patch.setattr(monitor, "LOOK_SECONDS", 3600.0)
            patch.setattr(older_snapshots, "time", _Impatient())
            kind = {"partitioned": seed % 2 == 0, "insert_only": seed % 5 == 0}
            lane = Lane(database, parties(version, url), Turns(), tmp_path / "history", **kind)
            lane.world.configure(cleaner={"listing_wait_seconds": 0, "threads": 1})
            if defect is not None:
                defect(patch, lane)
            history = Preempted(lane, seed)
            history.hooked(patch)
            history.live(8 + seed % 8, **how)
        server.give_back(version, url)
        shutil.rmtree(tmp_path / "history")
        return history

    return one


@pytest.mark.timeout(0)
@pytest.mark.parametrize("version", sorted(_FIRST))
def test_every_snapshot_reads_its_rows(request, play, version):
    """Whatever comes between two statements of a role: every reader reads its rows, by Hive's own reader."""
    histories = request.config.getoption("--histories") or _FEW
    for seed in range(_FIRST[version], _FIRST[version] + histories):
        history = play(version, seed)
        count(f"histories of schema {version} with roles interrupted anywhere")
        assert history.wrong is None, "\n".join(map(str, [f"seed {seed}", *history.log[-80:], history.wrong]))


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "defect", [put_back.seen_after_death, put_back.seen_after_empty], ids=lambda defect: defect.__name__
)
def test_a_defect_put_back_is_found(request, play, defect):
    """Histories find what once took an open reader's files on Hive 3.1, put back; by hand those with all acts."""
    by_hand = request.config.getoption("--histories")
    how = {} if by_hand else {"among": ["beneath"]}
    for number in range(by_hand or _AT_MOST):
        seed = number if by_hand else 2 * number + 1  # of tables without partitions
        history = play("3.1.0", seed, defect, **how)
        count("histories in which a defect that was put back was looked for")
        if history.wrong is not None:
            assert "does not exist" in history.wrong, history.wrong
            print(f"found by seed {seed}:", *history.log[-30:], history.wrong, sep="\n")
            return
    pytest.fail("\n".join(["not found; the last history:", *map(str, history.log[-60:])]))
