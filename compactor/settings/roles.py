"""The settings of the Initiator, the Worker, the Cleaner and the Housekeeper."""

import os
from typing import Annotated, Literal

from pydantic import Field, field_validator

from compactor.durations import HOUR_MS
from compactor.settings.section import Days, Hours, NotNegative, Positive, Seconds, Section


class ThresholdSettings(Section):
    """When a partition is due; table properties override the first two (`compactorthreshold.…`)."""

    delta_count: int = Field(default=10, ge=0)
    delta_ratio: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    aborted_count: int = Field(default=1000, ge=0)
    aborted_age_hours: float = Field(default=12, ge=-1e5, le=1e5, allow_inf_nan=False)
    open_age_hours: float = Field(default=24, ge=-1e5, le=1e5, allow_inf_nan=False)


class InitiatorSettings(Section):
    """The Initiator looks for partitions that are due, and queues them."""

    enabled: bool = True
    interval_seconds: Seconds = 300
    full_scan_seconds: Seconds = 3600
    listing_threads: int = Field(default=16, ge=1, le=512)
    thresholds: ThresholdSettings = ThresholdSettings()
    failed_threshold: int = Field(default=2, ge=1, le=20)
    failed_retry_days: Days = 7


def _for_cores() -> int:
    """Two compactions for each core: while one waits for the metastore or the store, another's tasks run."""
    return max(2, min(16, 2 * (os.cpu_count() or 1)))


class WorkerSettings(Section):
    """The Worker takes queue entries and compacts."""

    threads: int | None = Field(default=None, ge=0, le=256)
    pool: str | None = Field(default=None, min_length=1, max_length=128)
    pools: dict[Annotated[str, Field(min_length=1)], Annotated[int, Field(ge=1, le=256)]] = Field(default_factory=dict)
    poll_seconds: Seconds = 1
    timeout_hours: Hours = 24
    heartbeat_seconds: Seconds | None = None
    run_as: str | None = Field(default=None, min_length=1, max_length=128)
    prefer_major: bool = False

    @property
    def pool_of_each(self) -> tuple[str | None, ...]:
        """The pool of each worker of the process; None: the worker's pool is `pool`."""
        count = _for_cores() if self.threads is None else self.threads
        return (*(None,) * count, *(name for name, threads in self.pools.items() for _ in range(threads)))


class CleanerSettings(Section):
    """The Cleaner removes files that no reader can be reading any more."""

    enabled: bool = True
    interval_seconds: Seconds = 5
    retention_seconds: NotNegative = 0
    listing_wait_seconds: NotNegative = 600
    quarantine_hours: float = Field(default=0, ge=0, le=1e5, allow_inf_nan=False)
    late_writer_hours: Hours = 24
    keep_evidence_days: Days = 7
    threads: int = Field(default=4, ge=1, le=256)
    retry_attempts: int = Field(default=5, ge=0, le=10)
    retry_seconds: Seconds = 300

    @property
    def waits_ms(self) -> tuple[int, int]:
        """How long an entry waits: after its commit, and then at most while there is a lock."""
        return round(self.retention_seconds * 1000), round(self.listing_wait_seconds * 1000)

    @property
    def late_ms(self) -> int:
        """How long after the last heartbeat of an aborted transaction its tasks may still write."""
        return round(self.late_writer_hours * HOUR_MS)


class History(Section):
    """How many finished entries of one partition stay in COMPLETED_COMPACTIONS."""

    succeeded: int = Field(default=3, ge=1)
    failed: int = Field(default=3, ge=1)
    did_not_initiate: int = Field(default=2, ge=0)
    refused: int = Field(default=3, ge=0)
    timeout_days: Positive = 7


class HousekeeperSettings(Section):
    """The Housekeeper runs a metastore's housekeeping, with `auto` only the duties that no metastore service does."""

    enabled: Literal["auto", "always", "never"] = "auto"
    interval_seconds: Seconds = 60
    history: History = History()

    @field_validator("enabled", mode="before")
    @classmethod
    def _truth_values_are_always_and_never(cls, value: object) -> object:
        return {True: "always", False: "never"}.get(value, value) if isinstance(value, bool) else value
