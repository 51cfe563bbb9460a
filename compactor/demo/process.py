"""
The daemon as a child process, in a session of its own: started with a settings file, followed by its log, and gone when we are, with everything it started.

Source: Spark starts a JVM, and the JVM Python workers in process groups of their own; all stay in the session. Linux tells a child of its parent's death
(prctl(2), PR_SET_PDEATHSIG): killed, we can't end it ourselves.
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
    A child; leaving the context ends it: after a drain, or at once when it is left by an exception. Its temporary files go with it.

    It is asked to end, too, when we are killed. Enter it from the main thread: Linux takes the end of the thread that started it for our death.

    Args:
        command: see `run_command`.
        log: where its output goes, JSON lines.
        patience: seconds it gets to end by itself.
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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
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
        """None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def drain(self, seconds: float) -> int:
        """
        Ask it to end, wait, and return its exit code.

        Raises:
            CompactorError: it didn't end in that time.
        """
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise CompactorError(f"the daemon didn't end within {seconds:.0f} s after TERM; its log is {self._log}") from None

    def news(self) -> list[Mapping[str, Any]]:
        """Log lines since the last call; a line that isn't JSON (of the JVM, say) comes as an event at level `raw`."""
        with self._log.open("rb") as log:
            log.seek(self._read)
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return [_parsed(line) for line in whole.decode("utf-8", "replace").splitlines() if line.strip()]

    def _sweep(self, grace: float) -> None:
        """Kill what is left of its session after a grace: the JVM and its Python workers, if they didn't end with it."""
        assert self._process is not None
        began = time.monotonic()
        while (members := _session(self._process.pid)) and (waited := time.monotonic() - began) < grace + GRACE_SECONDS:
            for member in members if waited >= grace else ():  # again each time: one may just have started another
                with suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
            time.sleep(POLL_SECONDS)


def run_command(config: Path) -> list[str]:
    """`compactor run` with this interpreter and these settings."""
    return [sys.executable, "-m", "compactor.cli", "--config", str(config), "run"]


def _ending_with_us() -> Callable[[], None]:
    """What the child does before it becomes another program."""
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def ask() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # we were killed before the call
            os._exit(1)

    return ask


def _session(leader: int) -> list[int]:
    """Processes of a session, its leader included while it lives; empty where /proc isn't."""
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
