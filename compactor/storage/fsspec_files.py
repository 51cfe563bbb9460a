"""
Open objects of a store that fsspec knows: ranges are read, a new object is put together on this machine and sent when it is whole.

Source: fsspec's AbstractFileSystem.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

from compactor.errors import CompactorError
from compactor.orc.handles import RandomReader
from compactor.storage.failures import explained
from compactor.storage.local_files import truncated

_PIECE: Final = 8 << 20
_IN_MEMORY: Final = 16 << 20


class FsspecReader:
    """A `ReadHandle` on an object."""

    def __init__(self, filesystem: Any, path: str, name: str, size: int) -> None:
        self._fs = filesystem
        self._path = path
        self.name: Final = name
        self.size: Final = size

    def read_at(self, offset: int, length: int) -> bytes:
        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        with said("read", self.name):
            return bytes(self._fs.cat_file(self._path, start=offset, end=offset + length))

    def close(self) -> None:
        """Nothing is held open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class FsspecWriter:
    """A `WriteHandle`: put together on this machine, sent when it is whole."""

    def __init__(self, filesystem: Any, path: str, name: str) -> None:
        self._fs = filesystem
        self._path = path
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed by close and abort
        self._open = True
        self.name: Final = name
        self.position = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        with said("write", self.name):
            self._file.write(data)
        self.position += len(memoryview(data).cast("B"))

    def copy_from(self, reader: RandomReader, offset: int, length: int) -> None:
        copied = 0
        while copied < length:
            part = reader.read_at(offset + copied, min(_PIECE, length - copied))
            if not part:
                raise truncated(reader.name, offset, length)
            self.write(part)
            copied += len(part)

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        with self._file as file, said("write", self.name), self._fs.open(self._path, "wb") as target:
            file.seek(0)
            while piece := file.read(_PIECE):
                target.write(piece)

    def abort(self) -> None:
        if self._open:
            self._open = False
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


@contextmanager
def said(doing: str, what: str) -> Iterator[None]:
    """Errors of ours for whatever a package raises."""
    try:
        with explained(doing, what):
            yield
    except (CompactorError, OSError):
        raise
    except Exception as error:
        raise CompactorError(f"can't {doing} {what!r}: {type(error).__name__}") from error
