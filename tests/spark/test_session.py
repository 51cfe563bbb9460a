"""The shared session: names, groups, pools, progress, cancellation, errors, restart."""

import os
import signal
import subprocess
import sys
import threading
import time
import types
from functools import partial
from pathlib import Path

import pyspark
import pytest

from compactor.errors import CancelledError, RefusedError, RetryableError, UnreachableError
from compactor.reasons import Reason
from compactor.spark.java import require_java
from compactor.spark.session import process, session
from compactor.spark.session.session import SparkSubmitter
from compactor.spark.submitter import BrokenDownError, JobName, SessionEndedError, job_name
from tests.compacting import settings
from tests.spark import jobs
from tests.spark.processes import ROOT, gone, jvm

pytestmark = pytest.mark.spark


def name(key, pool=None):
    return JobName(job_name("h1", "db", "t", "dt=2024-01-01"), key, pool)


def test_what_java_said_when_it_cannot_be_started():
    """Unreachable, in Java's words; the driver that told them has ended, and so has its JVM."""
    other = SparkSubmitter(settings(spark={"master": "local[1]", "conf": {"spark.driver.maxResultSize": "a lot"}}))
    with pytest.raises(UnreachableError, match=r"Spark can't be started with master local\[1\]: .*a lot"):
        other.run(name("0.a"), jobs.double, [1])
    driver = other._sessions[-1].driver
    assert driver.wait_until_over(60)
    gone(driver.pid)


def test_a_session_is_classic_and_in_client_mode_whatever_the_site_prefers(tmp_path, monkeypatch):
    """Defaults for applications in the cluster or for Spark Connect, and variables left over from a notebook."""
    (tmp_path / "spark-defaults.conf").write_text("spark.submit.deployMode cluster\nspark.api.mode connect\n")
    for variable, value in {
        "SPARK_CONF_DIR": str(tmp_path),
        "PYSPARK_SUBMIT_ARGS": "--master yarn --deploy-mode client",
        "SPARK_REMOTE": "sc://nowhere",
        "SPARK_CONNECT_MODE_ENABLED": "1",
        "PYSPARK_PIN_THREAD": "false",
    }.items():
        monkeypatch.setenv(variable, value)
    other = SparkSubmitter(settings(spark={"master": "local[1]"}))
    group = "h1-compactor-db.t.dt=2024-01-01"
    try:
        assert other.run(JobName(group, "0.c"), jobs.pool_and_group, [0]) == [("compactor", f"{group}#0.c", group)]
    finally:
        other.stop()


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (None, r'Cannot run program "\S+/python3": error=2, No such file or directory'),
        ("echo 'python3.11: not found' >&2; exit 127", "its Python didn't start: python3.11: not found"),
    ],
)
def test_a_session_whose_executors_cannot_work_does_not_start(tmp_path, program, why):
    """So no entry is claimed for it: the cause is Spark's, and told before; nothing of the session is left."""
    if program is not None:
        (tmp_path / "python3").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "python3").chmod(0o755)
    other = SparkSubmitter(settings(spark={"master": "local[1]", "python": str(tmp_path / "python3")}))
    with pytest.raises(UnreachableError, match=rf"can't be started with master local\[1\]: .*can't work: .*{why}"):
        other.warm_up(60.0)
    assert other.cold
    driver = other._sessions[-1].driver
    assert driver.wait_until_over(60)
    gone(driver.pid)


def test_results_come_in_the_order_of_the_tasks(submitter):
    """Whatever finishes first."""
    assert submitter.run(name("1.a"), jobs.double, list(range(20))) == [number * 2 for number in range(20)]


def test_what_the_tasks_of_a_job_share_goes_with_the_job(tmp_path):
    """PySpark left the file of a large function on the driver's disk: the sessions of a busy daemon live for days."""
    other = SparkSubmitter(settings(spark={"master": "local[1]", "conf": {"spark.local.dir": str(tmp_path)}}))
    try:
        for key in ("5.a", "5.b"):
            shared = os.urandom(2 << 20)
            assert other.run(name(key), partial(jobs.bytes_beside, shared), [0, 1]) == [2 << 20] * 2
        (left,) = tmp_path.rglob("pyspark-*")
        assert list(left.iterdir()) == []
    finally:
        other.stop()


