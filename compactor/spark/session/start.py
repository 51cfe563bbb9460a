"""
One try to start the shared Spark session, in a thread of its own. Any number of threads may wait for it. The try is
given up when it takes too long, or when no thread waits any more.

PySpark's own start can't be interrupted, and lasts as long as YARN keeps the application in its queue. Giving the try
up ends its JVM, at which PySpark fails. What that JVM had submitted to YARN doesn't notice its end, and is killed by
the tag that only this try has.
Source: docs/spark.md.
"""

import os
import secrets
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from pyspark import SparkConf
from pyspark.sql import SparkSession

from compactor.errors import CompactorError
from compactor.log import get_logger
from compactor.settings.work import Spark
from compactor.spark.application.command import tag
from compactor.spark.application.orphans import by_keytab, end_on_yarn, end_processes
from compactor.spark.conf import as_user, common_conf, executor_python, log_to_stderr, without_contradiction
from compactor.spark.java import require_java
from compactor.spark.session.jobs import POLL_SECONDS, POOLS, first_line
from compactor.spark.session.jvm import ALONE, Live, forget_jvm, gateway_process

_log = get_logger(__name__)
VARIABLE: Final = "SPARK_SESSION_START"
"""
Environment variable of all processes that are started for a try, by which they are found. It has no name like the
settings', or it would be read as one of them.
"""
_LOGGERS: Final = {"org.apache.spark.api.python.PythonGatewayServer": "fatal"}
"""
A failed task comes back as an error of `compactor.errors`; its Java stack trace on standard error wouldn't help. An
operator may set another log4j configuration.
"""


class Start:
    """
    A try that begins at once. When it is settled there is either `live`, or `why_not` in one line.

    Args:
        spark: where and how.
        name: of the application.
        before: a session that is ended first; None: there is none.
    """

    def __init__(self, spark: Spark, name: str, before: Live | None = None) -> None:
        self._spark = spark
        self._name = name
        self._before = before
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._settled = threading.Event()
        self._over = threading.Event()
        self._cleared = threading.Event()
        self._trying = False
        self._environment: dict[str, str] | None = None
        """This process's environment before PySpark's start; None: PySpark's start hasn't begun."""
        self.key = f"session-{secrets.token_hex(6)}"
        self.live: Live | None = None
        self.why_not: str | None = None
        threading.Thread(target=self._run, name="spark-start", daemon=True).start()

    @property
    def settled(self) -> bool:
        return self._settled.is_set()

    @property
    def seconds(self) -> float:
        """Seconds since the try began."""
        return time.monotonic() - self._began

    def wait(self, seconds: float) -> bool:
        """Wait until the try is settled, `seconds` at most; returns whether it is."""
        return self._settled.wait(seconds)

    def give_up(self, why: str) -> bool:
        """
        Settle the try as failed, and end what it has started, without waiting. Returns False when the try is settled
        already.
        """
        if not self._settle(None, why):
            return False
        _log.warning("spark_start.given_up", why=why, seconds=round(self.seconds))
        threading.Thread(target=self._clear, name="spark-give-up", daemon=True).start()
        return True

    def wait_until_cleared(self, seconds: float) -> bool:
        """
        After `give_up`: wait until nothing of the try is left, `seconds` at most; returns whether nothing is left.
        """
        return self._cleared.wait(seconds)

    def _settle(self, live: Live | None, why_not: str | None) -> bool:
        with self._lock:
            if self._settled.is_set():
                return False
            self.live, self.why_not = live, why_not
            self._settled.set()
            return True

    def _run(self) -> None:
        try:
            with ALONE:
                if self._before is not None:
                    self._before.end()
                if not self.settled:
                    self._try()
        except BaseException as error:
            self._settle(None, str(error) if isinstance(error, CompactorError) else self._cannot(first_line(error)))
        finally:
            self._over.set()

    def _try(self) -> None:
        self._trying = True
        try:
            live = self._create()
            if not self._settle(live, None):
                live.end()
        finally:
            self._trying = False

    def _clear(self) -> None:
        """
        Kill the try's processes until its thread has ended: the JVM may only be about to start. Then kill its
        applications on YARN.
        """
        while not self._over.wait(POLL_SECONDS):
            end_processes([self.key], VARIABLE)
            if self._trying and (process := gateway_process()) is not None:  # where there is no /proc
                process.kill()
        environment = self._environment  # the process's own may hold the key of the next start by now
        if (
            self._spark.master == "yarn"
            and environment is not None
            and (ended := end_on_yarn([self.key], None, environment | by_keytab(self._spark)))
        ):
            _log.info("yarn_applications.ended", applications=ended)
        self._cleared.set()

    def _create(self) -> Live:
        require_java()
        os.environ["PYSPARK_PYTHON"] = executor_python(self._spark)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        files = Path(tempfile.mkdtemp(prefix="compactor-spark-"))
        self._environment = dict(os.environ)
        os.environ[VARIABLE] = self.key
        try:
            spark = SparkSession.builder.config(conf=self._conf(files)).getOrCreate()
            live = Live(spark, files, spark.sparkContext.applicationId)
        except BaseException as error:
            why = first_line(error)  # read while the JVM still lives, which holds the message
            shutil.rmtree(files, ignore_errors=True)
            forget_jvm()
            if not isinstance(error, Exception):
                raise
            raise CompactorError(self._cannot(why)) from error
        finally:
            os.environ.pop(VARIABLE, None)
        live.watch()
        _log.info("spark_session.started", master=self._spark.master, application=live.application)
        return live

    def _cannot(self, why: str) -> str:
        return f"Spark can't be started with master {self._spark.master}: {why}"

    def _conf(self, files: Path) -> SparkConf:
        pools = files / "pools.xml"
        pools.write_text(POOLS, encoding="utf-8")
        wanted = (
            common_conf(self._spark)
            | as_user(self._spark, None)
            | {
                "spark.app.name": self._name,
                "spark.scheduler.mode": "FAIR",
                "spark.scheduler.allocation.file": pools.as_uri(),
                "spark.ui.enabled": "false",
                "spark.ui.showConsoleProgress": "false",
            }
        )
        if self._spark.principal and self._spark.keytab:
            wanted |= {
                "spark.kerberos.principal": self._spark.principal,
                "spark.kerberos.keytab": str(self._spark.keytab),
            }
        wanted |= self._spark.conf
        if self._spark.master == "yarn":
            own = wanted.get("spark.yarn.tags")
            wanted["spark.yarn.tags"] = ",".join([*([own] if own else []), "compactor", tag(self.key)])
        options = log_to_stderr(files, "fatal", "spark %p %c{1}: %m%n", _LOGGERS)
        wanted["spark.driver.extraJavaOptions"] = f"{options} {wanted.get('spark.driver.extraJavaOptions', '')}".strip()
        return SparkConf().setAll(list(without_contradiction(wanted).items()))
