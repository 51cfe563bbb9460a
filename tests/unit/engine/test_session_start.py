"""
A shared session that doesn't start, as while YARN keeps its application in a full queue: nobody hangs on it. Spark's
place is taken by a process that waits.
"""

import threading
from pathlib import Path

import pytest

from compactor.errors import CancelledError, UnreachableError
from compactor.spark.session import process, session
from compactor.spark.session.session import SparkSubmitter
from compactor.spark.submitter import JobName
from tests import fake_spark
from tests.compacting import settings
from tests.spark import jobs
from tests.spark.processes import gone, group

PATIENCE = 60


def submitter_with(**spark):
    return SparkSubmitter(settings(spark={"master": "local[1]"} | spark))


@pytest.fixture(autouse=True)
def never(tmp_path, monkeypatch):
    """Spark that never comes."""
    monkeypatch.setenv("SPARK_HOME", str(fake_spark.install(tmp_path / "spark")))
    monkeypatch.setenv("FAKE_SPARK", "wait")


@pytest.fixture
def submitter():
    """Nothing of it is left afterwards."""
    found = submitter_with()
    yield found
    found.stop()


class Waiting(threading.Thread):
    """A worker whose job waits for the session."""

    def __init__(self, submitter, key):
        super().__init__()
        self.cancel = threading.Event()
        self.outcome = None
        self._submitter, self._key = submitter, key
        self.start()

    def run(self):
        try:
            self.outcome = self._submitter.run(JobName("n", self._key), jobs.double, [1], cancelled=self.cancel.is_set)
        except Exception as error:
            self.outcome = error

    def ended(self):
        self.join(PATIENCE)
        assert not self.is_alive()
        return self.outcome


def until(done):
    wait = threading.Event()
    for _ in range(PATIENCE * 50):
        if found := done():
            return found
        wait.wait(0.02)
    raise AssertionError("not in time")


def begun(submitter, workers=1):
    """The start, when its process is there and so many wait for it."""
    until(lambda: submitter._sessions and not submitter._sessions[-1].driver.settled)
    shared = submitter._sessions[-1]
    until(lambda: len(group(shared.driver.pid)) > 1)
    until(lambda: shared.waiting == workers)
    return shared.driver


def test_who_waits_for_the_start_can_be_cancelled(submitter):
    """
    `compactor cancel`, `pause --cancel`, the daemon's end, `worker.timeout_hours`: all are asked. What was started and
    nobody waits for is ended.
    """
    worker = Waiting(submitter, "1.a")
    start = begun(submitter)
    worker.cancel.set()
    assert isinstance(worker.ended(), CancelledError)
    assert start.wait_until_over(PATIENCE)
    gone(start.pid)


def test_a_second_worker_waits_for_the_same_start(submitter):
    """And goes on waiting when the first one is cancelled; it can be cancelled as well."""
    first = Waiting(submitter, "1.a")
    start = begun(submitter)
    second = Waiting(submitter, "2.a")
    until(lambda: submitter._sessions[-1].waiting == 2)
    first.cancel.set()
    assert isinstance(first.ended(), CancelledError)
    assert submitter._sessions[-1].driver is start
    assert not start.settled
    assert second.is_alive()
    second.cancel.set()
    assert isinstance(second.ended(), CancelledError)
    assert start.settled


def test_what_does_not_start_in_time_is_given_up(request):
    """
    Unreachable, for all that wait: no entry is to blame, and each is given back with a pause. The next one makes a new
    try.
    """
    submitter = submitter_with(start_seconds=0.01)
    request.addfinalizer(submitter.stop)
    outcome = Waiting(submitter, "1.a").ended()
    assert isinstance(outcome, UnreachableError)
    assert str(outcome) == "Spark hasn't started with master local[1] within 0.01 s (spark.start_seconds)"
    assert isinstance(Waiting(submitter, "1.b").ended(), UnreachableError)
    drivers = [shared.driver for shared in submitter._sessions]
    submitter.stop()
    for driver in drivers:
        gone(driver.pid)


def test_a_start_that_is_asked_for_goes_on(submitter, monkeypatch):
    """Before an entry is claimed, a worker asks again and again; when no worker asks any more, the start is ended."""
    monkeypatch.setattr(session, "UNASKED_SECONDS", 1.0)
    assert submitter.cold
    assert not any(submitter.warm_up(0.4) for _ in range(5))
    (start,) = [shared.driver for shared in submitter._sessions]
    assert not start.settled
    assert start.wait_until_over(PATIENCE)
    assert start.why_not == "no compaction waits for it"
    gone(start.pid)


