"""
Processes of our own program that start at once: forked from one that has imported it and done nothing else, so each is
as good as new.

They lead a session of their own, write to files, and end with an exit code or by a signal like any other.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

from compactor.cli import main
from compactor.cli.root import COMMANDS

PATIENCE = 120.0

_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(
    ["compactor.daemon", *sorted({f"compactor.cli.commands.{module}" for module, _ in COMMANDS.values()})]
)


def start(
    target: Callable[..., object], *args: object, environment: Mapping[str, str], folder: Path, out: Path, err: Path
) -> BaseProcess:
    """
    Run `target` in a process with this environment and working directory; what it writes is appended to the files.
    """
    process = _FORKING.Process(
        target=_run,
        args=(target, *args),
        kwargs={"environment": dict(environment), "folder": folder, "out": out, "err": err},
    )
    process.start()
    return process


def command(
    arguments: Sequence[str], *, environment: Mapping[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """
    Run the command line to its end.

    Raises:
        subprocess.TimeoutExpired: it doesn't end.
    """
    with tempfile.TemporaryDirectory() as place:
        out, err = Path(place, "out"), Path(place, "err")
        process = start(_command, list(arguments), environment=environment, folder=folder, out=out, err=err)
        process.join(PATIENCE)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(list(arguments), PATIENCE, out.read_bytes(), err.read_bytes())
        return subprocess.CompletedProcess(
            list(arguments), process.exitcode, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8")
        )


def _run(
    target: Callable[..., object], *args: object, environment: Mapping[str, str], folder: Path, out: Path, err: Path
) -> None:
    os.setsid()
    for descriptor, path in ((1, out), (2, err)):
        opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # found anew from the environment
    os.chdir(folder)
    target(*args)


def _command(arguments: Sequence[str]) -> None:
    sys.argv = ["compactor", *arguments]
    main()
