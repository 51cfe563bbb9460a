"""
Applications on a real YARN: named and queued as asked, the same rows afterwards, ended when nobody wants them any more.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from compactor.cli.root import cli
from compactor.errors import CancelledError
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import QueueState
from compactor.spark.application.submitter import ApplicationSubmitter
from compactor.spark.archive import build as build_archive
from compactor.spark.session.session import SparkSubmitter
from compactor.spark.submitter import BrokenDownError, JobName
from compactor.storage.registry import storage_for
from tests.cluster import yarn as yarn_module
from tests.cluster.hadoop.servers import UnavailableError
from tests.cluster.test_hdfs_compaction import build, compact_there
from tests.compacting import settings
from tests.crash.scene import SETTINGS, Scene, ended, url_of
from tests.metastore.databases import postgres  # noqa: F401 - a fixture
from tests.needs import missing

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
PATIENCE = 300.0
OVER = {"FINISHED", "KILLED", "FAILED"}
IDLE = {"spark.dynamicAllocation.schedulerBacklogTimeout": "600s"}
"""Executors are asked for after so long: an application that is there, and waits."""


@pytest.fixture(scope="module")
def yarn_server(hdfs_server, tmp_path_factory):
    """YARN over the HDFS server."""
    try:
        with yarn_module.running(tmp_path_factory.mktemp("yarn"), hdfs_server) as server:
            yield server
    except UnavailableError as error:
        missing(str(error))


@pytest.fixture
def yarn(yarn_server, hdfs, monkeypatch):
    """And this process configured for it."""
    for name, value in yarn_server.environment().items():
        monkeypatch.setenv(name, value)
    return yarn_server


def spark(mode="submit", deploy_mode="client", **conf):
    return {
        "mode": mode,
        "master": "yarn",
        "deploy_mode": deploy_mode,
        "queue": "default",
        "conf": yarn_module.SMALL | conf,
    }


def until(done, what, said=lambda: ""):
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, f"not {what}: {said()}"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """What nodes need of us."""
    path = tmp_path_factory.mktemp("archive") / "compactor-env.tar.gz"
    build_archive(path)
    return str(path)


def test_a_compaction_by_what_an_archive_holds(warehouse, hdfs_directory, yarn, archive):
    """Driver and executors are in the cluster, with a Python that knows nothing of us but what was shipped."""
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    nodes = {"spark.executorEnv.COMPACTOR_PYTHON": str(base), "spark.yarn.appMasterEnv.COMPACTOR_PYTHON": str(base)}
    section = settings(
        spark=spark(deploy_mode="cluster", **nodes) | {"archive": archive}, hdfs={"conf_dir": str(yarn.conf)}
    )
    submitter = ApplicationSubmitter(section)
    compact_there(warehouse, build(warehouse), hdfs_directory, submitter=submitter, settings=section, entry_id=42)
    submitter.stop()


@pytest.mark.parametrize("deploy_mode", ["client", "cluster"])
def test_a_compaction_is_an_application_of_its_own(warehouse, hdfs_directory, yarn, deploy_mode):
    """
    Its name is the mandated one, its queue and memory are as the table asks, its tag is the attempt's; rows are as
    before, and it has finished.
    """
    section = settings(spark=spark(deploy_mode=deploy_mode), hdfs={"conf_dir": str(yarn.conf)})
    submitter = ApplicationSubmitter(section)
    table = build(warehouse)
    table.parameters["compactor.hive.compactor.job.queue"] = "compaction"
    attempt, _ = compact_there(
        warehouse, table, hdfs_directory, submitter=submitter, settings=section, entry_id=41, attempt=f"{deploy_mode}1"
    )
    submitter.stop()
    (found,) = yarn.applications(f"compactor-41.{deploy_mode}1")
    assert (found.name, found.queue.removeprefix("root."), found.state, found.final) == (
        "testhost-compactor-db.t",
        "compaction",
        "FINISHED",
        "SUCCEEDED",
    )
    assert attempt.compaction.job.resources.queue == "compaction"
    assert not [name for name in storage_for(hdfs_directory).directories(hdfs_directory) if name.startswith(".")]


def test_a_session_comes_back_after_its_application_was_killed(yarn):
    """What ran in it may be tried again, and runs in a new application; executors go when they have nothing to do."""
    submitter = SparkSubmitter(
        settings(spark=spark("session", **{"spark.dynamicAllocation.executorIdleTimeout": "1s"}))
    )
    try:
        assert submitter.run(JobName("n", "1.a"), abs, [-1, -2]) == [1, 2]
        first = submitter.application(JobName("n", "1.a"))
        until(lambda: [one for one in yarn.applications() if (one.id, one.containers) == (first, "1")], "no executors")
        failure = []

        def run():
            try:
                submitter.run(JobName("n", "2.a"), time.sleep, [PATIENCE])
            except BrokenDownError as error:
                failure.append(str(error))

        thread = threading.Thread(target=run)
        thread.start()
        yarn.kill(first)
        thread.join(PATIENCE)
        assert failure
        assert submitter.run(JobName("n", "3.a"), abs, [-3]) == [3]
        assert submitter.application(JobName("n", "3.a")) != first
    finally:
        submitter.stop()


def test_a_session_for_which_there_is_no_room_can_be_cancelled(yarn, tmp_path):
    """
    YARN takes its application and keeps it waiting. Who waits is cancelled all the same; the application, which nobody
    waits for any more, is ended.
    """
    half = {"spark.yarn.am.memory": "3500m"}
    holder = ApplicationSubmitter(settings(spark=spark(**IDLE, **half)))
    submitter = SparkSubmitter(settings(spark=spark("session", **half) | {"queue": "compaction"}))
    release, cancel = threading.Event(), threading.Event()
    threads = [
        threading.Thread(target=cancelled, args=(holder, JobName("holder", "91.a", place=str(tmp_path)), release)),
        threading.Thread(target=cancelled, args=(submitter, JobName("waiting", "92.a"), cancel)),
    ]
    try:
        threads[0].start()
        until(
            lambda: [found for found in yarn.applications("compactor-91.a") if found.state == "RUNNING"], "room taken"
        )
        threads[1].start()
        until(lambda: submitter._sessions, "started")
        start = submitter._sessions[-1].driver
        until(
            lambda: [found for found in yarn.applications(f"compactor-{start.key}") if found.state == "ACCEPTED"],
            "waiting",
        )
        cancel.set()
        threads[1].join(PATIENCE)
        assert not threads[1].is_alive()
        assert start.wait_until_over(PATIENCE)
        (found,) = yarn.applications(f"compactor-{start.key}")
        assert (found.name, found.queue.removeprefix("root."), found.state) == (
            "testhost-compactor",
            "compaction",
            "KILLED",
        )
    finally:
        release.set()
        cancel.set()
        submitter.stop()
        threads[0].join(PATIENCE)
        holder.stop()


def cancelled(submitter, job, event):
    """A job that ends by being cancelled, as the event says."""
    with pytest.raises(CancelledError):
        submitter.run(job, abs, [-1], cancelled=event.is_set)


class OnYarn(Scene):
    """
    The daemon with an application for each compaction, whose driver is in the cluster; the warehouse is on this
    machine.
    """

    def __init__(self, url, folder, **conf):
        super().__init__(url, folder)
        self.write(**conf)

    def write(self, **conf):
        """Settings for the next daemon."""
        own = {
            "database": {"url": self.url},
            "spark": spark(deploy_mode="cluster", **conf),
            "worker": SETTINGS["worker"] | {"threads": 1},
        }
        self.config.write_text(
            yaml.safe_dump(SETTINGS | {"txn": {"timeout_seconds": 30}, "drain": {"timeout_seconds": 1}} | own),
            encoding="utf-8",
        )

    def application(self):
        """The id that is stored with the entry that is worked on."""
        for entry in Queue(self.metastore).entries(QueueState.WORKING):
            if (entry.job_id or "").startswith("application_"):
                return entry.job_id
        return None


@pytest.fixture
def scene(tmp_path, request, yarn):
    """On a metastore that several processes may use. Executors never come: what was submitted is there, and waits."""
    made = OnYarn(url_of("postgres-4", request, tmp_path), tmp_path, **IDLE)
    yield made
    made.end()
    for found in yarn.applications("compactor"):
        if found.state not in OVER:
            yarn.kill(found.id)


def at_work(scene, process):
    """The application's id, once its driver is there."""
    deadline = time.monotonic() + PATIENCE
    while scene.application() is None:
        assert process.exitcode is None, scene.said()[-4000:]
        assert time.monotonic() < deadline, scene.said()[-4000:]
        time.sleep(0.1)
    return scene.application()


