"""
How much memory a task has: what is allowed, and no more than its share of an executor.

Our tasks run in Python, beside Java's heap: in a container of YARN or Kubernetes that is the overhead, or what PySpark is given for itself. Elsewhere nobody
counts. A container that takes more is killed, so the plan must know.
Source: Spark's configuration (spark.executor.memoryOverhead, spark.executor.pyspark.memory); docs/spark.md, "Memory".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from compactor.engine.spark_conf import common_conf
from compactor.engine.wishes import Wishes
from compactor.settings import Settings

_SIZE: Final = re.compile(r"(\d+)([kmgt]?)b?", re.IGNORECASE)
_UNITS: Final = {"": 1 << 20, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
"""Spark takes a number without a unit for MiB here."""


@dataclass(frozen=True, slots=True)
class TaskMemory:
    """
    Args:
        bytes: that one task may use.
        limited_by: what says so, for a sentence.
    """

    bytes: int
    limited_by: str


def task_memory(settings: Settings, wishes: Wishes) -> TaskMemory:
    """
    The smaller of `limits.task_memory_bytes` and a core's share of an executor.

    Args:
        wishes: what the table or request asks for; counts where it has an application of its own.
    """
    allowed = TaskMemory(int(settings.limits.task_memory_bytes), "limits.task_memory_bytes")
    spark = settings.spark
    conf = common_conf(spark) | dict(spark.conf) | (dict(wishes.conf) if spark.mode == "submit" else {})
    share = _share(conf, elastic=spark.elastic)
    return share if share is not None and share.bytes < allowed.bytes else allowed


def _share(conf: Mapping[str, str], *, elastic: bool) -> TaskMemory | None:
    for key in ("spark.executor.pyspark.memory", "spark.executor.memoryOverhead"):
        size = _bytes(conf.get(key))
        if size is not None and (elastic or key.endswith("pyspark.memory")):
            at_once = max(1, _number(conf, "spark.executor.cores") // _number(conf, "spark.task.cpus"))
            return TaskMemory(max(1, size // at_once), f"{key} = {conf[key]} for {at_once} at a time")
    return None


def _bytes(text: str | None) -> int | None:
    found = _SIZE.fullmatch(text.strip()) if text else None
    return int(found[1]) * _UNITS[found[2].lower()] if found else None


def _number(conf: Mapping[str, str], key: str) -> int:
    text = conf.get(key, "1")
    return max(1, int(text)) if text.isdecimal() else 1
