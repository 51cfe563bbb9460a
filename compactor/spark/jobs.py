"""
One job on a running SparkContext: started in a thread of its own, followed, cancelled; and the records that Spark keeps
of its failed attempts.

Pinned thread mode of PySpark gives each Python thread its own job group, pool and stage names in the JVM, which end
with the thread. A task that refuses says so by an accumulator, which reaches the driver when the task ends, and not
only when all have.
Source: Spark's AppStatusStore, which keeps the records with and without its web pages.
"""

import contextlib
import functools
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import Accumulator, AccumulatorParam, SparkContext, SparkStageInfo
from pyspark.errors import PySparkException
from pyspark.traceback_utils import SCCallSiteSync

from compactor.errors import CompactorError, UnreachableError
from compactor.spark.attempts import FailedAttempt, travelled
from compactor.spark.code_identity import guarded
from compactor.spark.concat import DriverFunction
from compactor.spark.conf import POOL
from compactor.spark.delegation_tokens import tokens_of
from compactor.spark.probe import report_of_executor
from compactor.spark.results import Counted, JobEnd, run_elsewhere
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
_RECORDED_MS: Final = 1000
"""How long the end of a job waits until Spark has recorded the attempts that failed."""
_MOST_FAILURES: Final = 500
"""Failed attempts of a stage that are looked at."""
_LARGE: Final = 512 << 10
"""Bytes of a function from which it is sent as a broadcast variable; PySpark does it by itself from 1 MiB."""
_Refusals = dict[str, list[Counted]]


class _ByGroup(AccumulatorParam[_Refusals]):  # type: ignore[misc]  # PySpark's classes have no types here
    """Answers by the group of their job."""

    def zero(self, value: _Refusals) -> _Refusals:  # noqa: ARG002 - as PySpark says
        return {}

    def addInPlace(self, value1: _Refusals, value2: _Refusals) -> _Refusals:  # noqa: N802 - PySpark's name
        for group, answers in value2.items():
            value1.setdefault(group, []).extend(answers)
        return value1


@functools.lru_cache(maxsize=1)
def _refusals_in(context: SparkContext) -> Accumulator[_Refusals]:
    """One accumulator for all jobs of a context: PySpark never forgets one."""
    return context.accumulator({}, _ByGroup())


def _tell(refusals: Accumulator[_Refusals], group: str, answer: Counted) -> None:
    refusals.add({group: [answer]})


@contextlib.contextmanager
def _sent(context: SparkContext, packed: bytes) -> Iterator[Any]:
    """
    A pickled function as tasks get it: a large one as a broadcast variable, whose file goes with the job. Those that
    PySpark makes by itself stay on the driver's disk until the session ends.
    """
    if len(packed) < _LARGE:
        yield packed
        return
    shared = context.broadcast(packed)
    try:
        yield shared
    finally:
        with contextlib.suppress(Py4JError, OSError):
            shared.destroy()


