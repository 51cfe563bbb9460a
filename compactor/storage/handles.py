"""
Open files of all drivers: how they end, and copying of bytes that pass through this process.

A driver defines how bytes are put and how a file is finished or given up. This module ensures that a failed file is
given up, and that neither happens twice.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from compactor.errors import CorruptFileError
from compactor.handles import RandomReader

PIECE: Final = 8 << 20
"""Bytes read at once when a copy passes through this process."""


class ReadHandle(ABC):
    """
    An open file that any number of threads may read at any position; a context manager that closes. `name` is the
    file's path, `size` its length when the file was opened.
    """

    name: str
    size: int

    @abstractmethod
    def read_at(self, offset: int, length: int) -> bytes:
        """See `RandomReader.read_at`."""

    def close(self) -> None:  # noqa: B027 - most drivers hold nothing open between reads
        """Release what is held open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class WriteHandle(ABC):
    """
    A new file that is written front to back, a `Sink`. As a context manager it closes the file, or aborts when the block
    raises.

    When a failed file can't be given up either, the first error is raised, because it says more.
    """

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self._open = True
        self._position = 0

    @property
    def position(self) -> int:
        """Bytes written so far."""
        return self._position

    @abstractmethod
    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `Sink.write`. Raises RefusedError (DISK_FULL), as `copy_from` does."""

    @abstractmethod
    def _finish(self) -> None:
        """Make the file durable and complete."""

    @abstractmethod
    def _give_up(self) -> None:
        """Close the file and remove it."""

    def gap_before(self, offset: int, length: int) -> int:  # noqa: ARG002 - as `Sink` says
        """See `Sink.gap_before`: no store but some local file systems shares bytes between files."""
        return 0

    def copy_from(self, reader: RandomReader, offset: int, length: int) -> None:
        """See `Sink.copy_from`; drivers copy inside the kernel or the store where that is possible."""
        for piece in whole(reader, offset, length, PIECE):
            self.write(piece)

    def close(self) -> None:
        """Make the file durable and complete. Other processes may rely on it only afterwards."""
        if not self._open:
            return
        try:
            self._finish()
        except BaseException:
            with contextlib.suppress(Exception):
                self.abort()
            raise
        self._open = False

    def abort(self) -> None:
        """Give the file up and remove it. Does nothing after `close`."""
        if self._open:
            self._open = False
            self._give_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        with contextlib.suppress(Exception):
            self.abort()


def whole(reader: RandomReader, offset: int, length: int, piece_bytes: int) -> Iterator[bytes]:
    """
    All of a range, in pieces.

    Raises:
        CorruptFileError: the file ends before the range does.
    """
    copied = 0
    while copied < length:
        piece = reader.read_at(offset + copied, min(piece_bytes, length - copied))
        if not piece:
            raise truncated(reader.name, offset, length)
        yield piece
        copied += len(piece)


def truncated(path: str, offset: int, length: int) -> CorruptFileError:
    """The error for a file that ends before the requested range does."""
    return CorruptFileError(
        f"{path!r} ends before byte {offset + length}: it is truncated, or was replaced while being read"
    )
