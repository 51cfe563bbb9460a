"""YARN for tests: started beside the HDFS server, asked in its own JVM, told by Hadoop's own command."""

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from compactor.spark.site import spark_home
from tests.cluster.hadoop.servers import HadoopServer

JARS = f"local:{Path(sys.prefix) / 'lib' / f'python{sys.version_info.major}.{sys.version_info.minor}' / 'site-packages' / 'pyspark' / 'jars'}/*"
HERE = {"SPARK_LOCAL_IP": "127.0.0.1"}
"""
For every process of Spark's: it would take any other address that this machine has, such as one of a cable that another
test is about to cut.
"""
SMALL = {
    **{
        f"spark.{where}.{name}": value for where in ("yarn.appMasterEnv", "executorEnv") for name, value in HERE.items()
    },
    "spark.yarn.jars": JARS,  # nothing of Spark is uploaded
    "spark.executor.memory": "512m",
    "spark.executor.memoryOverhead": "512m",
    "spark.yarn.am.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.dynamicAllocation.maxExecutors": "1",
}
"""What an application of a test takes of a small machine."""


@dataclass(frozen=True)
class Application:
    """What the ResourceManager knows of it."""

    id: str
    name: str
    user: str
    queue: str
    state: str
    final: str
    containers: str
    """How many it has now, with that of its driver or its driver's stand-in."""


class Yarn:
    """
    Args:
        server: its HadoopServer.
    """

    def __init__(self, server):
        self.server = server

    @property
    def conf(self):
        return self.server.conf

    def environment(self):
        """Of whoever submits to it."""
        return {"HADOOP_CONF_DIR": str(self.conf)} | HERE

    def applications(self, *tags):
        """
        All of them, or those with a tag, whatever became of them.

        The ResourceManager's own list: Hadoop's command is two JVMs that take seconds of both cores, and tests look
        again and again.
        """
        rows = [line.split("\t") for line in self.server.command("applications") if line.startswith("application_")]
        return [Application(*cells[:7]) for cells in rows if not tags or set(tags) & set(cells[7].split(","))]

    def kill(self, application):
        """As an administrator does."""
        line = [
            str(spark_home() / "bin" / "spark-class"),
            "org.apache.hadoop.yarn.client.cli.ApplicationCLI",
            "application",
            "-kill",
            application,
        ]
        environment = os.environ | self.environment() | {"SPARK_HOME": str(spark_home())}
        subprocess.run(line, capture_output=True, timeout=180, check=True, env=environment)


@contextmanager
def running(folder, hdfs, java=()):
    """A ResourceManager and a NodeManager of 6 GiB, over a HDFS server."""
    with HadoopServer("yarn", folder, 1, 6144, conf=hdfs.conf, java=java) as server:
        yield Yarn(server)
