"""
Finds the dialect of a database address, and the mistakes that make an address useless.

`mistake` examines only the text of an address. Operators paste `javax.jdo.option.ConnectionURL` of their hive-site.xml,
so a JDBC address is answered with its equivalent. Other packages bring dialects by entry points. Source:
docs/metastore.md; SQLAlchemy's form of an address.
"""

import re
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from compactor.errors import SettingsError
from compactor.metastore.db.dialects import DIALECTS, Dialect
from compactor.settings import Settings

_BY_SCHEME = {scheme: dialect for dialect in DIALECTS for scheme in dialect.schemes}
_EXAMPLES = " or ".join(dialect.example for dialect in DIALECTS)
_NAMES = [dialect.name for dialect in DIALECTS]
_SUPPORTED = f"{', '.join(_NAMES[:-1])} and {_NAMES[-1]} are: {_EXAMPLES}"
_ENTRY_POINTS: Final = "compactor.dialects"
"""The group by which other packages bring dialects, each under every scheme, and every name in JDBC, of its product."""
_APART: Final = {"oracle": "Oracle", "mssql": "SQL Server", "sqlserver": "SQL Server"}
_NO_ADDRESS = f"is not a database address such as {_EXAMPLES}"
_FORM = re.compile(
    r"^(?P<scheme>[\w.+-]+)://(?:[^:/@]*(?::[^@]*)?@)?(?P<host>\[[^\]]*\]|[^/:?]*)(?::(?P<port>[^/?]*))?(?P<path>/[^?]*)?(?:\?(?P<query>.*))?$",
    re.DOTALL,
)
_HOSTS = re.compile(r"[\w.,%-]*|\[[\w:.%]*\]")


def dialect_of(scheme: str) -> type[Dialect] | None:
    """
    The dialect of a scheme, or of a product's name in JDBC's addresses, in lower case; None: no package has one.

    Raises:
        SettingsError: another package's dialect can't be loaded.
    """
    if scheme in _BY_SCHEME:
        return _BY_SCHEME[scheme]
    for point in entry_points(group=_ENTRY_POINTS, name=scheme):
        try:
            dialect: type[Dialect] = point.load()
        except Exception as error:
            raise SettingsError(f"database.url: the dialect {point.value} can't be loaded: {error}") from error
        return dialect
    return None


def kept_apart(scheme: str) -> str:
    """Where to find the dialect of a scheme, or of a product's name in JDBC, that isn't installed; empty: nowhere."""
    if scheme not in _APART:
        return ""
    return f"; {_APART[scheme]}'s dialect, never run on a server, is a package apart: deploy/dialects in the sources"


def parse(url: str, password: str | None = None) -> tuple[URL, Dialect]:
    """
    The address as SQLAlchemy takes it, with the dialect's driver, and the dialect.

    Raises:
        SettingsError: the address can't be used.
    """
    if (wrong := mistake(url)) is not None:
        raise SettingsError(f"database.url: {wrong}")
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise SettingsError(f"database.url: {_NO_ADDRESS}") from error
    found = dialect_of(parsed.get_backend_name().lower())
    assert found is not None  # else it would be a mistake
    dialect = found()
    parsed = parsed.set(drivername=f"{dialect.schemes[0]}+{dialect.driver}")
    return parsed if password is None else parsed.set(password=password), dialect


def hosts(url: URL) -> list[str]:
    """The servers that an address names, each as `host` or `host:port`."""
    if url.host is None and (named := url.normalized_query.get("host")):
        return list(named)
    return [(url.host or "localhost") + (f":{url.port}" if url.port else "")]


def written(
    dialect: type[Dialect] | Dialect, whom: str, servers: str, database: str, options: Mapping[str, str] | None = None
) -> str:
    """
    An address.

    Args:
        whom: empty, or a user, quoted, and `@`.
        servers: `host` or `host:port`; several, with commas between them, where the dialect takes them.
        options: of the address.
    """
    several = servers.split(",") if "," in servers else []
    query = urlencode([*(("host", server) for server in several), *(options or {}).items()], safe=":")
    return f"{dialect.schemes[0]}://{whom}{'' if several else servers}/{database}{'?' if query else ''}{query}"


