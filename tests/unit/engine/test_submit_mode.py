"""
An application for each compaction: started, talked to, ended, in every way that it can go wrong. Spark's place is taken
by a process that runs our driver.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.engine import full_acid
from compactor.errors import CancelledError, CompactorError, RefusedError, UnreachableError
from compactor.reasons import Reason
from compactor.spark.application import submitter as submit_mode
from compactor.spark.application.mailbox import Assignment, Mailbox
from compactor.spark.application.orphans import end_processes, started_for
from compactor.spark.application.submitter import ApplicationSubmitter
from compactor.spark.code_identity import code
from compactor.spark.java import telling_line
from compactor.spark.submitter import BrokenDownError, JobName
from compactor.storage.registry import StorageOptions
from tests import fake_spark
from tests.compacting import compact, settings
from tests.spark import jobs


@pytest.fixture
def submitter(tmp_path, monkeypatch):
    """Submits to what `fake_spark` installs; nothing of it runs afterwards."""
    monkeypatch.setenv("SPARK_HOME", str(fake_spark.install(tmp_path / "spark")))
    found = ApplicationSubmitter(settings(spark={"mode": "submit", "master": "local[1]"}))
    yield found
    found.stop()


@pytest.fixture
def job(tmp_path):
    """Of a compaction that has its staging directory."""
    place = tmp_path / "t" / ".compactor-7-a"
    place.mkdir(parents=True)
    return JobName("h-compactor-db.t", f"7.{os.getpid()}", place=str(place))


def started(submitter, job):
    """The process of its application."""
    return submitter._running[job.key].process


@pytest.mark.parametrize(("at_once", "jobs"), [(1 << 40, 1), (0, 2)], ids=["one job", "two jobs"])
def test_a_whole_compaction_is_one_application(warehouse, submitter, monkeypatch, at_once, jobs):
    """One job or more, rows as before; then it ends by itself, and its folder is gone."""
    monkeypatch.setattr(full_acid, "AT_ONCE_BYTES", at_once)
    table = warehouse.create_table("db", "t", [("id", "int"), ("v", "string")])
    for number in range(3):
        with warehouse.begin() as txn:
            txn.insert(table, [(number * 10 + i, "x") for i in range(10)])
    seen = []
    start = submitter._start

    def noted(job):
        seen.append(start(job))
        return seen[-1]

    submitter._start = noted
    attempt, _ = compact(warehouse, table, CompactionKind.MAJOR, submitter=submitter)
    submitter.stop()
    (application,) = seen
    assert application.asked == jobs
    assert application.process.wait(60) == 0
    assert application.id == fake_spark.Context.applicationId
    assert not application.folder.exists()
    assert not [name for name in attempt.names() if name.startswith(".")]


def test_its_id_is_known_while_it_runs(submitter, job):
    """For the queue."""
    assert submitter.application(job) is None
    assert submitter.run(job, jobs.double, [1, 2]) == [2, 4]
    assert submitter.application(job) == fake_spark.Context.applicationId
    submitter.end(job)
    assert submitter.application(job) is None


def test_a_refusal_arrives_as_it_was_raised(submitter, job):
    """Class, reason and sentence."""
    with pytest.raises(RefusedError, match="file 7 is broken") as caught:
        submitter.run(job, jobs.refuse, [7])
    assert caught.value.reason is Reason.CORRUPT_FILE


def in_thread(submitter, job, release, cancelled=lambda: False):
    """A job that waits; the thread, what becomes of it, and when its task runs."""
    outcome = []

    def run():
        try:
            outcome.append(
                submitter.run(job, jobs.wait_for, [(f"{release}-started", str(release))], cancelled=cancelled)
            )
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait = threading.Event()
    while not Path(f"{release}-started").exists():
        assert thread.is_alive(), outcome
        wait.wait(0.02)
    return thread, outcome


def test_a_cancelled_compaction_ends_its_application(submitter, job, tmp_path, monkeypatch):
    """By its word: no signal is needed, not even where its driver began to work unnoticed, between two looks."""
    monkeypatch.setattr(submit_mode, "PATIENCE_SECONDS", 600.0)
    monkeypatch.setattr(submit_mode, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(Mailbox, "look", blind(Mailbox.look, submitter, job))
    cancel = threading.Event()
    thread, outcome = in_thread(submitter, job, tmp_path / "release", cancel.is_set)
    process = started(submitter, job)
    cancel.set()
    thread.join()
    assert isinstance(outcome[0], CancelledError)
    submitter.stop()
    assert process.returncode == 0


def blind(look, submitter, job):
    """As a daemon that has no time to look: nothing of the application is seen while it is followed."""

    def seldom(mailbox):
        seen = look(mailbox)
        return replace(seen, application=None) if seen is not None and job.key in submitter._running else seen

    return seldom


def test_an_application_ends_when_the_staging_directory_is_gone(submitter, job, tmp_path):
    """
    It is the fence, also for a driver whose daemon died; whoever still waits for it is told that the compaction was
    given up.
    """
    thread, outcome = in_thread(submitter, job, tmp_path / "release")
    process = started(submitter, job)
    shutil.rmtree(job.place)
    assert process.wait(60) == 0
    thread.join(60)
    assert isinstance(outcome[0], CancelledError)


def test_an_application_that_nobody_asks_ends(submitter, job):
    """Its daemon is gone, and nobody has given the compaction up yet."""
    submitter._settings = submitter._settings.model_copy(update={"silence_seconds": 0.2})
    submitter.run(job, jobs.double, [1])
    assert started(submitter, job).wait(60) == 0


def test_what_cannot_be_started_is_said_in_the_clusters_words(submitter, job, monkeypatch):
    """The line that tells, not the first and not the last."""
    monkeypatch.setenv("FAKE_SPARK", "refuse")
    with pytest.raises(UnreachableError, match=r"can't be started with master local.*unknown queue: etl"):
        submitter.run(job, jobs.double, [1])


def test_an_application_that_dies_breaks_the_attempt_and_not_the_compaction(submitter, job, monkeypatch):
    """It may be tried again."""
    monkeypatch.setenv("FAKE_SPARK", "crash")
    with pytest.raises(
        BrokenDownError, match=r"application_1700000000000_0001 of h-compactor-db.t ended before its work"
    ):
        submitter.run(job, jobs.double, [1])


def test_who_has_no_login_is_not_waited_for(submitter, job, monkeypatch):
    """
    YARN's client would go on asking without a ticket for a quarter of an hour; one line says what to set, and nothing
    of it stays.
    """
    monkeypatch.setenv("FAKE_SPARK", "no login")
    with pytest.raises(UnreachableError, match=r"wants Kerberos: set spark\.principal and spark\.keytab"):
        submitter.run(job, jobs.double, [1])
    submitter.stop()
    assert not list(started_for({job.key}))


def test_what_takes_too_long_to_start_is_given_up(submitter, job, monkeypatch):
    """A queue that is full for hours; nothing of it stays."""
    monkeypatch.setenv("FAKE_SPARK", "wait")
    submitter._settings = submitter._settings.model_copy(update={"start_seconds": 0.01})
    with pytest.raises(UnreachableError, match=r"hasn't started within 0\.01 s"):
        submitter.run(job, jobs.double, [1])
    submitter.stop()
    assert not list(started_for({job.key}))


def test_spark_missing_is_one_line(submitter, job, monkeypatch):
    """SPARK_HOME that isn't one."""
    monkeypatch.setenv("SPARK_HOME", "/nowhere")
    with pytest.raises(UnreachableError, match="spark-submit can't be started"):
        submitter.run(job, jobs.double, [1])


