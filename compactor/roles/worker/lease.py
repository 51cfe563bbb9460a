"""
The lease of an attempt: its transaction (Hive 4) or its lock (Hive 3.1), renewed until the attempt ends.

`Heartbeat` is the thread that renews the lease and reports when it no longer can. It knows nothing of transactions: it
is given a function that renews. A renewal that finds the transaction or lock gone is final. A renewal that can't reach
the database is repeated within 5 s; when none has succeeded for the time-out, the lease may have been taken away, and
the work is over too.
Source: docs/compaction.md; Hive's Worker, AcidCompactionService.
"""

import threading
import time
from collections.abc import Callable

from compactor.errors import CompactorError, OwnershipLostError, UnreachableError
from compactor.log import get_logger
from compactor.metastore.model import QueueEntry
from compactor.roles import steps
from compactor.roles.services import Services
from compactor.roles.worker.cancellation import Cancellation, GivesWayError
from compactor.roles.worker.metastore_retry import patiently

_log = get_logger(__name__)
_RETRY_SECONDS = 5.0


class Heartbeat:
    """
    Renews from `start` to `stop`.

    Args:
        beat: renews once; raises OwnershipLostError when there is nothing left to renew.
        interval: seconds between renewals.
        timeout: seconds after which a lease that wasn't renewed is taken away.
        lost: called once, from the thread, with the reason why the work is over.
        what: for log lines: `transaction 12`, `lock 7`.
    """

    def __init__(
        self,
        beat: Callable[[], None],
        interval: float,
        timeout: float,
        lost: Callable[[CompactorError], None],
        what: str,
    ) -> None:
        self._beat = beat
        self._interval = interval
        self._timeout = timeout
        self._lost = lost
        self._what = what
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"heartbeat of {what}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Begin no further renewal; one that is under way may end later and does no harm."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=_RETRY_SECONDS)

    def _run(self) -> None:
        last = time.monotonic()
        pause = self._interval
        while not self._stop.wait(pause):
            began = time.monotonic()
            try:
                self._beat()
            except OwnershipLostError as error:
                self._end(error)
                return
            except Exception as error:
                silent = time.monotonic() - last
                _log.warning("heartbeat.failed", lease=self._what, error=str(error), silent_seconds=round(silent, 1))
                if silent >= self._timeout:
                    self._end(
                        UnreachableError(
                            f"no heartbeat of {self._what} reached the metastore for {silent:.0f} s; last error: {error}"
                        )
                    )
                    return
                pause = min(_RETRY_SECONDS, self._interval)
            else:
                last, pause = began, self._interval

    def _end(self, error: CompactorError) -> None:
        if not self._stop.is_set():
            self._lost(error)


class Lease:
    """
    The lease of one attempt.

    Args:
        entry: claimed by `worker_id`.
        cancellation: told when the lease can't be renewed any more.
        step: told of each step.

    `txn_id`: None before it is opened, and on Hive 3.1. `lock_id`: None before it is taken, and after the end.
    """

    def __init__(
        self,
        services: Services,
        entry: QueueEntry,
        worker_id: str,
        cancellation: Cancellation,
        step: Callable[[str], None],
    ) -> None:
        self._services = services
        self._entry = entry
        self._worker_id = worker_id
        self._cancellation = cancellation
        self._step = step
        self._heartbeat: Heartbeat | None = None
        self.lock_id: int | None = None
        self.txn_id: int | None = None

    def begin(self, run_as: str) -> None:
        """Open the transaction (Hive 4), take the lock, start the heartbeat."""
        services, settings = self._services, self._services.settings
        identity = services.identity
        self.txn_id = patiently(
            lambda: services.transactions.open_compaction(
                run_as, identity.host, self._entry.kind, agent=self._worker_id
            ),
            self._cancellation,
        )
        if self.txn_id is not None:
            self._step(steps.WORKER_TXN_OPENED)
        self.lock_id = patiently(
            lambda: services.locks.acquire_shared(self._entry.entity, self.txn_id or 0, run_as, identity.host),
            self._cancellation,
        )
        what = f"transaction {self.txn_id}" if self.txn_id is not None else f"lock {self.lock_id}"
        self._heartbeat = Heartbeat(
            self.renew, settings.heartbeat_seconds, settings.txn.timeout_seconds, self._cancellation.cancel, what
        )
        self._heartbeat.start()
        self._step(steps.WORKER_LOCKED)

    def renew(self) -> None:
        """
        Renew the lease once.

        Raises:
            OwnershipLostError: the transaction or the lock is gone.
        """
        if self.txn_id is not None:
            self._services.transactions.heartbeat(self.txn_id)
        elif self.lock_id is not None:
            self._services.locks.heartbeat(self.lock_id)

    def give_way(self) -> None:
        """
        On Hive 3.1, let a statement that waits for this attempt's lock go first. Hive 3.1's own compactions hold no
        lock; the statement gives up after 100 minutes, and a compaction may take longer.

        Raises:
            GivesWayError: an exclusive lock waits.
        """
        if (
            self.txn_id is None
            and self.lock_id is not None
            and (lock := self._services.locks.waiting_for(self.lock_id, self._entry.entity)) is not None
        ):
            raise GivesWayError(f"{self._entry.entity}: {lock} comes first")

    def end(self) -> None:
        """End the heartbeat and release a lock that belongs to no transaction. May be repeated."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None
        if self.lock_id is not None and self.txn_id is None:
            self._services.locks.release(self.lock_id)
        self.lock_id = None
