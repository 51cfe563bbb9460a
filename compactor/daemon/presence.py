"""
Tells the other daemons what this daemon is doing, and shows members and leadership in the metrics.

Knows loops and steps. How daemons coordinate, and through which service, is known to the coordinator.
"""

import os
import threading
from collections.abc import Callable, Iterable, Mapping

from compactor.control.scope import DEFAULT_POOL
from compactor.coordination import Activity, Connection, Member, Role, not_led
from compactor.coordination.base import elapsed
from compactor.coordination.model import POOLS, SETTINGS
from compactor.daemon.loop import RoleLoop
from compactor.errors import CompactorError
from compactor.log import get_logger
from compactor.metastore.model import QueueEntry
from compactor.metrics import Metrics, version
from compactor.roles.cycle import Cycle
from compactor.roles.services import Services
from compactor.roles.steps import CLEANER_STEPS
from compactor.settings import Settings
from compactor.status.readiness import Readiness
from compactor.words import plural

_log = get_logger(__name__)
_SENTENCE = 200
_LOOK_SECONDS = 15.0


class Board:
    """An observer that keeps the latest step of each loop, and what the step was about."""

    def __init__(self) -> None:
        self._latest: dict[str, tuple[str, str]] = {}

    def note(self, step: str, about: object) -> None:
        # a loop's thread has the loop's name; cleanings run in threads of their own
        loop = Role.CLEANER.value if step in CLEANER_STEPS else threading.current_thread().name
        what = (
            f"{about.kind} compaction {about.id} of {about.entity}"
            if isinstance(about, QueueEntry)
            else str(about or "")
        )
        self._latest[loop] = (step, what)

    def activity(self, loop: RoleLoop) -> Activity:
        """What a loop is doing: the latest step of a running cycle, or the sentence of an idle loop's latest cycle."""
        if not loop.busy:
            self._latest.pop(loop.name, None)
            return Activity(loop.name, busy=False, what=loop.sentence[:_SENTENCE])
        step, what = self._latest.get(loop.name, (None, ""))
        return Activity(loop.name, busy=True, what=what[:_SENTENCE], step=step)


class Presence:
    """
    The role that reports this daemon's activities to the other daemons, once per heartbeat.

    Args:
        loops: all loops of this daemon, by name; later additions are seen.
        shown: names of the loops to report.
        readiness: whether the daemon does its work now.
    """

    def __init__(
        self,
        services: Services,
        loops: Mapping[str, RoleLoop],
        board: Board,
        shown: Iterable[str],
        readiness: Callable[[], Readiness],
    ) -> None:
        self._services = services
        self._loops = loops
        self._board = board
        self._shown = tuple(shown)
        self._readiness = readiness
        self._looked = -_LOOK_SECONDS
        self._seen: dict[Role, str] = {}
        self._told: dict[Role, str] = {}

    def run_once(self) -> Cycle:
        """Report the activities and update the metrics. A daemon that can't reach the others works all the same."""
        coordinator, metrics = self._services.coordinator, self._services.metrics
        doing = [self._board.activity(loop) for name, loop in self._loops.items() if name in self._shown]
        fingerprints = self._services.settings.fingerprints()
        coordinator.report(doing, {SETTINGS: fingerprints, **self._readiness().record()})
        leading = show(metrics, self._services)
        if elapsed() - self._looked >= _LOOK_SECONDS:
            self._looked = elapsed()
            self._look_for_leaders()
        present = coordinator.present()
        metrics.members.set(len(present or ()))
        metrics.members_expected.set(self._services.settings.members.expected or 0)
        if present is None:
            return Cycle.worked("it can't be told which daemons are there")
        leads = ", ".join(sorted(leading)) or "nothing"
        return Cycle.worked(f"{plural(len(present), 'daemon')}; this one leads {leads}")

    def _look_for_leaders(self) -> None:
        """Log which roles no daemon leads, once while the reason stays. One look alone may see a leader being succeeded."""
        coordinator = self._services.coordinator
        try:
            found = not_led(coordinator.members())
        except CompactorError:
            found = dict.fromkeys(Role, f"it can't be told: {coordinator.by} doesn't answer")
        before, self._seen = self._seen, found
        for role in self._told.keys() - found.keys():
            del self._told[role]
            _log.info("role.led", role=role.value)
        for role, why in found.items():
            if why == before.get(role) != self._told.get(role):
                self._told[role] = why
                _log.warning("role.not_led", role=role.value, why=why)


def stands_for(settings: Settings) -> tuple[Role, ...]:
    """The roles that this daemon may be elected to lead; the loop of the same name runs each."""
    enabled = {
        Role.HOUSEKEEPER: True,
        Role.INITIATOR: settings.initiator.enabled,
        Role.CLEANER: settings.cleaner.enabled,
    }
    return tuple(role for role in enabled if enabled[role])


def show(metrics: Metrics, services: Services) -> frozenset[Role]:
    """
    Show leadership and connection in the metrics; called at once when they change. Returns the roles that this daemon
    leads.

    Only roles that this daemon stands for are shown.
    """
    coordinator = services.coordinator
    leading, connection = coordinator.leading(), coordinator.connection
    metrics.show(metrics.leader, {(role.value,): role in leading for role in stands_for(services.settings)})
    for state in Connection:
        metrics.coordination.labels(coordinator.by, state.value).set(state is connection)
    return leading


def describe(services: Services, roles: Iterable[str]) -> Member:
    """This process as the other daemons see it."""
    identity, worker = services.identity, services.settings.worker
    pools = sorted({pool or worker.pool or DEFAULT_POOL for pool in worker.pool_of_each})
    extra = {POOLS: pools, SETTINGS: services.settings.fingerprints(), **Readiness.starting().record()}
    return Member(identity.instance, identity.host, os.getpid(), version(), tuple(roles), extra=extra)
