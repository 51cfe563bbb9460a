"""
A standalone cluster of two nodes, one of them sick: what other nodes may not have costs attempts, and not the
compaction; what every node would repeat ends the job at once.
"""

from collections import Counter

import pytest
from structlog.testing import capture_logs

from compactor.engine import full_acid
from compactor.errors import RefusedError, RetryableError, UnreachableError
from compactor.reasons import Reason
from compactor.spark.application.submitter import ApplicationSubmitter
from compactor.spark.session.session import SparkSubmitter
from compactor.spark.submitter import JobName, job_name
from tests.cluster import faulty
from tests.cluster.standalone import ROOT, cluster
from tests.compacting import compact, settings

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(600)]
WELL, ILL = "127.0.0.2", "127.0.0.3"
_FULL = """
import os
import resource
if os.environ.get("SICK_DISK") == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
"""
"""Python on the sick node: where a session says so, no file may have more bytes, as on a disk that is full."""


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    """The address of a Master with a Worker on each node."""
    full = tmp_path_factory.mktemp("full")
    (full / "sitecustomize.py").write_text(_FULL, encoding="utf-8")
    here = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    workers = {"well": (WELL, here), faulty.SICK: (ILL, here | {"PYTHONPATH": f"{full}:{ROOT}"})}
    with cluster(tmp_path_factory.mktemp("standalone"), workers) as address:
        yield address


def submitter_on(master, kind=SparkSubmitter, mode="session", **conf):
    """A submitter whose failed attempts are in its `seen`."""
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",  # one on each node
    } | conf
    found = kind(settings(spark={"mode": mode, "master": master, "conf": conf}))
    found.seen = []
    found._failed = found.seen.append
    return found


@pytest.fixture(scope="module")
def session(master):
    """A session with an executor on each node."""
    found = submitter_on(master, **{"spark.executorEnv.SICK_DISK": "full"})
    found.run(name("0.a"), faulty.time.sleep, [1] * 4)
    yield found
    found.stop()


@pytest.fixture
def submitter(session):
    """The session, before anything failed in it."""
    session.seen.clear()
    return session


def name(key, place=None):
    return JobName(job_name("h1", "db", "t", "dt=2024-01-01"), key, place=place)


def table_of(warehouse, rows=200, buckets=0):
    bucketed = {"buckets": buckets, "bucket_columns": ("id",)} if buckets else {}
    table = warehouse.create_table("db", "t", [("id", "int"), ("v", "string")], **bucketed)
    for number in range(4):
        with warehouse.begin() as txn:
            txn.insert(table, [(number * rows + i, f"value {i}") for i in range(rows)])
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] % 7 == 0)
    return table


@pytest.mark.parametrize(
    ("function", "kind"), [(faulty.unreachable_there, "unreachable"), (faulty.damaged_there, "corrupt-file")]
)
def test_one_sick_node_of_two(submitter, function, kind):
    """All tasks are done on the other node; the sick one has no more than a few, and is named by the log and metrics."""
    with capture_logs() as said:
        assert submitter.run(name(f"1.{kind}"), function, list(range(40))) == list(range(40))
    times = Counter((failure.host, failure.kind) for failure in submitter.seen)
    assert times.keys() == {(ILL, kind)}
    assert times[ILL, kind] <= 4
    assert ILL in [event["host"] for event in said if event["event"] == "task_attempts.failed"]


def test_a_compaction_with_a_full_disk_on_one_node(warehouse, submitter, monkeypatch):
    """Writes that really fail there: rows as ever."""
    monkeypatch.setattr(full_acid, "AT_ONCE_BYTES", 0)
    compact(warehouse, table_of(warehouse, buckets=8), submitter=submitter)
    assert {(failure.host, failure.kind) for failure in submitter.seen} == {(ILL, "disk-full")}


def test_a_store_that_several_nodes_cannot_reach(submitter):
    """That is unreachable, in our own words, and by its name: all its entries wait."""
    with pytest.raises(UnreachableError) as caught:
        submitter.run(name("2.a"), faulty.unreachable, list(range(4)))
    assert str(caught.value) == f"{faulty.STORE} doesn't answer (seen from {WELL} and {ILL})"
    assert caught.value.store == faulty.STORE


def test_a_file_that_every_node_finds_damaged(submitter):
    """Is damaged: the refusal arrives with its code."""
    with pytest.raises(RefusedError, match=r"^bucket_00000 has a wrong checksum \(seen from 127") as caught:
        submitter.run(name("3.a"), faulty.damaged, [1])
    assert caught.value.reason is Reason.CORRUPT_FILE


def test_the_first_final_refusal_ends_the_job(submitter, tmp_path):
    """It isn't repeated, no node is blamed, and tasks that haven't begun never do."""
    with pytest.raises(RefusedError, match=r"^column 3 is of another type$") as caught:
        submitter.run(name("4.a"), faulty.refuse_first, [(number, str(tmp_path)) for number in range(8)])
    assert caught.value.reason is Reason.SCHEMA_MISMATCH
    assert submitter.seen == []
    assert len(list(tmp_path.iterdir())) <= 3


@pytest.fixture(params=[("session", SparkSubmitter), ("submit", ApplicationSubmitter)], ids=["session", "submit"])
def alone(request, master, monkeypatch):
    """A single executor, on whichever node; Spark gives a task up when it may not run there any more."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of an application's driver
    mode, kind = request.param
    conf = {
        "spark.cores.max": "1",
        "spark.scheduler.excludeOnFailure.unschedulableTaskSetTimeout": "1s",
    }
    found = submitter_on(master, kind, mode, **conf)
    yield found
    found.stop()


def test_what_only_one_node_says(alone, tmp_path):
    """
    Where the daemon reaches the store and sees the staging directory, the attempt broke down, which is counted, with our
    own sentence.
    """
    for key, function, said in (
        ("5.a", faulty.unreachable, rf"^{faulty.STORE} doesn't answer \(seen from 127.0.0.[23]\)$"),
        ("5.b", faulty.given_up, r"^this compaction was given up: .* \(seen from 127.0.0.[23]\)$"),
    ):
        place = tmp_path / key
        place.mkdir()
        with pytest.raises(RetryableError, match=said) as caught:
            alone.run(name(key, str(place)), function, [1])
        assert type(caught.value) is RetryableError
        alone.end(name(key))


@pytest.fixture(scope="module")
def healthy(master):
    """A session in which no node is sick, and what takes long is begun a second time."""
    conf = {
        "spark.speculation": "true",
        "spark.speculation.interval": "500ms",
        "spark.speculation.multiplier": "1.5",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "2s",
    }
    found = submitter_on(master, **conf)
    yield found
    found.stop()


def test_attempts_that_are_cut_off(warehouse, healthy, monkeypatch):
    """The half of a file that a failed attempt left is never taken."""
    monkeypatch.setattr(full_acid, "AT_ONCE_BYTES", 0)
    monkeypatch.setattr(full_acid, "run_task", faulty.cut_off_first)
    compact(warehouse, table_of(warehouse), submitter=healthy)
    assert [failure.kind for failure in healthy.seen] == ["unreachable"]


def test_a_second_attempt_beside_the_first(warehouse, healthy, monkeypatch):
    """Speculation: both write, the first that ends is taken, and the other isn't waited for."""
    monkeypatch.setattr(full_acid, "AT_ONCE_BYTES", 0)
    monkeypatch.setattr(full_acid, "run_task", faulty.straggle_first)
    attempt, _ = compact(warehouse, table_of(warehouse, buckets=4), submitter=healthy)
    assert not (attempt.location / faulty.LATE).exists()
