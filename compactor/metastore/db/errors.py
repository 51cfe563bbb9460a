"""
Translates errors of the metastore's database: SQLAlchemy's and the driver's become those of `compactor.errors`.

Each message is one line that names the database and never holds the password. Integrity errors stay as they are: only
the caller knows their meaning.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, IntegrityError, PendingRollbackError
from sqlalchemy.exc import TimeoutError as NoneFreeError

from compactor.errors import CompactorError, OutcomeUnknownError, RetryableError, SettingsError, UnreachableError
from compactor.log import keep_secret
from compactor.metastore.db.dialects import Dialect, Failure
from compactor.words import one_line


class Translation:
    """
    Translates the errors of one database.

    Use `with translating(): …`, and `with translating(committing=True):` around the statement that sends the commit.

    Args:
        name: of the database.
        url: its password, if any, is one that no message may hold.
        connections: the largest number of connections.
        wait_seconds: how long a thread waits for a connection.
    """

    def __init__(self, name: str, url: URL, dialect: Dialect, connections: int, wait_seconds: float) -> None:
        self._where = f"metastore database {name}"
        self._url = url
        self._hidden = {url.password} if url.password else set[str]()
        self._dialect = dialect
        self._connections = connections
        self._wait_seconds = wait_seconds

    def hide(self, password: str) -> None:
        """Let no message, and no line of the log, hold this password."""
        self._hidden.add(password)
        keep_secret(password)

    @contextmanager
    def __call__(self, *, committing: bool = False) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise
        except DBAPIError as error:
            raise self._translate(error, committing=committing) from error
        except NoneFreeError as error:
            raise UnreachableError(
                f"{self._where} can't be asked: all {self._connections} connections of this process were in use for {self._wait_seconds:g} s; "
                "either its answers take that long, or database.connections is too small for what works here"
            ) from error
        except PendingRollbackError as error:  # the caller went on after a loss; no commit can have been sent since
            raise RetryableError(f"{self._where}: the connection was lost in the transaction") from error
        except ModuleNotFoundError as error:
            raise SettingsError(
                f"database.url: the driver for {self._url.get_backend_name()} isn't installed ({error.name})"
            ) from error

    def _translate(self, error: DBAPIError, *, committing: bool) -> CompactorError:
        line = self._one_line(error)
        match self._dialect.classify(error):
            case Failure.LOST if committing:
                return OutcomeUnknownError(f"{self._where}: the connection was lost while committing: {line}")
            case Failure.LOST:
                return RetryableError(f"{self._where}: the connection was lost: {line}")
            case Failure.CONFLICT:
                return RetryableError(f"{self._where}: {line}")
            case Failure.CREDENTIALS | Failure.UNREACHABLE:
                return UnreachableError(f"{self._where} can't be reached: {line}")
            case Failure.UNABLE:
                return UnreachableError(f"{self._where} can't do it now: {line}")
            case Failure.CHANGED:
                return UnreachableError(
                    f"{self._where} hasn't the tables any more that this process found there, as after an upgrade of Hive's schema: {line}; "
                    "restart compactor when the upgrade is done"
                )
            case Failure.OTHER:
                return CompactorError(f"{self._where}: {line}")

    def _one_line(self, error: DBAPIError) -> str:
        match getattr(error.orig, "args", ()):
            case (int(number), str(text)):  # as some drivers tell it
                line = f"{one_line(text)} ({number})"
            case _:
                line = one_line(error.orig)
        for password in tuple(self._hidden):  # another connection may just be adding a new one
            line = line.replace(password, "***")
        return line if len(line) <= 300 else line[:297] + "..."
