"""
How the packages of file formats read and write bytes: two small protocols, and a reader of bytes in memory.

`compactor.storage` drivers return objects of these shapes; this module knows nothing of file systems.
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
        """Append `length` bytes of `reader` from `offset` on, in the cheapest way that sink and reader allow."""
        ...


class MemoryReader:
    """Bytes in memory as a readable file; `data` are all of them."""

    def __init__(self, data: bytes | memoryview, name: str = "memory") -> None:
        self.data = memoryview(data)
        self.name = name
        self.size = len(self.data)

    def read_at(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length].tobytes()
