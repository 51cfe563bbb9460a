"""
Spark properties that follow from our settings, the same for the shared session and for an application of its own.

Pure but for the interpreter's own path, and who we are. What `spark.conf` says goes over all of it.
"""

import getpass
import os
import sys
from collections.abc import Mapping
from typing import Final

from compactor.settings.work import Spark

ENVIRONMENT: Final = "environment"
"""The directory into which `spark.archive` is unpacked on every node."""


def common_conf(spark: Spark) -> dict[str, str]:
    """
    Where it runs, with which Python, in which queue.

    Executors of YARN and Kubernetes come with work and go when idle (dynamic allocation without an external shuffle service; nothing of ours is shuffled). Java's
    heap on an executor is small, for our tasks run in Python: they need the overhead.
    """
    wanted = {
        "spark.master": spark.master,
        "spark.python.worker.reuse": "true",
        "spark.executorEnv.MALLOC_ARENA_MAX": "2",
        "spark.executorEnv.OMP_NUM_THREADS": "1",
        "spark.driver.memory": "1g",
    }
    if spark.local:
        wanted |= {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    if spark.elastic:
        wanted |= {
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.enabled": "true",
            "spark.dynamicAllocation.minExecutors": "0",
            "spark.dynamicAllocation.maxExecutors": "16",
            "spark.dynamicAllocation.executorIdleTimeout": "60s",
            "spark.executor.memory": "1g",
            "spark.executor.memoryOverhead": "2g",
        }
    if spark.master == "yarn":
        conf = "__spark_conf__/__hadoop_conf__"  # below the container's directory; {{PWD}} would be filled in for the JVM, but not for its Python workers
        wanted |= {"spark.yarn.maxAppAttempts": "1", "spark.yarn.submit.waitAppCompletion": "true", "spark.executorEnv.HADOOP_CONF_DIR": conf}
        if spark.queue:
            wanted["spark.yarn.queue"] = spark.queue
    if spark.archive:
        wanted["spark.archives"] = f"{spark.archive}#{ENVIRONMENT}"
    return wanted


def as_user(spark: Spark, user: str | None) -> dict[str, str]:
    """
    As whom our tasks and our driver reach HDFS where there is no Kerberos: a container's own user is the cluster's, not ours.

    Args:
        user: who the application is run as; None: who we are to Hadoop.
    """
    if spark.local or spark.principal is not None:
        return {}
    name = user or os.environ.get("HADOOP_USER_NAME") or _own_name()
    if name is None:
        return {}
    variables = ["spark.executorEnv.HADOOP_USER_NAME"]
    if spark.deploy_mode == "cluster":
        variables.append("spark.yarn.appMasterEnv.HADOOP_USER_NAME" if spark.master == "yarn" else "spark.kubernetes.driverEnv.HADOOP_USER_NAME")
    return dict.fromkeys(variables, name)


def _own_name() -> str | None:
    """None for a user of a container whom its system doesn't know."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def executor_python(spark: Spark) -> str:
    """The interpreter on the cluster's nodes: as set, that of the archive, or ours, where it is installed under the same path."""
    return spark.python or (f"./{ENVIRONMENT}/bin/python" if spark.archive else sys.executable)


def without_contradiction(conf: Mapping[str, str]) -> dict[str, str]:
    """A fixed number of executors, where somebody asks for one, is no dynamic allocation."""
    merged = dict(conf)
    if "spark.executor.instances" in merged and merged.get("spark.dynamicAllocation.enabled") == "true":
        merged = {key: value for key, value in merged.items() if not key.startswith("spark.dynamicAllocation.")}
    return merged
