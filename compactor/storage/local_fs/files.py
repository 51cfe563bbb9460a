"""
Open files of the local file system: positioned reads, appending writes, copies inside the kernel.

Source: pread(2), copy_file_range(2), posix_fadvise(2).
"""

import contextlib
import errno
import os
import re
from functools import cached_property
from pathlib import Path
from typing import Final

from compactor.handles import RandomReader
from compactor.storage.failures import explained
from compactor.storage.handles import ReadHandle, WriteHandle, whole
from compactor.storage.local_fs.beneath import Entry, at, open_regular, remove_file

_BUFFER: Final = 1 << 20
_KERNEL_CHUNK: Final = 1 << 30
_STORE_CHUNK: Final = 64 << 20
"""Bytes after which the disk begins to write: it would otherwise rest while a file is made, and `fsync` wait for all."""
_MOUNTS: Final = Path("/proc/self/mountinfo")
_SHARING: Final = frozenset({"xfs", "btrfs"})
_BLOCK: Final = 4096
_WORTH_SHARING: Final = 16 * _BLOCK
_NO_KERNEL_COPY: Final = frozenset(
    {errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF, errno.ETXTBSY}
)


class LocalReader(ReadHandle):
    """A `ReadHandle` with its own file descriptor; `root` as in `beneath.RootOf`."""

    def __init__(self, path: str, root: str | None = None) -> None:
        self.name = path
        with explained("read", path):
            self._descriptor: Final = at(path, root, open_regular)
        self._open = True
        try:
            with explained("read", path):  # a server of NFS may have forgotten the file since
                self.size = os.fstat(self._descriptor).st_size
        except BaseException:
            self.close()
            raise

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
            with contextlib.suppress(OSError):  # all that was wanted has been read
                os.close(self._descriptor)


class LocalWriter(WriteHandle):
    """A `WriteHandle` on a file that didn't exist before; `root` as in `beneath.RootOf`."""

    def __init__(self, path: str, root: str | None = None) -> None:
        super().__init__(path)
        self._root = root
        with explained("create", path):
            self._descriptor = at(path, root, _create)
        self._pending = bytearray()
        self._put_bytes = self._given_bytes = 0

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

    def gap_before(self, offset: int, length: int) -> int:
        """See `Sink.gap_before`: blocks are shared that have the same place in both files, by their size."""
        return (offset - self._position) % _BLOCK if length >= _WORTH_SHARING and self._shares else 0

    def copy_from(self, reader: RandomReader, offset: int, length: int) -> None:
        self._flush()
        copied = self._copy_in_kernel(reader, offset, length) if isinstance(reader, LocalReader) else 0
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
            with explained("delete", self.name), contextlib.suppress(FileNotFoundError):
                at(self.name, self._root, remove_file)

    def _let_go(self) -> None:
        """Close the descriptor once, even when closing fails: afterwards its number may belong to another file."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with explained("write", self.name):
                os.close(descriptor)

    def _flush(self) -> None:
        if self._pending:
            data, self._pending = self._pending, bytearray()
            self._put(memoryview(data))

    @cached_property
    def _shares(self) -> bool:
        """Whether the file lies on a file system that shares blocks between files."""
        kinds = dict[str, str]()
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in _MOUNTS.read_text(encoding="utf-8").splitlines():
                mounted, _, kind = line.partition(" - ")
                place = re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), mounted.split()[4])
                kinds[place] = kind.split()[0]
        above = map(str, Path(os.path.realpath(self.name)).parents)
        return next((kinds[place] for place in above if place in kinds), "") in _SHARING

    def _put(self, view: memoryview) -> None:
        while view:
            with explained("write", self.name):
                written = os.write(self._descriptor, view)
            view = view[written:]
            self._give_to_disk(written)

    def _give_to_disk(self, more: int) -> None:
        """Count bytes that the file has got now, and let the system begin to write them, without waiting for it."""
        self._put_bytes += more
        if (length := self._put_bytes - self._given_bytes) >= _STORE_CHUNK:
            with contextlib.suppress(OSError):  # `fsync` writes them
                os.posix_fadvise(self._descriptor, self._given_bytes, length, os.POSIX_FADV_DONTNEED)
            self._given_bytes = self._put_bytes

    def _copy_in_kernel(self, reader: LocalReader, offset: int, length: int) -> int:
        """
        Copy bytes without passing them through this process; returns how many. The number is lower than asked when the
        file systems can't copy this way, or when the source ends.
        """
        copied = 0
        while copied < length:
            begin = offset + copied
            most = -begin % _BLOCK or _STORE_CHUNK  # whole blocks are shared where the file system can
            try:
                step = os.copy_file_range(reader.fileno(), self._descriptor, min(length - copied, most), begin)
            except OSError as error:
                if error.errno in _NO_KERNEL_COPY:
                    return copied
                with explained("write", self.name):
                    raise
            if step == 0:
                return copied
            copied += step
            self._give_to_disk(step)
        return copied


def _create(entry: Entry) -> int:
    return os.open(
        entry.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=entry.directory
    )
