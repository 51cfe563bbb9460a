"""
Every error this package raises on purpose.

    CompactorError                      exit 1
     ├── UsageError                     exit 2   the command line or a setting is wrong
     │    └── SettingsError                      names the key, the file and what is allowed
     ├── RefusedError                   exit 4   final: doing it would risk data, or makes no sense; carries a Reason
     │    ├── CorruptFileError                   a file is not what its name says
     │    └── VerificationError                  our own output is not what it should be; nothing was published
     ├── UnreachableError               exit 5   metastore, file system or Spark can't be reached; try later
     ├── RetryableError                 exit 1   this step failed without effect and may be repeated
     │    └── MutexHeldError                     another process is at it
     ├── OwnershipLostError             exit 1   somebody else owns the queue entry now: stop, undo, say so
     ├── OutcomeUnknownError            exit 1   a commit or rename was sent and not answered: look before deciding
     └── CancelledError                 exit 1   asked to stop

A message is one line that says what is wrong, where, and what to do; it never contains a password.
"""

from typing import ClassVar

from compactor.reasons import Reason


class CompactorError(Exception):
    """Base of all of ours; `exit_code` is what the command line ends with."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))


class UsageError(CompactorError):
    """The user asked for something that can't be meant."""

    exit_code = 2


class SettingsError(UsageError):
    """A setting is unknown, of the wrong type, or contradicts another."""


class RefusedError(CompactorError):
    """We won't do it, and repeating won't help until something changes."""

    exit_code = 4

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = printable(message)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.reason, self.message)


class CorruptFileError(RefusedError):
    """A bucket file can't be read as ORC, or contradicts its own name or metadata."""


class VerificationError(RefusedError):
    """What we wrote differs from what the inputs hold."""


class UnreachableError(CompactorError):
    """
    A service we need doesn't answer.

    `store`: the file system or bucket that is away (`hdfs://nn:8020`), where it is known to be one; everything on other stores may go on.
    """

    exit_code = 5

    def __init__(self, message: str, *, store: str | None = None) -> None:
        super().__init__(message)
        self.store = store


class RetryableError(CompactorError):
    """Nothing happened; the same step may be tried again."""


class MutexHeldError(RetryableError):
    """One of Hive's mutexes is held by somebody else: it is their turn."""


class OwnershipLostError(CompactorError):
    """A guarded update matched no row: the entry isn't ours any more."""


class OutcomeUnknownError(CompactorError):
    """Sent, not answered."""


class CancelledError(CompactorError):
    """A stop, a time-out or `compactor cancel` reached a running compaction."""


def printable(text: str) -> str:
    r"""
    The same text for terminals, logs and databases: control characters, and bytes of names that aren't UTF-8, as `\x1b`, `\xe9`.

    Python carries such bytes as lone surrogates (PEP 383), which no database takes.
    """
    return text if text.isprintable() else "".join(char if char.isprintable() or char in "\n\t" else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    number = ord(char)
    if 0xDC80 <= number <= 0xDCFF:
        number -= 0xDC00
    return f"\\x{number:02x}" if number <= 0xFF else f"\\u{number:04x}"
