"""Where the data work runs, and from which sizes on stripes are copied or written anew."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import ByteSize, Field, field_validator, model_validator

from compactor.settings.section import MIB, NotNegative, Seconds, Section


class Spark(Section):
    """Where the data work runs."""

    mode: Literal["session", "submit"] = "session"
    master: str = Field(default="local[*]", min_length=1)
    deploy_mode: Literal["client", "cluster"] = "client"
    conf: dict[str, str] = Field(default_factory=dict)
    queue: str | None = Field(default=None, min_length=1)
    pool_queues: dict[str, str] = Field(default_factory=dict)
    archive: str | None = Field(default=None, min_length=1)
    python: str | None = Field(default=None, min_length=1)
    proxy_user: bool = False
    principal: str | None = Field(default=None, min_length=1)
    keytab: Path | None = None
    tracking_url: str | None = Field(default=None, pattern=r"^https?://.*\{id\}")
    idle_seconds: Seconds = 600
    session_max_hours: NotNegative = 144
    start_seconds: Seconds = 3600
    silence_seconds: Seconds = 900

    @property
    def local(self) -> bool:
        """Whether everything runs on this machine, in one Java process."""
        return self.master.startswith("local")

    @property
    def elastic(self) -> bool:
        """Whether executors come and go by themselves."""
        return self.master == "yarn" or self.master.startswith("k8s:")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.deploy_mode == "cluster" and (self.mode == "session" or not self.elastic):
            raise ValueError(
                "deploy_mode cluster needs mode submit, and master yarn or k8s://…: elsewhere Spark runs no driver in Python for us"
            )
        if (self.principal is None) != (self.keytab is None):
            raise ValueError(
                "principal and keytab belong together: give both, or neither (then the ticket cache counts)"
            )
        if self.proxy_user and self.mode == "session":
            raise ValueError("proxy_user needs mode submit: all users share a session")
        if self.archive is not None and self.local:
            raise ValueError("archive is for clusters; with a local master our own Python is used")
        return self

    @field_validator("conf", mode="before")
    @classmethod
    def _values_as_spark_writes_them(cls, value: object) -> object:
        """`spark.cores.max: 4` and `true` are what YAML users write; Spark wants strings."""
        if not isinstance(value, Mapping):
            return value
        return {key: _spark_value(item) for key, item in value.items()}


def _spark_value(item: object) -> object:
    if isinstance(item, bool):
        return str(item).lower()
    return str(item) if isinstance(item, int | float) else item


class Splice(Section):
    """Copying stripes as bytes."""

    min_stripe_bytes: ByteSize = ByteSize(8 * MIB)


class Recode(Section):
    """Reading and writing rows."""

    target_stripe_bytes: ByteSize = Field(default=ByteSize(64 * MIB), ge=MIB)
    verify_values: bool = True


class InsertOnly(Section):
    """Joining small files of insert-only tables."""

    file_bytes: ByteSize = Field(default=ByteSize(256 * MIB), ge=MIB)


class ReaderSettings(Section):
    """What the site's readers do where releases, or a site's own configuration, differ."""

    orc_columns: Literal["auto", "position", "name", "both"] = "auto"
    insert_only_originals: bool = False

    def read_originals(self, *, insert_only: bool) -> bool:
        """Whether queries read original files of a table: files that lie in no base and in no delta."""
        return self.insert_only_originals or not insert_only


class WarehouseSettings(Section):
    """Where the compactor may write and delete."""

    roots: list[str] = Field(default_factory=list)

    @field_validator("roots")
    @classmethod
    def _absolute(cls, roots: list[str]) -> list[str]:
        for root in roots:
            path = root.partition(":")[2] if ":" in root else root
            if not path.startswith("/"):
                raise ValueError(f"{root!r} isn't an absolute location such as hdfs://cluster/warehouse")
            if not {".", ".."}.isdisjoint(path.split("/")) or not root.isprintable():
                raise ValueError(f"{root!r} has '.', '..' or a control character in its path: write the real path")
        return roots


class LimitSettings(Section):
    """What one compaction may use; a compaction that would exceed it is divided (docs/compaction.md)."""

    deltas: int = Field(default=10_000, ge=2)
    scratch_bytes: ByteSize | None = None
    task_memory_bytes: ByteSize = Field(default=ByteSize(1024 * MIB), ge=1024)
    task_scratch_bytes: ByteSize = ByteSize(10 * 1024 * MIB)
