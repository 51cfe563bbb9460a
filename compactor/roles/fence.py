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
from compactor.errors import RefusedError
from compactor.metastore.model import QueueState
from compactor.metastore.txn.transactions import TxnState
from compactor.reasons import Reason
from compactor.roles.cleaner.trash import remove_hidden, staging_directories, visibility_txn
from compactor.roles.services import Services
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


def attempt_is_over(services: Services, entry_id: int) -> bool:
    """Whether no attempt of an entry can commit any more what lies in its staging directories now."""
    entry = services.queue.entry(entry_id)
    if entry is None or entry.state is not QueueState.WORKING:
        return True
    if entry.txn_id is None:
        return False
    return services.transactions.state(entry.txn_id) is not TxnState.OPEN


def remove_uncommitted(services: Services, location: str, txn_id: int) -> None:
    """
    Remove what a compaction of a partition published under `_v<txn>`; only when the metastore says that the transaction
    was aborted.

    Its staging directories must be gone. Its component stays until the cleaning of aborted writes forgets it: a store
    may complete an upload of the attempt later, and what appears then must count as aborted, too.

    Raises:
        RefusedError: a directory of the transaction is there, and the transaction isn't known as aborted.
    """
    storage = services.storage(location)
    names = [name for name in storage.directories(location) if visibility_txn(name) == txn_id]
    if not names:
        return
    state = services.transactions.state(txn_id)
    if state is not TxnState.ABORTED:
        raise RefusedError(
            Reason.OWNERSHIP_LOST,
            f"{names[0]} was written by transaction {txn_id}, which is {state.value}, not aborted: left alone",
        )
    remove_hidden(storage, location, names)
