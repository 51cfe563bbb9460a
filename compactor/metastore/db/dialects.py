"""
Hides the differences between database products: clock, table locks, begin of a transaction, meaning of an error.

One class per product. Other modules of this package know the product only for the URL's driver (`database`), SQLite's
column types (`tables`) and its autoincrement (`schema`).
"""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    Table,
    bindparam,
    cast,
    event,
    func,
    literal_column,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError, OperationalError


class Failure(Enum):
    """What a database error means to its caller."""

    LOST = "connection lost"
    CONFLICT = "lost against another transaction"
    CREDENTIALS = "refused our user or password"
    UNREACHABLE = "no server"
    UNABLE = "has no room or means for it, or takes no writes for now"
    OTHER = "other"


class Dialect(ABC):
    """One database product."""

    shares_with_others: bool
    """Whether other processes may work on the database at the same time."""

    @abstractmethod
    def options(self, connect_timeout_seconds: float) -> dict[str, Any]:
        """Arguments for SQLAlchemy's create_engine, without the size of its pool."""

    @abstractmethod
    def prepare(self, engine: Engine, *, read_only: bool, idle_transaction_seconds: float) -> None:
        """
        Set up every new connection.

        Args:
            idle_transaction_seconds: the server shall end a connection that is silent inside a transaction for so long:
                a stopped process must not keep its locks.
        """

    @abstractmethod
    def adopt(self, engine: Engine) -> None:
        """
        Set up the database itself, once it is known to be a metastore.

        A database that turns out to be no metastore is left unchanged.
        """

    @abstractmethod
    def now_ms(self) -> ColumnElement[int]:
        """Milliseconds since 1970 on the database clock, as of the transaction's start where the product says so."""

    @abstractmethod
    def share_openers_lock(self, connection: Connection, table: Table) -> None:
        """Take TXN_LOCK_TBL as the opener of a transaction does, until the database transaction ends."""

    @abstractmethod
    def own_openers_lock(self, connection: Connection, table: Table) -> None:
        """Take TXN_LOCK_TBL alone: no other process opens or commits until the database transaction ends."""

    @abstractmethod
    def limit_waiting(self, connection: Connection, milliseconds: int) -> None:
        """Wait for locks at most this long in this transaction."""

    at_once: int = 1000
    """How many values one list may hold."""

    def among(self, column: ColumnElement[Any], values: Sequence[Any]) -> ColumnElement[bool]:
        """`column IN (values)`; at most `at_once` values."""
        return column.in_(values)

    @abstractmethod
    def lacking(self, connection: Connection, wanted: Sequence[tuple[Table, str]]) -> Sequence[tuple[Table, str]]:
        """The rights on tables (`INSERT` …) among the wanted ones that the connection's user doesn't have."""

    @abstractmethod
    def classify(self, error: DBAPIError) -> Failure:
        """What an error means."""


