"""
A place of Spark's own (SPARK_HOME) whose `spark-submit` runs our driver over this process instead of a cluster: no
Java, a second instead of ten.

The environment variable FAKE_SPARK makes it fail: `refuse` like a submission that isn't accepted, `no login` like one
without a ticket, `wait` like one whose queue is full, `crash` when the first job is asked for.
"""

import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

PROJECT = Path(__file__).resolve().parents[1]


def install(folder):
    """Make one; returns what SPARK_HOME is to be."""
    script = folder / "bin" / "spark-submit"
    script.parent.mkdir(parents=True)
    script.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path[0] = {str(PROJECT)!r}\nfrom tests.fake_spark import main\n\nmain(sys.argv[1:])\n",
        encoding="utf-8",
    )
    script.chmod(0o755)
    return folder


class Context:
    """As much of a SparkContext as a job needs."""

    applicationId = "application_1700000000000_0001"  # noqa: N815 - PySpark's names
    master = "local[1]"

    _jvm = SimpleNamespace(
        org=SimpleNamespace(
            apache=SimpleNamespace(
                hadoop=SimpleNamespace(
                    security=SimpleNamespace(UserGroupInformation=SimpleNamespace(isSecurityEnabled=lambda: False))
                )
            )
        )
    )

    def __init__(self):
        self._cancelled = threading.Event()

    @classmethod
    def getOrCreate(cls):
        return cls()

    def stop(self): ...

    def accumulator(self, value, _):
        return SimpleNamespace(value=value, add=value.update)

    def setJobGroup(self, *group, **how):
        if os.environ.get("FAKE_SPARK") == "crash":
            os._exit(3)

    def setLocalProperty(self, key, value): ...

    def cancelJobGroup(self, group):
        self._cancelled.set()

    def parallelize(self, tasks, _):
        return _Rdd(tasks, self._cancelled)

    def statusTracker(self):
        return self

    def getJobIdsForGroup(self, group):
        return []


class _Rdd:
    def __init__(self, tasks, cancelled, function=None):
        self._tasks, self._cancelled, self._function = tasks, cancelled, function

    def mapPartitions(self, function):
        return _Rdd(self._tasks, self._cancelled, function)

    def collect(self):
        made, done = [], threading.Event()

        def work():
            for task in self._tasks:
                made.extend(self._function(iter([task])))
            done.set()

        threading.Thread(target=work, daemon=True).start()
        while not done.wait(0.05):
            if self._cancelled.is_set():
                raise RuntimeError("cancelled")
        return made


def main(words):
    if os.environ.get("FAKE_SPARK") == "refuse":
        sys.stderr.write(
            'WARN nothing\nException in thread "main" org.apache.hadoop.yarn.exceptions.YarnException: unknown queue: etl\n\tat x.y\n'
        )
        sys.exit(1)
    if os.environ.get("FAKE_SPARK") == "no login":
        sys.stderr.write(
            "WARN x\norg.apache.hadoop.security.AccessControlException: Client cannot authenticate via:[TOKEN, KERBEROS]\n\tat x.y\n"
        )
        threading.Event().wait()
    if os.environ.get("FAKE_SPARK") == "wait":
        threading.Event().wait()
    sys.stderr.write(f"Submitted application {Context.applicationId}\n")
    from compactor.spark.application import driver

    driver.LOOK_SECONDS = 0.1
    driver.SparkContext = Context
    sys.stderr.write(f"compactor: {driver.main(words[-1])}\n")
