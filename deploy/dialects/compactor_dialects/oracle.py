"""
Oracle Database by python-oracledb, thin: no client library is needed. Never run on a server.

The database can't end a session for being silent inside a transaction, nor bound how long an UPDATE or DELETE waits for
a row. Source: deploy/dialects/README.md; Hive's DatabaseProduct; Oracle's SQL Language Reference and
Database Error Messages; python-oracledb's manual.
"""

import math
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from sqlalchemy import (
    URL,
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    Table,
    Text,
    event,
    func,
    literal_column,
    text,
)
from sqlalchemy.dialects.oracle.base import OracleCompiler
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateTable, ExecutableDDLElement

from compactor.metastore.db.dialects.base import SERVER, Dialect, Failure, JdbcAddress, meaning_of
from compactor.metastore.db.dialects.liveness import replace_dead
from compactor.metastore.db.tables import Remark

_LOCK_SECONDS: Final = 60
_LIMITED: Final = "limited"
_SCHEMA: Final = "schema"
_FOR_UPDATE: Final = "FOR UPDATE"

_CREDENTIALS: Final = frozenset({"ORA-01005", "ORA-01017", "ORA-01045", "ORA-28000", "ORA-28001", "DPY-4001"})
_UNREACHABLE: Final = frozenset(
    {
        *("ORA-01033", "ORA-01034", "ORA-01089", "ORA-01109", "ORA-12154", "ORA-12170", "ORA-12505", "ORA-12514"),
        *("ORA-12516", "ORA-12518", "ORA-12519", "ORA-12520", "ORA-12526", "ORA-12527", "ORA-12528", "ORA-12541"),
        *("ORA-12543", "ORA-12545", "ORA-27101"),
        *("DPY-3001", "DPY-3010", "DPY-4026", "DPY-4027", "DPY-6000", "DPY-6001", "DPY-6002", "DPY-6003", "DPY-6005"),
    }
)
"""The instance isn't open, the listener knows no such service or is full; DPY: the driver says so."""
_CONFLICT: Final = frozenset(
    {
        *("ORA-00040", "ORA-00051", "ORA-00054", "ORA-00060", "ORA-01013", "ORA-01555", "ORA-01591", "ORA-04020"),
        *("ORA-04021", "ORA-08103", "ORA-08176", "ORA-08177", "ORA-30006", "DPY-4024"),
    }
)
"""
Deadlock, a lock not given in time, cancelled by an administrator or a limit; a snapshot that can't be read any more; a
table altered meanwhile.
"""
_UNABLE: Final = frozenset(
    {
        *("ORA-00018", "ORA-00020", "ORA-00257", "ORA-01456", "ORA-01536", "ORA-01578", "ORA-01631", "ORA-01632"),
        *("ORA-01652", "ORA-01653", "ORA-01654", "ORA-01688", "ORA-01691", "ORA-01692", "ORA-02391", "ORA-04030"),
        *("ORA-04031", "ORA-16000", "ORA-19502", "ORA-19809", "ORA-19815", "ORA-30036"),
    }
)
"""No session, room, undo or memory left; a standby that takes no writes."""
_LOST: Final = frozenset(
    {
        *("ORA-00028", "ORA-00031", "ORA-01012", "ORA-01041", "ORA-01092", "ORA-02396", "ORA-02399", "ORA-03113"),
        *("ORA-03114", "ORA-03135", "ORA-12153", "ORA-12537", "ORA-12547", "ORA-12570", "ORA-12571", "ORA-12583"),
        *("ORA-25402", "ORA-25408", "DPY-1001", "DPY-4011", "DPY-4033"),
    }
)
_ELSEWHERE: Final = frozenset({"ORA-16000"})
"""After it a new connection may reach a server that can: the old primary is a standby now."""
_JDBC: Final = re.compile(
    rf"(?:thin|oci8?):(?P<user>[^@/]*)(?:/[^@]*)?@(?:(?P<protocol>tcps?):)?(?://)?(?P<server>{SERVER})/(?P<service>[\w.$#-]+)(?::\w+)?(?:\?[^@]*)?",
    re.IGNORECASE | re.DOTALL,
)