def test_a_start_that_takes_too_long_is_told_before_a_claim(request):
    """Unreachable; the next asks for another start."""
    submitter = submitter_with(start_seconds=0.01)
    request.addfinalizer(submitter.stop)
    with pytest.raises(UnreachableError, match="hasn't started with master"):
        submitter.warm_up(0.1)
    assert submitter.cold


def test_stop_ends_a_start(submitter):
    """
    The daemon's end doesn't wait for a queue that is full; who waits is told, and the process is gone when it returns.
    """
    workers = [Waiting(submitter, f"{number}.a") for number in (1, 2)]
    start = begun(submitter, workers=2)
    submitter.stop()
    gone(start.pid)
    for worker in workers:
        assert isinstance(worker.ended(), UnreachableError)


def test_after_a_start_that_was_given_up_another_one_begins(submitter, monkeypatch):
    """Nothing of the first is in its way."""
    worker = Waiting(submitter, "1.a")
    first = begun(submitter)
    worker.cancel.set()
    worker.ended()
    monkeypatch.setenv("FAKE_SPARK", "refuse")
    outcome = Waiting(submitter, "1.b").ended()
    assert isinstance(outcome, UnreachableError)
    assert str(outcome).startswith("Spark can't be started with master local[1]: ")
    assert first.wait_until_over(PATIENCE)


def test_files_of_a_start_that_was_given_up_go_with_it(submitter, tmp_path, monkeypatch):
    """The directory that Spark was given is removed."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    worker = Waiting(submitter, "1.a")
    start = begun(submitter)
    assert list(Path(tmp_path).glob("compactor-spark-*"))
    worker.cancel.set()
    worker.ended()
    assert start.wait_until_over(PATIENCE)
    assert not list(Path(tmp_path).glob("compactor-spark-*"))


def test_what_was_submitted_to_yarn_is_ended(request, monkeypatch):
    """Killing the driver doesn't end an application that YARN keeps waiting; by its tag YARN does."""
    ended = []
    monkeypatch.setattr(
        process,
        "end_on_yarn",
        lambda keys, application, environment: ended.append((keys, application, environment.get("KRB5KEYTAB"))),
    )
    monkeypatch.setattr(process, "by_keytab", lambda _: {"KRB5KEYTAB": "k"})
    submitter = submitter_with(master="yarn")
    request.addfinalizer(submitter.stop)
    worker = Waiting(submitter, "1.a")
    start = begun(submitter)
    worker.cancel.set()
    assert isinstance(worker.ended(), CancelledError)
    assert start.wait_until_over(PATIENCE)
    assert ended == [([start.key], None, "k")]


def test_a_start_that_a_worker_has_asked_for_outlives_a_cancelled_job(submitter, monkeypatch):
    """The worker comes back to it within seconds; where none does, it is given up."""
    monkeypatch.setattr(session, "UNASKED_SECONDS", 1.0)
    assert submitter.warm_up(0.01) is False
    worker = Waiting(submitter, "1.a")
    start = begun(submitter)
    worker.cancel.set()
    assert isinstance(worker.ended(), CancelledError)
    assert not start.settled
    assert submitter.warm_up(0.01) is False
    assert submitter._sessions[-1].driver is start
    assert start.wait(PATIENCE)
    assert start.why_not is not None


def test_a_start_takes_longer_than_a_session_lives(request):
    """A session's age counts from when it came: the start is the same for all who ask."""
    submitter = submitter_with(session_max_hours=1e-9)
    request.addfinalizer(submitter.stop)
    for _ in range(3):
        assert submitter.warm_up(0.05) is False
    assert len(submitter._sessions) == 1


def test_a_timer_that_was_replaced_ends_nothing(submitter):
    """It may have fired already, and wait for the lock, when a worker asks for the session."""
    assert submitter.warm_up(0.01) is False
    (shared,) = submitter._sessions
    stale = shared.idle
    assert submitter.warm_up(0.01) is False
    submitter._unasked(shared, stale)
    assert not shared.driver.settled
    submitter._unasked(shared, shared.idle)
    assert shared.driver.settled
