"""
The command line of `spark-submit` for one compaction's application, and the environment that it is started in.

Pure, but for where Spark is installed and the log4j file. Kubernetes and standalone clusters take the same line as
YARN; they ignore properties that they don't know.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from compactor.settings.work import Spark
from compactor.spark.conf import as_user, common_conf, executor_python, log_to_stderr, without_contradiction
from compactor.spark.site import before_ours, spark_home, without_variables
from compactor.spark.submitter import JobName
from compactor.storage.location import split

SCRIPT: Final = Path(__file__).with_name("driver.py")
JOB_VARIABLE: Final = "COMPACTOR_SPARK_JOB"
"""Environment variable of the processes that the daemon starts; it identifies the orphans of a daemon that died."""
_STORES: Final = "spark.kerberos.access.hadoopFileSystems"
"""
File systems for which Spark gets delegation tokens with Kerberos, besides the default one. Without Kerberos Spark
doesn't read this property.
"""
_LOGGERS: Final = {"org.apache.spark.deploy.yarn.Client": "info", "org.apache.spark.deploy.k8s.submit": "info"}
"""These loggers tell the application's id at level info."""


def tag(key: str) -> str:
    """The tag of an application on YARN: names aren't unique."""
    return f"compactor-{key}"


def tags(conf: Mapping[str, str], key: str) -> dict[str, str]:
    """The property that tags an application on YARN, beside the tags that it has already."""
    return {"spark.yarn.tags": ",".join(filter(None, (before_ours(conf, "spark.yarn.tags"), "compactor", tag(key))))}


def queue_of(spark: Spark, job: JobName) -> str | None:
    """
    The cluster's queue: what the table or the request asks for, else that of the compaction pool, else the general one.
    """
    return job.resources.queue or spark.pool_queues.get(job.pool or "") or spark.queue


def command(spark: Spark, job: JobName, assignment: Path) -> list[str]:
    """
    The whole command line.

    Args:
        assignment: the file that the driver reads; on the cluster it lies in the driver's directory.
    """
    cluster = spark.deploy_mode == "cluster"
    line = [
        str(spark_home() / "bin" / "spark-submit"),
        "--master",
        spark.master,
        "--deploy-mode",
        spark.deploy_mode,
        "--name",
        job.name,
    ]
    if cluster:
        line += ["--files", str(assignment)]
    if spark.proxy_user and job.user:  # spark-submit takes no keytab beside --proxy-user; Hadoop gets it by variables
        line += ["--proxy-user", job.user]
    elif spark.principal and spark.keytab:
        line += ["--principal", spark.principal, "--keytab", str(spark.keytab)]
    for key, value in sorted(conf(spark, job).items()):
        line += ["--conf", f"{key}={value}"]
    return [*line, str(SCRIPT), assignment.name if cluster else str(assignment)]


def conf(spark: Spark, job: JobName) -> dict[str, str]:
    """
    Spark properties: the daemon's own, overridden by `spark.conf`, then by the requested resources, then by properties
    that can't be otherwise.
    """
    python = executor_python(spark)
    wanted = common_conf(spark) | {
        "spark.pyspark.python": python,
        "spark.pyspark.driver.python": python,
    }
    if spark.deploy_mode == "client":
        wanted["spark.pyspark.driver.python"] = sys.executable
    wanted |= as_user(spark, job.user if spark.proxy_user and job.user else None) | spark.conf
    wanted |= job.resources.conf
    if spark.elastic and (store := _hdfs(job)):
        wanted[_STORES] = ",".join(filter(None, (before_ours(wanted, _STORES), store)))
    if spark.master == "yarn":
        if queue := queue_of(spark, job):
            wanted["spark.yarn.queue"] = queue
        wanted |= tags(wanted, job.key)
    if spark.master.startswith("k8s:"):
        wanted |= {
            "spark.kubernetes.driver.label.compactor-job": job.key,
            "spark.kubernetes.submission.waitAppCompletion": "true",
        }
    wanted.pop("spark.master", None)  # it is an option of the line already
    wanted["spark.api.mode"] = "classic"  # the driver is Spark's own, whatever the site prefers
    return without_contradiction(wanted)


def _hdfs(job: JobName) -> str | None:
    """The HDFS of the compaction's staging directory, where its location names one."""
    parts = split(job.place) if job.place is not None else None
    return (
        f"{parts.scheme}://{parts.authority}"
        if parts is not None and parts.scheme in {"hdfs", "viewfs"} and parts.authority
        else None
    )


def environment(job: JobName, folder: Path, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """
    The daemon's environment without its settings, which hold passwords.

    Args:
        folder: for the log4j configuration, which is written there.
    """
    inherited = {
        key: value
        for key, value in without_variables(os.environ if given is None else given).items()
        if not key.upper().startswith("COMPACTOR_")
    }
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):  # set by properties instead
        inherited.pop(name, None)
    logging = log_to_stderr(folder, "warn", "%d{HH:mm:ss} %p %c{1}: %m%n", _LOGGERS)
    options = f"{inherited.get('SPARK_SUBMIT_OPTS', '')} {logging}".strip()
    return inherited | {"SPARK_HOME": str(spark_home()), "SPARK_SUBMIT_OPTS": options, JOB_VARIABLE: job.key}
