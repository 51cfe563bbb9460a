"""
Says which loops a daemon runs, how often each runs, and for how long each may make no progress.

Only the elected leader works on a role that is led.
"""

from collections.abc import Callable, Mapping
from typing import Final

from compactor.coordination import Role
from compactor.daemon.loop import RoleLoop
from compactor.daemon.presence import Board, Presence
from compactor.daemon.queue_metrics import QueueMetrics
from compactor.errors import MutexHeldError, OwnershipLostError, UnreachableError
from compactor.metastore.compaction_queue.announcements import Announcements
from compactor.metrics import Metrics
from compactor.roles.cleaner.cleaner import Cleaner
from compactor.roles.cycle import Cycle, Did, Progress
from compactor.roles.housekeeper.housekeeper import Housekeeper
from compactor.roles.initiator.initiator import Initiator
from compactor.roles.pauses import Pauses
from compactor.roles.services import Services
from compactor.roles.worker.worker import Worker
from compactor.settings import Settings
from compactor.status.readiness import Readiness

_WATCH_SECONDS = 15.0
_LISTEN_SECONDS = 1.0
"""How long one cycle waits for an announcement: a daemon that stops waits for it."""
_HOUR = 3600.0
WORKER: Final = "worker"
"""The role of each worker's loop."""


def make_loops(
    services: Services,
    metrics: Metrics,
    board: Board,
    control_changed: Callable[[], None],
    readiness: Callable[[], Readiness] = Readiness,
) -> tuple[dict[str, RoleLoop], list[Worker]]:
    """
    The loops that the settings ask for, not yet started, by name and in the order in which the daemon starts them; and
    the workers behind some of them.

    Args:
        board: knows the latest step of each thread, for `compactor members`.
        control_changed: called after a pause, resume or drain.
        readiness: whether the daemon does its work now, for the other daemons.
    """
    loops: dict[str, RoleLoop] = {}
    workers: list[Worker] = []

    def add(  # noqa: PLR0917 - what a loop is
        name: str,
        run_once: Callable[[], Cycle],
        interval: Callable[[], float],
        limit: Callable[[], float] = lambda: _HOUR / 4,
        progress: Progress | None = None,
        role: str | None = None,
        told: Callable[[], bool] = lambda: False,
    ) -> None:
        loops[name] = RoleLoop(
            name, role or name, run_once, interval=interval, limit=limit, metrics=metrics, told=told, progress=progress
        )

    def cannot_coordinate() -> bool:
        return services.coordinator.why_not_start() is not None  # the coordinator tells why

    def led(
        role: Role, run_once: Callable[[], Cycle], no_turn: Callable[[], None] = lambda: None
    ) -> Callable[[], Cycle]:
        def run() -> Cycle:
            cycle = as_leader(services, role, run_once)
            if cycle.did is Did.STANDBY:
                no_turn()
            return cycle

        return run

    def now() -> Settings:
        return services.settings

    def thrice(interval: Callable[[], float]) -> Callable[[], float]:
        return lambda: 3 * interval() + _HOUR

    keep = lambda: now().housekeeper.interval_seconds  # noqa: E731
    kept = Progress()
    add("housekeeper", Housekeeper(services, kept).run_once, keep, thrice(keep), kept)
    add("watch", QueueMetrics(services).run_once, lambda: _WATCH_SECONDS)
    if now().initiator.enabled:
        look = lambda: now().initiator.interval_seconds  # noqa: E731
        looked = Progress()
        add("initiator", led(Role.INITIATOR, Initiator(services, looked).run_once), look, thrice(look), looked)
    for number, pool in enumerate(now().worker.pool_of_each, 1):
        worker = Worker(services, number, pool)
        workers.append(worker)
        limit = lambda: now().worker.timeout_hours * _HOUR + _HOUR  # noqa: E731
        add(f"worker-{number}", worker.run_once, lambda: now().worker.poll_seconds, limit, role=WORKER)
    if workers and not services.database.embedded:
        announced = Announcements(services.database)

        def listen() -> Cycle:
            if announced.wait(_LISTEN_SECONDS):
                wake_workers(services, loops)
            return Cycle.idle("listens for queued entries", again=True)

        add("announcements", listen, lambda: _WATCH_SECONDS)
    if now().cleaner.enabled:
        cleaned = Progress()
        cleaner = Cleaner(services, cleaned)
        clean = lambda: now().cleaner.interval_seconds  # noqa: E731
        add("cleaner", led(Role.CLEANER, cleaner.run_once, cleaner.no_turn), clean, thrice(clean), cleaned)
    holding = Pauses(services, [worker.hold for worker in workers], control_changed)
    add("control", holding.run_once, lambda: now().control.refresh_seconds, told=cannot_coordinate)
    shown = [name for name, loop in loops.items() if loop.role in {*Role, WORKER}]
    presence = Presence(services, loops, board, shown, readiness)
    add("members", presence.run_once, lambda: now().members.heartbeat_seconds, told=cannot_coordinate)
    return loops, workers


def wake_workers(services: Services, loops: Mapping[str, RoleLoop]) -> None:
    """Have the workers look at the queue now: an entry was queued."""
    services.shared_looks.over()
    for loop in loops.values():
        if loop.role == WORKER:
            loop.wake()


def as_leader(services: Services, role: Role, run_once: Callable[[], Cycle]) -> Cycle:
    """Run one cycle if this daemon leads the role. Standing by and losing the leadership are no failures."""
    if (why := services.coordinator.why_not_start()) is not None:
        return Cycle.standby(f"waiting: {why}", told=True)
    if services.coordinator.lead(role) is None:
        return Cycle.standby(f"stands by: another daemon leads the {role}")
    try:
        return run_once()
    except MutexHeldError as error:
        # elected while the mutex is held: try again at once, until the stopped daemon has lost it
        again = services.coordinator.by == "zookeeper"
        return Cycle.standby(f"the database's mutex is another's: {error}", again=again)
    except OwnershipLostError as error:
        return Cycle.standby(f"stands by: {error}")
    except UnreachableError:
        services.coordinator.step_back(role)  # another daemon may reach what this one can't
        raise
