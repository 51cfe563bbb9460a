"""
What shows that an attempt is alive: its transaction (Hive 4) or its lock (Hive 3.1), renewed until the end.

Source: docs/compaction.md; Hive's Worker, AcidCompactionService.
"""

from collections.abc import Callable

from compactor.metastore.model import QueueEntry
from compactor.roles import steps
from compactor.roles.cancellation import Cancellation, GivesWayError
from compactor.roles.heartbeat import Heartbeat
from compactor.roles.patience import patiently
from compactor.roles.services import Services


class Liveness:
    """
    Of one attempt.

    Args:
        entry: claimed by `worker_id`.
        cancellation: told when it can't be renewed any more.
        step: told of each step.

    `txn_id`: None before it is opened, and on Hive 3.1. `lock_id`: None before it is taken, and after the end.
    """

    def __init__(self, services: Services, entry: QueueEntry, worker_id: str, cancellation: Cancellation, step: Callable[[str], None]) -> None:
        self._services = services
        self._entry = entry
        self._worker_id = worker_id
        self._cancellation = cancellation
        self._step = step
        self._heartbeat: Heartbeat | None = None
        self.lock_id: int | None = None
        self.txn_id: int | None = None

    def begin(self, run_as: str) -> None:
        """Open the transaction (4.x), take the lock, start the heartbeat."""
        services, settings = self._services, self._services.settings
        identity = services.identity
        if services.hive_4:
            self.txn_id = patiently(lambda: services.transactions.open_compaction(run_as, identity.host, agent=self._worker_id), self._cancellation)
            self._step(steps.WORKER_TXN_OPENED)
        self.lock_id = patiently(lambda: services.locks.acquire_shared(self._entry.entity, self.txn_id or 0, run_as, identity.host), self._cancellation)
        what = f"transaction {self.txn_id}" if self.txn_id is not None else f"lock {self.lock_id}"
        self._heartbeat = Heartbeat(self.renew, settings.heartbeat_seconds, settings.txn.timeout_seconds, self._cancellation.cancel, what)
        self._heartbeat.__enter__()
        self._step(steps.WORKER_LOCKED)

    def renew(self) -> None:
        """
        Say once that we are alive.

        Raises:
            OwnershipLostError: the transaction or the lock is gone.
        """
        if self.txn_id is not None:
            self._services.transactions.heartbeat(self.txn_id)
        elif self.lock_id is not None:
            self._services.locks.heartbeat(self.lock_id)

    def give_way(self) -> None:
        """
        On Hive 3.1, whose own compactions hold no lock, a statement that waits for ours comes first: it gives up after 100 minutes, and a compaction may take longer.

        Raises:
            GivesWayError: an exclusive lock waits.
        """
        if self.txn_id is None and self.lock_id is not None and (lock := self._services.locks.waiting_for(self.lock_id, self._entry.entity)) is not None:
            raise GivesWayError(f"{self._entry.entity}: {lock} comes first")

    def end(self) -> None:
        """End the heartbeat; give back a lock that belongs to no transaction. May be repeated."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None
        if self.lock_id is not None and self.txn_id is None:
            self._services.locks.release(self.lock_id)
        self.lock_id = None
