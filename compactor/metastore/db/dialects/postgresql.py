"""PostgreSQL by psycopg 3."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import psycopg
from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    Table,
    TableValuedAlias,
    Text,
    and_,
    bindparam,
    cast,
    event,
    func,
    literal_column,
    select,
    text,
    true,
)
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError, OperationalError

from compactor.metastore.db.dialects.base import Dialect, Failure
from compactor.metastore.db.dialects.liveness import replace_dead

_CHANNEL = "compactor_queue"


class PostgreSQL(Dialect):
    """PostgreSQL by psycopg 3, at READ COMMITTED as Hive uses it."""

    name = "PostgreSQL"
    schemes = ("postgresql", "postgres")
    driver = "psycopg"
    jdbc = ("postgresql",)
    example = "postgresql://hive@host:5432/metastore"
    several_servers = True
    grants_script = "deploy/sql/grants-postgresql.sql"
    at_once = 20_000
    pairs_at_once = 1000  # for more the server may rather read the whole table
    apart: ClassVar = {"isolation_level": "AUTOCOMMIT"}

    def announce(self, connection: Connection) -> None:
        connection.execute(text(f"NOTIFY {_CHANNEL}"))

    def await_announcement(self, connection: Connection, seconds: float) -> bool:
        if _CHANNEL not in connection.info:
            connection.execute(text(f"LISTEN {_CHANNEL}"))
            connection.info[_CHANNEL] = True
        driver: Any = connection.connection.driver_connection
        try:
            return any(True for _ in driver.notifies(timeout=seconds, stop_after=1))
        except psycopg.Error as error:
            raise OperationalError("waiting for NOTIFY", None, error, connection_invalidated=True) from error

    def among(self, column: ColumnElement[Any], values: Sequence[Any] | str) -> ColumnElement[bool]:
        # One array is one parameter: a thousand single ones cost the driver more than the search costs the server.
        kind = ARRAY(column.type)
        given = bindparam(values, type_=kind) if isinstance(values, str) else bindparam(None, list(values), type_=kind)
        return column == func.any(cast(given, kind))

    def paired(
        self, first: ColumnElement[Any], second: ColumnElement[Any], pairs: Sequence[tuple[Any, Any]]
    ) -> ColumnElement[bool]:
        # Two parameters, and one plan however many pairs: for single ones the server would plan as many searches. Joined,
        # because it expects half of the table from an IN.
        given = _given(first, second, pairs)
        return and_(first == given.c.one, second == given.c.other)

    def of_pairs(
        self, table: Table, first: str, second: str, pairs: Sequence[tuple[Any, Any]], *where: ColumnElement[bool]
    ) -> tuple[FromClause, FromClause, Sequence[ColumnElement[bool]]]:
        # A table that grows quickly has more rows than the server knows of: it would compare each with all pairs. OFFSET
        # keeps it from joining in another order.
        given = _given(table.c[first], table.c[second], pairs)
        search = select(*table.c).where(*where, table.c[first] == given.c.one, table.c[second] == given.c.other)
        found = search.offset(0).lateral("found")
        return found, given.join(found, true()), ()

    @classmethod
    def from_jdbc_options(cls, options: Mapping[str, str]) -> tuple[dict[str, str], bool, tuple[str, ...]]:
        kept = {name: options[name] for name in ("sslmode", "sslrootcert") if options.get(name)}
        meant = set(kept)
        if re.fullmatch(r"[\w$,]+", schemas := options.get("currentSchema", "")):
            kept["options"] = f"-csearch_path={schemas}"
            meant.add("currentSchema")
        tls = options.get("ssl", "false").lower() in {"true", ""} and "sslmode" not in kept
        return kept, tls, tuple(name for name in options if name not in meant | {"ssl"})

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
            "pool_use_lifo": True,  # where the statements are prepared already
            "connect_args": {"connect_timeout": seconds, "application_name": "compactor", **silence},
        }

    def prepare(self, engine: Engine, *, read_only: bool, idle_transaction_seconds: float) -> None:
        @event.listens_for(engine, "do_connect")
        def _to_the_primary(_dialect: object, _record: object, _arguments: object, options: Any) -> None:
            if not read_only:
                options.setdefault("target_session_attrs", "read-write")

        @event.listens_for(engine, "connect")
        def _settings(connection: Any, _record: object) -> None:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '60s'")
                cursor.execute(f"SET idle_in_transaction_session_timeout = {round(idle_transaction_seconds * 1000)}")
                if read_only:
                    cursor.execute("SET default_transaction_read_only = on")
            connection.autocommit = False

        replace_dead(engine, psycopg.Error)

        @event.listens_for(engine, "handle_error")
        def _prepare_anew(context: ExceptionContext) -> None:
            """A column's type was changed under a prepared statement, which would fail for as long as it is kept."""
            if "cached plan must not change result type" in str(context.original_exception):
                context.is_disconnect = True

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

    def server_seen(self, connection: Connection, table: Table) -> tuple[object, ...]:
        of_a_table = select(func.max(next(iter(table.columns)))).scalar_subquery()
        address = cast(func.inet_server_addr(), Text())
        # a pooler that splits reads goes by what is read
        query = select(address, func.inet_server_port(), func.pg_is_in_recovery(), of_a_table)
        *seen, _ = connection.execute(query).one()
        return tuple(seen)

    def session_seen(self, connection: Connection) -> object:
        return connection.scalar(select(func.pg_backend_pid()))

    def classify(self, error: DBAPIError) -> Failure:
        state = getattr(error.orig, "sqlstate", None) or ""
        message = str(error.orig)
        if state.startswith("28") or "authentication failed" in message or "no password supplied" in message:
            return Failure.CREDENTIALS
        if state == "3D000" or ("database" in message and "does not exist" in message and "FATAL" in message):
            return Failure.UNREACHABLE
        # the last: cancelled, by an administrator or the server's own limit
        if state in {"40001", "40P01", "55P03", "57014"}:
            return Failure.CONFLICT
        if state in {"42P01", "42703"}:
            return Failure.CHANGED
        if state == "25006" or state.startswith(("53", "58")):  # a standby, no room or memory, its files can't be read
            return Failure.UNABLE
        if error.connection_invalidated or state == "25P03" or state.startswith(("08", "57P")):
            return Failure.LOST
        if isinstance(error, OperationalError) and not state:
            return Failure.UNREACHABLE
        return Failure.OTHER


def _quoted(connection: Connection, table: Table) -> str:
    return connection.dialect.identifier_preparer.format_table(table)


def _given(first: ColumnElement[Any], second: ColumnElement[Any], pairs: Sequence[tuple[Any, Any]]) -> TableValuedAlias:
    """Pairs as a table with the columns `one` and `other`, of two parameters."""
    arrays = [
        cast(bindparam(None, list(values), type_=ARRAY(column.type)), ARRAY(column.type))
        for column, values in zip((first, second), zip(*pairs, strict=True), strict=True)
    ]
    return func.unnest(*arrays).table_valued("one", "other").render_derived()
