"""
Whether an attempt of a compaction is over, and the removal of what one published whose transaction was aborted.

Source: docs/operations.md.
"""

from compactor.errors import RefusedError
from compactor.metastore.model import QueueState
from compactor.metastore.txn.transactions import TxnState
from compactor.reasons import Reason
from compactor.roles.cleaner.trash import remove_hidden, visibility_txn
from compactor.roles.services import Services


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
