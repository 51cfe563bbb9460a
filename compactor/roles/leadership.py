"""
What a leader holds during a cycle: its term of leadership, and Hive's mutex of the role.

The term says whether this daemon was elected; the mutex keeps Hive's own threads and, where nobody elects, other daemons away. Both can be lost while the process
is stopped, so a leader asks again before it acts, and what it does next is fenced besides.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from compactor.coordination import Role, Term
from compactor.errors import OwnershipLostError
from compactor.metastore.mutex import Mutex
from compactor.roles.services import Services

_MUTEXES = {Role.INITIATOR: "Initiator", Role.CLEANER: "Cleaner"}


class Held:
    """One cycle's right to act."""

    def __init__(self, term: Term, mutex: Mutex) -> None:
        self._term = term
        self._mutex = mutex

    def keep(self, value: int) -> None:
        """Store MT_KEY2 at the end; see `Mutex.keep`."""
        self._mutex.keep(value)

    def check(self) -> None:
        """
        Ask whether we lead still, and hold the mutex still.

        Raises:
            OwnershipLostError: not, or nobody can tell.
        """
        self._term.check()
        self._mutex.check()


@contextmanager
def leading(services: Services, role: Role) -> Iterator[Held]:
    """
    A cycle as the leader.

    Raises:
        OwnershipLostError: another daemon leads.
        MutexHeldError: another process holds Hive's mutex.
    """
    term = services.coordinator.lead(role)
    if term is None:
        raise OwnershipLostError(f"another daemon leads the {role}, or nobody can tell")
    with services.database.mutex(_MUTEXES[role], wait_seconds=1.0) as mutex:
        services.coordinator.acted(role)
        yield Held(term, mutex)
