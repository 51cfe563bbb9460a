"""
Runs the daemon as a child process in a session of its own: starts it with a settings file, follows its log, and ends it
with all processes that it started.

Spark starts a JVM, and the JVM starts Python workers in process groups of their own; all stay in the daemon's session.
When the demo itself is killed it can't end the child: Linux then sends the child a signal.
Source: prctl(2), PR_SET_PDEATHSIG.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from compactor.errors import CompactorError

POLL_SECONDS = 0.05
GRACE_SECONDS = 3.0
_PR_SET_PDEATHSIG = 1


class DaemonProcess:
    """
    The daemon's process. Leaving the context drains and ends the daemon, or ends it at once after an exception, and
    removes its temporary files.

    The child gets TERM also when this process is killed. Enter the context from the main thread: Linux sends that
    signal when the thread that started the child ends.

    Args:
        command: the command to run; see `run_command`.
        log: the file for the child's output, JSON lines.
        patience: how many seconds the child has to end after TERM.
    """

    def __init__(self, command: Sequence[str], log: Path, patience: float = 20.0) -> None:
        self._command = list(command)
        self._log = log
        self._patience = patience
        self._temporary = log.parent / "tmp"
        self._process: subprocess.Popen[bytes] | None = None
        self._read = 0

    def __enter__(self) -> Self:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COMPACTOR_")}
        self._temporary.mkdir(exist_ok=True)
        environment |= {"TMPDIR": str(self._temporary), "SPARK_LOCAL_DIRS": str(self._temporary)}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._log.parent,
                env=environment,
                start_new_session=True,
                preexec_fn=_ending_with_us(),  # noqa: PLW1509 - it makes one system call, and takes no lock
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        grace = 0.0
        try:
            if kind is None:
                if self._process.poll() is None:
                    self._process.terminate()
                    with suppress(subprocess.TimeoutExpired):
                        self._process.wait(self._patience)
                grace = GRACE_SECONDS
        finally:
            self._sweep(grace)
            self._process.wait()
            shutil.rmtree(self._temporary, ignore_errors=True)

    @property
    def exit_code(self) -> int | None:
        """The daemon's exit code; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def drain(self, seconds: float) -> int:
        """
        Send TERM to the daemon, wait for its end, and return its exit code.

        Raises:
            CompactorError: the daemon didn't end in that time.
        """
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise CompactorError(
                f"the daemon didn't end within {seconds:.0f} s after TERM; its log is {self._log}"
            ) from None

    def news(self) -> list[Mapping[str, Any]]:
        """
        The log lines written since the last call. A line that isn't JSON, such as one of the JVM, becomes an event at
        level `raw`.
        """
        with self._log.open("rb") as log:
            log.seek(self._read)
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return [_parsed(line) for line in whole.decode("utf-8", "replace").splitlines() if line.strip()]

    def _sweep(self, grace: float) -> None:
        """
        Wait until all processes of the daemon's session have ended: the JVM and its Python workers too. After `grace`
        seconds kill those that are left.
        """
        assert self._process is not None
        began = time.monotonic()
        while (members := _session(self._process.pid)) and (waited := time.monotonic() - began) < grace + GRACE_SECONDS:
            for member in members if waited >= grace else ():  # in each round: a member may have started another
                with suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
            time.sleep(POLL_SECONDS)


def run_command(config: Path) -> list[str]:
    """The command line of `compactor run` with this interpreter and this settings file."""
    return [sys.executable, "-m", "compactor.cli", "--config", str(config), "run"]


def _ending_with_us() -> Callable[[], None]:
    """A function for the child to run before exec: it asks Linux for TERM at the parent's death."""
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def ask() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent was killed before the call
            os._exit(1)

    return ask


def _session(leader: int) -> list[int]:
    """The processes of a session, with its leader while it lives, without zombies; empty on systems without /proc."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            pid = int(entry.name)
            if os.getsid(pid) == leader and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(pid)
        except (OSError, ProcessLookupError):
            continue
    return found


def _parsed(line: str) -> Mapping[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"event": line, "level": "raw"}
