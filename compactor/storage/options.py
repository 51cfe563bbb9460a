"""
How stores are reached: the settings of every driver in one value, small enough to be sent with a task.

Holds no secret: those are in files, in the environment, or with the machine.
"""

from dataclasses import dataclass, field, replace
from typing import Self

from compactor.settings import Settings
from compactor.settings.stores import S3, Hdfs
from compactor.storage.location import is_at_or_inside, place_of


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """
    One section of the settings for each driver that has any.

    Args:
        root: path of the directory at or above all local places of a compaction; see `RootOf`.
    """

    hdfs: Hdfs = field(default_factory=Hdfs)
    s3: S3 = field(default_factory=S3)
    root: str | None = None

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Those of the settings."""
        return cls(hdfs=settings.hdfs, s3=settings.s3)

    def beneath(self, root: str | None) -> "StorageOptions":
        """The same for a compaction below another root."""
        return self if root == self.root else replace(self, root=root)

    def root_of(self, location: str) -> str | None:
        """The `RootOf` of a compaction."""
        return self.root if self.root is not None and is_at_or_inside(place_of(location), place_of(self.root)) else None

    def as_user(self, user: str) -> "StorageOptions":
        """The same for somebody else; who we are on HDFS isn't sent along then."""
        return replace(self, hdfs=self.hdfs.model_copy(update={"user": user})) if self.hdfs.user is not None else self
