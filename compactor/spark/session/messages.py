"""What the daemon and the driver of its Spark session say to each other, over a connection that pickles it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from compactor.spark.results import Counted
from compactor.spark.submitter import JobName
from compactor.storage.registry import StorageOptions


@dataclass(frozen=True, slots=True)
class Run:
    """
    Run a job.

    Args:
        number: of the job in this session.
        storage: how the tasks reach stores.
    """

    number: int
    job: JobName
    function: Callable[[Any], Any]
    tasks: Sequence[Any]
    storage: StorageOptions


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel a job; its `Done` follows."""

    number: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the session in order, and end."""


@dataclass(frozen=True, slots=True)
class Started:
    """The session is there; the id of its Spark application."""

    application: str


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The session can't be started, in one line; the driver ends."""

    why: str


@dataclass(frozen=True, slots=True)
class Alive:
    """The JVM has answered just now."""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The share of a job's finished tasks, 0 to 1."""

    number: int
    share: float


@dataclass(frozen=True, slots=True)
class Done:
    """A job has ended: what its tasks sent back, or the error that ended it, in one line."""

    number: int
    results: list[Counted]
    error: str | None = None
