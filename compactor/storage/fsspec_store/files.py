"""
Open objects of a store that fsspec knows.

Source: fsspec's AbstractFileSystem.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from compactor.errors import CompactorError
from compactor.storage.failures import explained
from compactor.storage.handles import ReadHandle


class FsspecReader(ReadHandle):
    """A `ReadHandle` on an object."""

    def __init__(self, filesystem: Any, path: str, name: str, size: int) -> None:
        self._fs = filesystem
        self._path = path
        self.name = name
        self.size = size

    def read_at(self, offset: int, length: int) -> bytes:
        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        with said("read", self.name):
            return bytes(self._fs.cat_file(self._path, start=offset, end=offset + length))


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
