"""
Runs the daemon as `compactor run` does, in a process of its own, and has the plug pulled at a step.

An observer of the steps kills the process with SIGKILL when the named one is passed, or holds the role there for ever. Without `spark`, the engine's tasks run in this process: most of what can
be cut off has nothing to do with Spark. Processes are forked from one that has imported the daemon and done nothing else: each is as good as new, and starts
at once.
"""

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

from compactor.daemon import Daemon
from compactor.settings import load_settings
from tests.compacting import InProcess

HELD = "held"
"""A file of this name, beside the settings, says that a role is being held."""

_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload([__name__])


def start(config: Path, log: Path, *, kill_at: str | None, hold_at: str | None, spark: bool) -> multiprocessing.process.BaseProcess:
    """A daemon that leads a session of its own and writes to `log`."""
    process = _FORKING.Process(target=_run, args=(config, log, kill_at, hold_at, spark))
    process.start()
    return process


def _run(config: Path, log: Path, kill_at: str | None, hold_at: str | None, spark: bool) -> None:
    os.setsid()
    target = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for descriptor in (1, 2):
        os.dup2(target, descriptor)
    for name in [name for name in os.environ if name.startswith("COMPACTOR_")]:
        del os.environ[name]
    os.environ["TMPDIR"] = tempfile.tempdir = str(config.parent)

    def observe(step: str, _: object) -> None:
        if step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if step == hold_at:
            (config.parent / HELD).touch()
            threading.Event().wait()

    def read():
        return load_settings(config)

    sys.exit(Daemon(read(), reload=read, observers=[observe], submitter=None if spark else Quiet()).run())


class Quiet(InProcess):
    """Has nothing to stop."""

    def stop(self) -> None:
        return None
