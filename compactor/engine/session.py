"""
One long-lived SparkSession for all compactions of a process.

Started by the first compaction, off the main thread (on it, SparkContext would take over SIGINT); shared by concurrent workers under FAIR scheduling; stopped
when nothing ran for a while; replaced when its JVM has died. Each compaction is a job group of its own whose description is its name.
"""

import contextlib
import os
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from compactor.engine.java import require_java
from compactor.engine.running import Runner
from compactor.engine.spark_conf import as_user, common_conf, executor_python, without_contradiction
from compactor.engine.spark_jobs import POLL_SECONDS, POOLS, SparkJob, first_line
from compactor.engine.submit import BrokenDownError, JobName
from compactor.engine.task_results import Counted
from compactor.errors import CancelledError, CompactorError, UnreachableError
from compactor.log import get_logger
from compactor.settings import Settings

Given = TypeVar("Given")
Made = TypeVar("Made")

_log = get_logger(__name__)
_LOGGING: Final = """rootLogger.level = fatal
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark %p %c{1}: %m%n
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = fatal
"""
"""A failed task comes back as an error of ours; its Java stack trace on standard error helps nobody. Who wants it gives a configuration of their own."""


@dataclass(slots=True)
class _Live:
    """A started session and the files it was started with."""

    spark: SparkSession
    files: Path
    application: str

    @property
    def context(self) -> SparkContext:
        return self.spark.sparkContext

    def alive(self) -> bool:
        process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - PySpark has no public question for this
        if process is not None and process.poll() is not None:
            return False
        try:
            return not self.context._jsc.sc().isStopped()  # noqa: SLF001
        except (Py4JError, OSError, AttributeError):
            return False


