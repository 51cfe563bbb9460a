"""
The metastore's database: connections, transactions, clock, mutexes, and the translation of its errors.

Every other module of `compactor.metastore` gets a `Database` and asks it for transactions. No other module gets a
driver's exception that it has to act on.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, create_engine, event, insert, literal, select, update

from compactor.errors import CompactorError, OutcomeUnknownError, RetryableError, SettingsError, UnreachableError
from compactor.metastore.db.dialects import address
from compactor.metastore.db.dialects.embedded_file import EmbeddedFile
from compactor.metastore.db.errors import Translation
from compactor.metastore.db.schema import HiveSchema, create_embedded, detect
from compactor.metastore.db.sql import changed
from compactor.metastore.txn.allocated_ids import HandedOut
from compactor.metastore.txn.mutex import Mutex, locked_row, roll_back, store_value

P = ParamSpec("P")
T = TypeVar("T")

_ATTEMPTS = 8
_FIRST_PAUSE_SECONDS = 0.05
CONNECTIONS: Final = 35
"""Connections of a process that doesn't say how many it needs; see `Settings.connections`."""
_KEPT = 5
_KEPT_OF = 4
"""Connections that stay open when no thread uses them: so many, and one of so many that may be open; about one for each
worker. To connect costs more than to claim."""
WAIT_SECONDS: Final = 30.0
"""How long a thread waits for a connection while all are in use."""


