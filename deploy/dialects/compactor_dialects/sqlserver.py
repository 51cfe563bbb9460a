"""
SQL Server by pyodbc and Microsoft's ODBC driver. Never run on a server.

The database must have READ_COMMITTED_SNAPSHOT: without it a statement that reads while others write may miss rows, or
see them twice. The server can't end a session for being silent inside a transaction. Source: deploy/dialects/README.md;
Hive's DatabaseProduct; Transact-SQL's reference and list of errors.
"""

import contextlib
import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from sqlalchemy import (
    URL,
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    MetaData,
    Select,
    String,
    Table,
    Text,
    Unicode,
    UnicodeText,
    and_,
    cast,
    collate,
    event,
    func,
    literal_column,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.dialects.mssql import NVARCHAR
from sqlalchemy.dialects.mssql.base import MSSQLCompiler
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import CompileError, DBAPIError
from sqlalchemy.schema import CreateTable, ExecutableDDLElement
from sqlalchemy.sql import operators

from compactor.errors import CompactorError, SettingsError
from compactor.metastore.db.dialects.base import SERVER, Dialect, Failure, JdbcAddress
from compactor.metastore.db.dialects.liveness import replace_dead
from compactor.metastore.db.tables import CataloguedName, CataloguedPlace, Code, PartitionName

_LOCK_MS: Final = 60_000
_LIMITED: Final = "limited"
_BY_CHARACTER: Final = "Latin1_General_100_BIN2"
"""A collation of every server in which each character equals only itself."""
_HINT: Final = " WITH (UPDLOCK, ROWLOCK)"
_ODBC: Final = "ODBC Driver 18 for SQL Server"
_READS: Final = ("SELECT", "WITH", "SET")

_CREDENTIALS: Final = frozenset({916, 18452, 18456, 18470, 18486, 18487, 18488})
_UNREACHABLE: Final = frozenset({4060, 17142, 40532, 40613, 40615})
_CONFLICT: Final = frozenset({1205, 1222, 3960, 3961})
"""Deadlock, time-out of a lock, a table altered under a snapshot."""
_UNABLE: Final = frozenset(
    {
        *(
            701,
            802,
            823,
            824,
            825,
            921,
            922,
            924,
            927,
            945,
            952,
            976,
            978,
            983,
            1101,
            1105,
            1204,
            3906,
            8645,
            8651,
            9002,
        ),
        *(10928, 10929, 17300, 17809, 40501, 40544),
    }
)
"""No room, log, memory, locks or connection left; the database takes no writes, or isn't open."""
_LOST: Final = frozenset({121, 233, 596, 6005, 10053, 10054, 10060, 64})
_ELSEWHERE: Final = frozenset({976, 978, 983, 3906})
"""After these a new connection may reach a server that can: the old primary is a secondary now."""
_LOST_STATES: Final = frozenset({"08001", "08003", "08007", "08S01", "08S02", "HY010"})
_CANCELLED_STATES: Final = frozenset({"HY008", "HYT00", "HYT01"})
# in braces a value may hold a semicolon
_JDBC: Final = re.compile(rf"//(?P<server>{SERVER})(?P<options>(?:;[^;{{}}]*)*)")
_NUMBER: Final = re.compile(r"\((\d+)\) \(SQL\w+\)")


class _Compiler(MSSQLCompiler):
    """SQLAlchemy's compiler leaves FOR UPDATE out, in silence; here it becomes the hint that Hive uses too."""

    def for_update_clause(self, select: Select[Any], **_: Any) -> str:
        origins = select.get_final_froms()
        if len(origins) != 1 or not isinstance(origins[0], Table):
            raise CompileError("FOR UPDATE is known for a single table alone")
        return ""

    def visit_table(self, table: FromClause, *arguments: Any, **options: Any) -> str:
        name = str(super().visit_table(table, *arguments, **options))
        enclosing = self.stack[-1].get("selectable") if self.stack else None
        locks = options.get("asfrom") and getattr(enclosing, "_for_update_arg", None) is not None
        return name + _HINT if locks else name

    def visit_substr_func(self, function: Any, **options: Any) -> str:
        return f"SUBSTRING{self.function_argspec(function, **options)}"


class _ExactComparator(String.Comparator[str]):
    """
    Compares twice where the database's collation takes `p=a` for `p=A`: by that collation, which an index serves, and
    by every character.
    """

    def operate(self, op: Callable[..., Any], *other: Any, **options: Any) -> ColumnElement[Any]:
        if op is operators.startswith_op:  # in a pattern of this product a bracket begins a class of characters
            escape = options["escape"]
            assert escape, "a name is searched for with autoescape"
            pattern = f"{str(other[0]).replace('[', f'{escape}[')}%"
            like = operators.like_op
            return and_(
                super().operate(like, pattern, escape=escape), like(_by_character(self.expr), pattern, escape=escape)
            )
        found: ColumnElement[Any] = super().operate(op, *other, **options)
        if op in (operators.eq, operators.in_op, operators.is_not_distinct_from):
            return and_(found, op(_by_character(self.expr), *other, **options))
        if op is operators.ne:
            return or_(found, op(_by_character(self.expr), *other, **options))
        return found


class _ExactCode(Code):
    comparator_factory = _ExactComparator


class _ExactName(PartitionName):
    comparator_factory = _ExactComparator

    def told_apart(self, column: ColumnElement[Any]) -> Sequence[ColumnElement[Any]]:
        return column, _by_character(column)  # the first for what is selected: the server wants it to be grouped

    def get_dbapi_type(self, dbapi: Any) -> Any:
        return dbapi.SQL_WVARCHAR

    def column_expression(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        return _by_character(column)  # for DISTINCT


class _ExactCataloguedName(CataloguedName):
    comparator_factory = _ExactComparator


def _by_character(column: ColumnElement[Any]) -> ColumnElement[Any]:
    return collate(type_coerce(column, String()), _BY_CHARACTER)


class SQLServer(Dialect):
    """SQL Server 2016 or newer, at READ COMMITTED as Hive uses it, by row versions."""

    name = "SQL Server"
    schemes = ("mssql", "sqlserver")
    jdbc = ("sqlserver",)
    driver = "pyodbc"
    example = "mssql://compactor@host:1433/metastore"
    grants_script = "deploy/dialects/sql/grants-sqlserver.sql"
    column_types: ClassVar = {
        CataloguedName: _ExactCataloguedName(767),
        CataloguedPlace: _ExactCataloguedName(4000),
        Code: _ExactCode(1),
        PartitionName: _ExactName(767),
        Text: NVARCHAR(None),
    }
    at_once = 280
    """
    A statement has 2,100 parameters at most; seven lists may stand in one, and names that are told apart are sent twice.
    """

    @classmethod
    def from_jdbc(cls, rest: str) -> JdbcAddress | None:
        if (found := _JDBC.fullmatch(rest)) is None:
            return None  # an instance by its name
        pairs = (option.partition("=") for option in found["options"].split(";"))
        options = {name.strip().lower(): value.strip() for name, _, value in pairs}
        database = options.get("databasename") or options.get("database")
        if database is None or options.get("instancename"):
            return None
        kept = {}
        if (encrypt := options.get("encrypt", "true").lower()) != "true":
            kept["Encrypt"] = "no" if encrypt == "false" else encrypt
        if options.get("trustservercertificate", "").lower() == "true":
            kept["TrustServerCertificate"] = "yes"
        user = options.get("user") or options.get("username") or ""
        return JdbcAddress(user, found["server"], database, kept)

    def connecting(self, url: URL) -> URL:
        return url.set(query={"driver": _ODBC, "APP": "compactor", **url.query})

    def options(self, connect_timeout_seconds: float) -> dict[str, Any]:
        return {
            "isolation_level": "READ COMMITTED",
            "pool_use_lifo": True,
            "connect_args": {"timeout": max(2, round(connect_timeout_seconds))},
        }

    def prepare(self, engine: Engine, *, read_only: bool, idle_transaction_seconds: float) -> None:  # noqa: ARG002 - the server knows no such limit
        dialect: Any = engine.dialect
        dialect.statement_compiler = _Compiler
        wide = {String: dialect.colspecs[Unicode], Text: dialect.colspecs[UnicodeText], _ExactName: _ExactName}
        dialect.colspecs = {**dialect.colspecs, **wide}  # else texts are sent in the server's code page

        @event.listens_for(engine, "connect")
        def _settings(connection: Any, _record: object) -> None:
            with connection.cursor() as cursor:
                # an error ends the transaction; counts of rows are what guards look at
                cursor.execute(f"SET LOCK_TIMEOUT {_LOCK_MS}; SET XACT_ABORT ON; SET NOCOUNT OFF")
                _require_row_versions(cursor)
            connection.commit()

        @event.listens_for(engine, "checkout")
        def _full_patience(connection: Any, record: Any, _proxy: object) -> None:
            if record.info.pop(_LIMITED, None):
                with contextlib.suppress(engine.dialect.loaded_dbapi.Error):  # the next statement finds a dead one out
                    connection.execute(f"SET LOCK_TIMEOUT {_LOCK_MS}")
                    connection.commit()

        if read_only:

            @event.listens_for(engine, "before_cursor_execute")
            def _only_read(_connection: object, _cursor: object, statement: str, *_: object) -> None:
                if not statement.lstrip().upper().startswith(_READS):  # the product has no sessions that only read
                    raise CompactorError("this command only reads the metastore database")

        @event.listens_for(engine, "handle_error")
        def _leave_the_server(context: ExceptionContext) -> None:
            if _numbers(context.original_exception) & (_ELSEWHERE | _LOST):
                context.is_disconnect = True

        replace_dead(engine, engine.dialect.loaded_dbapi.Error)

    def create_table(self, table: Table) -> ExecutableDDLElement:
        # Keys are told apart by every character, and sorted by it, whatever the database's own collation.
        own = table.to_metadata(MetaData())
        for column in own.columns:
            if isinstance(column.type, String):
                column.type = NVARCHAR(column.type.length, collation=_BY_CHARACTER)
        return CreateTable(own)  # there is no IF NOT EXISTS; `OwnTable.make` looks again after a failure

    def now_ms(self) -> ColumnElement[int]:
        # Hive's expression: the start of the statement
        return literal_column("DATEDIFF_BIG(MILLISECOND, '19700101', SYSUTCDATETIME())", BigInteger)

    def share_openers_lock(self, connection: Connection, table: Table) -> None:
        self._lock(connection, table, "TABLOCK")

    def own_openers_lock(self, connection: Connection, table: Table) -> None:
        self._lock(connection, table, "TABLOCKX")

    @staticmethod
    def _lock(connection: Connection, table: Table, hint: str) -> None:
        """Lock the table until the transaction ends, as Hive does."""
        query = select(table.c.txn_lock).with_hint(table, f"WITH ({hint}, HOLDLOCK)", "mssql")
        if connection.scalar(query) is None:
            raise LookupError(f"table {table.name} has lost its only row")

    def limit_waiting(self, connection: Connection, milliseconds: int) -> None:
        # for the session; the next user of the connection gets the usual limit again
        connection.info[_LIMITED] = True
        connection.exec_driver_sql(f"SET LOCK_TIMEOUT {max(1, int(milliseconds))}")

    def among_pairs(
        self, first: ColumnElement[Any], second: ColumnElement[Any], pairs: Sequence[tuple[Any, Any]]
    ) -> ColumnElement[bool]:
        return or_(*(and_(first == one, second == other) for one, other in pairs))  # IN takes no pairs here

    def long_text(self, value: ColumnElement[Any]) -> ColumnElement[Any]:
        return cast(value, NVARCHAR(None))

    def lacking(self, connection: Connection, wanted: Sequence[tuple[Table, str]]) -> Sequence[tuple[Table, str]]:
        preparer = connection.dialect.identifier_preparer
        found = []
        for table, right in wanted:
            may = func.has_perms_by_name(preparer.format_table(table), "OBJECT", right)
            if connection.scalar(select(may)) != 1:
                found.append((table, right))
        return found

    def classify(self, error: DBAPIError) -> Failure:
        numbers, message = _numbers(error.orig), str(error.orig)
        state = str(error.orig.args[0]) if error.orig is not None and error.orig.args else ""
        for codes, meaning in (
            (_UNREACHABLE, Failure.UNREACHABLE),  # before the login that fails for it
            (_CREDENTIALS, Failure.CREDENTIALS),
            (_CONFLICT, Failure.CONFLICT),
            (_UNABLE, Failure.UNABLE),
        ):
            if numbers & codes:
                return meaning
        if "(SQLDriverConnect)" in message:
            return Failure.CREDENTIALS if state == "28000" else Failure.UNREACHABLE
        if numbers & _LOST or state in _LOST_STATES:
            return Failure.LOST
        if state in _CANCELLED_STATES:
            return Failure.CONFLICT
        return Failure.LOST if error.connection_invalidated else Failure.OTHER


_HAS_VERSIONS: Final = "SELECT is_read_committed_snapshot_on FROM sys.databases WHERE database_id = DB_ID()"


def _require_row_versions(cursor: Any) -> None:
    """
    Ask the database how it reads.

    Raises:
        SettingsError: by locks, under which a statement may miss rows, or see them twice, while others write.
    """
    found = cursor.execute(_HAS_VERSIONS).fetchone()
    if found is None or not found[0]:
        raise SettingsError(
            "database.url: the database doesn't read by row versions, as compactor needs: ALTER DATABASE … SET READ_COMMITTED_SNAPSHOT ON"
        )


def _numbers(error: BaseException | None) -> frozenset[int]:
    """The server's numbers in an error, which ODBC writes behind each of its messages."""
    return frozenset(int(number) for number in _NUMBER.findall(str(error)))
