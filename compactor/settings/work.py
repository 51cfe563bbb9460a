"""Where the data work runs, and from which sizes on stripes are copied or written anew."""

from collections.abc import Mapping
from typing import Literal

from pydantic import ByteSize, Field, field_validator

from compactor.settings.section import MIB, Seconds, Section


class Spark(Section):
    """Where the data work runs."""

    mode: Literal["session"] = "session"
    master: str = Field(default="local[*]", min_length=1)
    conf: dict[str, str] = Field(default_factory=dict)
    idle_seconds: Seconds = 600

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
