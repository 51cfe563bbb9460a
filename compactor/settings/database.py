"""
How to reach the metastore's database, and how its password stays out of sight.

`mistake` examines only the text of an address. Operators paste `javax.jdo.option.ConnectionURL` of their hive-site.xml,
so a JDBC address is answered with its equivalent. Source: docs/metastore.md; SQLAlchemy's form of an address.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl

from pydantic import Field, SecretStr, field_validator, model_validator

from compactor.settings.section import Seconds, Section, first_line

PRODUCTS = ("postgresql", "sqlite")
_ALIASES = {"postgres": "postgresql"}
_DRIVERS = {"postgresql": ("psycopg",), "sqlite": ("pysqlite",)}
_EXAMPLES = "postgresql://hive@host:5432/metastore or sqlite:////var/lib/compactor/metastore.db"
_FORM = re.compile(
    r"^(?P<scheme>[\w.+-]+)://(?:[^:/@]*(?::[^@]*)?@)?(?:\[[^\]]*\]|[^/:?]*)(?::(?P<port>[^/?]*))?(?P<path>/[^?]*)?(?:\?.*)?$",
    re.DOTALL,
)
HIDDEN = "********"


def mistake(url: str) -> str | None:
    """
    The mistake in an address, in words that follow the key's name; None when the address can be used.

    The words never hold a password.
    """
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
    """
    The answer to a JDBC address, given what follows `jdbc:`, such as `postgresql://h:5432/m?user=hive`.

    Options of the Java driver mean nothing here, and a password isn't repeated.
    """
    product = rest.partition(":")[0].lower()
    if product not in _ALIASES and product not in PRODUCTS:
        return f"is a JDBC address of {product or 'nothing'}, which isn't supported; PostgreSQL and SQLite are: {_EXAMPLES}"
    place, _, options = rest.partition("?")
    where = place.partition(":")[2].lstrip("/").rpartition("@")[2]
    if product == "sqlite":
        return f"is a JDBC address; write sqlite:///{place.partition(':')[2]}"
    user = dict(parse_qsl(options)).get("user", "USER")
    return f"is a JDBC address; write postgresql://{user}@{where}, the password in database.password_file"


class DatabaseSettings(Section):
    """The database behind the Hive metastore."""

    url: str = Field(repr=False, min_length=1)
    password: SecretStr | None = None
    password_file: Path | None = None
    connect_timeout_seconds: Seconds = 10
    idle_transaction_seconds: float = Field(default=30, ge=2, le=3600, allow_inf_nan=False)
    connections: int | None = Field(default=None, ge=16, le=4096)

    @field_validator("url")
    @classmethod
    def _is_a_url(cls, value: str) -> str:
        if (wrong := mistake(value)) is not None:
            raise ValueError(wrong)
        return value

    @model_validator(mode="after")
    def _one_password(self) -> Self:
        given = [
            name
            for name, there in (
                ("password", self.password),
                ("password_file", self.password_file),
                ("url", password_in(self.url)),
            )
            if there is not None
        ]
        if len(given) > 1:
            raise ValueError(f"a password is given twice: by {' and by '.join(given)}; keep one")
        if self.url.startswith("sqlite") and given:
            raise ValueError("SQLite takes no password; remove it")
        return self

    def secret(self) -> str | None:
        """
        The password from the environment, or the first line of `password_file`.

        None when neither is set; the password may still be part of the address.

        Raises:
            SettingsError: the file can't be read or is empty.
        """
        return first_line("database.password_file", self.password, self.password_file)

    @property
    def shown_url(self) -> str:
        """The address without its password."""
        return hide_password(self.url)

    def __repr_args__(self) -> Sequence[tuple[str | None, Any]]:
        return [("url", self.shown_url), *((name, value) for name, value in super().__repr_args__() if name != "url")]


def password_in(url: str) -> str | None:
    """The password part of an address, or None."""
    found = re.match(r"^[a-z0-9+]+://[^:/@]*:([^@]*)@", url, re.IGNORECASE)
    return found[1] if found else None


def hide_password(url: str) -> str:
    """The address with its password replaced, also a password given as a query parameter."""
    hidden = re.sub(r"(://[^:/@\s]*:)[^@\s]*@", rf"\1{HIDDEN}@", url)
    return re.sub(r"([?&]password=)[^&\s]*", rf"\1{HIDDEN}", hidden, flags=re.IGNORECASE)
