"""The embedded database: an SQLite file, which belongs to one process."""

import sqlite3
from collections.abc import Sequence
from typing import Any, ClassVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    DateTime,
    Engine,
    Integer,
    Table,
    Text,
    event,
    literal_column,
)
from sqlalchemy.exc import DBAPIError, OperationalError

from compactor.metastore.db.dialects.base import Dialect, Failure


class SQLite(Dialect):
    """The embedded database: one process, WAL, every writing transaction begins IMMEDIATE (`Database` sees to that)."""

    name = "SQLite"
    schemes = ("sqlite",)
    driver = "pysqlite"
    example = "sqlite:////var/lib/compactor/metastore.db"
    embedded = True
    column_types: ClassVar = {BigInteger: Integer(), DateTime: Text()}  # only an INTEGER key is numbered by itself
    autoincrement: ClassVar = {"sqlite_autoincrement": True}

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
        if "unable to open" in message or "not a database" in message or "readonly database" in message:
            return Failure.UNREACHABLE  # in WAL mode a user who only reads must be able to write beside the file
        if "disk is full" in message or "disk I/O error" in message:
            return Failure.UNABLE
        if "no such table" in message or "no such column" in message:
            return Failure.CHANGED
        return Failure.OTHER
