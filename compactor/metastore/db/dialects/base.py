"""
What the compactor asks a database product: its addresses, clock, table locks, column types, meaning of an error.

Source: docs/metastore.md, "Transactions, errors, repeats".
"""

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    Select,
    Table,
    bindparam,
    literal_column,
    select,
    tuple_,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateTable, ExecutableDDLElement
from sqlalchemy.types import TypeEngine

SERVER: Final = r"(?:[\w.-]+|\[(?=[^\]]*:)[\da-fA-F:.]+\])(?::\d+)?"
"""In an address of a Java driver: a host, or an address of IPv6 in brackets; and a port."""
_WHOM: Final = re.compile(r"(?P<user>[^\s:@/?;,&=()\[\]]*)(?::(?!.*[?;(].*=)[^,]*)?", re.DOTALL)
"""A user and a password; not what may be other servers, or a server with options."""
_WHERE: Final = re.compile(
    rf"(?P<servers>(?:{SERVER}(?:,{SERVER})*)?)/(?P<database>[\w.$-]*)(?:\?(?P<options>(?:[\w.-]+=[^&]*(?:&[\w.-]+=[^&]*)*&?)?))?"
)


class JdbcAddress(NamedTuple):
    """
    What an address of a Java driver names; a password isn't taken over.

    Args:
        servers: `host` or `host:port`, or several with commas between them.
        options: what its options mean in an address of ours, by our names.
        tls: whether it asks for more of TLS than those say.
        dropped: names of its options that mean nothing in ours.
    """

    user: str
    servers: str
    database: str
    options: Mapping[str, str]
    tls: bool = False
    dropped: tuple[str, ...] = ()


class Failure(Enum):
    """What a database error means to its caller."""

    LOST = "connection lost"
    CONFLICT = "lost against another transaction"
    CREDENTIALS = "refused our user or password"
    UNREACHABLE = "no server"
    UNABLE = "has no room or means for it, or takes no writes for now"
    CHANGED = "a table or column isn't there"
    OTHER = "other"


class Shortcoming(NamedTuple):
    """
    What a server, or the way to it, lacks.

    Args:
        grave: the daemon can't work so.
        harmless: nothing needs to be done.
    """

    sentence: str
    remedy: str
    grave: bool = False
    harmless: bool = False


