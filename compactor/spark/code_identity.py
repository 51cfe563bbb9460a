"""
Tells one state of this package from another, so that no code but the daemon's own works on a compaction.

The daemon's `code` goes with each job, and the process in which a task begins compares it with its own
(`guarded`). Nodes of a cluster have the package from an archive or an installation, which may be of another release, or
of none: so what compares needs nothing of this package to be there, and the tasks' function is opened only afterwards.
"""

import hashlib
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import compactor
from compactor.errors import CompactorError
from compactor.spark.unfit import UNFIT

_DIGITS: Final = 12
HELP: Final = (
    "have the daemon's version there: build the archive again (`compactor archive build`) and name it in spark.archive, "
    "or install the package on the nodes; a daemon that was upgraded while it ran must be restarted"
)


@cache
def sources_digest() -> str:
    """
    SHA-256 of the package's Python sources, with their names; the first 12 hexadecimal digits.

    Once a process: what it has loaded stays, even where an upgrade replaces the files.
    """
    top = Path(compactor.__file__).parent
    digest = hashlib.sha256()
    for name, file in sorted((file.relative_to(top).as_posix(), file) for file in top.rglob("*.py")):
        data = file.read_bytes()
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()[:_DIGITS]


@cache
def code() -> str:
    """What works in this process, in words: the release and digest of the package, pyarrow, and Python's minor."""
    try:
        pyarrow = metadata.version("pyarrow")
    except metadata.PackageNotFoundError:
        pyarrow = "missing"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"compactor {compactor.__version__} ({sources_digest()}), pyarrow {pyarrow}, Python {python}"


def require_code(code_of_daemon: str) -> None:
    """Raises CompactorError where this process, a driver, has other code than the daemon that started it."""
    if code() != code_of_daemon:
        raise CompactorError(
            f"the driver on {platform.node()} has {code()}, but the daemon is {code_of_daemon}: {HELP}"
        )


def guarded(code_of_daemon: str, packed: Any) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """
    A function for Spark that runs another in a process whose code is the daemon's, and fails the task in any other, with
    an error that `why_unfit` finds. Failing the task has Spark try another executor, and exclude a node where the site
    asks for it.

    Args:
        packed: the function of a partition's tasks, pickled; or a broadcast variable with that.
    """

    def checked_and_run(tasks: Iterable[Any]) -> Iterator[Any]:
        # Spark's pickle takes a function inside a function along as it is. So nothing here may come from a module of
        # ours: the one on the executor may be older, or missing.
        import pickle  # noqa: PLC0415
        import platform  # noqa: PLC0415

        try:
            from compactor.spark.code_identity import code  # noqa: PLC0415

            found = code()
            given = packed if isinstance(packed, bytes) else packed.value
            work = pickle.loads(given) if found == code_of_daemon else None  # noqa: S301 - of the application's driver
        except ImportError as error:
            found, work = f"a Python environment that lacks something ({error})", None
        if work is None:
            raise RuntimeError(
                f"[{unfit_class}] {platform.node()} has {found}, but the daemon is {code_of_daemon}: {help_}"
            )
        yield from work(tasks)

    unfit_class, help_ = UNFIT, HELP
    return checked_and_run
