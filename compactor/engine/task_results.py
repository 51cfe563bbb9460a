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
from compactor.storage.hdfs_tokens import HELD
from compactor.storage.options import StorageOptions
from compactor.storage.registry import configure
from compactor.storage.traffic import TASKS, Moved, measured

CHECKED_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Failed:
    """A task that ended with one of our errors."""

    error: CompactorError


@dataclass(frozen=True, slots=True)
class Counted:
    """What a task elsewhere sends back, and what it moved from and to the store."""

    result: Any
    moved: Moved


def run_partition(function: Callable[[Any], Any], tasks: Iterable[Any], storage: StorageOptions | None = None, tokens: bytes = b"") -> Iterator[Any]:
    """
    What Spark calls for each partition; every partition holds one task.

    Args:
        storage: how stores are reached; None: as this process knows already.
        tokens: by which HDFS is reached; see `delegation.tokens_of`.
    """
    if tokens:
        HELD.take(tokens)
    if storage is not None:
        configure(storage)
    for task in tasks:
        try:
            yield function(task)
        except CompactorError as error:
            yield Failed(error)


def run_elsewhere(function: Callable[[Any], Any], tasks: Iterable[Any], storage: StorageOptions, tokens: bytes = b"") -> Iterator[Counted]:
    """As `run_partition`, in another process than the one that asked: its traffic travels with the result."""
    for task in tasks:
        with measured() as traffic:
            (result,) = run_partition(function, [task], storage, tokens)
        yield Counted(result, traffic.moved)


def results_of(answers: Iterable[Counted]) -> list[Any]:
    """
    What the tasks returned; their traffic is counted as theirs.

    Raises:
        CompactorError: of the first task that ended with one.
    """
    results = []
    for answer in answers:
        TASKS.count(answer.moved)
        results.append(answer.result)
    for result in results:
        if isinstance(result, Failed):
            raise result.error
    return results


def checksum(reader: ReadHandle) -> int:
    """CRC-32 of a file's last 64 KiB: for an ORC file its tail, so that what was accepted can be told from anything else at little cost."""

    length = min(CHECKED_BYTES, reader.size)
    return zlib.crc32(reader.read_at(reader.size - length, length)) if length else 0
