"""What a table may ask of the application that compacts it, and what it may not."""

import pytest

from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.spark.resources import requested_resources


def test_nothing_asked_for_is_nothing_said():
    """Properties that are none of a job's are passed over."""
    found = requested_resources([{"transactional": "true", "compactor.orc.compress": "ZSTD"}])
    assert (found.queue, dict(found.conf)) == (None, {})


def test_the_request_goes_before_the_table_and_the_table_before_the_database():
    """Each key for itself."""
    found = requested_resources(
        [
            {"compactor.spark.executor.cores": "4"},
            {"compactor.spark.executor.cores": "2", "compactor.hive.compactor.job.queue": "root.etl"},
            {"compactor.spark.executor.memory": "3g", "compactor.mapreduce.job.queuename": "other"},
        ]
    )
    assert found.queue == "root.etl"
    assert dict(found.conf) == {"spark.executor.cores": "4", "spark.executor.memory": "3g"}


def test_hives_keys_of_a_queue_have_hives_order():
    """Within one place the first of Hive's names counts."""
    found = requested_resources(
        [
            {
                "compactor.mapred.job.queue.name": "c",
                "compactor.mapreduce.job.queuename": "b",
                "compactor.hive.compactor.job.queue": "a",
            }
        ]
    )
    assert found.queue == "a"


@pytest.mark.parametrize(("asked", "heap", "rest"), [("4096", 1024, 3072), ("512", 384, 384), ("20000", 2048, 17952)])
def test_a_mappers_memory_becomes_an_executors_container(asked, heap, rest):
    """The whole is as asked (768 MiB at least); most of it is left for Python."""
    found = requested_resources(
        [{"compactor.mapreduce.map.memory.mb": asked, "compactor.mapreduce.map.cpu.vcores": "2"}]
    )
    assert dict(found.conf) == {
        "spark.executor.memory": f"{heap}m",
        "spark.executor.memoryOverhead": f"{rest}m",
        "spark.executor.cores": "2",
    }


def test_spark_goes_over_mapreduce_in_the_same_place():
    """Who names both means Spark's."""
    found = requested_resources(
        [{"compactor.mapreduce.map.memory.mb": "4096", "compactor.spark.executor.memory": "2g"}]
    )
    assert found.conf["spark.executor.memory"] == "2g"


def test_keys_of_spark_are_found_in_lower_case_too():
    """A metastore may have stored them so."""
    assert dict(requested_resources([{"compactor.spark.executor.memoryoverhead": "1g"}]).conf) == {
        "spark.executor.memoryOverhead": "1g"
    }


@pytest.mark.parametrize(
    "key",
    [
        "compactor.spark.driver.extraJavaOptions",
        "compactor.spark.jars",
        "compactor.spark.executorEnv.PYTHONPATH",
        "compactor.spark.yarn.tags",
    ],
)
def test_what_could_run_code_is_refused(key):
    """A table's owner isn't the daemon."""
    with pytest.raises(RefusedError, match="can't be set for a table") as caught:
        requested_resources([{key: "x"}])
    assert caught.value.reason is Reason.BAD_PROPERTY


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("compactor.spark.executor.memory", "lots"),
        ("compactor.spark.executor.memory", "1g --conf x=y"),
        ("compactor.spark.executor.cores", "-1"),
        ("compactor.mapreduce.map.memory.mb", "4g"),
        ("compactor.hive.compactor.job.queue", "a b"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_by_name(key, value):
    """One line that names the property."""
    with pytest.raises(RefusedError, match=key.replace(".", r"\.")):
        requested_resources([{key: value}])
