"""
Spark properties that follow from the settings, the same for the shared session and for an application of its own; and
the log4j configuration of Spark's JVM.

Pure, but for the site's defaults, the interpreter's path, the user's name and the log4j file. Properties in `spark.conf` of the settings
override these. The log4j configuration decides what Spark's JVM writes to standard error; each way to run Spark has its
own.
"""

import getpass
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from compactor.settings.work import Spark
from compactor.spark.site import site_defaults

_TEMPLATE: Final = """rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = {pattern}
"""
_TRIES: Final = (("spark.task.maxFailures", "4"), ("spark.excludeOnFailure.task.maxTaskAttemptsPerNode", "2"))
"""How often a task may fail in all, and on one node, and how often it may as Spark is delivered."""
POOL: Final = "compactor"
"""The scheduling pool of jobs without a pool of their own."""
POOLS: Final = (
    f'<?xml version="1.0"?><allocations><pool name="{POOL}"><schedulingMode>FAIR</schedulingMode></pool></allocations>'
)
"""The file of Spark's scheduling pools."""
ENVIRONMENT: Final = "environment"
"""The directory into which `spark.archive` is unpacked on every node."""


def log_to_stderr(folder: Path, level: str, pattern: str, loggers: Mapping[str, str]) -> str:
    """
    Write a log4j configuration into a folder; returns the JVM's option that names it.

    Args:
        level: of all loggers that `loggers` doesn't name.
        pattern: of a line, as log4j's PatternLayout takes it.
        loggers: name and level of each logger with a level of its own.
    """
    file = folder / "log4j2.properties"
    own = "".join(
        f"logger.own{number}.name = {name}\nlogger.own{number}.level = {of_its_own}\n"
        for number, (name, of_its_own) in enumerate(loggers.items())
    )
    file.write_text(_TEMPLATE.format(level=level, pattern=pattern) + own, encoding="utf-8")
    return f"-Dlog4j2.configurationFile={file.as_uri()}"


def common_conf(spark: Spark) -> dict[str, str]:
    """
    Properties for the master, the queue, executors, the web UI and the archive.

    On a cluster a task is tried twice on a node at most, and four times in all. A node on which two tasks of a job failed
    gets no more of them; in the next job it is as good as any: a session that excluded nodes for longer would exclude
    all of a small cluster after a short failure of its store.

    Executors of YARN and Kubernetes start when work comes and end when they are idle (dynamic allocation without an
    external shuffle service; compaction tasks shuffle nothing). How many there are follows the tasks that wait, up to the
    limit that the site or the table sets. An executor's Java heap is small, because tasks run in
    Python and need the overhead.
    """
    wanted = {
        "spark.master": spark.master,
        "spark.python.worker.reuse": "true",
        "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",  # an allocator of its own keeps a tenth more
        "spark.executorEnv.MALLOC_ARENA_MAX": "2",
        "spark.executorEnv.OMP_NUM_THREADS": "1",
        "spark.driver.memory": "1g",
    }
    if spark.local:
        wanted |= {
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        }
    else:
        wanted |= {
            "spark.task.maxFailures": "4",
            "spark.excludeOnFailure.enabled": "true",
            "spark.excludeOnFailure.task.maxTaskAttemptsPerNode": "2",  # the site's may be as many as ours in all
            "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor": "2",  # one executor may be all there is
            "spark.excludeOnFailure.application.maxFailedTasksPerExecutor": "1000000",  # no node for hours
        }
        if "spark.ui.port" not in site_defaults() and not (spark.deploy_mode == "cluster" and spark.master != "yarn"):
            wanted["spark.ui.port"] = "0"  # any free one: Spark's own may be taken here, but never in a pod
    if spark.elastic:
        wanted |= {
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.enabled": "true",
            "spark.dynamicAllocation.minExecutors": "0",
            "spark.dynamicAllocation.executorIdleTimeout": "60s",
            "spark.executor.memory": "1g",
            "spark.executor.memoryOverhead": "2g",
        }
    if spark.master == "yarn":
        # Below the container's directory. {{PWD}} would be filled in for the JVM, but not for its Python workers.
        conf = "__spark_conf__/__hadoop_conf__"
        wanted |= {
            "spark.yarn.maxAppAttempts": "1",
            "spark.yarn.submit.waitAppCompletion": "true",
            "spark.executorEnv.HADOOP_CONF_DIR": conf,
        }
        if spark.queue:
            wanted["spark.yarn.queue"] = spark.queue
    if spark.archive:
        wanted["spark.archives"] = f"{spark.archive}#{ENVIRONMENT}"
    return wanted


def as_user(spark: Spark, user: str | None) -> dict[str, str]:
    """
    Properties that say as which user tasks and driver reach HDFS where there is no Kerberos. The user of a container is
    the cluster's, not the daemon's.

    Args:
        user: the user that the application is run as; None: this process's user for Hadoop.
    """
    if spark.local or spark.principal is not None:
        return {}
    name = user or os.environ.get("HADOOP_USER_NAME") or _own_name()
    if name is None:
        return {}
    variables = ["spark.executorEnv.HADOOP_USER_NAME"]
    if spark.deploy_mode == "cluster":
        variables.append(
            "spark.yarn.appMasterEnv.HADOOP_USER_NAME"
            if spark.master == "yarn"
            else "spark.kubernetes.driverEnv.HADOOP_USER_NAME"
        )
    return dict.fromkeys(variables, name)


def _own_name() -> str | None:
    """This process's user name; None for a container's user that its system doesn't know."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def executor_python(spark: Spark) -> str:
    """
    The interpreter on the cluster's nodes: as set, else that of the archive, else this process's own path, which the
    nodes must have, too.
    """
    return spark.python or (f"./{ENVIRONMENT}/bin/python" if spark.archive else sys.executable)


def merged_conf(spark: Spark) -> dict[str, str]:
    """The properties of an application on which no table has a say: the site's defaults, then ours, then `spark.conf`."""
    return without_contradiction(site_defaults() | common_conf(spark) | spark.conf)


def without_contradiction(conf: Mapping[str, str]) -> dict[str, str]:
    """
    Switches dynamic allocation off where a fixed number of executors is set; and the exclusion of nodes where a task may
    not fail more often than on one node: with both, Spark doesn't start.
    """
    merged = dict(conf)
    failures, on_a_node = (merged.get(key, default) for key, default in _TRIES)
    if failures.isdecimal() and on_a_node.isdecimal() and int(on_a_node) >= int(failures):
        merged.pop("spark.excludeOnFailure.enabled", None)
    if "spark.executor.instances" in merged and merged.get("spark.dynamicAllocation.enabled") == "true":
        merged = {key: value for key, value in merged.items() if not key.startswith("spark.dynamicAllocation.")}
    return merged