class SparkJob:
    """
    A job that runs from its creation on, and is cancelled when a task refuses. `end` says how it ended.

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
        self._refusals = _refusals_in(context)
        self._elsewhere = not context.master.startswith("local")
        self._in_driver = isinstance(function, DriverFunction)
        self._answers: list[Counted] = []
        self._error: BaseException | None = None
        thread = threading.Thread(
            target=self._collect, args=(function, list(tasks)), name=f"spark-{job.key}", daemon=True
        )
        thread.start()

    def _collect(self, function: Callable[[Any], Any], tasks: list[Any]) -> None:
        try:
            if isinstance(function, DriverFunction):
                self._answers = [
                    Counted(function.on_driver(self._context, self._storage, task), BytesMoved()) for task in tasks
                ]
                return
            self._context.setJobGroup(self._job.group, self._job.name, interruptOnCancel=False)
            self._context.setLocalProperty("spark.scheduler.pool", self._job.pool or POOL)
            self._context.setLocalProperty("callSite.short", self._job.stage)
            self._context.setLocalProperty("callSite.long", f"{self._job.stage}: {self._job.name}, {len(tasks)} tasks")
            run = partial(
                run_elsewhere,
                function,
                storage=self._storage,
                tokens=tokens_of(self._context),
                refused=partial(_tell, self._refusals, self._job.group),
                elsewhere=self._elsewhere,
            )
            with _sent(self._context, pickle.dumps(run)) as packed:
                work = guarded(self._code, packed)
                self._answers = self._context.parallelize(tasks, len(tasks)).mapPartitions(work).collect()
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def wait(self, seconds: float) -> bool:
        """
        Wait until the job is done, `seconds` at most; returns whether it is done. A job of which a task has refused is
        cancelled.
        """
        if self._done.wait(seconds):
            return True
        if self._job.group in self._refusals.value:
            self._cancel_group()
        return False

    def end(self) -> JobEnd:
        """How the job ended, when it is done."""
        refused = self._refusals.value.pop(self._job.group, [])
        if self._error is None:
            return JobEnd(self._answers, failures=self._failures())
        if refused:
            return JobEnd(refused, failures=self._failures())
        text = _text(self._error)
        self._wait_for_records()
        if (error := travelled(text)) is not None:  # a task began, whatever the error's message looks like
            return JobEnd(error=error, failures=self._failures())
        if (unfit := why_unfit(text)) is not None:
            fault = UnreachableError(f"Spark's executors can't work: {unfit}")
            return JobEnd([Counted(fault, BytesMoved())], failures=self._failures())
        return JobEnd(why=first_line(self._error), failures=self._failures())

    def cancel(self, seconds: float = CANCEL_SECONDS) -> None:
        """
        Cancel the job and wait until it is done, `seconds` at most. Cancelling can come before Spark knows the job, so
        it is repeated.
        """
        for _ in range(int(seconds / POLL_SECONDS)):
            self._cancel_group()
            if self._done.wait(POLL_SECONDS):
                break

    def _cancel_group(self) -> None:
        with contextlib.suppress(Py4JError, OSError):
            self._context.cancelJobGroup(self._job.group)

    def share_done(self) -> float | None:
        """Finished tasks of the group's newest job, 0 to 1; None when Spark doesn't answer."""
        try:
            stages = self._stages()
        except (Py4JError, OSError):
            return None
        total = sum(stage.numTasks for stage in stages)
        return sum(stage.numCompletedTasks for stage in stages) / total if total else 0.0

    def _stages(self) -> list[SparkStageInfo]:
        """Those of the group's newest job; none of what runs in the driver: the newest is the one before it."""
        if self._in_driver:
            return []
        tracker = self._context.statusTracker()
        jobs = tracker.getJobIdsForGroup(self._job.group)
        if not jobs or (info := tracker.getJobInfo(max(jobs))) is None:
            return []
        return [stage for number in info.stageIds if (stage := tracker.getStageInfo(number)) is not None]

    def _failures(self) -> tuple[FailedAttempt, ...]:
        """
        The job's attempts that failed, as far as Spark has recorded them. On this machine alone none is told: what the
        daemon's own machine finds needs no host.
        """
        if not self._elsewhere:
            return ()
        try:
            stages = [stage for stage in self._stages() if stage.numFailedTasks]
            return tuple(failure for stage in stages for failure in self._recorded(stage))
        except (Py4JError, OSError):
            return ()

    def _recorded(self, stage: SparkStageInfo) -> Iterator[FailedAttempt]:
        jvm: Any = self._context._jvm  # noqa: SLF001 - PySpark has no public way to these records
        failed = jvm.java.util.Collections.singletonList(jvm.org.apache.spark.status.api.v1.TaskStatus.FAILED)
        records = self._spark().statusStore()
        tasks = records.taskList(
            stage.stageId, stage.currentAttemptId, 0, _MOST_FAILURES, jvm.scala.Option.empty(), True, failed
        ).iterator()
        while tasks.hasNext():
            task = tasks.next()
            why = task.errorMessage()
            yield FailedAttempt.of(task.host(), why.get() if why.isDefined() else "", telling_line)

    def _wait_for_records(self) -> None:
        if self._elsewhere:
            with contextlib.suppress(Py4JError, OSError):
                self._spark().listenerBus().waitUntilEmpty(_RECORDED_MS)

    def _spark(self) -> Any:
        return self._context._jsc.sc()  # noqa: SLF001 - as above


def executor_check(context: SparkContext, name: str, code: str) -> SparkJob:
    """
    A job that only looks whether an executor can work, before the first job of a compaction: what is wrong with all
    executors is then no entry's fault. What is wrong with one of them, each task finds by itself. See `why_failed`.

    Args:
        name: of the job.
        code: the daemon's; see `code_identity`.
    """
    job = JobName(name, "start.check", step="check executor")
    return SparkJob(context, job, report_of_executor, [None], StorageOptions(), code=code)


def why_failed(end: JobEnd) -> str | None:
    """Why a job failed, in one line; None: it didn't."""
    error = end.error or next((one.result for one in end.answers if isinstance(one.result, CompactorError)), None)
    return end.why if error is None else str(error)


def first_line(error: BaseException) -> str:
    """The line of an error that is worth showing."""
    return telling_line(_text(error)) or type(error).__name__


def _text(error: BaseException) -> str:
    """All that an error says, stack traces of Java and Python included."""
    try:
        text = str(error.java_exception if isinstance(error, Py4JJavaError) else error)
    except (Py4JError, OSError):  # the message is in the JVM, which is gone
        text = f"{type(error).__name__}; the JVM ended before it could be asked"
    if isinstance(error, PySparkException) and hasattr(error, "getMessage"):  # since 4.0
        return error.getMessage() or text
    return text


def telling_line(text: str) -> str:
    """The task's own line: PySpark buries it in one or two stack traces."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if "Traceback (most recent call last)" in line), None)
    own = [line for line in lines[start + 1 :] if line.strip() and not line[0].isspace()] if start is not None else []
    return (own or [line for line in lines if line.strip()] or [""])[0].strip()
