"""
Shares one SQLite file inside a process: the lock that keeps other processes out, the writer's turn, the named mutexes.

Several `Database` objects of a process may use one file; they find each other here.
"""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from compactor.errors import MutexHeldError, RetryableError, UnreachableError

_registry: dict[Path, "EmbeddedFile"] = {}
_registry_lock = threading.Lock()


class EmbeddedFile:
    """The process's one object for a database file; `use` takes it, `leave` gives it back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.users = 0
        self._descriptor: int | None = None
        self._writer = threading.Lock()
        self._writing_thread: int | None = None
        self._mutexes: dict[str, threading.Lock] = {}

    @classmethod
    def use(cls, path: Path) -> "EmbeddedFile":
        """
        Lock the file for this process.

        Raises:
            UnreachableError: another process has the file, or its folder can't be written.
        """
        real = path.resolve()
        with _registry_lock:
            shared = _registry.setdefault(real, cls(real))
            try:
                if shared.users == 0:
                    shared.lock()
            except BaseException:
                _registry.pop(real, None)
                raise
            shared.users += 1
            return shared

    def leave(self) -> None:
        with _registry_lock:
            self.users -= 1
            if self.users == 0:
                _registry.pop(self.path, None)
                if self._descriptor is not None:
                    os.close(self._descriptor)
                    self._descriptor = None

    @contextmanager
    def writing(self, wait_seconds: float) -> Iterator[None]:
        """Take the turn to write: SQLite has one writer, and waiting here is fairer than SQLite's busy loop."""
        if self._writing_thread == threading.get_ident():
            raise RuntimeError(
                "a writing transaction inside a writing transaction of the same thread would wait for itself"
            )
        if not self._writer.acquire(timeout=wait_seconds):
            raise RetryableError(f"{self.path}: another thread has been writing for {wait_seconds:.0f} s")
        self._writing_thread = threading.get_ident()
        try:
            yield
        finally:
            self._writing_thread = None
            self._writer.release()

    @contextmanager
    def mutex(self, name: str, wait_seconds: float) -> Iterator[None]:
        with _registry_lock:
            mutex = self._mutexes.setdefault(name, threading.Lock())
        if not mutex.acquire(timeout=wait_seconds):
            raise MutexHeldError(f"mutex {name} is held by another thread")
        try:
            yield
        finally:
            mutex.release()

    def lock(self) -> None:
        name = self.path.with_name(self.path.name + ".lock")
        try:
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UnreachableError(f"metastore database {self.path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            by = f" (process {holder})" if holder else ""
            raise UnreachableError(
                f"metastore database {self.path} is in use by another process{by}; SQLite serves one at a time: stop that one first, or use PostgreSQL for several"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._descriptor = descriptor
