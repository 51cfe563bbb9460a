"""
The interface of coordination, whether ZooKeeper or the metastore's database provides it.

The clock here measures for how long a fact is still valid, never the time of day. It goes on while the process is
stopped and the machine sleeps.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from compactor.coordination.model import Activity, ConflictError, Connection, Member, Role, SeenMember, Term, Value
from compactor.errors import CompactorError

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_ATTEMPTS = 20
NOTHING_NEW = "nothing new is begun"
Changed = Callable[[], None]


def elapsed() -> float:
    """Seconds since a fixed but arbitrary moment."""
    return time.clock_gettime(_CLOCK)


class Coordinator(ABC):
    """
    Leadership, membership and control state of all daemons. Safe in any number of threads.

    `connect` is enough to list members and to use control state; `join` makes this process a member and a candidate.
    What asks the coordinating service raises UnreachableError or another CompactorError when it doesn't answer.
    """

    by: str
    """The service that coordinates: `zookeeper`, `database`, or `none` (a process alone)."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._me: Member | None = None
        self._watched: dict[str, list[Changed]] = {}
        self._versions: Mapping[str, int | None] = {}

    # Connecting, joining, leaving

    @abstractmethod
    def connect(self) -> None:
        """
        Connect to the coordinating service.

        Raises:
            SettingsError, UnreachableError: the service can't be reached.
        """

    @abstractmethod
    def join(self, me: Member, candidate_for: Iterable[Role], changed: Changed = lambda: None) -> None:
        """
        Become a member and a candidate for these roles.

        With ZooKeeper this doesn't wait for a connection, and goes on trying; the database must answer at once.

        Args:
            changed: called from another thread when leadership or the connection changed; must not block.

        Raises:
            SettingsError, UnreachableError: as `connect`, without ZooKeeper.
        """

    @abstractmethod
    def close(self) -> None:
        """Leave; the roles that this daemon led are free for others."""

    @property
    @abstractmethod
    def connection(self) -> Connection: ...

    @property
    def reached(self) -> bool:
        """Whether this daemon was connected at any time since it joined."""
        return True

    def why_not_start(self) -> str | None:
        """Why no new work may begin now, a sentence that begins with NOTHING_NEW; None: it may begin."""
        if (connection := self.connection) is Connection.CONNECTED:
            return None
        return f"{NOTHING_NEW}: the connection to {self.by} is {connection.value}"

    # Leadership

    @abstractmethod
    def lead(self, role: Role) -> Term | None:
        """The term of leadership that holds now; None: another daemon leads, or the leader is unknown."""

    def leading(self) -> frozenset[Role]:
        """The roles that this daemon leads, for display."""
        return frozenset(role for role in Role if self.lead(role) is not None)

    @abstractmethod
    def resign(self, role: Role) -> None:
        """Stop being a candidate for a role."""

    def step_back(self, role: Role) -> None:  # noqa: B027 - without an election there is no line of candidates
        """Give up leading a role that this daemon can't fulfil now, and stand again behind the other candidates."""

    def acted(self, role: Role) -> None:  # noqa: B027 - only the database coordinator notes it
        """
        Note that this daemon began a cycle of the role: with Hive's mutex held, where the role has one.
        """

    # Members

    def report(self, doing: Iterable[Activity], extra: Mapping[str, Any] = MappingProxyType({})) -> None:
        """
        Note what the threads of this daemon are doing; other daemons see it soon.

        Args:
            extra: goes over these fields of the member's `extra`.
        """
        with self._lock:
            if self._me is not None:
                self._me = self._me.now_doing(doing, extra)

    @abstractmethod
    def members(self) -> list[SeenMember]:
        """All members, sorted by host and process."""

    def present(self) -> frozenset[str] | None:
        """The instances of the members that are alive; None: unknown."""
        try:
            return frozenset(seen.member.instance for seen in self.members() if seen.alive)
        except CompactorError:
            return None

    # Control state

    @abstractmethod
    def read(self, key: str) -> Value | None:
        """The value of a key (words separated by slashes); None: never written."""

    @abstractmethod
    def write(self, key: str, data: Mapping[str, Any], version: int | None) -> Value:
        """
        Write the value of a key if its version is still this one (compare-and-set).

        Args:
            version: the version that was read; None: the key must not have been written yet.

        Raises:
            ConflictError: the value has another version by now.
            OutcomeUnknownError: the write was sent and no answer came: read before writing again.
        """

    def watch(self, key: str, changed: Changed) -> None:
        """
        Have `changed` called, from another thread, soon after any process wrote the key; sometimes also without a write.

        For members only.
        """
        with self._lock:
            self._watched.setdefault(key, []).append(changed)

    def _call_watchers(self, read_versions: Callable[[Iterable[str]], Mapping[str, int | None]]) -> None:
        """Call `changed` of the watched keys whose versions have changed since the last time."""
        with self._lock:
            watched = {key: list(callbacks) for key, callbacks in self._watched.items()}
        if not watched:
            return
        before, self._versions = self._versions, read_versions(watched)
        for key, callbacks in watched.items():
            if self._versions.get(key) != before.get(key):
                for changed in callbacks:
                    changed()

    def update(self, key: str, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Value:
        """
        Read, change and write a value; starts over when another process wrote in between.

        Args:
            change: takes the current data, fields of other versions included, and returns the new data; may be called
                several times.

        Raises:
            ConflictError: other processes wrote in between 20 times in a row.
            OutcomeUnknownError: as `write`.
        """
        for _ in range(_ATTEMPTS):
            now = self.read(key)
            data = change(dict(now.data) if now else {})
            try:
                return self.write(key, data, now.version if now else None)
            except ConflictError:
                continue
        raise ConflictError(f"{key} was changed by others {_ATTEMPTS} times in a row")


class Alone(Coordinator):
    """The coordinator of a process by itself (tests, tools): it leads every role and knows no other member."""

    by = "none"

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[str, Value] = {}

    def connect(self) -> None:
        """There is no service to connect to."""

    def join(self, me: Member, candidate_for: Iterable[Role], changed: Changed = lambda: None) -> None:  # noqa: ARG002 - always leads
        self._me = me

    def close(self) -> None:
        self._me = None

    @property
    def connection(self) -> Connection:
        return Connection.CONNECTED

    def lead(self, role: Role) -> Term | None:
        return Term(role, 0)

    def resign(self, role: Role) -> None:
        """There is no other candidate."""

    def members(self) -> list[SeenMember]:
        return [SeenMember(self._me, tuple(Role), 0)] if self._me else []

    def present(self) -> None:
        """Unknown: there may be other processes that don't coordinate with this one."""

    def read(self, key: str) -> Value | None:
        return self._values.get(key)

    def write(self, key: str, data: Mapping[str, Any], version: int | None) -> Value:
        now = self._values.get(key)
        if (now.version if now else None) != version:
            raise ConflictError(f"{key} was changed meanwhile")
        self._values[key] = value = Value(dict(data), (version or 0) + 1)
        for changed in self._watched.get(key, ()):
            changed()
        return value
