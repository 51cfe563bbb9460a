"""
One job on a running SparkContext: started in a thread of its own, followed, cancelled.

Pinned thread mode of PySpark gives each Python thread its own job group, pool and stage names in the JVM, which end
with the thread.
"""

import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.traceback_utils import SCCallSiteSync

from compactor.errors import CompactorError, UnreachableError
from compactor.spark.code_identity import guarded
from compactor.spark.conf import POOL
from compactor.spark.delegation_tokens import tokens_of
from compactor.spark.probe import report_of_executor
from compactor.spark.results import Counted, run_elsewhere
from compactor.spark.submitter import JobName
from compactor.spark.unfit import why_unfit
from compactor.storage.io_counters import BytesMoved
from compactor.storage.registry import StorageOptions

POLL_SECONDS: Final = 0.1
CANCEL_SECONDS: Final = 30.0
"""How long `cancel` waits for a job. Tasks that take longer are harmless."""
SCCallSiteSync._spark_stack_depth = 1 << 30  # noqa: SLF001 - no public way; a number that calls in progress never lower to 0
"""
Keeps PySpark from naming stages by the line of our code that calls it, which it does while its count of calls in
progress is 0. That count is of all threads, so with several jobs at once PySpark names only some of them.
"""


class SparkJob:
    """
    A job that runs from its creation on.

    When the job is done, `results` has one item a task, for `results_of`; or `error` is the error that ended the job.

    Args:
        storage: how the tasks reach stores.
        code: the daemon's; see `code_identity`.
    """

    def __init__(
        self,
        context: SparkContext,
        job: JobName,
        function: Callable[[Any], Any],
        tasks: Sequence[Any],
        storage: StorageOptions,
        *,
        code: str,
    ) -> None:
        self._context = context
        self._job = job
        self._code = code
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
            self._context.setLocalProperty("callSite.short", self._job.stage)
            self._context.setLocalProperty("callSite.long", f"{self._job.stage}: {self._job.name}, {len(tasks)} tasks")
            run = partial(run_elsewhere, function, storage=self._storage, tokens=tokens_of(self._context))
            work = guarded(self._code, run)
            self.results = self._context.parallelize(tasks, len(tasks)).mapPartitions(work).collect()
        except BaseException as error:
            if (why := why_unfit(_text(error))) is None:
                self.error = error
            else:
                self.results = [Counted(UnreachableError(f"Spark's executors can't work: {why}"), BytesMoved())]
        finally:
            self._done.set()

    def wait(self, seconds: float) -> bool:
        """Wait until the job is done, `seconds` at most; returns whether it is done."""
        return self._done.wait(seconds)

    @property
    def why_failed(self) -> str | None:
        """Of a job that is done: why it failed, in one line; None: it didn't."""
        if self.error is not None:
            return first_line(self.error)
        return next((str(one.result) for one in self.results if isinstance(one.result, CompactorError)), None)

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


def executor_check(context: SparkContext, name: str, code: str) -> SparkJob:
    """
    A job that only looks whether an executor can work, before the first job of a compaction: what is wrong with all
    executors is then no entry's fault. What is wrong with one of them, each task finds by itself.

    Args:
        name: of the job.
        code: the daemon's; see `code_identity`.
    """
    job = JobName(name, "start.check", step="check executor")
    return SparkJob(context, job, report_of_executor, [None], StorageOptions(), code=code)


def first_line(error: BaseException) -> str:
    """The line of an error that is worth showing: PySpark buries a task's own message in one or two stack traces."""
    lines = _text(error).splitlines()
    start = next((number for number, line in enumerate(lines) if "Traceback (most recent call last)" in line), None)
    own = [line for line in lines[start + 1 :] if line.strip() and not line[0].isspace()] if start is not None else []
    return (own or [line for line in lines if line.strip()] or [type(error).__name__])[0].strip()


def _text(error: BaseException) -> str:
    """All that an error says, with the stack traces of Java and Python in it."""
    try:
        text = str(error.java_exception if isinstance(error, Py4JJavaError) else error)
    except (Py4JError, OSError):  # the message is in the JVM, which is gone
        text = f"{type(error).__name__}; the JVM ended before it could be asked"
    if isinstance(error, PySparkException) and hasattr(error, "getMessage"):  # since 4.0
        return error.getMessage() or text
    return text
