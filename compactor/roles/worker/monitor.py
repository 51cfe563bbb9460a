"""
Watches over an attempt while it works: whether its entry is still its own, whether an operator asked it to stop, and
which Spark application runs it. Also stores how far it is.

The commit and the last check before the rename ask for themselves. The monitor makes the answer known within seconds,
so that a cluster isn't kept busy in vain. A metastore that doesn't answer is left to the heartbeat.
"""

import threading
from collections.abc import Callable
from typing import Final

from compactor.errors import CancelledError, CompactorError, OwnershipLostError
from compactor.log import get_logger
from compactor.metastore.compaction_queue.commits import JOB_ID_CHARACTERS
from compactor.metastore.compaction_queue.queue import Queue, asked_to_stop
from compactor.metastore.model import QueueEntry, QueueState
from compactor.roles.worker.cancellation import CancelRequestedError

_log = get_logger(__name__)
LOOK_SECONDS: Final = 2.0


class Monitor:
    """
    Looks at the entry from `start` to `stop`, for the first time after `LOOK_SECONDS`: it was claimed just now.

    Args:
        entry: as it was claimed.
        application: the id of the Spark application, None while there is none.
        still: raises CancelledError when a statement that waits comes first.
        cancel: called once with the reason why the work is over.
        keep: stores how far the work is; called at the end of each look.
    """

    def __init__(
        self,
        queue: Queue,
        entry: QueueEntry,
        application: Callable[[], str | None],
        still: Callable[[], None],
        cancel: Callable[[CompactorError], None],
        *,
        keep: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._entry = entry
        self._application = application
        self._still = still
        self._cancel = cancel
        self._keep = keep
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"monitor of {entry.id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No look begins after this."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(LOOK_SECONDS)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            try:
                self.look()
            except (OwnershipLostError, CancelledError) as error:
                if not self._stop.is_set():
                    self._cancel(error)
                return
            except Exception as error:
                _log.debug("queue.not_read", error=repr(error))

    def look(self) -> None:
        """
        Look once.

        Raises:
            OwnershipLostError: the entry is no longer this worker's.
            CancelRequestedError: an operator asked the compaction to stop.
            CancelledError: as `still`.
        """
        now = self._queue.entry(self._entry.id)
        if now is None or now.state is not QueueState.WORKING or now.worker_id != self._entry.worker_id:
            raise not_ours(self._entry.id, now)
        if (by := asked_to_stop(now)) is not None:
            raise CancelRequestedError(f"cancelled by {by}")
        self._still()
        application = self._application()
        if application is not None and now.job_id != application[:JOB_ID_CHARACTERS]:
            self._queue.set_job_id(self._entry, application)
        self._keep()


def not_ours(entry_id: int, now: QueueEntry | None) -> OwnershipLostError:
    """The error for an entry that this worker no longer has; `now` is the entry's row, None: it has none any more."""
    where = "has left the queue" if now is None else f"is {now.state.value}"
    worker = f", with worker {now.worker_id}" if now is not None and now.worker_id else ""
    return OwnershipLostError(f"entry {entry_id} is no longer ours: it {where}{worker}")
