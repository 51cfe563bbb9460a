"""What fails a task attempt on a cluster, how that error reaches the daemon, and what several of them say together."""

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from compactor.errors import (
    CancelledError,
    CompactorError,
    CorruptFileError,
    RefusedError,
    RetryableError,
    UnreachableError,
    VerificationError,
)
from compactor.reasons import Reason
from compactor.spark.attempts import AttemptFailedError, FailedAttempt, fails_the_attempt, judged, travelled
from compactor.spark.conf import common_conf, without_contradiction
from compactor.spark.jobs import telling_line
from compactor.spark.results import Counted, JobEnd, run_elsewhere
from compactor.spark.submitter import JobName, Runner
from compactor.storage.io_counters import BytesMoved
from compactor.storage.registry import StorageOptions, storage_for
from compactor.words import one_line
from tests.compacting import settings
from tests.strategies import task_errors

STORE = "hdfs://nn:8020"
AWAY = UnreachableError("it doesn't answer", store=STORE)
FULL = RefusedError(Reason.DISK_FULL, "no room")
SPARK = """org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, \
most recent failure: Lost task 0.3 in stage 0.0 (TID 3) (127.0.0.2 executor 1): org.apache.spark.api.python.PythonException: {}
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2856)
"""


def raised(error, *, elsewhere=True):
    """What Spark's driver reads of a task that ends with this error."""

    def task(_):
        raise error

    try:
        list(run_elsewhere(task, [0], StorageOptions(), elsewhere=elsewhere))
    except AttemptFailedError:
        return SPARK.format(traceback.format_exc().encode().decode())  # as PySpark sends it
    return None


@given(task_errors())
def test_an_error_reaches_the_driver_as_it_was_raised(error):
    """In the middle of two stack traces, and whatever a file's name in it looks like."""
    text = raised(error)
    assert (text is not None) == fails_the_attempt(error)
    if text is not None:
        arrived = travelled(text)
        assert str(arrived) == str(error)
        assert isinstance(error, type(arrived))
        for fact in ("reason", "store"):
            assert getattr(arrived, fact, None) == getattr(error, fact, None)


@given(task_errors())
def test_on_the_daemons_own_machine_each_error_is_a_result(error):
    """Nothing is tried again there, and the daemon judges the error as its own; it is told of before the job ends."""

    def task(_):
        raise error

    told = []
    (answer,) = run_elsewhere(task, [0], StorageOptions(), refused=told.append)
    assert told == [answer]
    assert answer.result is error


def test_what_another_node_may_not_have():
    """Fails the attempt: a store, a disk, a damaged read. What every node would repeat, or found different, doesn't."""
    for error in (AWAY, FULL, CorruptFileError("odd", Reason.WRONG_BUCKET), RetryableError("later")):
        assert fails_the_attempt(error)
    for error in (VerificationError("differs"), RefusedError(Reason.SCHEMA_MISMATCH, "odd")):
        assert not fails_the_attempt(error)
    quota = RefusedError(Reason.QUOTA_EXCEEDED, "the same from each node")
    assert not fails_the_attempt(quota)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ExecutorLostFailure (executor 1 exited)",
        'AttemptFailedError: {"error": 1',
        "AttemptFailedError: {}",
        'AttemptFailedError: {"error": [], "message": "forged"}',
    ],
)
def test_what_is_no_error_of_ours(text):
    """A lost executor, a bug: only a line is known."""
    assert travelled(text) is None
    failure = FailedAttempt.of("h", text, telling_line)
    assert (failure.kind, failure.why) == ("broke-down", text)


CASES = [
    ("one host, and the daemon reaches it", AWAY, ["h1", "h1"], True, RetryableError),
    ("one host, and the daemon doesn't either", AWAY, ["h1"], False, UnreachableError),
    ("two hosts, whatever the daemon sees", AWAY, ["h1", "h2"], True, UnreachableError),
    ("no record of a host", AWAY, [], True, RetryableError),
    ("two hosts of which one found a full disk", AWAY, ["h1", FULL], True, RetryableError),
    ("a full disk", FULL, ["h1"], True, RefusedError),
    ("its directory isn't seen from one host", CancelledError("gone"), ["h1"], True, RetryableError),
    ("its directory is gone", CancelledError("gone"), ["h1"], False, CancelledError),
    ("what passes", RetryableError("later"), ["h1", "h2"], False, RetryableError),
    ("an error of no kind", CompactorError("odd"), ["h1"], True, CompactorError),
]


