"""All settings in one immutable value: what fits together, and what a running daemon can take over."""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from pydantic import ByteSize, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from compactor.settings.control import Control, Windows
from compactor.settings.database import HIDDEN, Database
from compactor.settings.roles import Cleaner, Housekeeper, Initiator, Worker
from compactor.settings.service import Drain, Http, Log, Txn
from compactor.settings.stores import S3, Hdfs
from compactor.settings.work import Limits, Recode, Spark, Splice, Warehouse
from compactor.settings.zookeeper import Members, ZooKeeper

_EACH_WORKER = 3
"""Connections that a worker uses at once: its own, its lookout's and its heartbeat's."""
_EACH_PROCESS = 16
"""… and what is there once: Initiator, Cleaner (a mutex, another one to queue something, and what is done under them), Housekeeper, watch, control, members."""


class Settings(BaseSettings):
    """All settings. Made by `load_settings`; in code by `Settings(database={"url": …})`."""

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

    database: Database
    initiator: Initiator = Initiator()
    worker: Worker = Worker()
    cleaner: Cleaner = Cleaner()
    housekeeper: Housekeeper = Housekeeper()
    spark: Spark = Spark()
    splice: Splice = Splice()
    recode: Recode = Recode()
    limits: Limits = Limits()
    warehouse: Warehouse = Warehouse()
    hdfs: Hdfs = Hdfs()
    s3: S3 = S3()
    http: Http = Http()
    log: Log = Log()
    txn: Txn = Txn()
    zookeeper: ZooKeeper = ZooKeeper()
    members: Members = Members()
    windows: Windows = Windows()
    control: Control = Control()
    drain: Drain = Drain()
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
        To the database, at the same time at most. Unless set: as many as there are threads that may want one while it is slow, so that none waits for another's.

        Source: docs/metastore.md, Connections.
        """
        return self.database.connections or _EACH_WORKER * len(self.worker.pool_of_each) + self.cleaner.threads * self.cleaner.enabled + _EACH_PROCESS

    def shown(self) -> dict[str, Any]:
        """As plain values for people: secrets hidden."""
        plain = cast("dict[str, Any]", _plain_values(self.model_dump()))
        plain["database"]["url"] = self.database.shown_url
        return plain

    def changes(self, other: Self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """
        Keys that differ in `other`: (those that a running daemon can take over, those that need a restart).
        """
        mine, theirs = dict(_leaves(self.model_dump())), dict(_leaves(other.model_dump()))
        different = [key for key in sorted(mine.keys() | theirs.keys()) if mine.get(key) != theirs.get(key)]
        fixed = tuple(key for key in different if any(key == stop or key.startswith(f"{stop}.") for stop in self.RESTART))
        return tuple(key for key in different if key not in fixed), fixed

    def taking_over(self, other: Self) -> Self:
        """`other`, but with our values of the keys that need a restart."""
        kept: dict[str, Any] = {}
        for key in self.RESTART:
            section, _, name = key.partition(".")
            mine = getattr(self, section)
            kept[section] = kept.get(section, getattr(other, section)).model_copy(update={name: getattr(mine, name)}) if name else mine
        return other.model_copy(update=kept)


def _leaves(value: object, path: str = "") -> list[tuple[str, object]]:
    if isinstance(value, Mapping) and value:
        return [leaf for key, item in value.items() for leaf in _leaves(item, f"{path}.{key}" if path else str(key))]
    return [(path, value)]


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
