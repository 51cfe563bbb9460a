"""Free memory of this process, which Arrow and the C library keep for later, goes back to the system."""

import contextlib
import ctypes

import pyarrow as pa


def give_back() -> None:
    """Return free memory to the system; takes some milliseconds where there is much."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
