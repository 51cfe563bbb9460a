"""
A standalone cluster of Spark from PySpark's own jars: a Master, and Workers on loopback hosts of their own.
"""

import os
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

from compactor.spark.site import spark_home
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
_START_SECONDS = 120


@contextmanager
def cluster(folder, workers):
    """
    Start the servers; yields the Master's address.

    Args:
        workers: host and environment of each, by its name, which is that of its folder.
    """
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        words = ["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        _start(stack, folder / "master", words, {"SPARK_LOCAL_IP": "127.0.0.1"}, "I have been elected leader")
        for name, (host, environment) in workers.items():
            words = ["worker.Worker", "--host", host, "--cores", "4", "--memory", "4g", "--webui-port", "0", address]
            _start(stack, folder / name, words, {"SPARK_LOCAL_IP": host} | environment, "registered")
        yield address


def _start(stack, folder, words, environment, ready):
    folder.mkdir()
    log = folder / "log"
    environment = os.environ | {"SPARK_HOME": str(spark_home()), "SPARK_WORKER_DIR": str(folder)} | environment
    with log.open("wb") as out:
        line = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{words[0]}", *words[1:]]
        process = subprocess.Popen(line, stdout=out, stderr=out, env=environment, stdin=subprocess.DEVNULL, cwd=folder)
    stack.callback(process.wait)
    stack.callback(process.kill)
    deadline = time.monotonic() + _START_SECONDS
    while ready not in log.read_text(encoding="utf-8", errors="replace"):
        assert process.poll() is None, log.read_text(encoding="utf-8")
        assert time.monotonic() < deadline, log.read_text(encoding="utf-8")
        time.sleep(0.1)
