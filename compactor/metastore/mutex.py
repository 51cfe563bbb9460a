"""
A named mutex of Hive while we hold it: a row lock in a database transaction that says nothing.

The server ends a transaction that is silent for too long, so that what a stopped or cut-off process holds is free again. A living holder therefore says something
now and then, and asks before it acts whether it holds the mutex still.
"""

import threading
from types import TracebackType
from typing import Self

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from compactor.errors import OwnershipLostError


class Mutex:
    """
    One of Hive's named mutexes while held; `value` is MT_KEY2, the start of the last completed cycle where Hive 4 keeps one.

    Args:
        keeper: of its connection; None where nobody else can take it.
    """

    def __init__(self, value: int, keeper: "Keeper | None" = None) -> None:
        self.value = value
        self.kept: int | None = None
        self._keeper = keeper

    def keep(self, value: int) -> None:
        """Store this value when the mutex is released (4.x; 3.1 looks rows up by MT_KEY2 = 0, there nothing is stored)."""
        self.kept = value

    def check(self) -> None:
        """
        Ask the server whether it is still held. True at the moment of asking only: what follows must be fenced by itself.

        Raises:
            OwnershipLostError: it was lost, or nobody can tell.
        """
        if self._keeper is not None:
            self._keeper.ask()


class Keeper:
    """
    Keeps a silent transaction alive, inside its `with` block.

    Args:
        connection: used by nobody else inside the block.
        every: seconds between two signs of life.
        what: for messages.
    """

    def __init__(self, connection: Connection, every: float, what: str) -> None:
        self._connection = connection
        self._every = every
        self._what = what
        self._lock = threading.Lock()
        self._lost: str | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"keeper of {what}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def ask(self) -> None:
        """Raises OwnershipLostError."""
        with self._lock:
            if self._lost is None:
                try:
                    self._connection.execute(text("SELECT 1"))
                except SQLAlchemyError as error:
                    self._lost = type(getattr(error, "orig", None) or error).__name__
            if self._lost is not None:
                raise OwnershipLostError(f"{self._what} is lost: the database ended the transaction that held it ({self._lost})")

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self.ask()
            except OwnershipLostError:
                return