def test_cancelled_before_it_began_nothing_is_started(submitter, job):
    """The flag is asked first; no tasks are no application either."""
    with pytest.raises(CancelledError):
        submitter.run(job, jobs.double, [1], cancelled=lambda: True)
    assert submitter.run(job, jobs.double, []) == []
    assert not submitter._running


def test_a_dead_daemons_processes_are_ended_by_their_job(submitter, job, tmp_path):
    """Another submitter, as after a restart, knows only the key."""
    thread, outcome = in_thread(submitter, job, tmp_path / "release")
    process = started(submitter, job)
    other = ApplicationSubmitter(settings(spark={"mode": "submit", "master": "local[1]"}))
    other.end_left_over({job.key}, None)
    other.stop()
    assert process.wait(60) == -9
    thread.join(60)
    assert isinstance(outcome[0], BrokenDownError)


def test_other_jobs_processes_are_left_alone():
    """Keys are compared as a whole."""
    environment = os.environ | {"COMPACTOR_SPARK_JOB": "7.abc"}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment) as process:
        assert end_processes({"7.ab"}) == []
        assert process.poll() is None


def test_an_archive_of_another_version_is_refused(tmp_path):
    """Its code counts, not its release alone; one line that says what to do."""
    assignment = Assignment(other := f"{code()}-patched", "n", "1.a", "/h", "00", 1.0, StorageOptions())
    assignment.write(tmp_path / "a.json")
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o600
    with pytest.raises(
        CompactorError,
        match=f"has {re.escape(code())}, but the daemon is {re.escape(other)}: .*build the archive again",
    ):
        Assignment.read(tmp_path / "a.json")


