"""
Whether a database address is one that this program can use, and what to write instead.

Pure: looks at the text alone. Hive's users paste what stands in hive-site.xml as `javax.jdo.option.ConnectionURL`, so a JDBC address is answered with its equivalent.
Source: docs/metastore.md (which databases); SQLAlchemy's form of an address.
"""

import re
from urllib.parse import parse_qsl

PRODUCTS = ("postgresql", "sqlite")
_ALIASES = {"postgres": "postgresql"}
_DRIVERS = {"postgresql": ("psycopg",), "sqlite": ("pysqlite",)}
_EXAMPLES = "postgresql://hive@host:5432/metastore or sqlite:////var/lib/compactor/metastore.db"
_FORM = re.compile(r"^(?P<scheme>[\w.+-]+)://(?:[^:/@]*(?::[^@]*)?@)?(?:\[[^\]]*\]|[^/:?]*)(?::(?P<port>[^/?]*))?(?P<path>/[^?]*)?(?:\?.*)?$", re.DOTALL)


def mistake(url: str) -> str | None:
    """What is wrong with an address, in words that follow the key's name; None when it can be used. Never holds a password."""
    if url.lower().startswith("jdbc:"):
        return _jdbc(url[len("jdbc:") :])
    found = _FORM.match(url)
    if found is None:
        return f"is not a database address such as {_EXAMPLES}"
    product, _, driver = found["scheme"].lower().partition("+")
    product = _ALIASES.get(product, product)
    if product not in PRODUCTS:
        return f"{product} isn't supported; PostgreSQL and SQLite are: {_EXAMPLES}"
    if driver and driver not in _DRIVERS[product]:
        return f"the driver {driver} isn't used here; write {product}://… without it"
    if product == "sqlite":
        path = (found["path"] or "").removeprefix("/")
        if not path or path == ":memory:":
            return "SQLite needs a file, such as sqlite:////var/lib/compactor/metastore.db; an in-memory database would be gone with the process"
        return None
    port = found["port"]
    if port is not None and not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        return f"the port is {port!r}; a number from 1 to 65535 is wanted, as in postgresql://hive@host:5432/metastore"
    return None


def _jdbc(rest: str) -> str:
    """`postgresql://h:5432/m?user=hive` after `jdbc:`; options of the Java driver mean nothing here, and a password isn't repeated."""
    product = rest.partition(":")[0].lower()
    if product not in _ALIASES and product not in PRODUCTS:
        return f"is a JDBC address of {product or 'nothing'}, which isn't supported; PostgreSQL and SQLite are: {_EXAMPLES}"
    place, _, options = rest.partition("?")
    where = place.partition(":")[2].lstrip("/").rpartition("@")[2]
    if product == "sqlite":
        return f"is a JDBC address; write sqlite:///{place.partition(':')[2]}"
    user = dict(parse_qsl(options)).get("user", "USER")
    return f"is a JDBC address; write postgresql://{user}@{where}, the password in database.password_file"