@pytest.mark.parametrize(
    ("error", "seen", "here", "kind"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_what_a_job_ends_with(error, seen, here, kind):
    """One node's word isn't enough for a store that all entries would wait for."""
    failures = [FailedAttempt(one, error, "") if isinstance(one, str) else FailedAttempt("h2", one, "") for one in seen]
    end = judged(error, failures, lambda: here)
    assert type(end) is kind
    assert str(end).startswith(str(error))
    assert getattr(end, "store", None) == (STORE if kind is UnreachableError else None)
    assert all(host in str(end) for host in {one for one in seen if isinstance(one, str)}) or kind is CancelledError


class Ended(Runner):
    """Whose job ended like this."""

    def __init__(self, end):
        self.told = []
        super().__init__(self.told.append)
        self._end = end

    def _answers(self, *_):
        return self._end


@pytest.mark.parametrize(
    ("place", "kind"), [(None, RetryableError), ("there", RetryableError), ("away", UnreachableError)]
)
def test_the_daemon_looks_itself(tmp_path, monkeypatch, place, kind):
    """When one host alone can't reach the store; each failed attempt is told of, and each host logged once."""

    def away(location, _):
        if location.endswith("away"):
            raise UnreachableError("it doesn't answer me either", store=STORE)
        return storage_for(location)

    monkeypatch.setattr("compactor.spark.submitter.storage_for", away)
    (tmp_path / "there").mkdir()
    failures = (FailedAttempt("h1", AWAY, "one"), FailedAttempt("h1", AWAY, "two"))
    runner = Ended(JobEnd(error=AWAY, failures=failures))
    with capture_logs() as said, pytest.raises(kind, match=r"^it doesn't answer \(seen from h1\)$"):
        runner.run(JobName("n", "1.a", place=place and str(tmp_path / place)), one_line, [1])
    assert runner.told == list(failures)
    assert [(event["event"], event["why"]) for event in said] == [("task_attempts.failed", "two")]


def test_a_staging_directory_that_the_daemon_does_not_see_either(tmp_path):
    """The compaction was given up."""
    runner = Ended(JobEnd(error=CancelledError("gone"), failures=(FailedAttempt("h1", CancelledError("gone"), ""),)))
    with pytest.raises(CancelledError, match=r"^gone$"):
        runner.run(JobName("n", "1.a", place=str(tmp_path / "gone")), one_line, [1])


def test_failed_attempts_of_a_job_that_ended_well_are_told_too():
    """A sick node shows while its tasks are done by others."""
    failure = FailedAttempt("h1", FULL, "no room")
    runner = Ended(JobEnd([Counted(5, BytesMoved())], failures=(failure,)))
    assert runner.run(JobName("n", "1.a"), one_line, [1]) == [5]
    assert runner.told == [failure]
    assert failure.kind == "disk-full"


@given(st.lists(st.integers(1, 9), min_size=1, unique=True))
def test_of_many_hosts_three_are_named(hosts):
    """A message is one line, and short."""
    failures = [FailedAttempt(f"h{number}", AWAY, "") for number in hosts]
    said = str(judged(AWAY, failures, lambda: True))
    assert said.count("h") - AWAY.args[0].count("h") - said.count("others") <= 4
    assert one_line(said) == said
    assert ("others" in said) == (len(hosts) > 3)


def test_what_a_site_allows_on_a_node_does_not_stop_a_session():
    """Its limit may suit more attempts than ours: Spark adds its own defaults to what we set, and then refuses both."""
    ours = common_conf(settings(spark={"master": "spark://h:7077"}).spark)
    tries, on_a_node = ours["spark.task.maxFailures"], ours["spark.excludeOnFailure.task.maxTaskAttemptsPerNode"]
    assert int(on_a_node) < int(tries)


def test_nodes_are_excluded_on_clusters_alone():
    """And not where a task may fail no more often than on one node: with both, Spark doesn't start."""
    key = "spark.excludeOnFailure.enabled"
    assert key not in common_conf(settings(spark={"master": "local[2]"}).spark)
    found = common_conf(settings(spark={"master": "spark://h:7077"}).spark)
    assert without_contradiction(found)[key] == "true"
    assert key not in without_contradiction(found | {"spark.task.maxFailures": "2"})
    assert key in without_contradiction(
        found | {"spark.task.maxFailures": "2", "spark.excludeOnFailure.task.maxTaskAttemptsPerNode": "1"}
    )