class PostgreSQL(Dialect):
    """PostgreSQL by psycopg 3, at READ COMMITTED as Hive uses it."""

    shares_with_others = True
    at_once = 20_000

    def among(self, column: ColumnElement[Any], values: Sequence[Any]) -> ColumnElement[bool]:
        # One array is one parameter: a thousand single ones cost the driver more than the search costs the server.
        return column == func.any(cast(bindparam(None, list(values), type_=ARRAY(column.type)), ARRAY(column.type)))

    def options(self, connect_timeout_seconds: float) -> dict[str, Any]:
        seconds = max(2, round(connect_timeout_seconds))
        # A host that vanished acknowledges nothing: without a limit TCP would repeat what was sent for a quarter of an
        # hour. A slow statement is acknowledged.
        silence = {
            "tcp_user_timeout": 1000 * seconds,
            "keepalives_idle": 30,
            "keepalives_interval": seconds,
            "keepalives_count": 2,
        }
        return {
            "isolation_level": "READ COMMITTED",
            "pool_pre_ping": True,
            "connect_args": {"connect_timeout": seconds, "application_name": "compactor", **silence},
        }

    def prepare(self, engine: Engine, *, read_only: bool, idle_transaction_seconds: float) -> None:
        @event.listens_for(engine, "connect")
        def _settings(connection: Any, _record: object) -> None:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '60s'")
                cursor.execute(f"SET idle_in_transaction_session_timeout = {round(idle_transaction_seconds * 1000)}")
                if read_only:
                    cursor.execute("SET default_transaction_read_only = on")
            connection.autocommit = False

    def adopt(self, engine: Engine) -> None:
        """Does nothing: the server's administrator sets the database up."""

    def now_ms(self) -> ColumnElement[int]:
        # The start of the transaction, as in Hive: for the age of a row it must not be later than the snapshot that
        # shows the row.
        return cast(func.round(literal_column("extract(epoch from current_timestamp) * 1000")), BigInteger)

    def share_openers_lock(self, connection: Connection, table: Table) -> None:
        connection.execute(text(f"LOCK TABLE {_quoted(connection, table)} IN SHARE MODE"))

    def own_openers_lock(self, connection: Connection, table: Table) -> None:
        connection.execute(text(f"LOCK TABLE {_quoted(connection, table)} IN EXCLUSIVE MODE"))

    def limit_waiting(self, connection: Connection, milliseconds: int) -> None:
        connection.execute(text(f"SET LOCAL lock_timeout = {max(1, int(milliseconds))}"))

    def lacking(self, connection: Connection, wanted: Sequence[tuple[Table, str]]) -> Sequence[tuple[Table, str]]:
        asked = [func.has_table_privilege(_quoted(connection, table), right) for table, right in wanted]
        answers = connection.execute(select(*asked)).one()
        return [one for one, has in zip(wanted, answers, strict=True) if not has]

    def classify(self, error: DBAPIError) -> Failure:
        state = getattr(error.orig, "sqlstate", None) or ""
        message = str(error.orig)
        if state.startswith("28") or "authentication failed" in message or "no password supplied" in message:
            return Failure.CREDENTIALS
        if state == "3D000" or ("database" in message and "does not exist" in message and "FATAL" in message):
            return Failure.UNREACHABLE
        if state in {
            "40001",
            "40P01",
            "55P03",
            "57014",
        }:  # the last: cancelled, by an administrator or the server's own limit
            return Failure.CONFLICT
        if state == "25006" or state.startswith(("53", "58")):  # a standby, no room or memory, its files can't be read
            return Failure.UNABLE
        if error.connection_invalidated or state == "25P03" or state.startswith(("08", "57P")):
            return Failure.LOST
        if isinstance(error, OperationalError) and not state:
            return Failure.UNREACHABLE
        return Failure.OTHER


class SQLite(Dialect):
    """The embedded database: one process, WAL, every writing transaction begins IMMEDIATE (`Database` sees to that)."""

    shares_with_others = False

    def options(self, connect_timeout_seconds: float) -> dict[str, Any]:  # noqa: ARG002 - a file needs no time to answer
        return {"connect_args": {"timeout": 10, "check_same_thread": False}}

    def prepare(self, engine: Engine, *, read_only: bool, idle_transaction_seconds: float) -> None:  # noqa: ARG002 - no other process waits for this one
        @event.listens_for(engine, "connect")
        def _settings(connection: Any, _record: object) -> None:
            connection.isolation_level = None  # the driver would begin on its own, too late and never IMMEDIATE
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA synchronous = FULL")
            if read_only:
                connection.execute("PRAGMA query_only = ON")

        @event.listens_for(engine, "begin")
        def _begin(connection: Connection) -> None:
            connection.exec_driver_sql(
                "BEGIN IMMEDIATE" if connection.get_execution_options().get("writing") else "BEGIN"
            )

    def adopt(self, engine: Engine) -> None:
        with engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert raw is not None
            try:
                raw.execute("PRAGMA journal_mode = WAL")
            except sqlite3.Error as error:  # SQLAlchemy doesn't see statements sent to the driver itself
                raise OperationalError("PRAGMA journal_mode = WAL", None, error) from error

    def now_ms(self) -> ColumnElement[int]:
        return literal_column("CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)", BigInteger)

    def share_openers_lock(self, connection: Connection, table: Table) -> None:
        """Does nothing: the writing transaction is alone anyway."""

    def own_openers_lock(self, connection: Connection, table: Table) -> None:
        """Does nothing: the writing transaction is alone anyway."""

    def limit_waiting(self, connection: Connection, milliseconds: int) -> None:
        """Does nothing: waiting happens at BEGIN, bounded by the connection's time-out."""

    def lacking(self, connection: Connection, wanted: Sequence[tuple[Table, str]]) -> Sequence[tuple[Table, str]]:  # noqa: ARG002 - a user who may open the file has every right
        return ()

    def classify(self, error: DBAPIError) -> Failure:
        message = str(error.orig)
        if "locked" in message or "busy" in message:
            return Failure.CONFLICT
        if "unable to open" in message or "not a database" in message:
            return Failure.UNREACHABLE
        if "disk is full" in message or "disk I/O error" in message:
            return Failure.UNABLE
        return Failure.OTHER


def _quoted(connection: Connection, table: Table) -> str:
    return connection.dialect.identifier_preparer.format_table(table)


DIALECTS: dict[str, type[Dialect]] = {"postgresql": PostgreSQL, "sqlite": SQLite}
