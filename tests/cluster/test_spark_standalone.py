"""
Applications on a standalone cluster: Master and Worker from PySpark's own jars; and on this machine alone, where a
killed daemon leaves a driver behind.
"""

import os
import signal

import pytest
import yaml

from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import QueueState
from compactor.spark.application.orphans import started_for
from compactor.spark.application.submitter import ApplicationSubmitter
from compactor.spark.session.session import SparkSubmitter
from tests.cluster.standalone import cluster
from tests.compacting import compact, settings
from tests.crash.scene import SETTINGS, Scene, ended

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    """The address of a Master with one Worker."""
    with cluster(tmp_path_factory.mktemp("standalone"), {"worker": ("127.0.0.1", {})}) as address:
        yield address


@pytest.mark.parametrize(("mode", "kind"), [("submit", ApplicationSubmitter), ("session", SparkSubmitter)])
def test_a_compaction_on_a_standalone_cluster(warehouse, master, mode, kind):
    """The same rows by an application whose driver is here and whose executor is there; its id is the Master's."""
    section = settings(
        spark={
            "mode": mode,
            "master": master,
            "conf": {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"},
        }
    )
    submitter = kind(section)
    seen, end = [], submitter.end
    submitter.end = lambda job: (seen.append(submitter.application(job)), end(job))
    table = warehouse.create_table("db", "t", [("id", "int"), ("v", "string")])
    for number in range(3):
        with warehouse.begin() as txn:
            txn.insert(table, [(number * 10 + i, "x") for i in range(10)])
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] % 7 == 0)
    compact(warehouse, table, submitter=submitter, settings=section)
    submitter.stop()
    assert seen[0].startswith("app-")


@pytest.fixture
def scene(tmp_path):
    """A daemon with an application for each compaction, on this machine; an embedded metastore."""
    made = Scene(f"sqlite:///{tmp_path}/metastore.db", tmp_path)
    sections = SETTINGS | {
        "database": {"url": made.url},
        "spark": {"mode": "submit", "master": "local[1]"},
        "worker": SETTINGS["worker"] | {"threads": 1},
    }
    made.config.write_text(yaml.safe_dump(sections), encoding="utf-8")
    made.unhurried()
    yield made
    made.end()


def test_a_killed_daemons_driver_ends_and_the_next_attempt_succeeds(scene):
    """
    A driver on this machine outlives its daemon, and goes when the next one has put up the fence; rows are as ever, and
    no compaction counts as failed.
    """
    killed = scene.start(spark=True)
    place = lambda: list(scene.table.location.glob(".compactor-*/application/at-*"))  # noqa: E731
    scene.until(killed, place, "at work")
    staging = place()[0].parents[1].name
    key = staging.removeprefix(".compactor-").replace("-", ".", 1)
    os.kill(killed.pid, signal.SIGKILL)
    assert ended(killed) == -signal.SIGKILL
    assert list(started_for({key}))
    scene.assert_rows()
    before = scene.starts()
    again = scene.start(spark=True)
    scene.until(again, lambda: scene.starts() > before and scene.settled(), "settled")
    assert not list(started_for({key}))
    assert scene.drain(again) == 0
    scene.assert_rows()
    assert len(scene.names()) == 1
    (done,) = Queue(scene.metastore).history(QueueState.SUCCEEDED)
    assert done.job_id.startswith("local-")
