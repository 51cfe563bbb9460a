"""Returns memory to the system after each task: Spark's Python workers live long and run many tasks."""

import contextlib
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from compactor.memory import give_back

WORTH_A_COLLECTION: Final = 16 * 1024 * 1024
"""
Growth of the process in bytes from which reference cycles are collected: that takes as long as a small task.
"""

_STATM: Final = Path("/proc/self/statm")
_lowest = 0
"""Lowest number of resident bytes seen since the last collection of cycles."""


@contextlib.contextmanager
def trimmed() -> Iterator[None]:
    """
    After the block, return Arrow's and the C library's free memory to the system.

    If the process has grown all the same, collect reference cycles and return their memory, too. What is left is frozen
    until the next time: Spark's worker collects cycles after each task (`pyspark.daemon`), and would otherwise look at
    every object of every module, which takes longer than a small task.
    """
    global _lowest  # noqa: PLW0603 - a process has one memory
    try:
        yield
    finally:
        give_back()
        now = _resident()
        if now is None or now - _lowest > WORTH_A_COLLECTION:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            give_back()
            _lowest = _resident() or 0
        else:
            _lowest = min(_lowest, now)


def _resident() -> int | None:
    """Resident bytes of this process; None where the system doesn't report them."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None
