"""
The named points that Worker, Cleaner, Initiator and the recovery of dead workers' claims pass.

A role calls `enter` when a step is done. Each observer (log, metrics, a progress display, a test that pulls the plug)
is told, in order. A step's name is public: it stands in logs and in `compactor_steps_total`.
"""

from collections.abc import Callable, Iterable

WORKER_STEPS = (
    WORKER_CLAIMED := "worker.claimed",
    WORKER_TXN_OPENED := "worker.txn-opened",
    WORKER_LOCKED := "worker.locked",
    WORKER_LISTED := "worker.listed",
    WORKER_PLANNED := "worker.planned",
    WORKER_STATE_STORED := "worker.state-stored",
    WORKER_STAGED := "worker.staged",
    WORKER_RAN := "worker.ran",
    WORKER_VERIFIED := "worker.verified",
    WORKER_PUBLISHED := "worker.published",
    WORKER_COMMITTED := "worker.committed",
)

CLEANER_STEPS = (
    CLEANER_SELECTED := "cleaner.selected",
    CLEANER_LISTED := "cleaner.listed",
    CLEANER_TRASHED := "cleaner.trashed",
    CLEANER_COMPARED := "cleaner.compared",
    CLEANER_DELETED := "cleaner.deleted",
    CLEANER_MARKED := "cleaner.marked",
)

INITIATOR_STEPS = (
    INITIATOR_SEARCHED := "initiator.searched",
    INITIATOR_LISTED := "initiator.listed",
    INITIATOR_QUEUED := "initiator.queued",
)

RECOVERY_STEPS = (
    RECOVERY_FOUND := "recovery.found",
    RECOVERY_UNSTAGED := "recovery.unstaged",
    RECOVERY_ABORTED := "recovery.aborted",
    RECOVERY_FREED := "recovery.freed",
)
"""The steps of clearing up after a dead worker, by Housekeeper or Initiator."""

ALL_STEPS = (*INITIATOR_STEPS, *WORKER_STEPS, *CLEANER_STEPS, *RECOVERY_STEPS)
Observer = Callable[[str, object], None]
"""Called with the step's name and its subject: a queue entry, an entity, or None."""


class Steps:
    """Tells its observers, in the order they were given, which step was passed."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers = tuple(observers)

    def enter(self, step: str, about: object = None) -> None:
        for observer in self._observers:
            observer(step, about)
