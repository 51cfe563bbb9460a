"""
Sessions of MySQL and MariaDB by PyMySQL: how they come about, what they write into statements, when they are lost.

Source: docs/metastore.md, "MySQL and MariaDB".
"""

import socket
import ssl
import struct
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, cast

import pymysql
from pymysql.connections import Connection
from pymysql.constants.SERVER_STATUS import SERVER_STATUS_IN_TRANS

_MARIADB: Final = "MariaDB"
LOST: Final = frozenset(
    {1053, 1077, 1079, 1080, 1158, 1159, 1160, 1161, 1180, 1927, 2006, 2013, 2014, 2055, 3169, 4031}
)
"""
1180: a Galera node was cut off while it committed, and the others may have the commit; or the server couldn't write it.
"""


def storable(value: str | None) -> str | None:
    """
    A text for people, for a column of the character set `latin1`, which is Windows' 1252: other characters become `?`.
    """
    return None if value is None else value.encode("cp1252", "replace").decode("cp1252")


def _tls(wanted: Mapping[str, Any]) -> ssl.SSLContext:
    """TLS as the address's `ssl_…` want it: where they name an authority, the server needs its certificate and name."""
    known = wanted.get("ca") is not None or wanted.get("capath") is not None
    context = ssl.create_default_context(cafile=wanted.get("ca"), capath=wanted.get("capath"))
    context.check_hostname = known and wanted.get("check_hostname", True)
    context.verify_mode = ssl.CERT_REQUIRED if known else ssl.CERT_NONE
    if "cert" in wanted:
        context.load_cert_chain(wanted["cert"], keyfile=wanted.get("key"))
    if "cipher" in wanted:
        context.set_ciphers(wanted["cipher"])
    return context


@cache
def _unasked() -> ssl.SSLContext:
    """TLS with whomever, for all connections."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Session(Connection):  # type: ignore[misc]  # the driver has no types
    """A connection that ends only transactions that there are, and notices a server that vanished."""

    _longest = sys.maxsize

    @property
    def is_mariadb(self) -> bool:
        return _MARIADB in self.get_server_info()

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        """
        Where the address says nothing, TLS is used if the server has it, and no certificate is looked at: the driver
        would read the machine's authorities all the same, for each connection, which takes longer than to connect.
        """
        return cast("ssl.SSLContext", super()._create_ssl_ctx(sslp)) if sslp else _unasked()

    def escape(self, obj: Any, mapping: Any = None) -> Any:
        """
        A value for a statement. A text that a column of `latin1` can't hold equals nothing there; the server would
        refuse to compare the two, if the text had no collation of its own. Of a list each value so; an empty one holds
        NULL, which equals nothing.
        """
        if isinstance(obj, list):
            return f"({', '.join([self.escape(one, mapping) for one in obj]) or 'NULL'})"
        found = super().escape(obj, mapping)
        plain = not isinstance(obj, str) or obj.isascii() or storable(obj) == obj
        return found if plain else f"{found} COLLATE utf8mb4_bin"

    def rollback(self) -> None:
        if self.server_status & SERVER_STATUS_IN_TRANS:
            super().rollback()

    def commit(self) -> None:
        if self.server_status & SERVER_STATUS_IN_TRANS:
            super().commit()

    def settled(self, longest: int) -> None:
        """From now on an answer may take as long as a statement does, and a statement has fewer bytes than `longest`."""
        self._read_timeout = self._write_timeout = None
        self._longest = longest

    def _execute_command(self, command: int, sql: Any) -> None:
        # The server would end the connection, and not always be heard to say why: it would look like a loss.
        if len(sql) >= self._longest:
            raise pymysql.OperationalError(
                1153,
                f"a statement of {len(sql):,} bytes is larger than the server's max_allowed_packet, {self._longest:,}",
            )
        super()._execute_command(command, sql)

    def notice_silence(self) -> None:
        """
        A host that vanished acknowledges nothing: without a limit TCP would repeat what was sent for a quarter of an
        hour. A slow statement is acknowledged.
        """
        if isinstance(self._sock, socket.socket) and self._sock.family != socket.AF_UNIX:
            seconds = int(self.connect_timeout)
            for option, value in (
                (socket.TCP_KEEPIDLE, 30),
                (socket.TCP_KEEPINTVL, seconds),
                (socket.TCP_KEEPCNT, 2),
                (socket.TCP_USER_TIMEOUT, 1000 * seconds),
            ):
                self._sock.setsockopt(socket.IPPROTO_TCP, option, value)


def open_session(arguments: Any, options: Any) -> Session:
    """
    Connect. A server that says nothing, ends the connection or doesn't speak MySQL's protocol is one that can't be
    reached.
    """
    try:
        if "ssl" in options:
            options = options | {"ssl": _tls(options["ssl"])}
        session = Session(*arguments, **options)
        session.notice_silence()
    except pymysql.Error as error:
        if (code := code_of(error)) is None or code in LOST:
            raise pymysql.OperationalError(
                2003, f"no session came about: {error.args[-1] if error.args else error}"
            ) from error
        raise
    except (OSError, RuntimeError, ValueError) as error:  # a file of certificates, or what the driver can't do
        raise pymysql.OperationalError(2026, str(error)) from error
    except (LookupError, struct.error) as error:
        raise pymysql.OperationalError(2003, f"what answers there doesn't speak MySQL's protocol ({error})") from error
    return session


def code_of(error: BaseException | None) -> int | None:
    """The server's or the driver's number of an error."""
    first = error.args[0] if error is not None and error.args else None
    return first if isinstance(first, int) else None


def run(connection: Any, *statements: str) -> None:
    """Run statements without answers."""
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