class Dialect(ABC):
    """One database product."""

    name: ClassVar[str]
    """The product's name in messages."""
    schemes: ClassVar[tuple[str, ...]]
    """Schemes of its addresses; the first is written in messages, and SQLAlchemy's unless `connecting` gives another."""
    driver: ClassVar[str]
    """SQLAlchemy's name of the driver."""
    jdbc: ClassVar[tuple[str, ...]] = ()
    """The product's names in JDBC's addresses."""
    example: ClassVar[str]
    """An address, for messages."""
    several_servers: ClassVar[bool] = False
    """Whether an address may name several, as options `host`, of which that one is used that takes writes."""
    embedded: ClassVar[bool] = False
    """Whether the database is a file that belongs to one process, without users and passwords."""
    grants_script: ClassVar[str] = ""
    """The script that gives the database's user its rights; none where every user has all."""
    column_types: ClassVar[Mapping[type[TypeEngine[Any]], TypeEngine[Any]]] = {}
    """Column types to use in place of those in `tables`."""
    autoincrement: ClassVar[Mapping[str, Any]] = {}
    """Options of a table whose key the database numbers."""
    at_once: ClassVar[int] = 1000
    """How many values one list may hold."""
    pairs_at_once: ClassVar[int] = 500
    """How many pairs one list may hold."""

    apart: ClassVar[Mapping[str, Any]] = {}
    """
    Options of a connection on which each statement is a transaction of its own; none where a transaction costs no round
    trip.
    """

    @classmethod
    def from_jdbc(cls, rest: str) -> JdbcAddress | None:
        """
        What follows the product's name in a JDBC address; None when ours has nothing that means the same, or when it can be
        read in two ways: a part of a password must not pass for a server, a database or an option. An @ in the options
        `user` and `password` is theirs: users of cloud databases have one.
        """
        whom, _, where = rest.removeprefix("//").rpartition("@")  # a password may hold what elsewhere ends a part
        if "/" not in where:
            whom, where = "", rest.removeprefix("//")  # the @ is an option's
        named, found = _WHOM.fullmatch(whom), _WHERE.fullmatch(where)
        if named is None or found is None or not rest.startswith("//"):
            return None
        options = dict(parse_qsl(found["options"] or "", keep_blank_values=True))
        given = (one.partition("=") for one in (found["options"] or "").split("&"))
        if any("@" in value and name not in {"user", "password"} for name, _, value in given):
            return None  # all before the @ may be a user and a password
        user = options.pop("user", "") or unquote(named["user"])
        kept, tls, dropped = cls.from_jdbc_options(options)
        return JdbcAddress(user, found["servers"], found["database"], kept, tls, dropped)

    @classmethod
    def from_jdbc_options(cls, options: Mapping[str, str]) -> tuple[dict[str, str], bool, tuple[str, ...]]:
        """What such an address's options, the user left out, mean in ours: as `JdbcAddress`'s last three."""
        return {}, False, tuple(options)

    def connecting(self, url: URL) -> URL:
        """An address of ours as SQLAlchemy's dialect takes it."""
        return url

    @abstractmethod
    def options(self, connect_timeout_seconds: float) -> dict[str, Any]:
        """Arguments for SQLAlchemy's create_engine, without the size of its pool."""

    @abstractmethod
    def prepare(self, engine: Engine, *, read_only: bool, idle_transaction_seconds: float) -> None:
        """
        Set up every new connection. Unless `read_only`, one to a server that takes no writes is refused: what it shows
        may be old.

        Args:
            idle_transaction_seconds: the server shall end a connection that is silent inside a transaction for so long:
                a stopped process must not keep its locks.
        """

    def adopt(self, engine: Engine) -> None:  # noqa: B027 - a server's administrator sets its database up
        """
        Set up the database itself, once it is known to be a metastore.

        A database that turns out to be no metastore is left unchanged.
        """

    @abstractmethod
    def now_ms(self) -> ColumnElement[int]:
        """Milliseconds since 1970 on the database clock, as of the transaction's start where the product says so."""

    def once(self, value: ColumnElement[Any]) -> ColumnElement[Any]:
        """A value that is computed once in a statement, however often it stands there."""
        return select(select(value.label("once")).cte("clock").c.once).scalar_subquery()

    def create_table(self, table: Table) -> ExecutableDDLElement:
        """The statement that makes a table of the compactor's own, unless it is there."""
        return CreateTable(table, if_not_exists=True)

    @abstractmethod
    def share_openers_lock(self, connection: Connection, table: Table) -> None:
        """Take TXN_LOCK_TBL as the opener of a transaction does, until the database transaction ends."""

    @abstractmethod
    def own_openers_lock(self, connection: Connection, table: Table) -> None:
        """Take TXN_LOCK_TBL alone: no other process opens or commits until the database transaction ends."""

    @abstractmethod
    def limit_waiting(self, connection: Connection, milliseconds: int) -> None:
        """Wait for locks at most this long in this transaction."""

    def holds(self, connection: Connection, table: Table) -> None:  # noqa: ARG002 - a subclass reads it
        """
        Ask the server whether the connection's transaction goes on, and that it takes writes still: a demoted server
        may leave a transaction as it is, and show what isn't so any more.

        Args:
            table: one with a row that the transaction has locked.

        Raises:
            DBAPIError: the transaction has ended, or the server takes no writes.
        """
        connection.execute(select(literal_column("1")))

    def announce(self, connection: Connection) -> None:  # noqa: B027 - not every product has means for it
        """When this transaction commits, end every `await_announcement` on this database, of any process."""

    def await_announcement(self, connection: Connection, seconds: float) -> bool:  # noqa: ARG002 - a subclass reads it
        """
        Wait for an `announce` of another transaction, `seconds` at most; returns whether there was one since the last
        call on this connection. The connection is in no transaction, and used for nothing else.
        """
        time.sleep(seconds)
        return False

    def among(self, column: ColumnElement[Any], values: Sequence[Any] | str) -> ColumnElement[bool]:
        """`column IN (values)`; at most `at_once` values. A text is the name of a parameter that gets them."""
        return column.in_(bindparam(values, expanding=True) if isinstance(values, str) else values)

    def among_pairs(
        self, first: ColumnElement[Any], second: ColumnElement[Any], pairs: Sequence[tuple[Any, Any]]
    ) -> ColumnElement[bool]:
        """`(first, second) IN (pairs)`; at least one pair, and `pairs_at_once` at most."""
        return tuple_(first, second).in_(pairs)

    def paired(
        self, first: ColumnElement[Any], second: ColumnElement[Any], pairs: Sequence[tuple[Any, Any]]
    ) -> ColumnElement[bool]:
        """The same of pairs that are all different, in a query whose rows may be joined with them."""
        return self.among_pairs(first, second, pairs)

    def of_pairs(
        self, table: Table, first: str, second: str, pairs: Sequence[tuple[Any, Any]], *where: ColumnElement[bool]
    ) -> tuple[FromClause, FromClause, Sequence[ColumnElement[bool]]]:
        """
        The table's rows that have one of these pairs, all different, in two columns, and fulfil some conditions, each
        pair searched for by an index: their columns, what to select from, and what to ask there.
        """
        return table, table, (*where, self.among_pairs(table.c[first], table.c[second], pairs))

    def in_this_order(self, query: Select[Any]) -> Select[Any]:
        """
        The query with its joins in the order in which they stand: for a server that chooses by the number of rows, and
        doesn't know how few have a value that no index has.
        """
        return query

    def long_text(self, value: ColumnElement[Any]) -> ColumnElement[Any]:
        """A text, or NULL, as the product's type for texts of any length, where the branches of a UNION must agree."""
        return value

    @abstractmethod
    def lacking(self, connection: Connection, wanted: Sequence[tuple[Table, str]]) -> Sequence[tuple[Table, str]]:
        """The rights on tables (`INSERT` …) among the wanted ones that the connection's user doesn't have."""

    def server_seen(self, connection: Connection, table: Table) -> tuple[object, ...]:  # noqa: ARG002 - subclasses read them
        """
        Which server answers a look at a table, and whether it takes writes; empty where the product doesn't tell, or has
        no other.
        """
        return ()

    def session_seen(self, connection: Connection) -> object:  # noqa: ARG002 - a subclass reads it
        """The server's number of the session that a connection has; None: the product has no pooler that changes it."""
        return None

    def shortcomings(self, connection: Connection, names: Collection[str]) -> Iterable[Shortcoming]:  # noqa: ARG002 - a subclass reads them
        """
        What the server lacks for the daemon.

        Args:
            names: `TABLE.COLUMN` of those whose texts must be told apart by every character.
        """
        return ()

    @abstractmethod
    def classify(self, error: DBAPIError) -> Failure:
        """What an error means."""


def meaning_of(code: object, meanings: Sequence[tuple[Collection[object], Failure]], error: DBAPIError) -> Failure:
    """What an error with this code means: the first of the meanings that names the code."""
    for codes, meaning in meanings:
        if code in codes:
            return meaning
    return Failure.LOST if error.connection_invalidated else Failure.OTHER
