"""
MySQL and MariaDB by PyMySQL.

The driver leaves a connection in autocommit mode; a transaction begins by START TRANSACTION. So a single statement
costs one round trip. Source: docs/metastore.md, "MySQL and MariaDB"; Hive's DatabaseProduct.
"""

import contextlib
import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import pymysql
from sqlalchemy import (
    BigInteger,
    BindParameter,
    Boolean,
    ColumnElement,
    Connection,
    Engine,
    LargeBinary,
    MetaData,
    Select,
    String,
    Table,
    Text,
    TypeDecorator,
    and_,
    bindparam,
    cast,
    collate,
    event,
    func,
    literal_column,
    or_,
    select,
    text,
    type_coerce,
)
from sqlalchemy.dialects.mysql import BIT, LONGTEXT
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.schema import CreateTable, ExecutableDDLElement
from sqlalchemy.sql import operators
from sqlalchemy.types import NullType

from compactor.metastore.db.dialects.base import Dialect, Failure, Shortcoming, meaning_of
from compactor.metastore.db.dialects.liveness import replace_dead
from compactor.metastore.db.dialects.mysql_session import LOST, Session, code_of, open_session, run, storable
from compactor.metastore.db.tables import CataloguedName, CataloguedPlace, Code, PartitionName, Remark

_LOCK_SECONDS: Final = 60
_LIMITED = "limited"
_APART = "apart"

_CREDENTIALS: Final = frozenset({1044, 1045, 1251, 1698, 1820, 1862, 2059, 3118, 4151})
_UNREACHABLE: Final = frozenset({1049, 1129, 1130, 2002, 2003, 2005, 2012, 2026, 3159})
_CONFLICT: Final = frozenset({1020, 1205, 1213, 1317, 1412, 1614, 1969, 3024, 3058, 3101, 3572})
"""
Deadlock and time-out of a lock; a Galera node's refusal at the commit, which is a deadlock too; a statement cancelled
by an administrator or a limit; a table altered meanwhile.
"""
_CHANGED: Final = frozenset({1054, 1146})
"""A column or a table isn't there."""
_UNABLE: Final = frozenset(
    {1021, 1026, 1030, 1037, 1038, 1040, 1041, 1047, 1114, 1135, 1203, 1206, 1226, 1290, 1792, 1836, 3032, 3100, 9001}
)
"""
No room, memory or connection left; takes no writes; off line (3032); a Galera node outside its cluster (1047); a proxy
without a server (9001).
"""
_ELSEWHERE: Final = frozenset({1047, 1290, 1836, 3032, 9001})
"""After these a new connection may reach a server that can: the old primary is read-only, or its node was cut off."""
_SYNCHRONOUS: Final = 1 | 2 | 4
"""Of Galera: reads, updates and deletes, and inserts wait until what was committed elsewhere is applied."""
_DENIED: Final = frozenset({1142, 1143})
_NO_ANSWER: Final = frozenset({1064, 1227})
"""The statement is another product's, or the user lacks a right."""
_DELIVERED: Final = frozenset({"latin1_bin", "latin1_swedish_ci"})
"""Collations of Hive's own script."""


class _ExactComparator(String.Comparator[str]):
    """
    Compares twice where the column's collation, as delivered or as altered, may take `p=a` for `p=A`: by that collation,
    which its index serves, and by every byte. Two columns are compared by bytes alone, and joined so: the server refuses
    to compare columns of different collations (1267).
    """

    def operate(self, op: Callable[..., Any], *other: Any, **options: Any) -> ColumnElement[Any]:
        found: ColumnElement[Any]
        exact: ColumnElement[Any]
        if op is operators.in_op:
            found = super().operate(op, *other, **options)
            return and_(found, op(_by_character(self.expr), *other, **options))
        if op is operators.concat_op:
            return type_coerce(op(_bytes(self.expr), _bytes(other[0])), _ExactBytes())
        if op in (operators.eq, operators.is_not_distinct_from) and other[0] is not None:
            exact = op(_bytes(self.expr), _bytes(other[0]))
            return exact if _is_column(other[0]) else and_(super().operate(op, *other, **options), exact)
        if op is operators.ne and other[0] is not None:
            exact = op(_bytes(self.expr), _bytes(other[0]))
            return exact
        found = super().operate(op, *other, **options)
        return found


