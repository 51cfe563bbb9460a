"""
The fence between an attempt that is over and the worker that claims its entry next: nothing of the attempt may still
become visible.

First the staging directories go, so that a rename that is still to come finds no source; then the transaction is
aborted; then what was published under its number is removed, and only when the metastore says that the transaction was
aborted. Used by an attempt that undoes itself, and for attempts of dead workers.
Source: docs/operations.md.
"""

from collections.abc import Callable, Iterable

from compactor.acid.names import STAGING_PREFIX
from compactor.roles.cleaner.trash import remove_hidden, staging_directories
from compactor.storage.base import Storage


def remove_staging(storage: Storage, location: str, entry_id: int, still: Callable[[], bool]) -> list[str]:
    """
    Remove the staging directories of an entry. A location that is gone has none.

    Args:
        still: called once the directories are seen: whether the entry is still with the worker from which it is taken.
            Then none of them belongs to the worker that claims it next, however long the removal takes.
    """
    names = staging_directories(storage.directories(location), entry_id)
    return remove_hidden(storage, location, names) if names and still() else []


def job_keys(names: Iterable[str]) -> set[str]:
    """The keys of the jobs that belong to staging directories."""
    return {name.removeprefix(STAGING_PREFIX).replace("-", ".", 1) for name in names}
