"""The daemon as a process among others: what it says and shows, how it ends, what it must agree on with the metastore."""

from typing import Literal

from pydantic import Field

from compactor.settings.section import NotNegative, Seconds, Section


class Http(Section):
    """Metrics and health."""

    enabled: bool = True
    host: str = "0.0.0.0"  # noqa: S104 - Prometheus and kubelet come from outside
    port: int = Field(default=9700, ge=0, le=65535)


class Log(Section):
    """What is said, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = "auto"


class Txn(Section):
    """Must be equal to the metastore's own settings."""

    timeout_seconds: Seconds = 300


class Drain(Section):
    """What TERM does."""

    timeout_seconds: NotNegative = 300
