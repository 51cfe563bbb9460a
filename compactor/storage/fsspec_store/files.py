"""
Open objects of a store that fsspec knows. Ranges are read; a new object is put together on this machine and sent when
it is whole.

Source: fsspec's AbstractFileSystem.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from compactor.errors import CompactorError
from compactor.storage.failures import explained
from compactor.storage.handles import ReadingHandle, WritingHandle


class FsspecReader(ReadingHandle):
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


class FsspecWriter(WritingHandle):
    """
    A `WriteHandle` that puts the object together on this machine, and sends it when it is whole.

    The object is sent by the package's own call for a whole file. fsspec's open files are unsuitable: an exception
    closes them, and what they hold by then appears.
    """

    def __init__(self, filesystem: Any, path: str, name: str) -> None:
        super().__init__(name)
        self._fs = filesystem
        self._path = path
        self._file = tempfile.NamedTemporaryFile(prefix="compactor-")  # noqa: SIM115 - closed by close and abort

    def write(self, data: bytes | bytearray | memoryview) -> None:
        with said("write", self.name):
            self._file.write(data)
        self._position += len(memoryview(data).cast("B"))

    def _finish(self) -> None:
        with self._file, said("write", self.name):
            self._file.flush()
            try:
                self._fs.put_file(self._file.name, self._path)
            except FileExistsError:
                raise  # the package looks first: an object of another process is there
            except BaseException:
                with contextlib.suppress(Exception):
                    self._fs.rm_file(self._path)  # some packages make a part of it appear
                raise

    def _give_up(self) -> None:
        self._file.close()


@contextmanager
def said(doing: str, what: str) -> Iterator[None]:
    """Translate errors of a package into those of `compactor.errors`."""
    try:
        with explained(doing, what):
            yield
    except (CompactorError, OSError):
        raise
    except Exception as error:
        raise CompactorError(f"can't {doing} {what!r}: {type(error).__name__}") from error
