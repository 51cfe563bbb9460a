"""
What a leader holds during a cycle: its term of leadership, and Hive's mutex of the role.

The term says whether this daemon was elected. The mutex keeps away Hive's own threads and, where there is no election,
other daemons. Both can be lost while the process is stopped, so a leader checks them again before it acts, and its next
action is fenced as well.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from compactor.coordination import Role, Term
from compactor.errors import OwnershipLostError
from compactor.metastore.txn.mutex import Mutex
from compactor.roles.services import Services

_MUTEXES = {Role.INITIATOR: "Initiator", Role.CLEANER: "Cleaner"}


class HeldLeadership:
    """One cycle's right to act."""

    def __init__(self, term: Term, mutex: Mutex) -> None:
        self._term = term
        self._mutex = mutex

    def keep(self, value: int) -> None:
        """Store MT_KEY2 at the end; see `Mutex.keep`."""
        self._mutex.keep(value)

    def check(self) -> None:
        """
        Check that this daemon still leads and still holds the mutex.

        Raises:
            OwnershipLostError: it doesn't, or that can't be told.
        """
        self._term.check()
        self._mutex.check()


@contextmanager
def leading(services: Services, role: Role) -> Iterator[HeldLeadership]:
    """
    Run a cycle as the leader.

    Raises:
        OwnershipLostError: another daemon leads, or the leader is unknown.
        MutexHeldError: another process holds Hive's mutex.
    """
    term = services.coordinator.lead(role)
    if term is None:
        raise OwnershipLostError(f"another daemon leads the {role}, or that can't be told")
    with services.database.mutex(_MUTEXES[role], wait_seconds=1.0) as mutex:
        services.coordinator.acted(role)
        yield HeldLeadership(term, mutex)
