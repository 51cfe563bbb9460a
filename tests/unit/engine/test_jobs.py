"""What a job on a SparkContext tells at its end, over a context that only answers."""

import json
from unittest.mock import MagicMock

import pytest

from compactor.errors import RefusedError, UnreachableError
from compactor.reasons import Reason
from compactor.settings.stores import Hdfs
from compactor.spark import jobs
from compactor.spark.attempts import AttemptFailedError
from compactor.spark.concat import Concat, HdfsConcat
from compactor.spark.jobs import SparkJob
from compactor.spark.results import results_of
from compactor.spark.submitter import JobName
from compactor.spark.unfit import UNFIT
from compactor.storage.registry import StorageOptions
from tests.fake_spark import Context

CONCAT = Concat("hdfs://nn/t/a", ("hdfs://nn/t/b",), 2)


class OnCluster(Context):
    """
    A context on a cluster, whose jobs all fail, and whose newest stage has a failed attempt.

    Args:
        said: the text of a job's error.
    """

    master = "yarn"

    def __init__(self, said=""):
        super().__init__()
        self._jsc = MagicMock()
        self._said = said

    def parallelize(self, *_):
        raise RuntimeError(self._said)

    def getJobIdsForGroup(self, group):
        return [4]

    def getJobInfo(self, number):
        return MagicMock(stageIds=[7])

    def getStageInfo(self, number):
        return MagicMock(numTasks=2, numCompletedTasks=1, numFailedTasks=1)


class OnDriver:
    """A function for Spark's driver."""

    def on_driver(self, context, storage, task):
        return task


@pytest.fixture(autouse=True)
def one_failed(monkeypatch):
    """A failed attempt in each stage that is asked about."""
    monkeypatch.setattr(SparkJob, "_recorded", lambda *_: iter(["failed"]))
    jobs._refusals_in.cache_clear()


def ended(context, function):
    job = SparkJob(context, JobName("n", "1.a"), function, [3], StorageOptions(), code="x")
    assert job.wait(30)
    return job


def test_what_runs_in_the_driver_has_none_of_the_failures_before_it():
    """It is no job of Spark's: the newest of its group is the one before, whose failures were told."""
    job = ended(OnCluster(), OnDriver())
    end = job.end()
    assert ([answer.result for answer in end.answers], end.failures) == ([3], ())
    assert job.share_done() == 0
    assert ended(OnCluster("odd"), len).end().failures == ("failed",)


@pytest.mark.parametrize("name", [f"[{UNFIT}] node1 has nothing", "java.io.IOException: Cannot run program x"])
def test_a_file_can_not_blame_the_executors(name):
    """A task that told its error has begun; what a table's owner calls a file is no word of Spark's."""
    told = AttemptFailedError(RefusedError(Reason.CORRUPT_FILE, f"{name} is damaged"))
    end = ended(OnCluster(f"Job aborted: {AttemptFailedError.__name__}: {told}\n\tat x.y"), len).end()
    assert isinstance(end.error, RefusedError)
    assert json.loads(str(told))["message"] == str(end.error)


def test_executors_are_blamed_where_no_task_began():
    end = ended(OnCluster(f"RuntimeError: [{UNFIT}] node1 has nothing"), len).end()
    with pytest.raises(UnreachableError, match="node1 has nothing"):
        results_of(end.answers)


@pytest.mark.parametrize("folder", ["conf", "hadoop conf"])
def test_concat_reads_the_settings_own_configuration(tmp_path, monkeypatch, folder):
    """Also where its directory is relative, or a URI would spell it otherwise: Hadoop skips a file that isn't there."""
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "core-site.xml").touch()
    monkeypatch.chdir(tmp_path)
    context = MagicMock()
    path = context._jvm.org.apache.hadoop.fs.Path
    HdfsConcat().on_driver(context, StorageOptions(Hdfs(conf_dir=folder)), CONCAT)
    assert str(tmp_path / folder / "core-site.xml") in [call.args[0] for call in path.call_args_list]