class SparkSubmitter(Runner):
    """
    The `Submitter` of `spark.mode: session`.

    Args:
        settings: `spark.*` says where and how.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.spark
        self._name = f"{settings.host_name}-compactor"
        self._lock = threading.RLock()
        self._live: _Live | None = None
        self._users = 0
        self._idle: threading.Timer | None = None

    def _answers(
        self, job: JobName, function: Callable[[Given], Made], tasks: Sequence[Given], progress: Callable[[float], None], cancelled: Callable[[], bool]
    ) -> list[Counted]:
        with self._session() as live:
            running = SparkJob(live.context, job, function, tasks)
            while not running.wait(POLL_SECONDS):
                if cancelled():
                    running.cancel()
                    raise CancelledError(f"{job.name} was cancelled")
                if (share := running.share_done()) is not None:
                    progress(share)
            progress(1.0)
        if running.error is not None:
            raise self._explained(live, job, running.error)
        return running.results

    def application(self, job: JobName) -> str | None:  # noqa: ARG002 - all jobs run in the same one
        """See `StoppableSubmitter.application`."""
        live = self._live
        return live.application if live is not None else None

    def end(self, job: JobName) -> None:
        """Nothing to do: the session is everybody's."""

    def end_left_over(self, keys: Collection[str], application: str | None) -> None:
        """Nothing to do: a session's JVM ends when the process does, and with it the application on a cluster."""

    def _explained(self, live: _Live, job: JobName, error: BaseException) -> CompactorError:
        if not live.alive():
            return BrokenDownError(f"Spark's JVM died while {job.name} ran; the next job starts a new one")
        return BrokenDownError(f"Spark job {job.name} failed: {first_line(error)}")

    @contextlib.contextmanager
    def _session(self) -> Iterator[_Live]:
        """A live session that isn't stopped while it is used."""
        with self._lock:
            if self._idle is not None:
                self._idle.cancel()
                self._idle = None
            if self._live is not None and not self._live.alive():
                _log.warning("spark session is gone, starting another")
                self._stop()
            if self._live is None:
                self._live = self._start()
            self._users += 1
            live = self._live
        try:
            yield live
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0 and self._live is not None:
                    self._idle = threading.Timer(self._settings.idle_seconds, self._stop_when_idle)
                    self._idle.daemon = True
                    self._idle.start()

    def _start(self) -> _Live:
        made: list[_Live | Exception] = []

        def start() -> None:
            try:
                made.append(self._create())
            except Exception as error:
                made.append(error)

        thread = threading.Thread(target=start, name="spark-start", daemon=True)
        thread.start()
        thread.join()
        if isinstance(result := made[0], _Live):
            return result
        if isinstance(result, CompactorError):
            raise result
        raise self._cannot_start(first_line(result)) from result

    def _create(self) -> _Live:
        require_java()
        os.environ["PYSPARK_PYTHON"] = executor_python(self._settings)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        files = Path(tempfile.mkdtemp(prefix="compactor-spark-"))
        try:
            conf = self._conf(files)
            spark = SparkSession.builder.config(conf=conf).getOrCreate()
        except BaseException as error:
            why = first_line(error)  # while there is still a JVM to ask what it meant
            shutil.rmtree(files, ignore_errors=True)
            _forget_jvm()
            if isinstance(error, CompactorError) or not isinstance(error, Exception):
                raise
            raise self._cannot_start(why) from error
        _log.info("spark session started", master=self._settings.master, application=spark.sparkContext.applicationId)
        return _Live(spark, files, spark.sparkContext.applicationId)

    def _cannot_start(self, why: str) -> UnreachableError:
        return UnreachableError(f"Spark can't be started with master {self._settings.master}: {why}")

    def _conf(self, files: Path) -> SparkConf:
        pools, logging = files / "pools.xml", files / "log4j2.properties"
        pools.write_text(POOLS, encoding="utf-8")
        logging.write_text(_LOGGING, encoding="utf-8")
        wanted = (
            common_conf(self._settings)
            | as_user(self._settings, None)
            | {
                "spark.app.name": self._name,
                "spark.scheduler.mode": "FAIR",
                "spark.scheduler.allocation.file": pools.as_uri(),
                "spark.ui.enabled": "false",
                "spark.ui.showConsoleProgress": "false",
            }
        )
        if self._settings.principal and self._settings.keytab:
            wanted |= {"spark.kerberos.principal": self._settings.principal, "spark.kerberos.keytab": str(self._settings.keytab)}
        wanted |= self._settings.conf
        options = f"-Dlog4j2.configurationFile={logging.as_uri()}"
        wanted["spark.driver.extraJavaOptions"] = f"{options} {wanted.get('spark.driver.extraJavaOptions', '')}".strip()
        return SparkConf().setAll(list(without_contradiction(wanted).items()))

    def _stop_when_idle(self) -> None:
        with self._lock:
            if self._users == 0:
                _log.info("spark session stopped: idle")
                self._stop()

    def stop(self) -> None:
        """End the session and its JVM; a later `run` starts another."""
        with self._lock:
            if self._idle is not None:
                self._idle.cancel()
                self._idle = None
            self._stop()

    def _stop(self) -> None:
        live, self._live = self._live, None
        if live is None:
            return
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")  # PySpark warns about a JVM that is gone already, which is why we are here
            live.spark.stop()
        _forget_jvm()
        shutil.rmtree(live.files, ignore_errors=True)


def _forget_jvm() -> None:
    """Let PySpark start a new JVM next time: end the old one and clear what PySpark keeps about it in its classes."""
    gateway = SparkContext._gateway  # noqa: SLF001
    if gateway is not None:
        process = getattr(gateway, "proc", None)
        with contextlib.suppress(Exception):
            gateway.shutdown()
        if process is not None:
            with contextlib.suppress(Exception):
                process.stdin.close()  # the JVM ends when its standard input does
            try:
                process.wait(10)
            except Exception:
                process.kill()
                process.wait()
    SparkContext._active_spark_context = None  # noqa: SLF001
    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001
    SparkSession._instantiatedSession = None  # noqa: SLF001
