"""
One job on a running SparkContext: started in a thread of its own, followed, cancelled.

Pinned thread mode of PySpark gives each Python thread its own job group and pool in the JVM.
"""

import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from compactor.spark.conf import POOL
from compactor.spark.delegation_tokens import tokens_of
from compactor.spark.results import Counted, run_elsewhere
from compactor.spark.submitter import JobName
from compactor.storage.registry import StorageOptions

POLL_SECONDS: Final = 0.1
CANCEL_SECONDS: Final = 30.0
"""How long `cancel` waits for a job. Tasks that take longer are harmless."""


class SparkJob:
    """
    A job that runs from its creation on.

    When the job is done, `results` has one item a task, for `results_of`; or `error` is the error that ended the job.

    Args:
        storage: how the tasks reach stores.
    """

    def __init__(
        self,
        context: SparkContext,
        job: JobName,
        function: Callable[[Any], Any],
        tasks: Sequence[Any],
        storage: StorageOptions,
    ) -> None:
        self._context = context
        self._job = job
        self._storage = storage.beneath(job.root)
        self._done = threading.Event()
        self.results: list[Counted] = []
        self.error: BaseException | None = None
        thread = threading.Thread(
            target=self._collect, args=(function, list(tasks)), name=f"spark-{job.key}", daemon=True
        )
        thread.start()

    def _collect(self, function: Callable[[Any], Any], tasks: list[Any]) -> None:
        try:
            self._context.setJobGroup(self._job.group, self._job.name, interruptOnCancel=False)
            self._context.setLocalProperty("spark.scheduler.pool", self._job.pool or POOL)
            run = partial(run_elsewhere, function, storage=self._storage, tokens=tokens_of(self._context))
            self.results = self._context.parallelize(tasks, len(tasks)).mapPartitions(run).collect()
        except BaseException as error:
            self.error = error
        finally:
            self._done.set()

    def wait(self, seconds: float) -> bool:
        """Wait until the job is done, `seconds` at most; returns whether it is done."""
        return self._done.wait(seconds)

    def cancel(self, seconds: float = CANCEL_SECONDS) -> None:
        """
        Cancel the job and wait until it is done, `seconds` at most. Cancelling can come before Spark knows the job, so
        it is repeated.
        """
        for _ in range(int(seconds / POLL_SECONDS)):
            with contextlib.suppress(Py4JError, OSError):
                self._context.cancelJobGroup(self._job.group)
            if self._done.wait(POLL_SECONDS):
                break

    def share_done(self) -> float | None:
        """Finished tasks of the group's newest job, 0 to 1; None when Spark doesn't answer."""
        try:
            tracker = self._context.statusTracker()
            jobs = tracker.getJobIdsForGroup(self._job.group)
            if not jobs or (info := tracker.getJobInfo(max(jobs))) is None:
                return 0.0
            stages = [stage for number in info.stageIds if (stage := tracker.getStageInfo(number)) is not None]
        except (Py4JError, OSError):
            return None
        total = sum(stage.numTasks for stage in stages)
        return sum(stage.numCompletedTasks for stage in stages) / total if total else 0.0


def first_line(error: BaseException) -> str:
    """The line of an error that is worth showing: PySpark buries a task's own message in one or two stack traces."""
    try:
        text = str(error.java_exception if isinstance(error, Py4JJavaError) else error)
    except (Py4JError, OSError):  # the message is in the JVM, which is gone
        text = f"{type(error).__name__}; the JVM ended before it could be asked"
    if isinstance(error, PySparkException):
        text = error.getMessage() or text
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if "Traceback (most recent call last)" in line), None)
    own = [line for line in lines[start + 1 :] if line.strip() and not line[0].isspace()] if start is not None else []
    return (own or [line for line in lines if line.strip()] or [type(error).__name__])[0].strip()
