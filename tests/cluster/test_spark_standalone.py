"""
Applications on a standalone cluster: Master and Worker from PySpark's own jars; and on this machine alone, where a
killed daemon leaves a driver behind.
"""

import json
import os
import shutil
import signal
import sys
import urllib.request
from pathlib import Path
from threading import Thread

import pytest
import yaml

import compactor
from compactor.errors import UnreachableError
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import QueueState
from compactor.spark.application.orphans import started_for
from compactor.spark.application.submitter import ApplicationSubmitter
from compactor.spark.conf import merged_conf
from compactor.spark.session.session import SparkSubmitter
from compactor.spark.submitter import JobName
from tests.cluster.standalone import cluster
from tests.compacting import compact, settings
from tests.crash.scene import SETTINGS, Scene, ended
from tests.ports import free_port

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


@pytest.mark.parametrize(("mode", "kind"), [("submit", ApplicationSubmitter), ("session", SparkSubmitter)])
def test_a_node_with_another_package_does_no_work(tmp_path, master, mode, kind):
    """A package that one change tells from the daemon's, and one of before there was a comparison: both are named."""
    for case in ("changed", "earlier"):
        node = tmp_path / case / "compactor"
        shutil.copytree(Path(compactor.__file__).parent, node, ignore=shutil.ignore_patterns("__pycache__"))
        (node / "spark" / "code_identity.py").unlink() if case == "earlier" else (node / "more.py").touch()
        conf = {
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executorEnv.PYTHONPATH": str(node.parent),
        }
        submitter = kind(settings(spark={"mode": mode, "master": master, "conf": conf}))
        place = tmp_path / case / ".compactor-1-a"
        place.mkdir()
        job = JobName("testhost-compactor-db.t", "1.a", place=f"file:{place}")
        with pytest.raises(UnreachableError, match="but the daemon is compactor ") as caught:
            submitter.run(job, os.mkdir, [str(tmp_path / "begun")])
        assert ("No module named" if case == "earlier" else "has compactor ") in str(caught.value)
        submitter.end(job)
        submitter.stop()
    assert not (tmp_path / "begun").exists()


@pytest.mark.parametrize(
    ("python", "why"),
    [
        ("/nowhere/python3", r'Cannot run program "/nowhere/python3": error=2, No such file or directory'),
        (str(Path(sys.base_prefix) / "bin" / "python3"), r"lacks something \(No module named '\w+'\)"),
    ],
)
def test_a_session_begins_only_where_executors_can_work(master, python, why):
    """Before an entry is claimed: a missing interpreter, and one without our packages, are the cluster's fault."""
    conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}
    submitter = SparkSubmitter(settings(spark={"master": master, "conf": conf, "python": python}))

    def started():
        while not submitter.warm_up(10):
            pass

    with pytest.raises(UnreachableError, match=f"Spark can't be started with master {master}: .*can't work: .*{why}"):
        started()
    submitter.stop()


def test_the_sites_web_interface_shows_each_compaction_by_name(tmp_path, master, monkeypatch):
    """
    Two at once in one session: application, job groups, descriptions and stages are called as documented; the event log
    is written where the site's spark-defaults.conf says. The properties that plans go by are those that Spark has merged.
    """
    port, log = free_port(), tmp_path / "events"
    log.mkdir()
    (tmp_path / "conf").mkdir()
    said = f"spark.ui.port {port}\nspark.eventLog.enabled=true\nspark.eventLog.dir : {log.as_uri()}\n"
    (tmp_path / "conf" / "spark-defaults.conf").write_text(said, encoding="utf-8")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}
    section = settings(spark={"master": master, "conf": conf})
    submitter = SparkSubmitter(section)

    def compaction(key, step):
        job = JobName(f"testhost-compactor-db.t{key}.p=%3Cb%3E", f"{key}.a").at(step)
        submitter.run(job, abs, [-1])
        submitter.run(job.at("verify"), abs, [-1])

    threads = [Thread(target=compaction, args=named) for named in ((41, "recode"), (42, "assemble"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        api = f"http://127.0.0.1:{port}/api/v1/applications"
        (application,) = asked(api)
        assert application["name"] == "testhost-compactor"
        jobs = [one for one in asked(f"{api}/{application['id']}/jobs") if "#4" in one["jobGroup"]]
        names = {key: f"testhost-compactor-db.t{key}.p=%3Cb%3E" for key in (41, 42)}
        assert sorted((one["jobGroup"], one["description"], one["name"]) for one in jobs) == [
            (f"{names[41]}#41.a", names[41], "recode 41"),
            (f"{names[41]}#41.a", names[41], "verify 41"),
            (f"{names[42]}#42.a", names[42], "assemble 42"),
            (f"{names[42]}#42.a", names[42], "verify 42"),
        ]
        stages = [one for one in asked(f"{api}/{application['id']}/stages") if one["description"] in names.values()]
        assert sorted(one["name"] for one in stages) == ["assemble 42", "recode 41", "verify 41", "verify 42"]
        assert list(log.iterdir())
        merged = dict(asked(f"{api}/{application['id']}/environment")["sparkProperties"])
        assert merged_conf(section.spark).items() <= merged.items()
    finally:
        submitter.stop()


def asked(address):
    """What Spark's REST interface answers."""
    with urllib.request.urlopen(address, timeout=60) as answer:
        return json.load(answer)


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
