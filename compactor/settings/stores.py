"""How the warehouse's file systems are reached, one part for each kind of store. Secrets are never in here: a keytab or a file of credentials is named."""

from pathlib import Path
from typing import Self

from pydantic import ByteSize, Field, model_validator

from compactor.settings.section import Section


class Hdfs(Section):
    """Hadoop's file system: `hdfs:` and `viewfs:` locations."""

    conf_dir: Path | None = None
    user: str | None = Field(default=None, min_length=1, max_length=128)
    principal: str | None = Field(default=None, min_length=1)
    keytab: Path | None = None
    ticket_cache: str | None = Field(default=None, min_length=1)
    replication: int | None = Field(default=None, ge=1, le=512)
    block_size: ByteSize | None = Field(default=None, ge=1 << 20)

    @model_validator(mode="after")
    def _one_way_to_log_in(self) -> Self:
        if (self.principal is None) != (self.keytab is None):
            raise ValueError("principal and keytab belong together: give both, or neither")
        if self.keytab is not None and self.ticket_cache is not None:
            raise ValueError("a keytab and a ticket cache are two ways to log in: keep one")
        if self.user is not None and (self.keytab is not None or self.ticket_cache is not None):
            raise ValueError("user is for clusters without Kerberos; with it the principal is the user")
        return self
