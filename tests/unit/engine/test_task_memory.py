"""How much memory a task has: what the settings allow, and no more than a core's share of its container."""

import pytest

from compactor.spark.resources import Resources, requested_resources, task_memory
from tests.compacting import settings

GIB = 1 << 30


@pytest.mark.parametrize(
    ("spark", "asked", "expected", "by"),
    [
        ({"master": "local[2]"}, {}, GIB, "limits.task_memory_bytes"),
        ({"master": "spark://m:7077"}, {}, GIB, "limits.task_memory_bytes"),
        ({"master": "yarn"}, {}, GIB, "limits.task_memory_bytes"),
        (
            {"master": "yarn", "conf": {"spark.executor.cores": "4"}},
            {},
            GIB // 2,
            "spark.executor.memoryOverhead = 2g for 4 at a time",
        ),
        (
            {"master": "yarn", "conf": {"spark.executor.cores": "4", "spark.task.cpus": "2"}},
            {},
            GIB,
            "limits.task_memory_bytes",
        ),
        (
            {"master": "k8s://h", "conf": {"spark.executor.memoryOverhead": "512"}},
            {},
            GIB // 2,
            "spark.executor.memoryOverhead = 512 for 1 at a time",
        ),
        (
            {"master": "spark://m", "conf": {"spark.executor.pyspark.memory": "600m"}},
            {},
            600 << 20,
            "spark.executor.pyspark.memory = 600m for 1 at a time",
        ),
        (
            {"master": "yarn", "mode": "submit"},
            {"compactor.mapreduce.map.memory.mb": "1024"},
            640 << 20,
            "spark.executor.memoryOverhead = 640m for 1 at a time",
        ),
        (
            {"master": "yarn", "mode": "session"},
            {"compactor.mapreduce.map.memory.mb": "1024"},
            GIB,
            "limits.task_memory_bytes",
        ),
    ],
)
def test_a_task_has_a_cores_share(spark, asked, expected, by):
    """
    Containers count Python's memory as overhead, or as PySpark's own; a table's resources count only where it has an
    application of its own.
    """
    found = task_memory(settings(spark=spark), requested_resources([asked]))
    assert (found.bytes, found.limited_by) == (expected, by)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("512", 512 << 20),
        ("536870912b", 512 << 20),
        ("524288k", 512 << 20),
        ("524288KiB", 512 << 20),
        ("512MB", 512 << 20),
        (" 512m ", 512 << 20),
        ("1p", GIB),
        ("2.5g", GIB),
    ],
)
def test_sizes_are_those_that_spark_takes(size, expected):
    """Bytes with a b, MiB without a unit, pebibytes; a fraction stops Spark itself, so it says nothing here."""
    section = settings(spark={"master": "yarn", "conf": {"spark.executor.memoryOverhead": size}})
    assert task_memory(section, Resources()).bytes == expected


def test_what_can_not_be_read_is_not_guessed():
    """Spark will say what it thinks of it."""
    found = task_memory(
        settings(
            spark={"master": "yarn", "conf": {"spark.executor.memoryOverhead": "much", "spark.executor.cores": "x"}}
        ),
        Resources(),
    )
    assert found.limited_by == "limits.task_memory_bytes"
