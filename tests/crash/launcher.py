"""
Runs the daemon as `compactor run` does, in a process of its own, and has the plug pulled at a step.

An observer of the steps kills the process with SIGKILL when the named one is passed, or holds the role there for ever.
Without `spark`, the engine's tasks run in this process: most of what can be cut off has nothing to do with Spark.
"""

import os
import signal
import sys
import threading
from multiprocessing.process import BaseProcess
from pathlib import Path

from compactor.daemon import Daemon
from compactor.settings import load_settings
from tests import forked
from tests.compacting import InProcess

HELD = "held"
"""A file of this name, beside the settings, says that a role is being held."""


def start(config: Path, log: Path, *, kill_at: str | None, hold_at: str | None, spark: bool) -> BaseProcess:
    """A daemon that leads a session of its own and writes to `log`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COMPACTOR_")} | {
        "TMPDIR": str(config.parent)
    }
    return forked.start(
        _run, config, kill_at, hold_at, spark, environment=environment, folder=config.parent, out=log, err=log
    )


def _run(config: Path, kill_at: str | None, hold_at: str | None, spark: bool) -> None:
    def observe(step: str, _: object) -> None:
        if step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if step == hold_at:
            (config.parent / HELD).touch()
            threading.Event().wait()

    def read():
        return load_settings(config)

    sys.exit(Daemon(read(), reload=read, observers=[observe], submitter=None if spark else InProcess()).run())