def test_no_tasks_is_no_job(submitter):
    """Nothing is asked of Spark."""
    assert submitter.run(name("1.b"), jobs.double, []) == []


def test_jobs_are_visible_under_the_mandated_name(submitter):
    """
    The group is unique, the description is the name alone, the pool is the compaction's.
    """
    (seen,) = submitter.run(name("2.a", "etl"), jobs.pool_and_group, [0])
    assert seen == ("etl", "h1-compactor-db.t.dt=2024-01-01#2.a", "h1-compactor-db.t.dt=2024-01-01")


def test_each_of_two_jobs_at_once_has_its_own_name_step_and_pool(submitter, tmp_path):
    """Names belong to a job's thread, and end with it: the next job is called by its own."""
    seen = {}

    def run(key, step, pool):
        job = JobName(job_name("h1", "db", key, None), key, pool).at(step)
        seen[key] = submitter.run(job, jobs.seen_together, [str(tmp_path / key)])

    threads = [
        threading.Thread(target=run, args=named) for named in (("31.a", "recode", "etl"), ("32.b", "verify", None))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    group = "h1-compactor-db."
    assert seen["31.a"] == [("etl", f"{group}31.a#31.a", f"{group}31.a", "recode 31")]
    assert seen["32.b"] == [("compactor", f"{group}32.b#32.b", f"{group}32.b", "verify 32")]
    run("33.c", "assemble", None)
    assert seen["33.c"] == [("compactor", f"{group}33.c#33.c", f"{group}33.c", "assemble 33")]


def test_an_unpartitioned_tables_name_has_no_trailing_dot():
    """The name ends with the table."""
    assert job_name("h1", "db", "t", None) == "h1-compactor-db.t"


def test_progress_ends_at_one(submitter):
    """Shares of finished tasks, never falling."""
    seen = []
    submitter.run(name("3.a"), jobs.double, list(range(8)), progress=seen.append)
    assert seen[-1] == 1.0
    assert seen == sorted(seen)


def test_a_refusal_in_a_task_arrives_as_it_was_raised(submitter):
    """Class, reason and sentence survive the way; Spark doesn't repeat the task."""
    with pytest.raises(RefusedError, match="file 7 is broken") as caught:
        submitter.run(name("4.a"), jobs.refuse, [7])
    assert caught.value.reason is Reason.CORRUPT_FILE


def test_the_first_refusal_ends_the_job(submitter, tmp_path):
    """Tasks that run aren't waited for."""
    with pytest.raises(RefusedError, match="file 7 is broken"):
        submitter.run(name("4.b"), jobs.refuse_or_linger, [str(tmp_path / "late"), None])
    assert not (tmp_path / "late").exists()


def test_a_task_that_fails_is_tried_again(submitter, tmp_path):
    """A lost executor or a bug that goes away costs an attempt, not the compaction."""
    assert submitter.run(name("5.a"), jobs.crash_once, [str(tmp_path / "marker")]) == [1]


def test_a_task_that_always_fails_is_one_line(submitter):
    """The task's own error, not Java's stack trace; its progress doesn't say that it was done."""
    seen = []
    with pytest.raises(RetryableError) as caught:
        submitter.run(name("6.a"), jobs.crash, [0], progress=seen.append)
    assert 1.0 not in seen
    assert str(caught.value) == "Spark job h1-compactor-db.t.dt=2024-01-01 failed: ValueError: never works"


def test_concurrent_compactions_share_the_session_and_are_cancelled_alone(submitter, tmp_path):
    """Two jobs of the same name run at once; cancelling one leaves its namesake alone."""
    cancel, outcomes = threading.Event(), {}

    def run(key, cancelled):
        paths = (str(tmp_path / f"{key}-started"), str(tmp_path / "release"))
        try:
            outcomes[key] = submitter.run(name(key), jobs.wait_for, [paths], cancelled=cancelled)
        except CancelledError as error:
            outcomes[key] = error

    threads = [
        threading.Thread(target=run, args=("7.a", cancel.is_set)),
        threading.Thread(target=run, args=("7.b", lambda: False)),
    ]
    for thread in threads:
        thread.start()
    wait = threading.Event()
    while not all((tmp_path / f"{key}-started").exists() for key in ("7.a", "7.b")):
        wait.wait(0.05)
    cancel.set()
    threads[0].join(60)
    assert isinstance(outcomes["7.a"], CancelledError)
    assert "7.b" not in outcomes
    (tmp_path / "release").touch()
    threads[1].join(60)
    assert isinstance(outcomes["7.b"], list)


def test_cancelled_before_it_began(submitter, tmp_path):
    """The flag is asked before each job."""
    with pytest.raises(CancelledError):
        submitter.run(name("8.a"), jobs.crash_once, [str(tmp_path / "never")], cancelled=lambda: True)
    assert not (tmp_path / "never").exists()


def test_a_dead_jvm_is_replaced(submitter, tmp_path, capfd):
    """The compaction that loses it gets an error to retry on; the next job starts another one. No traceback is printed."""
    failure = []

    def run():
        try:
            submitter.run(name("9.a"), jobs.wait_for, [(str(tmp_path / "started"), str(tmp_path / "release"))])
        except RetryableError as error:
            failure.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    wait = threading.Event()
    while not (tmp_path / "started").exists():
        wait.wait(0.05)
    os.kill(jvm(submitter), signal.SIGKILL)
    thread.join(60)
    (tmp_path / "release").touch()
    assert failure == [
        f"Spark's session ended while {name('9.a').name} ran, and nothing else in it; the next job starts a new one"
    ]
    assert submitter.run(name("9.b"), jobs.double, [21]) == [42]
    assert "Traceback" not in capfd.readouterr().err


def test_whose_session_ends_with_others_in_it_is_told(submitter, tmp_path):
    """Each of them by an error of its own kind: none is known to be the reason."""
    failures = []

    def run(key):
        try:
            submitter.run(name(key), jobs.wait_for, [(str(tmp_path / f"{key}-started"), str(tmp_path / "release"))])
        except BrokenDownError as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(key,)) for key in ("12.a", "12.b")]
    for thread in threads:
        thread.start()
    wait = threading.Event()
    while not all((tmp_path / f"{key}-started").exists() for key in ("12.a", "12.b")):
        wait.wait(0.05)
    os.kill(jvm(submitter), signal.SIGKILL)
    for thread in threads:
        thread.join(60)
    (tmp_path / "release").touch()
    assert [type(error) for error in failures] == [SessionEndedError] * 2
    assert all("with 1 more in it" in str(error) for error in failures)


