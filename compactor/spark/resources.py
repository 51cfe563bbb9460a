"""
Which resources a table, its database or a request wants for the Spark application that compacts it: queue, memory,
cores.

Pure, but for the site's defaults. The keys are Hive's (`compactor.` before a property of the job). Of Spark's own keys only those for amounts are
allowed: a table's owner must not get code run as the daemon by naming a class, a file or an option of Java.
Source: docs/spark.md; Hive's CompactorUtil.getCompactorJobQueueName, CompactorMR.overrideMRProps; Spark's
JavaUtils.byteStringAs.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.settings import Settings
from compactor.spark.conf import merged_conf

PREFIX = "compactor."
QUEUE_KEYS = (
    "compactor.hive.compactor.job.queue",
    "compactor.mapreduce.job.queuename",
    "compactor.mapred.job.queue.name",
    "hive.compactor.job.queue",
)
MEMORY_KEY = "compactor.mapreduce.map.memory.mb"
_DRIVER: Final = "spark.driver.memory"
CORES_KEY = "compactor.mapreduce.map.cpu.vcores"
_SIZE = re.compile(r"[1-9][0-9]{0,11}(?:[kmgtp](?:i?b)?|b)?", re.IGNORECASE)
_SIZE_WITH_UNIT: Final = re.compile(r"(\d+)(?:([kmgtp])(?:i?b)?|(b))?", re.IGNORECASE)
_UNITS: Final = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
"""Bytes of each unit. Spark takes a number without a unit for MiB here, and no fractions."""
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
"""Spark properties that may be set for one table, and the form of their values."""


@dataclass(frozen=True, slots=True)
class Resources:
    """
    The requested resources of one compaction.

    Args:
        queue: of the cluster; None: none is requested.
        conf: Spark properties, all of them in `ALLOWED`.
    """

    queue: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


def requested_resources(sources: Sequence[Mapping[str, str]]) -> Resources:
    """
    Merge the requested resources of several sources.

    Args:
        sources: properties of the request, the table, the database; the first source that names a key counts. Keys are
            compared as they are, but Spark's without regard to case, because Hive keeps some properties in lower case.

    Raises:
        RefusedError: BAD_PROPERTY, a Spark property that isn't allowed, or a malformed value.
    """
    conf: dict[str, str] = {}
    for source in reversed(sources):
        conf |= _from_hive(source) | _from_spark(source)
    queue = next(
        (_checked(key, source[key], _QUEUE) for source in sources for key in QUEUE_KEYS if source.get(key)), None
    )
    return Resources(queue, conf)


def _from_spark(source: Mapping[str, str]) -> dict[str, str]:
    known = {key.lower(): key for key in ALLOWED}
    found = {}
    for key, value in source.items():
        if not key.lower().startswith(f"{PREFIX}spark."):
            continue
        name = known.get(key[len(PREFIX) :].lower())
        if name is None:
            raise RefusedError(
                Reason.BAD_PROPERTY, f"property {key} can't be set for a table; {', '.join(ALLOWED)} can"
            )
        found[name] = _checked(key, value, ALLOWED[name])
    return found


def _from_hive(source: Mapping[str, str]) -> dict[str, str]:
    """
    Turn MapReduce's numbers for one mapper into those of one executor. The memory is a whole container's, at least 768
    MiB. Tasks run in Python, outside of Java's heap: a quarter of the memory is heap (384 MiB to 2 GiB), the rest is
    left for tasks.
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


@dataclass(frozen=True, slots=True)
class TaskMemory:
    """
    How much memory a task may use.

    Tasks run in Python, beside Java's heap. In a container of YARN or Kubernetes their memory is the overhead, or what
    PySpark is given for itself. The cluster kills a container that takes more, so the plan must know the limit.
    Source: Spark's configuration (spark.executor.memoryOverhead, spark.executor.pyspark.memory); docs/spark.md,
    "Memory".

    Args:
        bytes: that one task may use.
        limited_by: the setting that sets the limit, for a message.
    """

    bytes: int
    limited_by: str


def task_memory(settings: Settings, requested_resources: Resources) -> TaskMemory:
    """
    The smaller of `limits.task_memory_bytes` and a core's share of an executor.

    Args:
        requested_resources: of the table or request; they count where the compaction has an application of its own.
    """
    allowed = TaskMemory(int(settings.limits.task_memory_bytes), "limits.task_memory_bytes")
    spark = settings.spark
    conf = merged_conf(spark) | (dict(requested_resources.conf) if spark.mode == "submit" else {})
    share = _share(conf, elastic=spark.elastic)
    return share if share is not None and share.bytes < allowed.bytes else allowed


@dataclass(frozen=True, slots=True)
class DriverMemory:
    """
    The heap of Spark's driver.

    Args:
        bytes: None: it isn't known.
        mend: where more of it may be set, for a message.
    """

    bytes: int | None
    mend: str


def driver_memory(settings: Settings, requested_resources: Resources) -> DriverMemory:
    """
    The memory of the driver that runs a compaction's jobs: of the session, or of an application of its own.

    Args:
        requested_resources: as in `task_memory`.
    """
    spark = settings.spark
    conf = merged_conf(spark)
    if spark.mode == "session":
        return DriverMemory(_bytes(conf.get(_DRIVER)), "in spark.conf")
    conf |= dict(requested_resources.conf)
    return DriverMemory(_bytes(conf.get(_DRIVER)), f"in spark.conf, or for the table with {PREFIX}{_DRIVER}")


def _share(conf: Mapping[str, str], *, elastic: bool) -> TaskMemory | None:
    for key in ("spark.executor.pyspark.memory", "spark.executor.memoryOverhead"):
        size = _bytes(conf.get(key))
        if size is not None and (elastic or key.endswith("pyspark.memory")):
            at_once = max(1, _number(conf, "spark.executor.cores") // _number(conf, "spark.task.cpus"))
            return TaskMemory(max(1, size // at_once), f"{key} = {conf[key]} for {at_once} at a time")
    return None


def _bytes(text: str | None) -> int | None:
    found = _SIZE_WITH_UNIT.fullmatch(text.strip()) if text else None
    return int(found[1]) * _UNITS[(found[2] or found[3] or "m").lower()] if found else None


def _number(conf: Mapping[str, str], key: str) -> int:
    text = conf.get(key, "1")
    return max(1, int(text)) if text.isdecimal() else 1
