"""
What a table, its database or a request asks of the Spark application that compacts it: queue, memory, cores.

Pure. The keys are Hive's (`compactor.` before a property of the job), and of Spark's own only those that say how much: a table's owner must not get code run
as the daemon by naming a class, a file or an option of Java.
Source: docs/spark.md; Hive's CompactorUtil.getCompactorJobQueueName, CompactorMR.overrideMRProps.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from compactor.errors import RefusedError
from compactor.reasons import Reason

PREFIX = "compactor."
QUEUE_KEYS = ("compactor.hive.compactor.job.queue", "compactor.mapreduce.job.queuename", "compactor.mapred.job.queue.name", "hive.compactor.job.queue")
MEMORY_KEY = "compactor.mapreduce.map.memory.mb"
CORES_KEY = "compactor.mapreduce.map.cpu.vcores"
_SIZE = re.compile(r"[1-9][0-9]{0,8}[kmgt]?b?", re.IGNORECASE)
_NUMBER = re.compile(r"[1-9][0-9]{0,5}")
_QUEUE = re.compile(r"[A-Za-z0-9._-]{1,128}")
ALLOWED: Mapping[str, re.Pattern[str]] = {
    "spark.cores.max": _NUMBER,
    "spark.driver.cores": _NUMBER,
    "spark.driver.memory": _SIZE,
    "spark.driver.memoryOverhead": _SIZE,
    "spark.dynamicAllocation.maxExecutors": _NUMBER,
    "spark.executor.cores": _NUMBER,
    "spark.executor.instances": _NUMBER,
    "spark.executor.memory": _SIZE,
    "spark.executor.memoryOverhead": _SIZE,
    "spark.executor.pyspark.memory": _SIZE,
}
"""Spark's properties that may be set for one table, and what their values look like."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """
    Args:
        queue: of the cluster; None: not asked for.
        conf: Spark properties, all of `ALLOWED`.
    """

    queue: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


def wishes(sources: Sequence[Mapping[str, str]]) -> Wishes:
    """
    Put together what is asked for.

    Args:
        sources: properties of the request, the table, the database: the first that names a key counts. Keys are compared as they are, except Spark's, which
            are compared without regard to case, for Hive keeps some properties in lower case.

    Raises:
        RefusedError: BAD_PROPERTY, a property of Spark's that isn't allowed, or a value that can't be meant.
    """
    conf: dict[str, str] = {}
    for source in reversed(sources):
        conf |= _from_hive(source) | _from_spark(source)
    queue = next((_checked(key, source[key], _QUEUE) for source in sources for key in QUEUE_KEYS if source.get(key)), None)
    return Wishes(queue, conf)


def _from_spark(source: Mapping[str, str]) -> dict[str, str]:
    known = {key.lower(): key for key in ALLOWED}
    found = {}
    for key, value in source.items():
        if not key.lower().startswith(f"{PREFIX}spark."):
            continue
        name = known.get(key[len(PREFIX) :].lower())
        if name is None:
            raise RefusedError(Reason.BAD_PROPERTY, f"property {key} can't be set for a table; {', '.join(ALLOWED)} can")
        found[name] = _checked(key, value, ALLOWED[name])
    return found


def _from_hive(source: Mapping[str, str]) -> dict[str, str]:
    """
    MapReduce's numbers for one mapper become those of one executor. The memory is a whole container's. Our tasks run in Python, outside of Java's heap: a
    quarter of it is heap (384 MiB to 2 GiB), the rest is left for them.
    """
    found = {}
    if value := source.get(MEMORY_KEY):
        total = max(768, int(_checked(MEMORY_KEY, value, _NUMBER)))
        heap = min(max(384, total // 4), 2048)
        found = {"spark.executor.memory": f"{heap}m", "spark.executor.memoryOverhead": f"{total - heap}m"}
    if value := source.get(CORES_KEY):
        found["spark.executor.cores"] = _checked(CORES_KEY, value, _NUMBER)
    return found


def _checked(key: str, value: str, pattern: re.Pattern[str]) -> str:
    if not pattern.fullmatch(value := value.strip()):
        raise RefusedError(Reason.BAD_PROPERTY, f"property {key} is {value[:80]!r}, which can't be meant")
    return value