def aged(submitter):
    """Let the newest session be older than `spark.session_max_hours`."""
    submitter._sessions[-1].driver._came -= 1000 * 3600


def test_an_old_session_is_followed_by_another(submitter, tmp_path):
    """
    What has begun in it goes on there, also with further jobs; what hasn't runs in the next one. The old one ends with
    its last compaction.
    """
    for shared in submitter._sessions:  # compactions of other tests haven't ended in it
        shared.known.clear()
    assert submitter.run(name("13.a"), jobs.double, [1]) == [2]
    first = submitter.application(name("13.a"))
    release = tmp_path / "release"
    last = threading.Thread(
        target=submitter.run, args=(name("13.b"), jobs.wait_for, [(str(tmp_path / "started"), str(release))])
    )
    last.start()
    wait = threading.Event()
    while not (tmp_path / "started").exists():
        wait.wait(0.05)
    old = submitter._sessions[-1].driver
    aged(submitter)
    assert submitter.run(name("13.c"), jobs.double, [3]) == [6]
    assert submitter.application(name("13.c")) not in {None, first}
    assert submitter.run(name("13.a"), jobs.double, [2]) == [4]
    assert submitter.application(name("13.a")) == first
    for key in ("13.a", "13.b"):
        submitter.end(name(key))
    assert old.alive
    release.touch()
    last.join(60)
    assert old.wait_until_over(60)
    gone(old.pid)
    assert submitter.run(name("13.d"), jobs.double, [4]) == [8]


def test_a_session_may_be_as_old_as_it_likes(submitter, monkeypatch):
    """`spark.session_max_hours: 0`."""
    monkeypatch.setattr(submitter, "_settings", settings(spark={"session_max_hours": 0, "master": "local[2,4]"}).spark)
    submitter.run(name("14.a"), jobs.double, [1])
    driver = submitter._sessions[-1].driver
    aged(submitter)
    submitter.run(name("14.b"), jobs.double, [1])
    assert submitter._sessions[-1].driver is driver


