"""
Many inputs, few open files: a chunk may join thousands of deltas, and stripes of one file come again and again.

Tails are kept; files are opened when bytes are wanted and closed when others were wanted since.
"""

from collections import OrderedDict
from types import TracebackType
from typing import Final, Self

from compactor.engine.inputs import open_input
from compactor.orc.handles import RandomReader
from compactor.orc.tail import Tail, read_tail
from compactor.planning.document import InputFile
from compactor.storage.base import ReadHandle, Storage

OPEN_FILES: Final = 64


class OpenInputs:
    """
    The inputs that one task reads. A context manager: closes what is open.

    Args:
        location: of the partition; inputs are below it.
    """

    def __init__(self, storage: Storage, location: str) -> None:
        self._storage = storage
        self._location = location
        self._tails: dict[str, Tail] = {}
        self._open: OrderedDict[str, ReadHandle] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def reader(self, file: InputFile) -> RandomReader:
        """A reader that opens the file when it is asked for bytes."""
        return _Reader(self, file)

    def tail(self, file: InputFile) -> Tail:
        if file.path not in self._tails:
            self._tails[file.path] = read_tail(self.reader(file), file.logical_length)
        return self._tails[file.path]

    def handle(self, file: InputFile) -> ReadHandle:
        """The open file; valid until others are asked for."""
        found = self._open.get(file.path)
        if found is None:
            found = self._open[file.path] = open_input(self._storage, self._location, file.path)
            if len(self._open) > OPEN_FILES:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(file.path)
        return found


class _Reader:
    """One input as the ORC package wants it."""

    def __init__(self, inputs: OpenInputs, file: InputFile) -> None:
        self._inputs = inputs
        self._file = file
        self.name = file.path
        self.size = file.length

    def read_at(self, offset: int, length: int) -> bytes:
        return self._inputs.handle(self._file).read_at(offset, length)
