"""
What a task sends back, and how an error of `compactor.errors` travels.

A refusal that every node would repeat is a result, not an exception: Spark would retry the task and bury the message in
a stack trace. An error that another node may not have (`attempts`), and any unforeseen one, is raised, so that Spark
retries the task.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from compactor.errors import CompactorError
from compactor.spark.attempts import AttemptFailedError, FailedAttempt, fails_the_attempt
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


@dataclass(frozen=True, slots=True)
class JobEnd:
    """
    How a job ended.

    Args:
        answers: what the tasks sent back, in their order; where the job didn't come to its end, what is known.
        error: the error of the task whose attempts all failed.
        why: why Spark failed the job, in one line, where no error of a task is known.
        failures: the attempts that failed, also where others took their place.
    """

    answers: Sequence[Counted] = ()
    error: CompactorError | None = None
    why: str | None = None
    failures: tuple[FailedAttempt, ...] = ()


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


def run_elsewhere(  # noqa: PLR0917 - what to run, how, and who is told
    function: Callable[[Any], Any],
    tasks: Iterable[Any],
    storage: StorageOptions,
    tokens: bytes = b"",
    refused: Callable[[Counted], None] = lambda _: None,
    elsewhere: bool = False,
) -> Iterator[Counted]:
    """
    As `run_partition`, in another process than the submitter's: the bytes moved travel with the result.

    Args:
        refused: told at once of a result that is an error.
        elsewhere: whether Spark tries a task again on another machine.

    Raises:
        AttemptFailedError: a task ended with an error that another node may not have.
    """
    for task in tasks:
        with measured() as traffic:
            (result,) = run_partition(function, [task], storage, tokens)
        answer = Counted(result, traffic.moved)
        if isinstance(result, CompactorError):
            if elsewhere and fails_the_attempt(result):
                raise AttemptFailedError(result) from result
            refused(answer)
        yield answer


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
