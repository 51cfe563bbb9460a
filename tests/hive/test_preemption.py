"""Roles interrupted at any statement and call, on Hive's own TxnHandler, writers and readers."""

import shutil

import pytest

from compactor.metastore.db.database import Database
from compactor.roles.worker import monitor, older_snapshots
from tests.conftest import _Impatient
from tests.counts import count
from tests.hive.histories import quietly
from tests.hive.java import UnavailableError as NoJavaError
from tests.hive.lane.lane import Lane
from tests.hive.lane.model import Turns
from tests.hive.preemption import Preempted
from tests.metastore.databases import parties, postgres  # noqa: F401 - fixtures
from tests.metastore.servers import UnavailableError, schema_script
from tests.needs import missing

pytestmark = [pytest.mark.hive, pytest.mark.postgres]
_FEW = 6
_FIRST = {"3.1.0": 0, "4.0.0": 1000}


@pytest.mark.timeout(0)
@pytest.mark.parametrize("version", sorted(_FIRST))
def test_every_snapshot_reads_its_rows(request, parties, tmp_path, version):  # noqa: F811 - a fixture
    """Whatever comes between two statements of a role: every reader reads its rows, by Hive's own reader."""
    try:
        schema_script(version)
    except (UnavailableError, NoJavaError) as error:
        missing(str(error))
    server = request.getfixturevalue("postgres")
    histories = request.config.getoption("--histories") or _FEW
    for seed in range(_FIRST[version], _FIRST[version] + histories):
        url = server.borrow(version)
        with Database(url) as database, pytest.MonkeyPatch.context() as patch, quietly():
            patch.setattr(monitor, "LOOK_SECONDS", 3600.0)
            patch.setattr(older_snapshots, "time", _Impatient())
            kind = {"partitioned": seed % 2 == 0, "insert_only": seed % 5 == 0}
            lane = Lane(database, parties(version, url), Turns(), tmp_path / "history", **kind)
            lane.world.configure(cleaner={"listing_wait_seconds": 0, "threads": 1})
            history = Preempted(lane, seed)
            history.hooked(patch)
            history.live(12 + seed % 16)
        server.empty(version, url)
        server.give_back(version, url)
        shutil.rmtree(tmp_path / "history")
        count(f"histories of schema {version} with roles interrupted anywhere")
        assert history.wrong is None, "\n".join(map(str, [f"seed {seed}", *history.log[-80:], history.wrong]))
