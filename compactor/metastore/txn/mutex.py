"""
Holds a named mutex of Hive: a row lock in an otherwise silent database transaction.

The server ends a transaction that is silent for too long, so that the mutex of a stopped or cut-off process is free
again. A living holder therefore sends a statement now and then, and before it acts asks whether it still holds the
mutex.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from sqlalchemy import ColumnElement, Connection, insert, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from compactor.errors import MutexHeldError, OwnershipLostError, RetryableError
from compactor.metastore.db.dialects import Dialect, Failure
from compactor.metastore.db.schema import HiveSchema


class Mutex:
    """
    One of Hive's named mutexes while held: inside its `with` block its transaction is kept alive.

    Args:
        value: MT_KEY2: the start of the last completed cycle, where Hive 4 keeps one.
        ask: asks the server whether the transaction goes on; raises SQLAlchemyError when it has ended. None: no other
            process can take the mutex.
        every: seconds between two signs of life.
    """

    def __init__(self, name: str, value: int, ask: Callable[[], None] | None = None, every: float = 0) -> None:
        self.value = value
        self.kept: int | None = None
        self._name = name
        self._ask = ask
        self._every = every
        self._lock = threading.Lock()
        self._lost: str | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"keeper of mutex {name}", daemon=True)

    def keep(self, value: int) -> None:
        """Store this value when the mutex is released. On 3.1 nothing is stored: 3.1 looks rows up by MT_KEY2 = 0."""
        self.kept = value

    def __enter__(self) -> Self:
        if self._ask is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._ask is not None:
            self._thread.join()

    def check(self) -> None:
        """
        Ask the server whether the mutex is still held.

        The answer is true at the moment of asking only: what follows must be fenced by itself.

        Raises:
            OwnershipLostError: the server ended the transaction, or takes no writes any more, or couldn't be asked.
        """
        if self._ask is None:
            return
        with self._lock:
            if self._lost is None:
                try:
                    self._ask()
                except SQLAlchemyError as error:
                    self._lost = type(getattr(error, "orig", None) or error).__name__
            if self._lost is not None:
                raise OwnershipLostError(
                    f"mutex {self._name} is lost: the database ended the transaction that held it, or takes no writes any more ({self._lost})"
                )

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self.check()
            except OwnershipLostError:
                return


@contextmanager
def locked_row(
    connection: Connection, dialect: Dialect, schema: HiveSchema, name: str, wait_seconds: float
) -> Iterator[int]:
    """
    Lock the row of a named mutex in this connection's transaction; yields MT_KEY2.

    The transaction is rolled back at the end unless it was committed.

    Raises:
        MutexHeldError: another process held the mutex for `wait_seconds`.

    Source: Hive's TxnStoreMutex.
    """
    value = _lock(connection, dialect, schema, name, wait_seconds)
    try:
        yield value
    finally:
        roll_back(connection)


def store_value(connection: Connection, schema: HiveSchema, name: str, value: int) -> None:
    """Write MT_KEY2 of the locked row, and commit, which releases it."""
    connection.execute(update(schema.aux_table).where(_row(schema, name)).values(mt_key2=value))
    connection.commit()


def roll_back(connection: Connection) -> None:
    """Roll back; a connection on which that fails is thrown away."""
    try:
        connection.rollback()
    except DBAPIError:
        connection.invalidate()


def _row(schema: HiveSchema, name: str) -> ColumnElement[bool]:
    aux = schema.aux_table
    row = aux.c.mt_key1 == name
    return row if schema.generation.keeps_cycle_starts else row & (aux.c.mt_key2 == 0)


def _lock(connection: Connection, dialect: Dialect, schema: HiveSchema, name: str, wait_seconds: float) -> int:
    aux = schema.aux_table
    for _ in range(3):
        dialect.limit_waiting(connection, int(wait_seconds * 1000))
        try:
            value = connection.scalar(select(aux.c.mt_key2).where(_row(schema, name)).with_for_update())
            if value is not None:
                return int(value)
            connection.execute(insert(aux).values(mt_key1=name, mt_key2=0))  # may wait, too: for a gap that Hive locked
            connection.commit()
        except IntegrityError:
            connection.rollback()
        except DBAPIError as error:
            if dialect.classify(error) is Failure.CONFLICT:
                raise MutexHeldError(f"mutex {name} is held by another process") from error
            raise
    raise RetryableError(f"mutex {name} could not be taken")
