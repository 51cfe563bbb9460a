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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from compactor.engine.submit import BrokenDownError, JobName
from compactor.engine.task_results import Failed, run_partition
from compactor.errors import CancelledError, CompactorError, UnreachableError
from compactor.log import get_logger
from compactor.settings import Settings
from compactor.storage.registry import configured

Given = TypeVar("Given")
Made = TypeVar("Made")

_log = get_logger(__name__)
POLL_SECONDS: Final = 0.1
CANCEL_SECONDS: Final = 30.0
"""How long a cancelled job is waited for; its tasks are harmless if they take longer."""

POOL: Final = "compactor"
_POOLS: Final = f'<?xml version="1.0"?><allocations><pool name="{POOL}"><schedulingMode>FAIR</schedulingMode></pool></allocations>'
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


@dataclass(slots=True)
class _Running:
    """A job in its own thread: pinned thread mode gives each Python thread its own job group and pool in the JVM."""

    done: threading.Event = field(default_factory=threading.Event)
    results: list[Any] | None = None
    error: BaseException | None = None


class SparkSubmitter:
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

    def run(
        self,
        job: JobName,
        function: Callable[[Given], Made],
        tasks: Sequence[Given],
        *,
        progress: Callable[[float], None] = lambda _: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> list[Made]:
        """See `Submitter.run`."""
        if cancelled():
            raise CancelledError(f"{job.name} was cancelled before its job started")
        if not tasks:
            return []
        with self._session() as live:
            running = _Running()
            thread = threading.Thread(target=_collect, args=(live.context, job, function, list(tasks), running), name=f"spark-{job.key}", daemon=True)
            thread.start()
            self._follow(live, job, running, progress, cancelled)
        if running.error is not None:
            raise self._explained(live, job, running.error)
        results = cast("list[Made | Failed]", running.results)
        for result in results:
            if isinstance(result, Failed):
                raise result.error
        return cast("list[Made]", results)

    def _follow(self, live: _Live, job: JobName, running: _Running, progress: Callable[[float], None], cancelled: Callable[[], bool]) -> None:
        """Wait for the job, tell how far it is, cancel it when asked. Cancelling can come before Spark knows the job, so it is repeated."""
        while not running.done.wait(POLL_SECONDS):
            if cancelled():
                for _ in range(int(CANCEL_SECONDS / POLL_SECONDS)):
                    with contextlib.suppress(Py4JError, OSError):
                        live.context.cancelJobGroup(job.group)
                    if running.done.wait(POLL_SECONDS):
                        break
                raise CancelledError(f"{job.name} was cancelled")
            with contextlib.suppress(Py4JError, OSError):
                progress(_share_done(live.context, job.group))
        progress(1.0)

    def _explained(self, live: _Live, job: JobName, error: BaseException) -> CompactorError:
        if not live.alive():
            return BrokenDownError(f"Spark's JVM died while {job.name} ran; the next job starts a new one")
        return BrokenDownError(f"Spark job {job.name} failed: {_first_line(error)}")

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
        raise UnreachableError(f"Spark can't be started with master {self._settings.master}: {_first_line(result)}") from result

    def _create(self) -> _Live:
        require_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        files = Path(tempfile.mkdtemp(prefix="compactor-spark-"))
        try:
            conf = self._conf(files)
            spark = SparkSession.builder.config(conf=conf).getOrCreate()
        except BaseException:
            shutil.rmtree(files, ignore_errors=True)
            _forget_jvm()
            raise
        _log.info("spark session started", master=self._settings.master, application=spark.sparkContext.applicationId)
        return _Live(spark, files)

    def _conf(self, files: Path) -> SparkConf:
        pools, logging = files / "pools.xml", files / "log4j2.properties"
        pools.write_text(_POOLS, encoding="utf-8")
        logging.write_text(_LOGGING, encoding="utf-8")
        wanted = {
            "spark.app.name": self._name,
            "spark.master": self._settings.master,
            "spark.scheduler.mode": "FAIR",
            "spark.scheduler.allocation.file": pools.as_uri(),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.python.worker.reuse": "true",
            "spark.executorEnv.MALLOC_ARENA_MAX": "2",
            "spark.executorEnv.OMP_NUM_THREADS": "1",
            "spark.driver.memory": "1g",
        }
        if self._settings.master.startswith("local"):
            wanted |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        wanted |= self._settings.conf
        options = f"-Dlog4j2.configurationFile={logging.as_uri()}"
        wanted["spark.driver.extraJavaOptions"] = f"{options} {wanted.get('spark.driver.extraJavaOptions', '')}".strip()
        return SparkConf().setAll(list(wanted.items()))

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


def require_java() -> str:
    """
    The Java that Spark will use.

    Raises:
        UnreachableError: there is none; one line that says what to do.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = str(Path(home) / "bin" / "java")
        if not os.access(java, os.X_OK):
            raise UnreachableError(f"JAVA_HOME is {home}, but there is no bin/java in it; Spark needs Java 17 or newer")
        return java
    found = shutil.which("java")
    if found is None:
        raise UnreachableError("Java isn't installed: Spark needs Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless), or JAVA_HOME set")
    return found


def _collect(context: SparkContext, job: JobName, function: Callable[[Any], Any], tasks: list[Any], running: _Running) -> None:
    try:
        context.setJobGroup(job.group, job.name, interruptOnCancel=False)
        context.setLocalProperty("spark.scheduler.pool", job.pool or POOL)
        running.results = context.parallelize(tasks, len(tasks)).mapPartitions(partial(run_partition, function, storage=configured())).collect()
    except BaseException as error:
        running.error = error
    finally:
        running.done.set()


def _share_done(context: SparkContext, group: str) -> float:
    """Finished tasks of the group's newest job."""
    tracker = context.statusTracker()
    jobs = tracker.getJobIdsForGroup(group)
    if not jobs or (info := tracker.getJobInfo(max(jobs))) is None:
        return 0.0
    stages = [stage for number in info.stageIds if (stage := tracker.getStageInfo(number)) is not None]
    total = sum(stage.numTasks for stage in stages)
    return sum(stage.numCompletedTasks for stage in stages) / total if total else 0.0


def _first_line(error: BaseException) -> str:
    """The sentence in an error that is worth showing: PySpark buries the task's own in one or two stack traces."""
    text = str(error)
    if isinstance(error, Py4JJavaError):
        text = str(error.java_exception)
    elif isinstance(error, PySparkException):
        text = error.getMessage() or text
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if "Traceback (most recent call last)" in line), None)
    own = [line for line in lines[start + 1 :] if line.strip() and not line[0].isspace()] if start is not None else []
    return (own or [line for line in lines if line.strip()] or [type(error).__name__])[0].strip()


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
