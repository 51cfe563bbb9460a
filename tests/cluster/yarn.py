"""YARN for tests: started beside the HDFS server, asked and told by Hadoop's own command."""

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from compactor.engine.submit_command import spark_home
from tests.cluster.hadoop.servers import HadoopServer

JARS = f"local:{Path(sys.prefix) / 'lib' / f'python{sys.version_info.major}.{sys.version_info.minor}' / 'site-packages' / 'pyspark' / 'jars'}/*"
HERE = {"SPARK_LOCAL_IP": "127.0.0.1"}
"""For every process of Spark's: it would take any other address that this machine has, such as one of a cable that another test is about to cut."""
SMALL = {
    **{f"spark.{where}.{name}": value for where in ("yarn.appMasterEnv", "executorEnv") for name, value in HERE.items()},
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
    """One line of `application -list`."""

    id: str
    name: str
    user: str
    queue: str
    state: str
    final: str


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
        """All of them, or those with a tag, whatever became of them."""
        words = ["-list", "-appStates", "ALL", *(["-appTags", ",".join(tags)] if tags else [])]
        rows = [[cell.strip() for cell in line.split("\t")] for line in self._say(words).splitlines() if line.strip().startswith("application_")]
        return [Application(cells[0], cells[1], cells[3], cells[4], cells[5], cells[6]) for cells in rows]

    def kill(self, application):
        """As an administrator does."""
        self._say(["-kill", application])

    def _say(self, words):
        line = [str(spark_home() / "bin" / "spark-class"), "org.apache.hadoop.yarn.client.cli.ApplicationCLI", "application", *words]
        environment = os.environ | self.environment() | {"SPARK_HOME": str(spark_home())}
        return subprocess.run(line, capture_output=True, text=True, timeout=180, check=True, env=environment).stdout


@contextmanager
def running(folder, hdfs, java=()):
    """A ResourceManager and a NodeManager of 6 GiB, over a HDFS server."""
    with HadoopServer("yarn", folder, 1, 6144, conf=hdfs.conf, java=java) as server:
        yield Yarn(server)