class _ExactBytes(String):
    """A text of bytes that `_bytes` made."""

    comparator_factory = _ExactComparator


def _is_column(value: object) -> bool:
    return isinstance(value, ColumnElement) and not isinstance(value, BindParameter)


def _bytes(value: Any) -> ColumnElement[Any]:
    """A text in utf8mb4, byte by byte: blanks at its end count."""
    if isinstance(value, ColumnElement) and isinstance(value.type, _ExactBytes):
        return type_coerce(value, LargeBinary())
    if not _is_column(value):
        given = value if isinstance(value, BindParameter) else bindparam(None, value, type_=String())
        return cast(given, LargeBinary())
    return cast(func.convert(value.op("USING")(literal_column("utf8mb4")), type_=String()), LargeBinary())


class _ExactCode(Code):
    comparator_factory = _ExactComparator


class _ExactName(PartitionName):
    comparator_factory = _ExactComparator

    def told_apart(self, column: ColumnElement[Any]) -> Sequence[ColumnElement[Any]]:
        return (_by_character(column),)

    def column_expression(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        return _by_character(column)  # for DISTINCT


class _ExactCataloguedName(CataloguedName):
    comparator_factory = _ExactComparator


def _by_character(column: ColumnElement[Any]) -> ColumnElement[Any]:
    converted = func.convert(column.op("USING")(literal_column("utf8mb4")), type_=String())
    return collate(converted, "utf8mb4_bin")


class _List(TypeDecorator[Any]):
    """
    Many values as one parameter, which the session writes as a list. A thousand single ones cost this process more than
    the search costs the server.
    """

    impl = NullType
    cache_ok = True


class _StorableText(Text):
    def bind_processor(self, dialect: Any) -> Any:  # noqa: ARG002 - SQLAlchemy's signature
        return storable


class _StorableRemark(Remark):
    def bind_processor(self, dialect: Any) -> Any:  # noqa: ARG002 - SQLAlchemy's signature
        return storable


_JDBC_TLS: Final = frozenset({"sslMode", "useSSL", "requireSSL", "verifyServerCertificate", "serverSslCert"})
_ANY_CERTIFICATE: Final = {"ssl_check_hostname": "false"}
_TLS: Final = {
    "disable": {"ssl_disabled": "true"},
    "disabled": {"ssl_disabled": "true"},
    "trust": _ANY_CERTIFICATE,
    "required": _ANY_CERTIFICATE,
    "verify-ca": _ANY_CERTIFICATE,
    "verify-full": _ANY_CERTIFICATE,
    "verify-identity": _ANY_CERTIFICATE,
}
"""
What the `sslMode` of MySQL's and MariaDB's Java drivers means in an address of ours, without the authority's file: theirs
is a key store of Java's, which Python doesn't read. Then the connection is encrypted at least.
"""


class MySQL(Dialect):
    """MySQL and MariaDB by PyMySQL, at READ COMMITTED as Hive uses them."""

    name = "MySQL"
    schemes = ("mysql", "mariadb")
    driver = "pymysql"
    jdbc = ("mysql", "mariadb")
    example = "mysql://hive@host:3306/metastore"
    grants_script = "deploy/sql/grants-mysql.sql"
    apart: ClassVar = {_APART: True}
    column_types: ClassVar = {
        Boolean: BIT(1),
        CataloguedName: _ExactCataloguedName(767),
        CataloguedPlace: _ExactCataloguedName(4000),
        Code: _ExactCode(1),
        PartitionName: _ExactName(767),
        Remark: _StorableRemark(128),
        Text: _StorableText(),
    }

    @classmethod
    def from_jdbc_options(cls, options: Mapping[str, str]) -> tuple[dict[str, str], bool, tuple[str, ...]]:
        said = {name: value.lower() for name, value in options.items() if name in _JDBC_TLS}
        mode = said.get("sslMode", "").replace("_", "-")
        if not mode and said.get("useSSL") == "true" == said.get("requireSSL"):
            mode = "verify-ca" if said.get("verifyServerCertificate", "true") == "true" else "required"
        verifies = mode.startswith("verify-") or (not mode and said.get("useSSL") == "true")
        authority = options.get("serverSslCert", "").removeprefix("file:")
        kept = dict(_TLS.get(mode, {}))
        if verifies and authority.startswith("/"):
            kept = {"ssl_ca": authority} | (kept if mode == "verify-ca" else {})
        tls = verifies and "ssl_ca" not in kept
        return kept, tls, tuple(name for name in options if name not in said)

    def options(self, connect_timeout_seconds: float) -> dict[str, Any]:
        seconds = max(2, round(connect_timeout_seconds))
        return {
            "pool_use_lifo": True,  # the others may be closed by the server meanwhile
            "connect_args": {
                "connect_timeout": seconds,
                "read_timeout": seconds,  # until the session is there: see `settled`
                "write_timeout": seconds,
                "program_name": "compactor",
                "autocommit": True,
                "charset": "utf8mb4",
                # neither the server's setting of quotes nor its silent change of values counts
                "sql_mode": "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION",
            },
        }

    def prepare(self, engine: Engine, *, read_only: bool, idle_transaction_seconds: float) -> None:
        seconds = max(1, round(idle_transaction_seconds))

        @event.listens_for(engine, "do_connect")
        def _connect(_dialect: object, _record: object, arguments: Any, options: Any) -> Session:
            return open_session(arguments, options)

        @event.listens_for(engine, "connect")
        def _settings(connection: Any, _record: object) -> None:
            # Only one of the products ends a connection for being silent inside a transaction; the other ends those
            # that are silent at all, and the pool replaces them.
            silence = "idle_transaction_timeout" if connection.is_mariadb else "wait_timeout"
            with connection.cursor() as cursor:
                cursor.execute(
                    "SHOW GLOBAL VARIABLES WHERE Variable_name IN"
                    " ('read_only', 'innodb_read_only', 'wsrep_on', 'max_allowed_packet')"
                )
                found = {name.lower(): value for name, value in cursor.fetchall()}
                on = {name for name, value in found.items() if value != "OFF"}
            if not read_only and on & {"read_only", "innodb_read_only"}:
                raise pymysql.OperationalError(1290, "the server is read-only")
            run(
                connection,
                "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
                *([f"SET SESSION wsrep_sync_wait = {_SYNCHRONOUS}"] if "wsrep_on" in on else []),
                f"SET SESSION innodb_lock_wait_timeout = {_LOCK_SECONDS}, SESSION lock_wait_timeout = {_LOCK_SECONDS},"
                f" SESSION {silence} = {seconds}, SESSION time_zone = '+00:00'",
                *(["SET SESSION TRANSACTION READ ONLY"] if read_only else []),
            )
            connection.settled(int(found.get("max_allowed_packet", sys.maxsize)))

        @event.listens_for(engine, "checkout")
        def _full_patience(connection: Any, record: Any, _proxy: object) -> None:
            if record.info.pop(_LIMITED, None):
                with contextlib.suppress(pymysql.Error):  # a dead connection is found out by the next statement
                    run(connection, f"SET SESSION innodb_lock_wait_timeout = {_LOCK_SECONDS}")

        replace_dead(engine, pymysql.Error, None if read_only else _require_writes)

        @event.listens_for(engine, "begin")
        def _begin(connection: Connection) -> None:
            options = connection.get_execution_options()
            if not options.get(_APART) and options.get("isolation_level") != "AUTOCOMMIT":
                connection.exec_driver_sql("START TRANSACTION")

        @event.listens_for(engine, "handle_error")
        def _leave_the_server(context: ExceptionContext) -> None:
            code = code_of(context.original_exception)
            if code in _ELSEWHERE or code in LOST:
                context.is_disconnect = True

    def create_table(self, table: Table) -> ExecutableDDLElement:
        # Keys are told apart by every character, and sorted by it, whatever the database's own collation.
        own = table.to_metadata(MetaData())
        own.dialect_options["mysql"]["engine"] = "InnoDB"
        own.dialect_options["mysql"]["charset"] = "utf8mb4"
        own.dialect_options["mysql"]["collate"] = "utf8mb4_bin"
        for column in own.columns:
            if isinstance(column.type, Text):
                column.type = LONGTEXT()
        return CreateTable(own, if_not_exists=True)

    def now_ms(self) -> ColumnElement[int]:
        # The start of the statement, as in Hive: not later than the snapshot that shows a row. The session's time zone
        # has no hour that comes twice.
        return literal_column("CAST(ROUND(UNIX_TIMESTAMP(NOW(3)) * 1000) AS SIGNED)", BigInteger)

    def once(self, value: ColumnElement[Any]) -> ColumnElement[Any]:
        return value  # the clock stands still during a statement

    def share_openers_lock(self, connection: Connection, table: Table) -> None:
        self._lock(connection, table, read=True)

    def own_openers_lock(self, connection: Connection, table: Table) -> None:
        self._lock(connection, table, read=False)

    @staticmethod
    def _lock(connection: Connection, table: Table, *, read: bool) -> None:
        """Lock the table's only row: LOCK TABLES would end the transaction, and outlive it."""
        if connection.scalar(select(table.c.txn_lock).with_for_update(read=read)) is None:
            raise LookupError(f"table {table.name} has lost its only row")

    def among(self, column: ColumnElement[Any], values: Sequence[Any] | str) -> ColumnElement[bool]:
        # What a list finds in the catalog is looked up by its name again; a list twice is too long for small packets.
        if isinstance(column.type, _ExactName | _ExactCode) or not values:
            return super().among(column, values)
        kind = _List()
        given = bindparam(values, type_=kind) if isinstance(values, str) else bindparam(None, list(values), type_=kind)
        return column.op("IN", is_comparison=True, return_type=Boolean())(given)

    def among_pairs(
        self, first: ColumnElement[Any], second: ColumnElement[Any], pairs: Sequence[tuple[Any, Any]]
    ) -> ColumnElement[bool]:
        # MariaDB loses pairs whose text isn't ASCII where the column is of `latin1`; IN of single values converts them.
        seconds: dict[Any, list[Any]] = {}
        for one, other in pairs:
            seconds.setdefault(one, []).append(other)
        return or_(*(and_(first == one, self.among(second, others)) for one, others in seconds.items()))

    def in_this_order(self, query: Select[Any]) -> Select[Any]:
        return query.prefix_with("STRAIGHT_JOIN")

    def limit_waiting(self, connection: Connection, milliseconds: int) -> None:
        # for the session, in whole seconds; the next user of the connection gets the usual limit again
        connection.info[_LIMITED] = True
        seconds = max(1, math.ceil(milliseconds / 1000))
        connection.exec_driver_sql(f"SET SESSION innodb_lock_wait_timeout = {seconds}")

    def holds(self, connection: Connection, table: Table) -> None:
        # A read-only server leaves transactions that write nothing, and a Galera node outside its cluster answers
        # whatever needs no table.
        query: Select[Any] = select(literal_column("@@global.read_only")).select_from(table).limit(1)
        if connection.scalar(query) not in (0, "OFF"):
            raise OperationalError(str(query), None, pymysql.OperationalError(1290, "the server is read-only"))

    def lacking(self, connection: Connection, wanted: Sequence[tuple[Table, str]]) -> Sequence[tuple[Table, str]]:
        return [(table, right) for table, right in wanted if not _may(connection, table, right)]

    def server_seen(self, connection: Connection, table: Table) -> tuple[object, ...]:
        of_a_table = select(func.max(next(iter(table.columns)))).scalar_subquery()
        names = ("@@server_id", "@@hostname", "@@port", "@@global.read_only")
        # a proxy that splits answers without a table by itself
        *seen, _ = connection.execute(select(*(literal_column(name) for name in names), of_a_table)).one()
        return tuple(seen)

    def shortcomings(self, connection: Connection, names: Collection[str]) -> Iterator[Shortcoming]:
        asked = "SHOW SESSION VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format')"
        logging = {str(name): value for name, value in connection.exec_driver_sql(asked)}
        if logging.get("log_bin") == "ON" and logging.get("binlog_format") == "STATEMENT":
            yield Shortcoming(
                "binlog_format is STATEMENT: the server refuses every write at READ COMMITTED",
                "SET GLOBAL binlog_format = 'MIXED', or ROW, and in the server's configuration",
                grave=True,
            )
        if _replicates(connection):
            yield Shortcoming(
                "the server is a replica of another, and takes writes all the same",
                "database.url of the primary, for the daemon and every metastore; read_only = ON on replicas",
            )
        altered = {
            f"{table}.{column}": collation
            for table, column, collation in connection.execute(text(_COLLATIONS))
            if collation not in _DELIVERED and f"{table}.{column}".upper() in names
        }
        if altered:
            told = ", ".join(f"{name} ({collation})" for name, collation in sorted(altered.items()))
            yield Shortcoming(
                f"altered collations: {told}; compactor compares by every byte, Hive as the column does",
                "a collation that ends with _bin for each of them, the same where the character set is the same",
                harmless=all(collation.endswith("_bin") for collation in altered.values()),
            )

    def classify(self, error: DBAPIError) -> Failure:
        meanings = (
            (_CREDENTIALS, Failure.CREDENTIALS),
            (_UNREACHABLE, Failure.UNREACHABLE),
            (_CONFLICT, Failure.CONFLICT),
            (_UNABLE, Failure.UNABLE),
            (_CHANGED, Failure.CHANGED),
            (LOST, Failure.LOST),
        )
        return meaning_of(code_of(error.orig), meanings, error)


def _require_writes(connection: Any) -> None:
    """A demoted primary keeps its connections, and shows what isn't so any more."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@global.read_only")
        if cursor.fetchone()[0] not in (0, "OFF"):
            raise pymysql.OperationalError(1290, "the server is read-only")


def _replicates(connection: Connection) -> bool:
    """Whether the server gets its rows from another; False also where the user may not ask."""
    for statement in ("SHOW ALL SLAVES STATUS", "SHOW REPLICA STATUS", "SHOW SLAVE STATUS"):
        try:
            return connection.exec_driver_sql(statement).first() is not None
        except DBAPIError as error:
            if code_of(error.orig) not in _NO_ANSWER:
                raise
    return False


_COLLATIONS: Final = (
    "SELECT table_name, column_name, collation_name FROM information_schema.columns"
    " WHERE table_schema = DATABASE() AND collation_name IS NOT NULL"
)


def _may(connection: Connection, table: Table, right: str) -> bool:
    """Whether the user has a right, from roles too: the server checks it before it explains a statement."""
    preparer = connection.dialect.identifier_preparer
    name, column = preparer.format_table(table), preparer.quote(next(iter(table.columns)).name)
    statement = {
        "SELECT": f"SELECT {column} FROM {name}",  # noqa: S608 - names from the server's own list
        "INSERT": f"INSERT INTO {name} () VALUES ()",  # noqa: S608
        "UPDATE": f"UPDATE {name} SET {column} = 0 WHERE 1 = 0",  # noqa: S608
        "DELETE": f"DELETE FROM {name} WHERE 1 = 0",  # noqa: S608
    }[right]
    try:
        connection.exec_driver_sql(f"EXPLAIN {statement}").close()
    except DBAPIError as error:
        if code_of(error.orig) in _DENIED:
            return False
        raise
    return True
