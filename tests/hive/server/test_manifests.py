"""
A real INSERT of Hive 4 is held between its tasks, its manifests in the table's directory: our Cleaner leaves them
alone, and no row is lost.
"""

import time

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity
from compactor.roles.cleaner.cleaner import Cleaner
from compactor.roles.services import Services
from compactor.roles.worker.worker import Worker
from compactor.settings import Settings
from tests.daemon.lab import until
from tests.hive.server.hive import hive_server
from tests.hive.server.jars import UnavailableError
from tests.metastore.databases import postgres  # noqa: F401 - a fixture
from tests.needs import missing
from tests.unit.roles.world import Inline

pytestmark = [pytest.mark.live, pytest.mark.timeout(900), pytest.mark.xdist_group("hive-4")]


@pytest.fixture
def server(postgres):  # noqa: F811
    try:
        with hive_server("4", postgres) as started:
            yield started
    except UnavailableError as error:
        missing(str(error))


def test_a_table_is_cleaned_under_a_running_insert(server):
    """
    What the manifests name is read when all tasks have ended: with one of them gone its rows are gone too, and the
    INSERT reports success.

    Hive's own Cleaner takes them for original files (`AcidUtils.getHdfsDirSnapshotsForCleaner`): this is what
    docs/operations.md warns of.
    """
    with Database(server.database) as database:
        settings = Settings(
            database={"url": server.database}, cleaner={"retention_seconds": 0, "listing_wait_seconds": 0}
        )
        services = Services.over(database, settings, submitter=Inline())
        cleaner = Cleaner(services)

        def ours():
            until(lambda: "2 directories" in cleaner.run_once().sentence, "cleaned")

        def hives():
            server.threads("cleaner")
            until(lambda: not (server.warehouse / "hives" / "delta_0000001_0000001_0000").exists(), "cleaned")
            server.threads()

        assert not _lost(server, services, "ours", ours)
        assert _lost(server, services, "hives", hives)


def _lost(server, services, table, clean):
    """Which rows an INSERT lost that was held between its tasks while that Cleaner came."""
    server.sql(
        f"create table {table} (id int, v string) clustered by (id) into 4 buckets stored as orc tblproperties ('transactional'='true')"
    )
    server.sql(
        *(f"insert into {table} values {', '.join(f'({first + n}, {n})' for n in range(8))}" for first in (0, 100))
    )
    assert services.queue.enqueue(Entity("default", table), CompactionKind.MAJOR).accepted
    assert "published base_0000002" in Worker(services, 0).run_once().sentence
    time.sleep(
        1.5
    )  # for a second after it was opened Hive takes the compaction's transaction for open, and the INSERT would hold up the cleaning
    hold = server.hold("create", rf"/{table}/-tmp\.delta_.*/000003_.*manifest")
    writing = server.begin(f"insert into {table} values {', '.join(f'({200 + n}, {n})' for n in range(8))}")
    assert hold.met(120)
    left = server.warehouse / table / "-tmp.delta_0000003_0000003_0000"
    manifests = {path.name for path in left.iterdir()}
    assert manifests
    clean()
    lost = manifests - {path.name for path in left.glob("*")}
    hold.release()
    writing.result()
    rows = {int(row) for (row,) in server.rows(f"select id from {table}")}
    expected = {first + n for first in (0, 100, 200) for n in range(8)}
    assert rows <= expected
    assert bool(lost) == (rows != expected)
    return sorted(expected - rows)
