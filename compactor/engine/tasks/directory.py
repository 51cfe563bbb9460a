"""
Makes a directory for one task attempt that no other attempt shares.

Spark may run a task twice at the same time, or go on with a task after its job was cancelled. Each attempt writes to a
directory of its own; the worker accepts only the files of the attempt whose result it received.
"""

import uuid
from typing import Final

from compactor.errors import CancelledError
from compactor.storage.base import Storage
from compactor.storage.location import join, name

GIVEN_UP: Final = "this compaction was given up: its staging directory is gone"


def attempt_name() -> str:
    """A name that no other task attempt has."""
    from pyspark import TaskContext  # noqa: PLC0415 - an idle daemon doesn't load Spark

    context = TaskContext.get()
    return f"{context.taskAttemptId() if context is not None else 0}-{uuid.uuid4().hex[:8]}"


def own_directory(storage: Storage, tasks: str) -> tuple[str, str]:
    """
    Make a new directory below `tasks`, but never its parents.

    Returns its location, and its path relative to the staging directory.

    Raises:
        CancelledError: the staging directory is gone: the compaction was discarded, and this task is late.
    """
    attempt = attempt_name()
    own = join(tasks, attempt)
    try:
        storage.mkdir(own)
    except FileNotFoundError:
        raise CancelledError(GIVEN_UP) from None
    return own, f"{name(tasks)}/{attempt}"
