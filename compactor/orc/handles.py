"""
How this package reaches bytes: two small protocols, and bytes at hand as a file.

`compactor.storage` drivers hand out objects of these shapes; nothing here knows a file system's names.
"""

from typing import Protocol, runtime_checkable


@runtime_checkable
class RandomReader(Protocol):
    """A file that doesn't change while it is read. `name` goes into messages; `size` is in bytes."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    def read_at(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`, fewer only at the end of the file."""
        ...


class Sink(Protocol):
    """A file being written from start to end; `position` is the number of bytes written so far."""

    @property
    def position(self) -> int: ...

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def copy_from(self, reader: RandomReader, offset: int, length: int) -> None:
        """Append `length` bytes of `reader` from `offset` on, the cheapest way the two allow."""
        ...


class MemoryReader:
    """Bytes at hand as a file."""

    def __init__(self, data: bytes | memoryview, name: str = "memory") -> None:
        self._data = memoryview(data)
        self.name = name
        self.size = len(self._data)

    def read_at(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length].tobytes()
