"""
Open files of the local file system: positioned reads, appending writes, copies inside the kernel.

Whoever owns a table's directory may put a link where a file or its directory was a moment ago: neither is followed, and what was opened is looked at, not its name.
Source: pread(2), copy_file_range(2), openat(2) on O_NOFOLLOW.
"""

import errno
import os
import stat as modes
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from compactor.errors import RefusedError
from compactor.orc.handles import RandomReader
from compactor.reasons import Reason
from compactor.storage.failures import explained
from compactor.storage.handles import Reading, Writing, whole

_BUFFER: Final = 1 << 20
_KERNEL_CHUNK: Final = 1 << 30
_NO_KERNEL_COPY: Final = frozenset({errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF, errno.ETXTBSY})


class LocalReader(Reading):
    """A `ReadHandle` on a file descriptor of its own."""

    def __init__(self, path: str) -> None:
        self.name: Final = path
        with explained("read", path):
            self._descriptor: Final = open_regular(path)
        self.size: Final = os.fstat(self._descriptor).st_size
        self._open = True

    def read_at(self, offset: int, length: int) -> bytes:
        parts: list[bytes] = []
        missing = length
        while missing:
            with explained("read", self.name):
                part = os.pread(self._descriptor, min(missing, _KERNEL_CHUNK), offset + length - missing)
            if not part:
                break
            missing -= len(part)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        if self._open:
            self._open = False
            os.close(self._descriptor)


class LocalWriter(Writing):
    """A `WriteHandle` on a file that didn't exist before."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        with explained("create", path):
            above = open_directory(str(Path(path).parent))
            try:
                self._descriptor = os.open(Path(path).name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=above)
            finally:
                os.close(above)
        self._pending = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        self._position += len(view)
        if len(view) < _BUFFER:
            self._pending += view
            if len(self._pending) >= _BUFFER:
                self._flush()
            return
        self._flush()
        self._put(view)

    def copy_from(self, reader: RandomReader, offset: int, length: int) -> None:
        self._flush()
        copied = self._copy_in_kernel(reader, offset, length) if isinstance(reader, _OnDescriptor) else 0
        self._position += copied
        for piece in whole(reader, offset + copied, length - copied, _BUFFER):
            self._put(memoryview(piece))
            self._position += len(piece)

    def _finish(self) -> None:
        self._flush()
        with explained("write", self.name):
            os.fsync(self._descriptor)
        self._let_go()

    def _give_up(self) -> None:
        self._pending.clear()
        try:
            self._let_go()
        finally:
            with explained("delete", self.name):
                remove_if_there(self.name)

    def _let_go(self) -> None:
        """Once: its number may be another file's afterwards, whether closing succeeded or not."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with explained("write", self.name):
                os.close(descriptor)

    def _flush(self) -> None:
        if self._pending:
            data, self._pending = self._pending, bytearray()
            self._put(memoryview(data))

    def _put(self, view: memoryview) -> None:
        while view:
            with explained("write", self.name):
                written = os.write(self._descriptor, view)
            view = view[written:]

    def _copy_in_kernel(self, reader: "_OnDescriptor", offset: int, length: int) -> int:
        """Bytes copied without passing through this process; fewer than asked when the file systems can't, or the source ends."""
        copied = 0
        while copied < length:
            try:
                step = os.copy_file_range(reader.fileno(), self._descriptor, min(length - copied, _KERNEL_CHUNK), offset + copied)
            except OSError as error:
                if error.errno in _NO_KERNEL_COPY:
                    return copied
                with explained("write", self.name):
                    raise
            if step == 0:
                return copied
            copied += step
        return copied


@runtime_checkable
class _OnDescriptor(Protocol):
    """A reader on a file descriptor of this machine."""

    def fileno(self) -> int: ...


def open_directory(path: str) -> int:
    """
    A descriptor of a directory.

    Raises:
        RefusedError: UNKNOWN_NAME, it is a symbolic link, or no directory.
    """
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR} and os.path.lexists(path):
            raise _unexpected(path, "a directory") from None
        raise


def open_regular(path: str, directory: int | None = None) -> int:
    """
    A descriptor for reading a regular file.

    Args:
        directory: a descriptor of the directory that `path` is a name in; None: the path is opened through its directory.

    Raises:
        RefusedError: UNKNOWN_NAME, it isn't one, or it or its directory is a symbolic link.
    """
    above = open_directory(str(Path(path).parent)) if directory is None else directory
    try:
        descriptor = os.open(Path(path).name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=above)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            raise _unexpected(path, "a file") from None
        raise
    finally:
        if directory is None:
            os.close(above)
    if not modes.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _unexpected(path, "a file")
    return descriptor


def _unexpected(path: str, what: str) -> RefusedError:
    return RefusedError(Reason.UNKNOWN_NAME, f"{path!r} isn't {what}, but a link or something else: move it away")


def remove_if_there(path: str) -> None:
    """Unlink a file; none there is fine."""
    Path(path).unlink(missing_ok=True)