@pytest.mark.postgres
def test_a_killed_daemons_application_is_ended_and_the_next_attempt_succeeds(scene, yarn):
    """
    The fence first, then the application, by what was stored and by its tag; no compaction counts as failed, rows are
    as ever.
    """
    killed = scene.start(spark=True)
    left = at_work(scene, killed)
    os.kill(killed.pid, signal.SIGKILL)
    assert ended(killed) == -signal.SIGKILL
    scene.write()
    again = scene.start(spark=True)
    state = {}

    def is_over():
        state.update({found.id: found.state for found in yarn.applications("compactor")})
        return state.get(left) in OVER

    until(is_over, "ended", lambda: f"{state}\n{scene.said()[-3000:]}")
    until(scene.settled, "settled", lambda: scene.said()[-6000:])
    assert scene.drain(again) == 0
    scene.assert_rows()
    assert len(scene.names()) == 1
    (done,) = Queue(scene.metastore).history(QueueState.SUCCEEDED)
    assert done.job_id not in {None, left}


@pytest.mark.postgres
def test_cancel_ends_the_application(scene, yarn):
    """
    `compactor cancel --wait` returns when the worker has undone what it did; the entry ended aborted, and the
    application is over.
    """
    scene.write(**IDLE)
    process = scene.start(spark=True)
    running = at_work(scene, process)
    (entry,) = Queue(scene.metastore).entries(QueueState.WORKING)
    done = CliRunner().invoke(
        cli, ["--config", str(scene.config), "cancel", str(entry.id), "--wait", "--timeout", "120"]
    )
    assert done.exit_code == 0, done.stderr
    assert Queue(scene.metastore).entry(entry.id).state is QueueState.ABORTED
    state = {}

    def is_over():
        state.update({found.id: found.state for found in yarn.applications("compactor")})
        return state.get(running) in OVER

    until(is_over, "ended", lambda: str(state))
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGTERM)
    assert ended(process) == 0
    scene.assert_rows()
