"""
A directory for one task attempt, that no other attempt shares.

Spark may run a task twice at once, or go on with one after its job was cancelled. Each writes to a place of its own; the worker takes the files of the attempt
whose result it got, and only those.
"""

import uuid

from compactor.errors import CancelledError
from compactor.storage.base import Storage
from compactor.storage.location import join, name


def own_directory(storage: Storage, tasks: str) -> tuple[str, str]:
    """
    Make it below `tasks`: its location, and its path relative to the staging directory. Never makes parents.

    Raises:
        CancelledError: the staging directory is gone: the compaction was given up, and this task is late.
    """
    from pyspark import TaskContext  # noqa: PLC0415 - a daemon at rest has no need of Spark

    context = TaskContext.get()
    attempt = f"{context.taskAttemptId() if context is not None else 0}-{uuid.uuid4().hex[:8]}"
    own = join(tasks, attempt)
    try:
        storage.mkdir(own)
    except FileNotFoundError:
        raise CancelledError("this compaction was given up: its staging directory is gone") from None
    return own, f"{name(tasks)}/{attempt}"
