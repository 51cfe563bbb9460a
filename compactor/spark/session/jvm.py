"""
The Spark session of a process and the JVM behind it: whether they live, and how they are ended.

PySpark knows one session and one JVM in a process, and keeps them in its classes. So each thread that starts or ends
one holds `ALONE` meanwhile.
"""

import contextlib
import shutil
import threading
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from compactor.log import get_logger

_log = get_logger(__name__)
ALONE: Final = threading.Lock()
STOP_SECONDS: Final = 15.0
"""How long Spark may take to stop in order, which its cluster may prevent. After that its JVM is ended."""
_END_SECONDS: Final = 10.0
ASK_SECONDS: Final = 30.0
SILENT_SECONDS: Final = 120.0
"""
A JVM that answers no call for so long, for want of memory for example, is killed: calls into the JVM have no time
limit, and a thread that waits for one couldn't be cancelled.
"""
_GRACE_SECONDS: Final = 5.0


@dataclass(slots=True)
class Live:
    """
    A started session.

    Args:
        files: the directory of the files that the session was started with; removed when the session ends.
        application: id of the session's Spark application.
    """

    spark: SparkSession
    files: Path
    application: str
    since: float = field(default_factory=time.monotonic)

    @property
    def context(self) -> SparkContext:
        return self.spark.sparkContext

    def alive(self) -> bool:
        """Whether the session lives; asks its JVM."""
        process = gateway_process()
        if process is not None and process.poll() is not None:
            return False
        try:
            return not self.context._jsc.sc().isStopped()  # noqa: SLF001 - PySpark has no public question for this
        except (Py4JError, OSError, AttributeError):
            return False

    def watch(self) -> None:
        """Start a thread that checks from time to time whether the JVM answers, for as long as it lives."""
        threading.Thread(target=self._watch, name="spark-watch", daemon=True).start()

    def _watch(self) -> None:
        process = gateway_process()
        while process is not None and process.poll() is None:
            answered = threading.Event()
            limit = threading.Timer(SILENT_SECONDS, self._kill_silent, (process, answered))
            limit.daemon = True
            limit.start()
            self.alive()
            answered.set()
            limit.cancel()
            time.sleep(ASK_SECONDS)

    def _kill_silent(self, process: Any, answered: threading.Event) -> None:
        """
        Kill the JVM, unless its answer comes within the grace period: when this process was paused instead of the JVM,
        the answer is there and about to be read.
        """
        if not answered.wait(_GRACE_SECONDS):
            _log.warning("spark_jvm.killed", silent_seconds=SILENT_SECONDS, application=self.application)
            process.kill()

    def end(self) -> None:
        """Stop the session and its JVM, within half a minute in any state. The caller holds `ALONE`."""
        thread = threading.Thread(target=self._stop, name="spark-stop", daemon=True)
        thread.start()
        thread.join(STOP_SECONDS)
        forget_jvm()
        thread.join(STOP_SECONDS)  # the thread ends without its JVM; it must not clear the next session's state
        shutil.rmtree(self.files, ignore_errors=True)

    def _stop(self) -> None:
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")  # PySpark warns about a JVM that is gone already, a usual reason to stop
            self.spark.stop()


def gateway_process() -> Any:
    """The process of the JVM; None while there is none, or when another program started it."""
    return getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001


def forget_jvm() -> None:
    """End the JVM and clear what PySpark keeps about it in its classes, so that PySpark starts a new one next time."""
    gateway = SparkContext._gateway  # noqa: SLF001
    if gateway is not None:
        process = gateway_process()
        if process is not None:
            with contextlib.suppress(Exception):
                process.stdin.close()  # the JVM ends when its standard input does
            try:
                process.wait(_END_SECONDS)
            except Exception:
                process.kill()
                process.wait()
        with contextlib.suppress(Exception):
            gateway.shutdown()  # only now: it waits without limit for a live JVM that doesn't answer
    SparkContext._active_spark_context = None  # noqa: SLF001
    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001
    SparkSession._instantiatedSession = None  # noqa: SLF001
