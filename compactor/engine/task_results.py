"""
What a task sends back, and how an error of ours travels.

A refusal is a result, not an exception: Spark would repeat the task and bury the sentence in a stack trace. Anything unforeseen is raised, so that Spark
repeats the task.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from compactor.errors import CompactorError
from compactor.storage.base import ReadHandle
from compactor.storage.options import StorageOptions
from compactor.storage.registry import configure

CHECKED_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Failed:
    """A task that ended with one of our errors."""

    error: CompactorError


def run_partition(function: Callable[[Any], Any], tasks: Iterable[Any], storage: StorageOptions | None = None) -> Iterator[Any]:
    """
    What Spark calls for each partition; every partition holds one task.

    Args:
        storage: how stores are reached; None: as this process knows already.
    """
    if storage is not None:
        configure(storage)
    for task in tasks:
        try:
            yield function(task)
        except CompactorError as error:
            yield Failed(error)


def checksum(reader: ReadHandle) -> int:
    """CRC-32 of a file's last 64 KiB: for an ORC file its tail, so that what was accepted can be told from anything else at little cost."""

    length = min(CHECKED_BYTES, reader.size)
    return zlib.crc32(reader.read_at(reader.size - length, length)) if length else 0
