"""
What a verification that found a difference kept aside, in a hidden directory of the partition: how much there is, and when it has been kept for long enough.

Readers pass over it, and nothing publishes from it. Its age is that of its newest file; one without files may just be coming into being and stays.
Source: docs/operations.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from compactor.acid.listing import Listing
from compactor.engine.staging import EVIDENCE_PREFIX
from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.storage.base import Storage
from compactor.storage.location import join


@dataclass(frozen=True, slots=True)
class Evidence:
    """
    One directory.

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
    """Of one partition, by name; what vanishes meanwhile is left out."""
    names = sorted(name for name in listing.directories if name.startswith(EVIDENCE_PREFIX) and "/" not in name)
    return tuple(found for name in names if (found := _look_into(storage, location, name)) is not None)


def described(kept: Iterable[Evidence]) -> str:
    """How much of it there is."""
    kept = tuple(kept)
    return f"{len(kept)} directories of evidence ({sum(one.bytes for one in kept)} bytes, {kept[0].name}{' …' if len(kept) > 1 else ''})"


def _look_into(storage: Storage, location: str, name: str) -> Evidence | None:
    try:
        files = storage.list_tree(join(location, name)).files
    except RefusedError as error:
        if error.reason is Reason.LOCATION_MISSING:
            return None
        raise
    return Evidence(name, len(files), sum(file.length for file in files), max((file.mtime_ms for file in files), default=None))
