"""How to reach ZooKeeper, as which user, and how often daemons report that they are alive."""

import re
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from compactor.settings.section import Seconds, Section, first_line

_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+)(?::[0-9]{1,5})?")


class Tls(Section):
    """An encrypted connection to ZooKeeper's secure port."""

    enabled: bool = False
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    verify: bool = True
    check_hostname: bool = True

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("key_file is given without cert_file")
        if not self.enabled and (self.ca_file or self.cert_file):
            raise ValueError("files are given, but enabled is false")
        if self.enabled and self.verify and self.ca_file is None:
            raise ValueError("ca_file is required: the authority that signed the servers' certificates")
        return self


class ZooKeeper(Section):
    """ZooKeeper elects leaders and lists members; without `hosts` the metastore's database alone does both."""

    hosts: str | None = Field(default=None, min_length=1)
    root: str = "/compactor"
    session_timeout_seconds: float = Field(default=20, ge=1, le=600)
    auth: Literal["none", "digest", "sasl-digest", "kerberos"] = "none"
    user: str | None = Field(default=None, min_length=1)
    password: SecretStr | None = None
    password_file: Path | None = None
    service: str = Field(default="zookeeper", min_length=1)
    world_readable: bool = False
    tls: Tls = Tls()

    @field_validator("root")
    @classmethod
    def _is_a_path(cls, value: str) -> str:
        if not value.startswith("/") or value == "/" or value.endswith("/") or "//" in value:
            raise ValueError("is a path in ZooKeeper such as /compactor, one for all daemons of one metastore")
        return value

    @field_validator("hosts")
    @classmethod
    def _has_no_path(cls, value: str | None) -> str | None:
        if value is not None and "/" in value:
            raise ValueError("is a list such as zk1:2181,zk2:2181,zk3:2181; the path belongs into root")
        if value is not None and not all(_HOST.fullmatch(host.strip()) for host in value.split(",")):
            raise ValueError("is a list such as zk1:2181,zk2:2181,zk3:2181")
        return value

    @model_validator(mode="after")
    def _enough_to_log_in(self) -> Self:
        given = self.password is not None or self.password_file is not None
        if self.auth in {"digest", "sasl-digest"} and (self.user is None or not given):
            raise ValueError(f"auth {self.auth} needs user, and password_file or COMPACTOR_ZOOKEEPER__PASSWORD")
        if self.auth in {"none", "kerberos"} and (self.user is not None or given):
            raise ValueError(f"auth {self.auth} takes no user and no password")
        if self.password is not None and self.password_file is not None:
            raise ValueError("a password is given twice: by password and by password_file; keep one")
        return self

    def secret(self) -> str | None:
        """
        The password from the environment or from the first line of its file; None without one.

        Raises:
            SettingsError: the file can't be read or is empty.
        """
        return first_line("zookeeper.password_file", self.password, self.password_file)


class Members(Section):
    """How daemons report to each other."""

    heartbeat_seconds: Seconds = 5
    expected: int | None = Field(default=None, ge=1)
