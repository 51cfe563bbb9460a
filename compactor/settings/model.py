"""Holds all settings in one immutable value: which of them fit together, and which a running daemon can take over."""

import hashlib
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

from pydantic import ByteSize, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from compactor.settings.control import ControlSettings, Windows
from compactor.settings.database import HIDDEN, DatabaseSettings
from compactor.settings.roles import CleanerSettings, HousekeeperSettings, InitiatorSettings, WorkerSettings
from compactor.settings.section import NotNegative, Seconds, Section
from compactor.settings.stores import S3, Hdfs
from compactor.settings.work import InsertOnly, LimitSettings, ReaderSettings, Recode, Spark, Splice, WarehouseSettings
from compactor.settings.zookeeper import Members, ZooKeeper

_EACH_WORKER = 3
"""Connections that a worker uses at once: its own, its monitor's and its heartbeat's."""
_EACH_PROCESS = 16
"""
Connections of the threads that a process has once.

These are Initiator, Cleaner (a mutex, another mutex to queue an entry, and the statements under them), Housekeeper,
watch, control, members.
"""


class HttpSettings(Section):
    """The HTTP server for metrics and health."""

    enabled: bool = True
    host: str = "0.0.0.0"  # noqa: S104 - Prometheus and kubelet come from outside
    port: int = Field(default=9700, ge=0, le=65535)


class LogSettings(Section):
    """Which log events are written, and in which format."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = "auto"


class TxnSettings(Section):
    """Transaction settings; they must be equal to the metastore's own."""

    timeout_seconds: Seconds = 300


class DrainSettings(Section):
    """What a daemon does on TERM."""

    timeout_seconds: NotNegative = 300


