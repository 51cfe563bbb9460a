"""
How to reach the metastore's database, and how its password stays out of sight.

Which addresses there are, the package `metastore.db.dialects` knows.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field, SecretStr, model_validator

from compactor.settings.section import Seconds, Section, first_line

HIDDEN = "********"


class DatabaseSettings(Section):
    """The database behind the Hive metastore."""

    url: str = Field(repr=False, min_length=1)
    password: SecretStr | None = None
    password_file: Path | None = None
    connect_timeout_seconds: Seconds = 10
    idle_transaction_seconds: float = Field(default=30, ge=2, le=3600, allow_inf_nan=False)
    connections: int | None = Field(default=None, ge=16, le=4096)

    @model_validator(mode="after")
    def _one_password(self) -> Self:
        if len(self.passwords) > 1:
            raise ValueError(f"a password is given twice: by {' and by '.join(self.passwords)}; keep one")
        return self

    @property
    def passwords(self) -> list[str]:
        """The keys that give a password."""
        given = {"password": self.password, "password_file": self.password_file, "url": password_in(self.url)}
        return [name for name, there in given.items() if there is not None]

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
    hidden = re.sub(r"(://[^:/@\s]*:)\S*@", rf"\1{HIDDEN}@", url)
    return re.sub(r"([?&](?:\w*password|pwd)=)[^&\s]*", rf"\1{HIDDEN}", hidden, flags=re.IGNORECASE)
