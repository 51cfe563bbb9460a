"""
The interface by which the engine runs its tasks.

A job is a function and a list of tasks: the function is called once per task, in some process, and the results come
back in the order of the tasks. Tasks may run twice, or go on after their job was cancelled; they are written so that
this is harmless (`compactor.engine.tasks.buckets`). A compaction has one or more jobs, one after the other. Then the
engine says that no more come, and a Spark application of the compaction's own can end.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from compactor.errors import CancelledError, CompactorError, RetryableError, UnreachableError
from compactor.log import get_logger
from compactor.spark.attempts import FailedAttempt, judged
from compactor.spark.resources import Resources
from compactor.spark.results import JobEnd, results_of
from compactor.storage.registry import configured, storage_for

Given = TypeVar("Given")
Made = TypeVar("Made")
Failed = Callable[[FailedAttempt], None]
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class JobName:
    """
    The name of a compaction's jobs, and their requested resources.

    Args:
        name: `<host>-compactor-<db>.<table>.<partition>`; what users see. Names repeat.
        key: `<queue entry>.<attempt>`; makes the group of a cancellation unique.
        pool: scheduling pool; None: the default pool.
        place: the compaction's staging directory, which exists until the compaction is given up; None where nothing is
            staged.
        resources: queue, memory and cores that the table or request asks for.
        user: the user that the jobs run as, where applications can run as another user.
        root: path of the warehouse's root around the compaction's local places; see `beneath.RootOf`.
        step: what the next job does, in one or two words.
    """

    name: str
    key: str
    pool: str | None = None
    place: str | None = None
    resources: Resources = field(default_factory=Resources)
    user: str | None = None
    root: str | None = None
    step: str = "compact"

    @property
    def group(self) -> str:
        return f"{self.name}#{self.key}"

    @property
    def stage(self) -> str:
        """The name of the job's stages in Spark's UI: the step, and the queue entry's id."""
        return f"{self.step} {self.key.partition('.')[0]}"

    def at(self, step: str) -> "JobName":
        """The same compaction, at another step."""
        return replace(self, step=step)


def job_name(host: str, database: str, table: str, partition: str | None) -> str:
    """The mandated name of a compaction's jobs."""
    return f"{host}-compactor-{database}.{table}.{partition or ''}".rstrip(".")


class BrokenDownError(RetryableError):
    """Spark died or gave up for reasons of its own: no task reported an error."""


class SessionEndedError(BrokenDownError):
    """
    The session that this compaction shared with others ended. Which of the compactions is the cause, if any, can't be
    told.
    """


class Submitter(Protocol):
    """Runs jobs. Safe for concurrent callers."""

    def run(
        self,
        job: JobName,
        function: Callable[[Given], Made],
        tasks: Sequence[Given],
        *,
        progress: Callable[[float], None],
        cancelled: Callable[[], bool],
    ) -> list[Made]:
        """
        Run `function` once per task and wait for the results.

        Args:
            progress: called with the share of finished tasks, 0 to 1.
            cancelled: asked before the job starts and while it runs.

        Raises:
            CancelledError: `cancelled` returned True; tasks may go on for some seconds.
            RefusedError: a task refused, with its reason; or the requested resources can't be given.
            BrokenDownError: Spark failed; SessionEndedError when jobs of other compactions ran in the same session.
            RetryableError: each attempt at a task failed, for reasons that may be its nodes'.
            UnreachableError: Spark can't be started; or a store can't be reached, from several nodes or from here.
        """

    def end(self, job: JobName) -> None:
        """
        Say that no more jobs of this compaction come, or that it was given up. May be called repeatedly, and before any
        job ran. Doesn't wait.
        """


class StoppableSubmitter(Submitter, Protocol):
    """Runs the jobs of a whole process, until it is stopped."""

    def application(self, job: JobName) -> str | None:
        """The id of the Spark application in which the compaction's jobs run; None while there is none."""

    @property
    def cold(self) -> bool:
        """
        Whether the next job would wait for the start of a session; never where each compaction has its own application.
        """

    def warm_up(self, seconds: float) -> bool:
        """
        Start a session if there is none, and wait for it, `seconds` at most; returns whether it is there. A start that
        is no longer waited for is given up soon.

        Raises:
            UnreachableError: Spark can't be started, or didn't start in time.
        """

    def end_left_over(self, keys: Collection[str], application: str | None) -> None:
        """
        End the orphaned application or processes of a compaction whose process died. They do no harm, because their
        staging directory is gone, but they occupy the cluster. Doesn't wait.

        Args:
            keys: of the jobs.
            application: the application's id, as far as it was recorded.
        """

    def stop(self) -> None:
        """End everything. A later `run` starts anew."""


class Runner(StoppableSubmitter):
    """
    A `Submitter` in which only the running of tasks is missing.

    Args:
        failed: told of each task attempt that failed on a cluster, also where others took its place.
    """

    def __init__(self, failed: Failed = lambda _: None) -> None:
        self._failed = failed

    def run(
        self,
        job: JobName,
        function: Callable[[Given], Made],
        tasks: Sequence[Given],
        *,
        progress: Callable[[float], None] = lambda _: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> list[Made]:
        if cancelled():
            raise CancelledError(f"{job.name} was cancelled before its job started")
        if not tasks:
            return []
        end = self._answers(job, function, tasks, progress, cancelled)
        self._tell(end.failures)
        if end.error is not None:
            raise judged(end.error, end.failures, lambda: _is_seen_here(job))
        if end.why is not None:
            raise BrokenDownError(f"Spark job {job.name} failed: {end.why}")
        results: list[Made] = results_of(end.answers)
        progress(1.0)
        return results

    def _tell(self, failures: Sequence[FailedAttempt]) -> None:
        for failure in failures:
            self._failed(failure)
        for (host, kind), times in Counter((failure.host, failure.kind) for failure in failures).items():
            why = next(one.why for one in reversed(failures) if (one.host, one.kind) == (host, kind))
            _log.warning("task_attempts.failed", host=host, kind=kind, times=times, why=why)

    @property
    def cold(self) -> bool:
        return False

    def warm_up(self, seconds: float) -> bool:  # noqa: ARG002 - as `StoppableSubmitter` says
        return True

    @abstractmethod
    def _answers(
        self,
        job: JobName,
        function: Callable[[Given], Made],
        tasks: Sequence[Given],
        progress: Callable[[float], None],
        cancelled: Callable[[], bool],
    ) -> JobEnd:
        """Run the tasks. Raises as `Submitter.run`, except for errors of tasks, and of the job as a whole."""


def _is_seen_here(job: JobName) -> bool:
    """Whether this process reaches the compaction's store, and its staging directory is there."""
    try:
        return job.place is None or storage_for(job.place, configured().beneath(job.root).root_of).exists(job.place)
    except CompactorError as error:
        return not isinstance(error, UnreachableError)
