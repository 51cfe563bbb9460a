"""Tasks that show what executors are like and whether they see a store. Sessions begin with one; `compactor doctor` runs both."""

import importlib
import platform
import shutil
import sys
import tempfile
from dataclasses import dataclass
from typing import Final

from compactor.errors import CompactorError
from compactor.spark.code_identity import code
from compactor.spark.unfit import UnfitError
from compactor.storage.registry import storage_for
from compactor.words import one_line

NEEDED: Final = ("isal", "numpy", "pyarrow", "pydantic", "pyorc")
"""What tasks import besides this package."""


@dataclass(frozen=True, slots=True)
class ExecutorReport:
    """
    What a process of an executor's is like in which tasks run.

    Args:
        python: path of its interpreter.
        code: see `code_identity.code`.
        scratch: its directory for temporary files.
        free_bytes: of the disk below `scratch`.
    """

    host: str
    python: str
    code: str
    scratch: str
    free_bytes: int


def report_of_executor(_: object) -> ExecutorReport:
    """
    Look at the process that runs this.

    Raises:
        UnfitError: a package is missing that tasks need, or there is no directory for temporary files.
    """
    for name in NEEDED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise UnfitError(f"can't import {name}, which tasks need: {one_line(error)}") from None
    try:
        scratch = tempfile.gettempdir()
        free = shutil.disk_usage(scratch).free
    except OSError as error:
        raise UnfitError(f"has no directory for temporary files: {one_line(error)}") from None
    return ExecutorReport(platform.node(), sys.executable, code(), scratch, free)


def seen_from_here(location: str) -> str | None:
    """Why a location can't be seen from the process that runs this; None: it can."""
    try:
        return None if storage_for(location).exists(location) else f"there is no {location}"
    except CompactorError as error:
        return one_line(error)