def test_an_assignment_is_what_was_written(tmp_path):
    """Stores as they are configured."""
    assignment = Assignment(
        code(),
        "n",
        "1.a",
        "/h",
        "00ff",
        1.5,
        StorageOptions.of(settings(hdfs={"user": "ann"}, s3={"region": "eu"})).beneath("/w"),
    )
    assignment.write(tmp_path / "a.json")
    assert Assignment.read(tmp_path / "a.json") == assignment


def test_who_we_are_on_hdfs_is_not_who_somebody_else_is():
    """
    An application that runs as another user is told that one, not the daemon's `hdfs.user`; where none is set none is
    sent.
    """
    options = StorageOptions.of(settings(hdfs={"user": "compactor"}))
    assert options.as_user("ann").hdfs.user == "ann"
    assert StorageOptions.of(settings()).as_user("ann").hdfs.user is None


ENDED = "INFO Client: Application report for application_1_0001 (state: {})\nINFO Client: "
FAILED = f"{ENDED.format('FAILED')}\n\t diagnostics: Application a failed 1 times due to AM Container exited with exitCode: 137\n"
WAITING = "INFO Client: Application report for application_1_0001 (state: ACCEPTED)\n\t diagnostics: AM container is launched, waiting for AM container to Register with RM\n"


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", None),
        ("a\n\nb\n", "b"),
        ("INFO x\nERROR first\nERROR second\n", "ERROR first"),
        (
            "12:00 INFO Client: \n\t diagnostics: Application killed by user.\n\t queue: q\n",
            "diagnostics: Application killed by user.",
        ),
        (
            f"{WAITING}{ENDED.format('KILLED')}\n\t diagnostics: Application killed by user.\n\t queue: q\n",
            "diagnostics: Application killed by user.",
        ),
        (
            f"{WAITING}{FAILED}INFO ApplicationMaster: Final app status: FAILED, exitCode: 13, (reason: User class threw exception: no python\n\tat x\n)",
            "User class threw exception: no python",
        ),
        (
            f"{WAITING}{FAILED}ModuleNotFoundError: No module named 'compactor'\nFinal app status: FAILED, (reason: User application exited with status 1)\n",
            "ModuleNotFoundError: No module named 'compactor'",
        ),
        (
            f"{WAITING}{FAILED}",
            "diagnostics: Application a failed 1 times due to AM Container exited with exitCode: 137",
        ),
    ],
)
def test_the_line_that_tells(log, line):
    """
    The first that looks like a reason, else the last; of a driver on YARN what it said itself, not how its application
    stood before.
    """
    assert telling_line(log) == line
