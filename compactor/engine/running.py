"""What every way of running jobs has in common: what is asked before a job starts, and what becomes of its answers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from compactor.engine.submit import JobName
from compactor.engine.task_results import Counted, results_of
from compactor.errors import CancelledError

Given = TypeVar("Given")
Made = TypeVar("Made")


class Runner(ABC):
    """A `Submitter` of which only the running itself is missing."""

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
        return results_of(self._answers(job, function, tasks, progress, cancelled)) if tasks else []

    @abstractmethod
    def _answers(
        self, job: JobName, function: Callable[[Given], Made], tasks: Sequence[Given], progress: Callable[[float], None], cancelled: Callable[[], bool]
    ) -> list[Counted]:
        """What the tasks sent back, in their order; errors as `Submitter.run`, but for those of tasks."""