def test_java_missing_is_one_line(monkeypatch):
    """What is missing, and what to install."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UnreachableError, match="apt-get install openjdk-17"):
        require_java()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(UnreachableError, match="JAVA_HOME is /nowhere"):
        require_java()


def test_a_session_nobody_uses_is_stopped(submitter, monkeypatch, capfd):
    """
    Idle for `spark.idle_seconds`: the JVM goes, and what it and its Python workers print then goes through the log. The
    next session may be there before its first job: it stays for a worker that claims and plans, however short
    `spark.idle_seconds` is, and runs its job.
    """
    monkeypatch.setattr(submitter, "_settings", settings(spark={"idle_seconds": 0.1, "master": "local[2,4]"}).spark)
    submitter.run(name("10.a"), jobs.double, [1])
    driver = submitter._sessions[-1].driver
    assert driver.wait_until_over(60)
    gone(driver.pid)
    assert submitter.cold
    monkeypatch.setattr(session, "CLAIM_SECONDS", 15.0)
    while not submitter.warm_up(1):
        pass
    driver = submitter._sessions[-1].driver
    assert not submitter.cold
    assert not driver.wait_until_over(1)
    monkeypatch.undo()
    assert submitter.run(name("10.b"), jobs.double, [1]) == [2]
    assert submitter._sessions[-1].driver is driver
    printed = capfd.readouterr()
    lines = (printed.out + printed.err).splitlines()
    assert [line for line in lines if "spark_session." not in line and "spark_process.printed" not in line] == []


def test_a_driver_that_dies_while_it_starts(monkeypatch, tmp_path):
    """
    Nothing of it is left, and the next job has another: with an operator's Java options after ours, of which the last
    one counts (ours lets the JVM compile quickly instead of well), and in a directory whose name is too long for a
    socket, for which Linux takes 107 bytes. When that one is stopped, its JVM removes what it had put into the
    temporary directory: it isn't killed before.
    """
    folder = tmp_path / ("x" * 70)
    folder.mkdir()
    for variable in ("TMPDIR", "JAVA_TOOL_OPTIONS"):
        monkeypatch.setenv(variable, {"TMPDIR": str(folder)}.get(variable, f"-Djava.io.tmpdir={folder}"))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    wanted = "-XX:TieredStopAtLevel=3 -Dcompactor.test=here"
    other = SparkSubmitter(settings(spark={"master": "local[1]", "conf": {"spark.driver.extraJavaOptions": wanted}}))
    failures = []

    def run():
        try:
            other.run(name("16.a"), jobs.double, [1])
        except UnreachableError as error:
            failures.append(str(error))

    compaction = threading.Thread(target=run)
    compaction.start()
    while not other._sessions:
        time.sleep(0.01)
    driver = other._sessions[-1].driver
    os.kill(driver.pid, signal.SIGKILL)
    compaction.join(60)
    assert driver.wait_until_over(60)
    assert failures == ["Spark can't be started with master local[1]: its driver ended with code -9"]
    assert not list(folder.glob("compactor-spark-*"))
    try:
        assert other.run(name("16.b"), jobs.double, [1]) == [2]
        said = Path(f"/proc/{jvm(other)}/cmdline").read_text(encoding="utf-8").split("\0")
        assert list(folder.iterdir())
    finally:
        other.stop()
    assert [option for option in said if option.startswith("-XX:TieredStopAtLevel")] == [
        "-XX:TieredStopAtLevel=1",
        "-XX:TieredStopAtLevel=3",
    ]
    assert "-Dcompactor.test=here" in said
    assert [path.name for path in folder.iterdir() if not path.name.startswith("hsperfdata")] == []


def test_a_jvm_that_does_not_answer_is_ended(submitter, monkeypatch):
    """Nor does it end by itself, as when it has no memory left: it is killed, and the next job has another."""
    monkeypatch.setattr(process, "STOP_SECONDS", 1.0)
    submitter.run(name("15.a"), jobs.double, [1])
    driver = submitter._sessions[-1].driver
    os.kill(jvm(submitter), signal.SIGSTOP)
    submitter.stop()
    gone(driver.pid)
    assert submitter.run(name("15.b"), jobs.double, [1]) == [2]


def test_a_jvm_that_falls_silent_is_not_waited_for(submitter, monkeypatch, tmp_path):
    """
    Calls into a JVM know no limit: a compaction in one that answers nobody could be neither finished nor cancelled. It
    is killed, and the compaction tried again. So is a driver that stops reading and answering, also in the middle of a
    message: the task list is longer than what the connection holds.
    """
    monkeypatch.setattr(process, "SILENT_SECONDS", 3.0)  # a job's progress is told more often
    monkeypatch.setattr(process, "GRACE_SECONDS", 1.0)
    failures, told = [], []  # once something was told, the next is waited for no longer than that

    def run():
        task = (str(tmp_path / "started"), str(tmp_path / "release"))
        try:
            submitter.run(name("17.a"), jobs.wait_for, [task], progress=told.append)
        except BrokenDownError as error:
            failures.append(error)

    compaction = threading.Thread(target=run, daemon=True)
    compaction.start()
    while not (told and (tmp_path / "started").exists()):
        assert compaction.is_alive()
        time.sleep(0.05)
    os.kill(jvm(submitter), signal.SIGSTOP)
    compaction.join(60)
    assert not compaction.is_alive()
    (tmp_path / "release").touch()
    assert len(failures) == 1
    stopped = []

    def stop():
        if not stopped:
            stopped.append(submitter._sessions[-1].driver.pid)
            os.kill(stopped[0], signal.SIGSTOP)
        return False

    assert submitter.run(name("19.a"), jobs.double, [1]) == [2]
    with pytest.raises(BrokenDownError):
        submitter.run(name("19.b"), jobs.double, ["x" * 4_000_000], cancelled=stop)
    monkeypatch.undo()
    assert submitter.run(name("19.c"), jobs.double, [1]) == [2]


def test_a_function_that_is_nowhere_fails_its_job(submitter):
    """The driver can't import it, and answers no job any more: the session ends, and the next job has another."""
    nowhere = types.ModuleType("nowhere")
    sys.modules["nowhere"] = nowhere
    exec("def lost(task): ...", vars(nowhere))
    try:
        with pytest.raises(BrokenDownError):
            submitter.run(name("18.a"), nowhere.lost, [1])
    finally:
        del sys.modules["nowhere"]
    assert submitter.run(name("18.b"), jobs.double, [1]) == [2]


