"""
What a task sends back, and how an error of `compactor.errors` travels.

A refusal is a result, not an exception: Spark would retry the task and bury the message in a stack trace. Any
unforeseen error is raised, so that Spark retries the task.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from compactor.errors import CompactorError
from compactor.storage.handles import ReadHandle
from compactor.storage.hdfs.tokens import HELD
from compactor.storage.io_counters import TASKS, BytesMoved, measured
from compactor.storage.registry import StorageOptions, configure

CHECKED_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Counted:
    """The result of a task in another process, and the bytes that the task moved to and from the store."""

    result: Any
    moved: BytesMoved


def run_partition(
    function: Callable[[Any], Any], tasks: Iterable[Any], storage: StorageOptions | None = None, tokens: bytes = b""
) -> Iterator[Any]:
    """
    Run the tasks of one partition. Spark calls this for each partition, which holds one task.

    Args:
        storage: how stores are reached; None: as this process is configured already.
        tokens: by which HDFS is reached; see `delegation_tokens.tokens_of`.
    """
    if tokens:
        HELD.take(tokens)
    if storage is not None:
        configure(storage)
    for task in tasks:
        try:
            yield function(task)
        except CompactorError as error:
            yield error


def run_elsewhere(
    function: Callable[[Any], Any], tasks: Iterable[Any], storage: StorageOptions, tokens: bytes = b""
) -> Iterator[Counted]:
    """As `run_partition`, in another process than the submitter's: the bytes moved travel with the result."""
    for task in tasks:
        with measured() as traffic:
            (result,) = run_partition(function, [task], storage, tokens)
        yield Counted(result, traffic.moved)


def results_of(answers: Iterable[Counted]) -> list[Any]:
    """
    The results of the tasks; the bytes that they moved are counted as the tasks'.

    Raises:
        CompactorError: the error of the first task that ended with one.
    """
    results = []
    for answer in answers:
        TASKS.count(answer.moved)
        results.append(answer.result)
    for result in results:
        if isinstance(result, CompactorError):
            raise result
    return results


def checksum(reader: ReadHandle) -> int:
    """
    CRC-32 of a file's last 64 KiB. An ORC file has its tail there, so an accepted file can be told from any other at
    little cost.
    """

    length = min(CHECKED_BYTES, reader.size)
    return zlib.crc32(reader.read_at(reader.size - length, length)) if length else 0