class Database:
    """
    One metastore database.

    Args:
        url: SQLAlchemy URL of a product in `dialects`, its driver left out.
        password: put into the URL, or asked for whenever a connection is made, since it may be replaced; never shown.
        create: make an embedded database if the file has no tables yet.
        read_only: nothing can be written; other processes may go on using an embedded database.
        connect_timeout_seconds: how long a server may take to answer; at least 2.
        idle_transaction_seconds: the server ends a transaction that is silent for so long; a mutex is kept by sending a
            statement in time.
        connections: in use at the same time at most; at least 1.

    Raises:
        SettingsError: the URL can't be read, or names a product that isn't supported; as `password`.
    """

    def __init__(
        self,
        url: str,
        *,
        password: str | Callable[[], str | None] | None = None,
        create: bool = False,
        read_only: bool = False,
        connect_timeout_seconds: float = 10,
        idle_transaction_seconds: float = 30,
        connections: int = CONNECTIONS,
    ) -> None:
        self._secret = password if callable(password) else None
        self._url, self.dialect = address.parse(url, password() if callable(password) else password)
        self._create = create
        self.read_only = read_only
        """Whether nothing can be written, and no lock taken."""
        self._connect_timeout_seconds = connect_timeout_seconds
        self._idle_transaction_seconds = idle_transaction_seconds
        self._connections = connections
        self._engine: Engine | None = None
        self._schema: HiveSchema | None = None
        self._file: EmbeddedFile | None = None
        self.handed_out = HandedOut()
        self.translating = Translation(str(self), self._url, self.dialect, connections, WAIT_SECONDS)
        """Raises the driver's errors as this project's, inside the block that it is called for."""

    def __str__(self) -> str:
        where = self._url
        if self.embedded:
            return str(where.database)
        host = ",".join(address.hosts(where))
        return f"{where.get_backend_name()}://{where.username + '@' if where.username else ''}{host}/{where.database or ''}"

    def __enter__(self) -> Self:
        return self.connect()

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self) -> Self:
        """
        Reach the database and find out its schema; done once, by the first thread that needs it.

        Raises:
            UnreachableError: no server, no such database, wrong password, or another process has the file.
            RefusedError: UNKNOWN_SCHEMA.
        """
        if self._schema is not None:
            return self
        if self.embedded:
            self._open_file()
        try:
            with self.translating():
                engine = self._engine or self._make_engine()
                self._engine = engine
                self._schema = (create_embedded if self._wants_tables() else detect)(engine, self.dialect)
                if not self.read_only:
                    self.dialect.adopt(engine)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Give connections and the file lock back; a later `connect` starts anew."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()
        file, self._file = self._file, None
        if file is not None:
            file.leave()
        self._schema = None

    @property
    def schema(self) -> HiveSchema:
        self.connect()
        assert self._schema is not None
        return self._schema

    @property
    def engine(self) -> Engine:
        self.connect()
        assert self._engine is not None
        return self._engine

    @property
    def embedded(self) -> bool:
        """Whether no other process may use the database."""
        return self.dialect.embedded

    @property
    def now(self) -> ColumnElement[int]:
        """The database clock in milliseconds, as an SQL expression."""
        return self.dialect.now_ms()

    def now_ms(self, connection: Connection) -> int:
        return int(connection.scalar(select(self.now)) or 0)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """
        A writing transaction; commits at the end, rolls back on any exception.

        It runs at READ COMMITTED; on an embedded database it begins when no other one writes.

        Raises:
            RetryableError: a deadlock, a lock that wasn't given in time, or the connection was lost before the commit
                was sent: nothing happened.
            OutcomeUnknownError: the commit was sent and the connection was lost.
            UnreachableError: the server can't be reached, or no connection was free in time.
        """
        self.connect()
        with ExitStack() as stack:
            if self._file is not None:
                stack.enter_context(self._file.writing(60.0))
            with self.translating():
                connection = stack.enter_context(self.engine.connect()).execution_options(writing=True)
            transaction = None
            try:
                with self.translating():
                    transaction = connection.begin()
                    yield connection
            except BaseException:
                if transaction is not None:
                    roll_back(connection)
                raise
            with self.translating(committing=True):
                transaction.commit()

    @contextmanager
    def outside_transactions(self) -> Iterator[Connection]:
        """A connection of its own, each statement of which is a transaction; it is closed at the end."""
        with self.translating():
            connection = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            yield connection
        finally:
            connection.invalidate()  # what it was set up for must not come back from the pool
            connection.close()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """
        A transaction that only reads. It is committed, because a driver may forget all prepared statements at a rollback.
        """
        with self.translating(), self.engine.connect() as connection:
            yield connection
            connection.commit()

    def read(self, look: Callable[Concatenate[Connection, P], T], *given: P.args, **named: P.kwargs) -> T:
        """What `look` reads, called with a connection first; repeated when the database was in the way (RetryableError)."""
        return _repeated(self.reading, lambda connection: look(connection, *given, **named))

    def glance(self, look: Callable[Concatenate[Connection, P], T], *given: P.args, **named: P.kwargs) -> T:
        """
        As `read`, with half the round trips: on a server each statement is a transaction of its own.

        For a single statement, or for several whose answers aren't compared with the database's clock, which is then
        another for each.
        """
        opened = self._apart if self.dialect.apart else self.reading
        return _repeated(opened, lambda connection: look(connection, *given, **named))

    @contextmanager
    def _apart(self) -> Iterator[Connection]:
        with self.translating(), self.engine.connect() as connection:
            yield connection.execution_options(**self.dialect.apart)

    def write(self, change: Callable[Concatenate[Connection, P], T], *given: P.args, **named: P.kwargs) -> T:
        """
        Make a change in one transaction; repeated when nothing happened.

        Raises:
            OutcomeUnknownError: the change may have happened; read the tables before repeating.
        """
        return _repeated(self.transaction, lambda connection: change(connection, *given, **named))

    def repeatable(self, change: Callable[Concatenate[Connection, P], T], *given: P.args, **named: P.kwargs) -> T:
        """Make a change that may safely be made twice: repeated also when its outcome is unknown."""
        return _repeated(
            self.transaction,
            lambda connection: change(connection, *given, **named),
            (RetryableError, OutcomeUnknownError),
        )

    def mutex(self, name: str, wait_seconds: float = 60.0) -> AbstractContextManager[Mutex]:
        """
        Hold one of Hive's named mutexes, on a connection of its own.

        The names are `Initiator`, `Cleaner`, `CompactionScheduler`, `HouseKeeper` and `TxnCleaner`.

        Raises:
            MutexHeldError: another process or thread held the mutex for `wait_seconds`.

        Source: Hive's TxnStoreMutex.
        """
        self.connect()
        return (
            self._embedded_mutex(name, wait_seconds)
            if self._file is not None
            else self._shared_mutex(name, wait_seconds)
        )

    @contextmanager
    def _embedded_mutex(self, name: str, wait_seconds: float) -> Iterator[Mutex]:
        assert self._file is not None
        aux = self.schema.aux_table
        with self._file.mutex(name, wait_seconds):
            known = select(aux.c.mt_key2).where(aux.c.mt_key1 == name)
            mutex = Mutex(name, int(self.read(lambda connection: connection.scalar(known)) or 0))
            yield mutex
            if mutex.kept is not None:
                kept = mutex.kept

                def keep(connection: Connection) -> None:
                    if changed(connection, update(aux).where(aux.c.mt_key1 == name).values(mt_key2=kept)) == 0:
                        connection.execute(insert(aux).values(mt_key1=name, mt_key2=kept))

                self.repeatable(keep)

    @contextmanager
    def _shared_mutex(self, name: str, wait_seconds: float) -> Iterator[Mutex]:
        self.glance(lambda connection: connection.scalar(select(literal(1))))  # so that none of a dead server is taken
        with (
            self.translating(),
            self.engine.connect() as connection,
            locked_row(connection, self.dialect, self.schema, name, wait_seconds) as value,
        ):
            ask = partial(self.dialect.holds, connection, self.schema.aux_table)
            with Mutex(name, value, ask, self._idle_transaction_seconds / 4) as mutex:
                yield mutex
            if mutex.kept is not None and self.schema.generation.keeps_cycle_starts:
                mutex.check()
                store_value(connection, self.schema, name, mutex.kept)

    def _make_engine(self) -> Engine:
        kept = min(max(_KEPT, self._connections // _KEPT_OF), self._connections)
        pool = {"pool_size": kept, "max_overflow": self._connections - kept, "pool_timeout": WAIT_SECONDS}
        engine = create_engine(
            self.dialect.connecting(self._url), **self.dialect.options(self._connect_timeout_seconds), **pool
        )
        if self._secret is not None:
            event.listen(engine, "do_connect", partial(self._log_in, self._secret))
        self.dialect.prepare(engine, read_only=self.read_only, idle_transaction_seconds=self._idle_transaction_seconds)
        event.listen(engine, "invalidate", lambda *_: self.handed_out.forget())
        return engine

    def _log_in(self, secret: Callable[[], str | None], *arguments: Any) -> None:
        *_, options = arguments
        try:
            password = secret()
        except SettingsError as error:  # while its file is replaced
            raise UnreachableError(f"metastore database {self} can't be reached: {error}") from error
        if password is not None:
            self.translating.hide(password)
            options["password"] = password

    def _open_file(self) -> None:
        name = self._url.database
        assert name  # an address without a file name is refused
        path = Path(name)
        if not self._create and not path.is_file():
            raise UnreachableError(f"metastore database {path}: no such file")
        if not path.parent.is_dir():
            raise UnreachableError(f"metastore database {path}: its folder doesn't exist")
        if not self.read_only:
            self._file = EmbeddedFile.use(path)

    def _wants_tables(self) -> bool:
        if not self._create or self._file is None:
            return False
        assert self._engine is not None
        with self._engine.connect() as connection:
            return not connection.dialect.has_table(connection, "COMPACTION_QUEUE")


def _repeated(
    opened: Callable[[], AbstractContextManager[Connection]],
    use: Callable[[Connection], T],
    repeat_on: tuple[type[CompactorError], ...] = (RetryableError,),
) -> T:
    pause = _FIRST_PAUSE_SECONDS
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with opened() as connection:
                return use(connection)
        except repeat_on:
            if attempt == _ATTEMPTS:
                raise
            time.sleep(pause * (0.5 + random.random()))  # noqa: S311 - spreads competitors, no secret
            pause = min(2 * pause, 2.0)
    raise AssertionError
