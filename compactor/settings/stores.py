"""
How the warehouse's file systems are reached, one part for each kind of store.

No part holds a secret: a setting names a keytab or a file of credentials.
"""

from pathlib import Path
from typing import Self

from pydantic import ByteSize, Field, model_validator

from compactor.settings.section import MIB, Seconds, Section


class Hdfs(Section):
    """Hadoop's file system: `hdfs:` and `viewfs:` locations."""

    conf_dir: Path | None = None
    user: str | None = Field(default=None, min_length=1, max_length=128)
    principal: str | None = Field(default=None, min_length=1)
    keytab: Path | None = None
    ticket_cache: str | None = Field(default=None, min_length=1)
    replication: int | None = Field(default=None, ge=1, le=512)
    block_size: ByteSize | None = Field(default=None, ge=1 << 20)
    rpc_timeout_seconds: Seconds = 120
    change_management_root: str | None = Field(default=None, pattern=r"^hdfs://[^/]+/.*[^/]$")

    @model_validator(mode="after")
    def _one_way_to_log_in(self) -> Self:
        if self.keytab is not None and self.ticket_cache is not None:
            raise ValueError("a keytab and a ticket cache are two ways to log in: keep one")
        if (self.principal is None) != (self.keytab is None and self.ticket_cache is None):
            raise ValueError(
                "principal belongs to a keytab or a ticket_cache: give both, or neither (then the default ticket cache counts)"
            )
        if self.user is not None and self.principal is not None:
            raise ValueError("user is for clusters without Kerberos; with it the principal is the user")
        return self


class S3(Section):
    """Amazon S3 and stores that speak its protocol: `s3:`, `s3a:` and `s3n:` locations."""

    endpoint: str | None = Field(default=None, pattern=r"^https?://[^/@]+/?$")
    region: str | None = Field(default=None, min_length=1)
    path_style: bool = False
    profile: str | None = Field(default=None, min_length=1)
    credentials_file: Path | None = None
    ca_file: Path | None = None
    part_bytes: ByteSize = Field(default=ByteSize(16 * MIB), ge=5 * MIB, le=1024 * MIB)
    copy_part_bytes: ByteSize = Field(default=ByteSize(256 * MIB), ge=10 * MIB, le=5120 * MIB)
    threads: int = Field(default=8, ge=1, le=256)
    attempts: int = Field(default=5, ge=1, le=100)
    connect_timeout_seconds: Seconds = 10
    read_timeout_seconds: Seconds = 60
