"""
What it means that a directory isn't there: it was removed, or its file system isn't mounted now.

The directory itself can't tell, so one above it is asked that nobody removes together with it: of a partition its table's, otherwise the next one up. Where that
is there, the directory was removed: what isn't mounted hides both, and leaves at most its empty mount point. Where it is missing too, nothing is known; nor where
it is empty, on a file system that has mount points, for it may itself be one: directly above a table lies its database's directory.
"""

from compactor.errors import UnreachableError
from compactor.storage.base import Storage
from compactor.storage.location import parent


def above(location: str, table_location: str | None) -> str:
    """The directory that tells about a missing one. Hive removes the directories between a table's and its partition's when they are empty."""
    if table_location is not None and location.startswith(table_location.rstrip("/") + "/"):
        return table_location
    return parent(location)


def require_removed(storage: Storage, location: str, table_location: str | None) -> None:
    """
    Make sure that a directory is either there, or known to have been removed.

    Raises:
        UnreachableError: it is missing, and the one above is missing too, or may be an empty mount point: what is in it isn't known.
    """
    if storage.exists(location):
        return
    witness = above(location, table_location)
    if not storage.exists(witness):
        raise _unmounted(witness, f"{location} is missing, and so is {witness}")
    if storage.mounts and not storage.directories(witness):
        raise _unmounted(witness, f"{location} is missing, and {witness} is empty, as a mount point would be")


def _unmounted(witness: str, found: str) -> UnreachableError:
    """What lies elsewhere has nothing to do with it."""
    return UnreachableError(f"{found}: is the file system mounted?", store=witness)
