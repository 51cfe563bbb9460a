"""
Executors on which no task can begin: other code, a missing package or interpreter, another Python.

Such a fault is Spark's, and no entry's. The task fails, so that Spark tries another executor; when all tries fail, the
job's error says so in Spark's words or ours, and `why_unfit` finds them.
"""

import platform
import re
from typing import Final

UNFIT: Final = "COMPACTOR_UNFIT_EXECUTOR"
"""The class of our own such error, in the form of Spark's: `[CLASS] why`."""
_OURS: Final = re.compile(rf"\[{UNFIT}\] (.+)")
_NO_INTERPRETER: Final = re.compile(r"java\.io\.IOException: (Cannot run program .+)")
_NO_WORKER: Final = re.compile(r"Error from python worker:\n((?: .*\n)+)PYTHONPATH was:")
_OTHER_PYTHON: Final = re.compile(r"\[PYTHON_VERSION_MISMATCH\] (.+)")
_HOST: Final = re.compile(r"Lost task \S+ in stage \S+ \(TID \d+\) \((\S+) executor ")


class UnfitError(RuntimeError):
    """This process can't do what tasks need. No `CompactorError`, because the task is to fail."""

    def __init__(self, why: str) -> None:
        super().__init__(f"[{UNFIT}] {platform.node()} {why}")


def why_unfit(error_text: str) -> str | None:
    """
    Why no task could begin, in one line, from the text of a failed job's error; None: a task began, or the text doesn't
    tell.
    """
    if (ours := _OURS.search(error_text)) is not None:
        return ours[1].strip()
    if (program := _NO_INTERPRETER.search(error_text)) is not None:
        why = f"{program[1].strip()} (spark.python, or the path of the daemon's own interpreter)"
    elif (worker := _NO_WORKER.search(error_text)) is not None:
        why = f"its Python didn't start: {worker[1].strip().splitlines()[-1].strip()}"
    elif (python := _OTHER_PYTHON.search(error_text)) is not None:
        why = python[1].strip()
    else:
        return None
    host = _HOST.search(error_text)
    return f"{host[1]}: {why}" if host is not None else why
