"""
Finds evidence in a partition: the results that verifications which found a difference kept aside.

Readers pass over evidence, and nothing publishes from it. Its age is that of its newest file; a directory without files
may just be coming into being and stays.
Source: docs/operations.md, Evidence.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from compactor.acid.listing import Listing
from compactor.engine.staging.directory import EVIDENCE_PREFIX
from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.storage.base import Storage
from compactor.storage.location import join
from compactor.words import plural


@dataclass(frozen=True, slots=True)
class Evidence:
    """
    One directory of evidence.

    Args:
        newest_ms: modification time of its newest file; None without files.
    """

    name: str
    files: int
    bytes: int
    newest_ms: int | None

    def is_older(self, now_ms: int, age_ms: float) -> bool:
        return self.newest_ms is not None and now_ms - self.newest_ms >= age_ms


def evidence_in(storage: Storage, location: str, listing: Listing) -> tuple[Evidence, ...]:
    """The evidence directories of one partition, sorted by name. Directories that vanish meanwhile are left out."""
    names = sorted(name for name in listing.directories if name.startswith(EVIDENCE_PREFIX) and "/" not in name)
    return tuple(found for name in names if (found := _look_into(storage, location, name)) is not None)


def described(kept: Iterable[Evidence]) -> str:
    """How much evidence there is, in words."""
    kept = tuple(kept)
    directories, size = plural(len(kept), "directory", "directories"), sum(one.bytes for one in kept)
    return f"{directories} of evidence ({plural(size, 'byte')}, {kept[0].name}{' …' if len(kept) > 1 else ''})"


def _look_into(storage: Storage, location: str, name: str) -> Evidence | None:
    try:
        files = storage.list_tree(join(location, name)).files
    except RefusedError as error:
        if error.reason is Reason.LOCATION_MISSING:
            return None
        raise
    return Evidence(
        name, len(files), sum(file.length for file in files), max((file.mtime_ms for file in files), default=None)
    )
