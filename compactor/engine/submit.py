"""
What the engine asks of whatever runs its tasks.

A job is a function and a list of tasks: the function is called once per task, in some process, and its results come back in the order of the tasks. Tasks may
run twice or go on after their job was cancelled; they are written so that this is harmless (`compactor.engine.tasks`). A compaction has one or more jobs, one
after the other, and then says that there are no more: a Spark application of its own isn't needed any longer then.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from compactor.engine.wishes import Wishes
from compactor.errors import RetryableError

Given = TypeVar("Given")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class JobName:
    """
    How a compaction's jobs are called, and what they ask for.

    Args:
        name: `<host>-compactor-<db>.<table>.<partition>`; what users see. Names repeat.
        key: `<queue entry>.<attempt>`; makes the group of a cancellation unique.
        pool: scheduling pool; None for the default one.
        place: the compaction's staging directory, there as long as nobody has given the compaction up; None where nothing is staged.
        wishes: queue, memory and cores that its table or request asks for.
        user: as whom it runs, where applications can be run as somebody else.
        root: path of the root of the warehouse around its local places; see `beneath.RootOf`.
    """

    name: str
    key: str
    pool: str | None = None
    place: str | None = None
    wishes: Wishes = field(default_factory=Wishes)
    user: str | None = None
    root: str | None = None

    @property
    def group(self) -> str:
        return f"{self.name}#{self.key}"


def job_name(host: str, database: str, table: str, partition: str | None) -> str:
    """The mandated name of a compaction's jobs."""
    return f"{host}-compactor-{database}.{table}.{partition or ''}".rstrip(".")


class BrokenDownError(RetryableError):
    """What runs the tasks died or gave up, for reasons of its own: no task said so."""


class SessionEndedError(BrokenDownError):
    """The session that this compaction shared with others ended: which of them is why, if any is, can't be told."""


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
            RefusedError: a task refused, with its reason; or what the table asks for can't be given.
            BrokenDownError: the executing side broke down; SessionEndedError when others' jobs ran in it, too.
            UnreachableError: it can't be started.
        """

    def end(self, job: JobName) -> None:
        """No job of this compaction comes any more, or it was given up; may be told more than once, and before anything ran. Doesn't wait."""


class StoppableSubmitter(Submitter, Protocol):
    """Runs the jobs of a whole process, until it is stopped."""

    def application(self, job: JobName) -> str | None:
        """The id of the Spark application in which the compaction's jobs run; None while there is none."""

    def end_left_over(self, keys: Collection[str], application: str | None) -> None:
        """
        End what a process that died had running for a compaction. It can do no harm any more, for its staging directory is gone; it only takes room. Doesn't wait.

        Args:
            keys: of the jobs.
            application: its id, as far as it was noted.
        """

    def stop(self) -> None:
        """End everything; a later `run` starts anew."""
