"""
Says when this project's processes have queued an entry, so that a worker needn't look at the queue for it.

An announcement is a hint: one may be lost with the connection, and Hive makes none. Workers look at the queue all the
same, every `worker.poll_seconds`.
Source: docs/metastore.md, "Announcements".
"""

from contextlib import ExitStack

from sqlalchemy import Connection

from compactor.metastore.db.database import Database


class Announcements:
    """Waits for announcements on a connection of its own, which is made by the first wait. Of a shared database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._held = ExitStack()
        self._connection: Connection | None = None

    def wait(self, seconds: float) -> bool:
        """
        Wait for an entry that is queued, `seconds` at most; returns whether one was since the last wait.

        Raises:
            UnreachableError, RetryableError: the connection was lost, or there is none; the next wait makes another.
        """
        try:
            if self._connection is None:
                self._connection = self._held.enter_context(self._database.outside_transactions())
            with self._database.translating():
                return self._database.dialect.await_announcement(self._connection, seconds)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the connection back."""
        held, self._held, self._connection = self._held, ExitStack(), None
        held.close()
