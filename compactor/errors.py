"""
Every error the compactor raises on purpose.

    CompactorError                      exit 1
     ├── UsageError                     exit 2   the command line or a setting is wrong
     │    └── SettingsError                      names the key, the file and what is allowed
     ├── NothingFitsError               exit 3   a pattern on the command line fits no table or partition
     ├── RefusedError                   exit 4   final: doing it would risk data, or makes no sense; carries a Reason
     │    ├── CorruptFileError                   a file can't be read, or contradicts its name or metadata
     │    └── VerificationError                  the written output differs from the inputs; nothing was published
     ├── UnreachableError               exit 5   metastore, file system or Spark can't be reached; retry later
     ├── RetryableError                 exit 1   the step failed without effect and may be repeated
     │    └── MutexHeldError                     another process holds one of Hive's mutexes
     ├── RivalError                     exit 1   another compaction of the same place comes first: undo, give back, wait
     ├── OwnershipLostError             exit 1   another process owns the queue entry now: stop, undo, report it
     ├── OutcomeUnknownError            exit 1   a commit or rename was sent, no answer came: look before deciding
     └── CancelledError                 exit 1   the compaction was asked to stop

A message is one line that says what is wrong, where, and what to do; it never contains a password.
"""

from typing import ClassVar

from compactor.reasons import Reason


class CompactorError(Exception):
    """Base of all errors of the compactor; `exit_code` is the exit code of the command line."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))


class UsageError(CompactorError):
    """The command line asks for an impossible thing, or a setting is wrong."""

    exit_code = 2


class SettingsError(UsageError):
    """A setting is unknown, of the wrong type, or contradicts another."""


class NothingFitsError(CompactorError):
    """A pattern on the command line fits no table or partition: there is nothing to do."""

    exit_code = 3


class RefusedError(CompactorError):
    """The compactor refuses; a retry is refused, too, until the named cause changes."""

    exit_code = 4

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = str(self)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.reason, self.message)


class CorruptFileError(RefusedError):
    """A file can't be read as one of its format, or contradicts its own name or metadata."""

    def __init__(self, message: str, reason: Reason = Reason.CORRUPT_FILE) -> None:
        super().__init__(reason, message)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.message, self.reason)


class VerificationError(RefusedError):
    """The output that a compaction wrote differs from its inputs."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.VERIFICATION_FAILED, message)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.message,)


class UnreachableError(CompactorError):
    """
    A service that the compactor needs doesn't answer.

    `store`: the unreachable file system or bucket (`hdfs://nn:8020`), when the cause is known to be a store; work on
    other stores may go on.
    """

    exit_code = 5

    def __init__(self, message: str, *, store: str | None = None) -> None:
        super().__init__(message)
        self.store = store


class RetryableError(CompactorError):
    """The step had no effect and may be repeated."""


class MutexHeldError(RetryableError):
    """Another process holds one of Hive's mutexes: this cycle is left to that process."""


class RivalError(CompactorError):
    """
    Another compaction of the same table or partition may still publish, or has published what this one didn't see: both
    results would be read.
    """


class OwnershipLostError(CompactorError):
    """A guarded update matched no row: another process owns the entry or the role now."""


class OutcomeUnknownError(CompactorError):
    """A commit or rename was sent and no answer came: whether it happened is unknown."""


class CancelledError(CompactorError):
    """A stop, a time-out or `compactor cancel` reached a running compaction."""


def printable(text: str) -> str:
    r"""
    The same text for terminals, logs and databases.

    Control characters, and bytes of names that aren't UTF-8, become `\x1b`, `\xe9`.

    Python carries such bytes as lone surrogates (PEP 383), which no database takes.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    number = ord(char)
    if 0xDC80 <= number <= 0xDCFF:
        number -= 0xDC00
    return f"\\x{number:02x}" if number <= 0xFF else f"\\u{number:04x}"
