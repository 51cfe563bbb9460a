"""
Holds a table or partition alone: an exclusive lock of Hive's, which its holder renews.

Source: docs/metastore.md, Locks.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from compactor.metastore.model import Entity
from compactor.roles.services import Services


@dataclass(frozen=True, slots=True)
class ExclusiveLock:
    """An exclusive lock; `beat` renews it, and raises OwnershipLostError when it is gone. `txn_id` is 0 on 3.1."""

    txn_id: int
    lock_id: int
    beat: Callable[[], None]


@contextmanager
def exclusively(services: Services, entity: Entity) -> Iterator[ExclusiveLock]:
    """
    Hold an exclusive lock, on Hive 4 within a transaction.

    Raises:
        RefusedError: LOCK_NOT_ACQUIRED, naming the lock in the way.
    """
    identity = services.identity
    txn_id = services.transactions.open_compaction(identity.user, identity.host) or 0
    try:
        lock_id = services.locks.acquire_exclusive(entity, txn_id, identity.user, identity.host)
        try:
            yield ExclusiveLock(
                txn_id,
                lock_id,
                (lambda: services.transactions.heartbeat(txn_id))
                if txn_id
                else (lambda: services.locks.heartbeat(lock_id)),
            )
        finally:
            if not txn_id:
                services.locks.release(lock_id)
    finally:
        if txn_id:
            services.transactions.end_empty(txn_id)