def test_a_daemon_without_a_temporary_directory(monkeypatch, tmp_path):
    """No compaction's fault: unreachable, and nothing is left of the try."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(UnreachableError, match=r"its driver can't be started: .*No such file"):
        SparkSubmitter(settings(spark={"master": "local[1]"})).run(name("20.a"), jobs.double, [1])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(process, "log_to_stderr", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(UnreachableError, match="No space left"):
        SparkSubmitter(settings(spark={"master": "local[1]"})).run(name("20.b"), jobs.double, [1])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(pyspark.__version__ < "4.1", reason="Spark has these sockets since 4.1")
def test_tasks_are_reached_by_sockets_of_a_directory_that_only_this_user_enters(submitter):
    """Over TCP each task would wait 40 ms for a delayed acknowledgement."""
    (found,) = submitter.run(name("22.a"), jobs.spoken_over, [1])
    ((family, folder),) = found
    assert family == "AF_UNIX"
    assert Path(folder).name.startswith("compactor-spark-")
    assert Path(folder).stat().st_mode & 0o777 == 0o700


def test_nothing_is_left_of_a_daemon_that_was_killed(tmp_path):
    """The driver sees that its connection is closed, and ends with its JVM."""
    code = (
        "import os, sys; from tests.compacting import settings; from tests.spark import jobs, test_session as t;"
        "s = t.SparkSubmitter(settings(spark={'master': 'local[1]'})); s.run(t.name('1.a'), jobs.double, [1]);"
        "print(s._sessions[-1].driver.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    gone(int(done.stdout.splitlines()[-1]))


def test_java_is_looked_for_before_anything_starts(monkeypatch):
    """The submitter says so, not a stack trace of the gateway."""

    def gone():
        raise UnreachableError("Java isn't installed")

    monkeypatch.setattr(process, "require_java", gone)
    with pytest.raises(UnreachableError, match="Java isn't installed"):
        SparkSubmitter(settings()).run(name("11.a"), jobs.double, [1])
