"""
The name of this process in the metastore, and which of the other daemon processes are dead.

Worker ids are `compactor-<host>-<instance>-<n>`. They never start with a host name: a metastore that starts takes back
every entry whose worker id starts with its own host name. An instance is one process. As long as it lives, it holds a
lock on a file named after it, so that the next process on the same machine can tell a dead instance (file there, lock
free) from a living one. When the file is missing, an instance is known to be dead only if its claim is older than this
machine's start; otherwise time-outs decide.
"""

import fcntl
import os
import tempfile
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from compactor.metastore.worker_ids import PREFIX, parse_worker_id

_CLOCK_SLACK = 60.0
_IN_ORDER = b"ended in order\n"


class Identity:
    """
    This process.

    Args:
        host: this machine's name.
        user: the user that this process's transactions and locks are opened as.
        directory: where the file lies whose lock shows that the process lives; one per machine, shared by all daemons
            on it.
    """

    def __init__(self, host: str, user: str, directory: Path | None = None) -> None:
        self.host = host[:64]
        self.user = user
        self.instance = uuid.uuid4().hex
        self._directory = directory or Path(tempfile.gettempdir())
        self._handle: int | None = None
        self._keep_trace = False

    def worker_id(self, role: int | str) -> str:
        """`compactor-<host>-<instance>-<role>`; at most 128 characters."""
        return f"{PREFIX}{self.host}-{self.instance}-{role}"

    def __enter__(self) -> Self:
        path = self._path(self.instance)
        self._handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            if not self._keep_trace:
                self._path(self.instance).unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = None

    def leave_trace(self) -> None:
        """
        Keep the file, unlocked, when this process ends, since claims of it may be left: so the next process knows that
        this one is dead, and that it ended in order.
        """
        self._keep_trace = True
        if self._handle is not None:
            os.pwrite(self._handle, _IN_ORDER, 0)

    def is_mine(self, worker_id: str | None) -> bool:
        owner = parse_worker_id(worker_id)
        return owner is not None and owner.instance == self.instance

    def is_dead(self, worker_id: str | None, claimed_seconds_ago: float = 0.0) -> bool:
        """
        Whether the worker's process is known to have ended; False also when nothing is known about it.

        It is known to have ended when its file is there and no process holds the lock; or when the file is gone, and
        the claim was made before this machine (or container) started.
        """
        owner = parse_worker_id(worker_id)
        if owner is None or owner.host != self.host or owner.instance == self.instance:
            return False
        try:
            handle = os.open(self._path(owner.instance), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return claimed_seconds_ago > _seconds_up() + _CLOCK_SLACK
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(handle)
        return True

    def ended_in_order(self, worker_id: str | None) -> bool:
        """
        Whether a dead worker's process ended in order, and not in the middle of its work; False also when nothing is
        known about it.
        """
        owner = parse_worker_id(worker_id)
        try:
            return (
                owner is not None
                and owner.host == self.host
                and self._path(owner.instance).read_bytes().startswith(_IN_ORDER)
            )
        except OSError:
            return False

    def forget(self, worker_id: str | None) -> None:
        """Remove the file of a dead instance that has nothing left to recover."""
        if (owner := parse_worker_id(worker_id)) is not None and self.is_dead(worker_id):
            self._path(owner.instance).unlink(missing_ok=True)

    def _path(self, instance: str) -> Path:
        return self._directory / f"compactor-{instance}.alive"


def _seconds_up() -> float:
    """Seconds since process 1 started: the age of the machine, or of this container."""
    up = time.clock_gettime(time.CLOCK_BOOTTIME)
    try:
        ticks = int(Path("/proc/1/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return up
    return up - ticks / os.sysconf("SC_CLK_TCK")