class _Compiler(OracleCompiler):
    """SQLAlchemy's compiler writes a number where nothing, or all, is wanted; the product wants a comparison."""

    def visit_true(self, *_: Any, **__: Any) -> str:
        return "1 = 1"

    def visit_false(self, *_: Any, **__: Any) -> str:
        return "0 = 1"


class _StorableRemark(Remark):
    """Hive's VARCHAR(128) has room for 128 bytes, where the server's NLS_LENGTH_SEMANTICS is as delivered."""

    def bind_processor(self, dialect: Any) -> Any:  # noqa: ARG002 - SQLAlchemy's signature
        return lambda value: None if value is None else value.encode()[: self.length].decode(errors="ignore")


class Oracle(Dialect):
    """Oracle Database 12.1 or newer, at READ COMMITTED as Hive uses it."""

    name = "Oracle"
    schemes = ("oracle",)
    jdbc = ("oracle",)
    driver = "oracledb"
    example = "oracle://compactor@host:1521/SERVICE?schema=HIVE"
    grants_script = "deploy/dialects/sql/grants-oracle.sql"
    column_types: ClassVar = {Remark: _StorableRemark(128)}

    @classmethod
    def from_jdbc(cls, rest: str) -> JdbcAddress | None:
        if (found := _JDBC.fullmatch(rest)) is None:
            return None  # a SID, a net service name or a description
        tls = {"protocol": "tcps"} if (found["protocol"] or "").lower() == "tcps" else {}
        return JdbcAddress(found["user"], found["server"], found["service"], tls)

    def connecting(self, url: URL) -> URL:
        # The driver's own form (Easy Connect Plus) names a service, SQLAlchemy's a SID, which a pluggable database lacks.
        place = (
            f"{url.query.get('protocol', 'tcp')}://{url.host or 'localhost'}:{url.port or 1521}/{url.database or ''}"
        )
        options = {name: value for name, value in url.query.items() if name not in ("protocol", _SCHEMA)}
        return URL.create(
            url.drivername,
            url.username,
            url.password,
            f"{place}?{urlencode(options, doseq=True)}" if options else place,
            query={_SCHEMA: url.query[_SCHEMA]} if _SCHEMA in url.query else {},
        )

    def options(self, connect_timeout_seconds: float) -> dict[str, Any]:
        return {
            "pool_use_lifo": True,
            "connect_args": {
                "tcp_connect_timeout": max(2.0, connect_timeout_seconds),
                "expire_time": 1,  # minutes, after which TCP asks whether a silent server is there
                "program": "compactor",
            },
        }

    def prepare(self, engine: Engine, *, read_only: bool, idle_transaction_seconds: float) -> None:  # noqa: ARG002 - MAX_IDLE_BLOCKER_TIME is the server's alone
        dialect: Any = engine.dialect
        dialect.statement_compiler = _Compiler
        dialect.colspecs = {**dialect.colspecs, _StorableRemark: _StorableRemark}  # else it is taken for any text

        @event.listens_for(engine, "do_connect")
        def _connect(_dialect: object, _record: object, arguments: Any, options: Any) -> Any:
            """Take the schema's name before SQLAlchemy asks for it."""
            schema = options.pop(_SCHEMA, None)
            connection: Any = engine.dialect.connect(*arguments, **options)
            if schema is not None:
                quoted = str(schema).replace('"', "")
                with connection.cursor() as cursor:
                    cursor.execute(f'ALTER SESSION SET CURRENT_SCHEMA = "{quoted}"')
            return connection

        @event.listens_for(engine, "begin")
        def _begin(connection: Connection) -> None:
            if read_only:
                connection.exec_driver_sql("SET TRANSACTION READ ONLY")

        @event.listens_for(engine, "checkout")
        def _full_patience(_connection: object, record: Any, _proxy: object) -> None:
            record.info.pop(_LIMITED, None)

        @event.listens_for(engine, "before_cursor_execute", retval=True)
        def _wait(
            connection: Connection, _cursor: object, statement: str, parameters: Any, _context: object, _many: bool
        ) -> tuple[str, Any]:
            """No setting of the session limits how long a row is waited for."""
            if statement.endswith(_FOR_UPDATE):
                statement = f"{statement} WAIT {_patience(connection)}"
            return statement, parameters

        @event.listens_for(engine, "handle_error")
        def _leave_the_server(context: ExceptionContext) -> None:
            if _code(context.original_exception) in _ELSEWHERE | _LOST:
                context.is_disconnect = True

        replace_dead(engine, engine.dialect.loaded_dbapi.Error)

    def create_table(self, table: Table) -> ExecutableDDLElement:
        return CreateTable(table)  # IF NOT EXISTS is new in 23ai; `OwnTable.make` looks again after a failure

    def now_ms(self) -> ColumnElement[int]:
        # Hive's expression, with the fractions of its days rounded away. The start of the statement.
        return literal_column(
            "ROUND((CAST(SYSTIMESTAMP AT TIME ZONE 'UTC' AS DATE) - DATE '1970-01-01') * 24 * 60 * 60 * 1000"
            " + CAST(MOD(EXTRACT(SECOND FROM SYSTIMESTAMP), 1) * 1000 AS INT))",
            BigInteger,
        )

    def share_openers_lock(self, connection: Connection, table: Table) -> None:
        self._lock(connection, table, "SHARE")

    def own_openers_lock(self, connection: Connection, table: Table) -> None:
        self._lock(connection, table, "EXCLUSIVE")

    @staticmethod
    def _lock(connection: Connection, table: Table, mode: str) -> None:
        name = connection.dialect.identifier_preparer.format_table(table)
        connection.execute(text(f"LOCK TABLE {name} IN {mode} MODE WAIT {_patience(connection)}"))

    def limit_waiting(self, connection: Connection, milliseconds: int) -> None:
        connection.info[_LIMITED] = max(1, math.ceil(milliseconds / 1000))

    def long_text(self, value: ColumnElement[Any]) -> ColumnElement[Any]:
        return func.to_clob(value, type_=Text())

    def lacking(self, connection: Connection, wanted: Sequence[tuple[Table, str]]) -> Sequence[tuple[Table, str]]:
        if connection.scalar(text(_IS_OWNER)) is not None:
            return ()
        granted = {(str(name), str(right)) for name, right in connection.execute(text(_GRANTED))}
        return [
            (table, right)
            for table, right in wanted
            if (table.name.upper(), right) not in granted and ("*", f"{right} ANY TABLE") not in granted
        ]

    def classify(self, error: DBAPIError) -> Failure:
        meanings = (
            (_CREDENTIALS, Failure.CREDENTIALS),
            (_UNREACHABLE, Failure.UNREACHABLE),
            (_CONFLICT, Failure.CONFLICT),
            (_UNABLE, Failure.UNABLE),
            (_LOST, Failure.LOST),
        )
        return meaning_of(_code(error.orig), meanings, error)


_IS_OWNER: Final = "SELECT 1 FROM DUAL WHERE SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA') = USER"
_GRANTED: Final = (
    "SELECT table_name, privilege FROM all_tab_privs"
    " WHERE table_schema = SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')"
    " AND (grantee IN (USER, 'PUBLIC') OR grantee IN (SELECT role FROM session_roles))"
    " UNION ALL SELECT '*', privilege FROM session_privs"
)


def _code(error: BaseException | None) -> str:
    """`ORA-00060` or `DPY-4011`, by the driver; empty when an error has none."""
    first = error.args[0] if error is not None and error.args else None
    return str(getattr(first, "full_code", ""))


def _patience(connection: Connection) -> int:
    return int(connection.info.get(_LIMITED, _LOCK_SECONDS))
