"""Python workers live long and are used again: give back after each task what its buffers took."""

import contextlib
import ctypes
import gc
from collections.abc import Iterator

import pyarrow as pa


@contextlib.contextmanager
def trimmed() -> Iterator[None]:
    """After the block, return Arrow's and the C library's free memory to the system."""
    try:
        yield
    finally:
        gc.collect()
        pa.default_memory_pool().release_unused()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
