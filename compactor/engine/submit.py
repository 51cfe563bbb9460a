"""
What the engine asks of whatever runs its tasks.

A job is a function and a list of tasks: the function is called once per task, in some process, and its results come back in the order of the tasks. Tasks may
run twice or go on after their job was cancelled; they are written so that this is harmless (`compactor.engine.tasks`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from compactor.errors import RetryableError

Given = TypeVar("Given")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class JobName:
    """
    How a compaction's jobs are called.

    Args:
        name: `<host>-compactor-<db>.<table>.<partition>`; what users see. Names repeat.
        key: `<queue entry>.<attempt>`; makes the group of a cancellation unique.
        pool: scheduling pool; None for the default one.
    """

    name: str
    key: str
    pool: str | None = None

    @property
    def group(self) -> str:
        return f"{self.name}#{self.key}"


def job_name(host: str, database: str, table: str, partition: str | None) -> str:
    """The mandated name of a compaction's jobs."""
    return f"{host}-compactor-{database}.{table}.{partition or ''}".rstrip(".")


class BrokenDownError(RetryableError):
    """What runs the tasks died or gave up, for reasons of its own: no task said so."""


class Submitter(Protocol):
    """Runs jobs; safe for concurrent callers."""

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
        Run `function` once per task and wait.

        Args:
            progress: told the share of finished tasks, 0 to 1.
            cancelled: asked before the job starts and while it runs.

        Raises:
            CancelledError: `cancelled` said so; tasks may go on for some seconds.
            RefusedError: a task refused, with its reason.
            BrokenDownError: the executing side broke down.
            UnreachableError: it can't be started.
        """
