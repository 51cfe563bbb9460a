"""
Coordinators of one root in ZooKeeper, watched for two that lead at the same time; and how long tests wait for them.
"""

import itertools
import threading
import time
from contextlib import contextmanager

from compactor.coordination import Member, Role
from compactor.coordination.zk.coordinator import ZooKeeperCoordinator
from compactor.errors import OwnershipLostError
from compactor.settings import ZooKeeper

PATIENCE = 100.0
UNDISTURBED = 20.0
"""Seconds of a session that nothing here lets time out, however busy the machine is."""
SHORT = 4.0
"""Of one whose end is waited for."""
NUMBERS = itertools.count(1)


def until(done, what):
    deadline = time.monotonic() + PATIENCE
    while not (found := done()):
        assert time.monotonic() < deadline, f"not {what}"
        time.sleep(0.01)
    return found


def is_over(term):
    try:
        term.check()
    except OwnershipLostError:
        return True
    return False


class Party:
    """Coordinators of one root, closed at the end; each thread that watches says whether two led at the same time."""

    def __init__(self, hosts, **settings):
        self.settings = {
            "hosts": hosts,
            "root": f"/party-{next(NUMBERS)}",
            "session_timeout_seconds": UNDISTURBED,
            **settings,
        }
        self.coordinators = []
        self.may_overlap = False
        self._over = threading.Event()
        self._two = []
        threading.Thread(target=self._watch, daemon=True).start()

    def join(self, name, hosts=None, **settings):
        coordinator = ZooKeeperCoordinator(
            ZooKeeper(**(self.settings | settings | ({"hosts": hosts} if hosts else {}))), 0.5
        )
        coordinator.join(Member(name, name, 1, "1"), Role)
        self.coordinators.append(coordinator)
        return coordinator

    def _watch(self):
        while not self._over.wait(0.005):
            # a term that was valid a moment ago is asked again: both must hold at one moment
            leaders = [(one, term) for one in list(self.coordinators) if (term := one.lead(Role.CLEANER))]
            if len(leaders) > 1 and all(one.lead(Role.CLEANER) for one, _ in leaders[:-1]):
                self._two.append(leaders)

    def close(self):
        self._over.set()
        for coordinator in self.coordinators:
            coordinator.close()
        assert self.may_overlap or not self._two, "two led at the same time"


@contextmanager
def party(servers, **settings):
    made = Party(servers if isinstance(servers, str) else servers.hosts, **settings)
    try:
        yield made
    finally:
        made.close()