def wrong_setting(settings: Settings) -> tuple[str, str] | None:
    """The key that the database's product doesn't take as it is, and why; None when the database can be opened."""
    if (wrong := mistake(settings.database.url)) is not None:
        return "database.url", wrong
    _, dialect = parse(settings.database.url)
    if dialect.embedded and settings.database.passwords:
        return "database", f"{dialect.name} takes no password; remove it"
    return None


def mistake(url: str) -> str | None:
    """
    The mistake in an address, in words that follow the key's name; None when the address can be used.

    The words never hold a password.
    """
    if url.lower().startswith("jdbc:"):
        return _jdbc(url[len("jdbc:") :])
    found = _FORM.match(url)
    if found is None:
        return _NO_ADDRESS
    scheme, _, driver = found["scheme"].lower().partition("+")
    dialect = dialect_of(scheme)
    if dialect is None:
        return f"{scheme} isn't supported; {_SUPPORTED}{kept_apart(scheme)}"
    if driver and driver != dialect.driver:
        return f"the driver {driver} isn't used here; write {dialect.schemes[0]}://… without it"
    if dialect.embedded:
        path = (found["path"] or "").removeprefix("/")
        if not path or path == ":memory:":
            return f"{dialect.name} needs a file, such as {dialect.example}; an in-memory database would be gone with the process"
        return None
    if "@" in found["host"]:
        return "has several @: write %40 for one in a user's name or password"
    if _HOSTS.fullmatch(found["host"]) is None:
        return _NO_ADDRESS
    port = found["port"]
    servers = f"{found['host']}:{port}" if port else found["host"]
    if "," in servers and (port or not dialect.several_servers):
        if dialect.several_servers:
            return f"names several servers: write {written(dialect, '', servers, 'metastore')}"
        return f"names several servers; {dialect.name}'s driver takes one: write an address that leads to the primary"
    if port is not None and not _is_port(port):
        return f"what follows the host's colon is no port: a number from 1 to 65535 is wanted, as in {dialect.example}"
    for name, value in parse_qsl(found["query"] or ""):
        _, colon, last = value.rpartition(":")
        if name == "host" and colon and "," in value:
            return "names several servers with ports in one host=…: write a host=… for each"
        if name == "host" and colon and not _is_address(value) and not _is_port(last):
            return "what follows the colon in one host=… is no port: a number from 1 to 65535 is wanted"
        if name == "port" and not all(map(_is_port, value.split(","))):
            return "what follows port= is no port: a number from 1 to 65535 is wanted"
    return None


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 0 < int(text) < 65536


def _is_address(server: str) -> bool:
    """An address of IPv6 without a port, or the directory of a socket: what follows its last colon is no port."""
    return server.startswith("/") or (server.count(":") > 1 and not server.startswith("[")) or server.endswith("]")


def _jdbc(address: str) -> str:
    """
    The answer to a JDBC address, given what follows `jdbc:`, such as `SCHEME://h:5432/m?user=hive`.

    Options of the Java driver mean nothing here, and a password isn't repeated.
    """
    scheme = address.partition(":")[0].lower()
    dialect = dialect_of(scheme)
    if dialect is None:
        known = f"{_SUPPORTED}{kept_apart(scheme)}"
        return f"is a JDBC address of {scheme or 'nothing'}, which isn't supported; {known}"
    scheme, rest = dialect.schemes[0], address.partition(":")[2]
    if dialect.embedded:
        return f"is a JDBC address; write {scheme}:///{rest.partition('?')[0]}"
    if (named := dialect.from_jdbc(rest)) is None:
        return f"is a JDBC address; write {dialect.example}, the password in database.password_file"
    user = quote(named.user, safe="") or "USER"
    if "," in named.servers and not dialect.several_servers:
        return f"is a JDBC address of several servers; {dialect.name}'s driver takes one: write {scheme}://{user}@HOST/{named.database}, with a host that leads to the primary"
    ours = written(dialect, f"{user}@", named.servers, named.database, named.options)
    tls = ", with options of docs/metastore.md for TLS" if named.tls else ""
    return f"is a JDBC address; write {ours}{tls}, the password in database.password_file"