class Settings(BaseSettings):
    """All settings, made by `load_settings`; in code by `Settings(database={"url": …})`."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    RESTART: ClassVar[tuple[str, ...]] = (
        "database",
        "initiator.enabled",
        "worker.threads",
        "worker.pools",
        "cleaner.enabled",
        "spark",
        "hdfs",
        "s3",
        "http",
        "host",
        "user",
        "txn",
        "zookeeper",
        "members",
    )
    """Keys (and all below them) that a running daemon can't change."""

    COMMON: ClassVar[tuple[str, ...]] = (
        "initiator",
        "cleaner",
        "splice",
        "recode",
        "insert_only",
        "readers",
        "limits",
        "warehouse",
        "txn",
        "windows",
        "control",
    )
    """Sections that all daemons of a metastore should have alike, and the file of who runs a command, too."""

    database: DatabaseSettings
    initiator: InitiatorSettings = InitiatorSettings()
    worker: WorkerSettings = WorkerSettings()
    cleaner: CleanerSettings = CleanerSettings()
    housekeeper: HousekeeperSettings = HousekeeperSettings()
    spark: Spark = Spark()
    splice: Splice = Splice()
    recode: Recode = Recode()
    insert_only: InsertOnly = InsertOnly()
    readers: ReaderSettings = ReaderSettings()
    limits: LimitSettings = LimitSettings()
    warehouse: WarehouseSettings = WarehouseSettings()
    hdfs: Hdfs = Hdfs()
    s3: S3 = S3()
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()
    txn: TxnSettings = TxnSettings()
    zookeeper: ZooKeeper = ZooKeeper()
    members: Members = Members()
    windows: Windows = Windows()
    control: ControlSettings = ControlSettings()
    drain: DrainSettings = DrainSettings()
    host: str | None = Field(default=None, min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$")
    user: str | None = Field(default=None, min_length=1, max_length=128)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        limit = self.txn.timeout_seconds / 2
        if self.worker.heartbeat_seconds is not None and self.worker.heartbeat_seconds > limit:
            raise ValueError(
                f"worker.heartbeat_seconds is {self.worker.heartbeat_seconds:g}, but a transaction times out after txn.timeout_seconds = "
                f"{self.txn.timeout_seconds:g}: at most half of that, {limit:g}, is allowed"
            )
        if self.initiator.full_scan_seconds < self.initiator.interval_seconds:
            raise ValueError(
                f"initiator.full_scan_seconds is {self.initiator.full_scan_seconds:g}, less than initiator.interval_seconds = "
                f"{self.initiator.interval_seconds:g}: a full scan can't come more often than a cycle"
            )
        if self.splice.min_stripe_bytes > self.recode.target_stripe_bytes:
            raise ValueError(
                f"splice.min_stripe_bytes is {self.splice.min_stripe_bytes}, more than recode.target_stripe_bytes = {self.recode.target_stripe_bytes}: "
                "the stripes that a compaction writes would be too small for the next one to copy, and be recoded again and again"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic-settings passes all by name
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """`load_settings` merges file and environment itself, because it must say where a wrong value stands."""
        return (init_settings,)

    @property
    def host_name(self) -> str:
        """This machine's name in Spark job names, locks and worker ids."""
        return self.host or socket.getfqdn()

    @property
    def heartbeat_seconds(self) -> float:
        """Half the transaction time-out unless set."""
        return self.worker.heartbeat_seconds or self.txn.timeout_seconds / 2

    @property
    def connections(self) -> int:
        """
        How many connections to the database may be in use at the same time.

        Unless set, there are as many as there are threads that may want one while the database is slow, so that no
        thread waits for another's connection.

        Source: docs/metastore.md, Connections.
        """
        return (
            self.database.connections
            or _EACH_WORKER * len(self.worker.pool_of_each)
            + self.cleaner.threads * self.cleaner.enabled
            + _EACH_PROCESS
        )

    @property
    def rules_of_judging(self) -> object:
        """What the Initiator's answers about an unchanged table depend on; two of them are compared."""
        asked = self.initiator
        return (
            (asked.thresholds, asked.failed_threshold, asked.failed_retry_days),
            (self.readers, self.limits, self.warehouse, self.control.only),
        )

    def fingerprints(self) -> dict[str, str]:
        """Of each section in `COMMON` a short text that is another for other values; it tells nothing of them."""
        shown = self.shown()
        return {
            name: hashlib.sha256(json.dumps(shown[name], sort_keys=True).encode()).hexdigest()[:8]
            for name in self.COMMON
        }

    def shown(self) -> dict[str, Any]:
        """The settings as plain values for people: secrets hidden."""
        plain = cast("dict[str, Any]", _plain_values(self.model_dump()))
        plain["database"]["url"] = self.database.shown_url
        return plain

    def changes(self, other: Self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Keys that differ in `other`: (those that a running daemon can take over, those that need a restart)."""
        mine, theirs = leaves(self.model_dump()), leaves(other.model_dump())
        different = [key for key in sorted(mine.keys() | theirs.keys()) if mine.get(key) != theirs.get(key)]
        fixed = tuple(
            key for key in different if any(key == stop or key.startswith(f"{stop}.") for stop in self.RESTART)
        )
        return tuple(key for key in different if key not in fixed), fixed

    def taking_over(self, other: Self) -> Self:
        """`other`, but with the values of this object for the keys that need a restart."""
        kept: dict[str, Any] = {}
        for key in self.RESTART:
            section, _, name = key.partition(".")
            mine = getattr(self, section)
            kept[section] = (
                kept.get(section, getattr(other, section)).model_copy(update={name: getattr(mine, name)})
                if name
                else mine
            )
        return other.model_copy(update=kept)


def leaves(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """The values below sections and mappings by key path; an empty mapping is a value."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        below = isinstance(value, Mapping) and value
        found |= leaves(value, f"{above}{key}.") if below else {f"{above}{key}": value}
    return found


def _plain_values(value: object) -> object:
    match value:
        case Mapping():
            return {key: _plain_values(item) for key, item in value.items()}
        case SecretStr():
            return HIDDEN
        case Path():
            return str(value)
        case ByteSize():
            return int(value)
        case _:
            return value
